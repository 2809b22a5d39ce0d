"""What a loader does with what the dict of a PyTorch file holds beside tensors: it is handed on under its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.contract import load_toml
from drafcheck.plan.model import MAPPING, LoadPlan, Refusal, Stopper
from drafcheck.plan.names import route

if TYPE_CHECKING:
    from drafcheck.contract import Contract, Table
    from drafcheck.plan.files import Selection
    from drafcheck.tensor import Entry


def take_entries(plan: LoadPlan, selection: Selection, contract: Contract) -> None:
    """Put the entries at which the loader stops into ``plan``, by ``[entries]`` of ``rules/<engine>/loader.toml``.

    An entry without a place is passed over like a tensor of that name, and is not told of. An engine without such facts
    is not spoken of.
    """
    told = [entry for file in selection.files for entry in file.header.entries]
    facts: Table = load_toml(contract.name.partition("/")[0], "loader.toml").get("entries", {}) if told else {}
    for entry in told if facts else ():
        stopper = _stopper(plan, contract, facts, entry)
        if stopper is None:
            continue
        plan.stoppers.append(stopper)
        if plan.refused is None:
            plan.refused = Refusal("load", stopper.error, "entry")


def _stopper(plan: LoadPlan, contract: Contract, facts: Table, entry: Entry) -> Stopper | None:
    """What is said of an entry; None where it is passed over."""
    if entry.odd:  # before any class sees it
        return Stopper(entry, facts["key"].replace("{kind}", entry.odd.replace("?", "...")))
    found = route(contract, entry.key, plan.parameters)
    if found.end == "refused":
        return Stopper(entry, found.error.replace("{name}", found.looked_for).replace("{written}", entry.key))
    if found.end not in ("parameter", "mapping"):
        return None
    place = MAPPING if found.end == "mapping" else found.parameter
    return Stopper(entry, facts["value"].replace("{kind}", entry.kind or "..."), place)
