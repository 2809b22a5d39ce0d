"""What a release would make of the checkpoint if its config.json said something else; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from drafcheck.contract import contract_for
from drafcheck.conversion import as_read
from drafcheck.draftmode import usual_algorithm
from drafcheck.heads import told_algorithm
from drafcheck.lookup import settled
from drafcheck.plan.admission import chosen_class, refused_early
from drafcheck.plan.load import plan_load

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract
    from drafcheck.plan.model import LoadPlan, Refusal
    from drafcheck.subject import Subject

Route = tuple[str, ...]


class Gone:
    """In the place of a value: the key is taken out."""


GONE = Gone()

Changes = Mapping[Route, Any]
"""Values by the route to their key in config.json as it is written; ``GONE`` takes a key out."""


class Trial(NamedTuple):
    """The config as this release would read it, and what follows; ``refused`` is before a draft class is built."""

    config: DraftConfig
    algorithm: str
    refused: Refusal | None
    contract: Contract | None
    load: LoadPlan | None


def tried(s: Subject, changes: Changes) -> Trial | None:
    """What this release would make of the checkpoint after ``changes``; None when there is no config or no weights."""
    if s.written is None or s.selection is None:
        return None
    read = as_read(s.engine, changed(s.written, changes))
    config = read.config
    config.target = s.target
    if s.config is not None:
        config.launched, config.numbers = s.config.launched, s.config.numbers
    algorithm = (
        s.algorithm
        if s.algorithm_given
        else read.algorithm or usual_algorithm(s.engine, config, told_algorithm(s, config))
    )
    refused = read.refused or refused_early(s.engine, config, algorithm, s.target)
    contract = None if read.refused else contract_for(s.engine, chosen_class(s.engine, config, algorithm))
    if contract is None or contract.undescribed(config) is not None:
        return Trial(config, algorithm, refused, None, None)
    contract = settled(contract, config)
    load = plan_load(config, s.selection, contract, s.checkpoint.read)
    return Trial(config, algorithm, refused, contract, load)


def changed(config: DraftConfig, changes: Changes) -> DraftConfig:
    """A config that says something else under some keys, with the places of the one it is made of."""
    trial = config.with_data(dict(config.data))
    for route, value in changes.items():
        _set(trial.data, route, value)
    return trial


def _set(data: dict[str, Any], route: Route, value: Any) -> None:
    """Set a value; tables on the way are copied, and what is no table gives way to one."""
    for key in route[:-1]:
        inner = data.get(key)
        if value is GONE and not isinstance(inner, dict):
            return
        data[key] = data = dict(inner) if isinstance(inner, dict) else {}
    if value is GONE:
        data.pop(route[-1], None)
    else:
        data[route[-1]] = value
