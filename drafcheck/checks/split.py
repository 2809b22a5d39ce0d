"""DC205: can the ranks of the launch share the draft?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.contract import load_toml
from drafcheck.draftmode import one_of
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.lookup import MISSING, raw
from drafcheck.plan.split import Side, padded, sides, splits
from drafcheck.registry import Hit, rule

if TYPE_CHECKING:
    from drafcheck.contract import Contract
    from drafcheck.subject import Subject

MOST = 64
"""Up to so many ranks are tried for the help."""


@rule("DC205", "tensor-parallel-split", Severity.ERROR, needs=("contract", "load", "tp"))
def tensor_parallel_split(s: Subject) -> Iterator[Hit]:
    """The ranks of the launch cannot share the draft.

    ## What it does
    Works out what this release shares out among the ranks of `--tp`: attention heads, key/value heads (fewer of them
    than ranks are copied, if they divide the ranks), the inner side of MLPs and experts, the vocabulary with its
    padding. It reports all that does not come out even. Where the launch line splits by more than tensor parallelism
    (attention by data, experts by expert), nothing is said.

    ## Why is this bad?
    The server stops while it builds the draft, after the target was loaded.

    ## Fix
    Serve with a number of ranks that the draft can be shared by: the help lists them.
    """
    ranks = ranks_of(s)
    if s.load is None or s.contract is None or s.config is None or ranks is None or ranks < 2:
        return
    # A layer is shared out before it is quantised, by the sizes that it would have in plain.
    shared = sides(s.contract, s.config, s.load.plain or s.load.parameters)
    uneven = _reasons([side for side in shared if not splits(side, ranks)])
    if uneven:
        able = [n for n in range(1, MOST + 1) if all(splits(side, n) for side in shared)]
        yield Hit(
            f"{s.engine} cannot share this draft among {ranks} ranks and stops ({_error(uneven[0], ranks)}): "
            + "; ".join(_reason(s, side, ranks) for side in uneven),
            tuple(s.config.at(key) for side in uneven for key in _keys(s, side)) or (Location(file="config.json"),),
            help=f"the draft can be shared by {_numbers(able)}; the target has to agree",
            confidence=Confidence.LIKELY if uneven[0].entry.get("read") else Confidence.CERTAIN,
            stops=True,
        )


def _reasons(uneven: list[Side]) -> list[Side]:
    """Without the products of what is told already: rows of 12 heads cannot be shared where 12 heads cannot."""
    alone = {side.formula for side in uneven if " " not in side.formula}
    return [side for side in uneven if side.formula in alone or not alone & set(side.formula.split())]


def ranks_of(s: Subject) -> int | None:
    """How many ranks the draft is built for; None where the launch splits it in ways that are not described."""
    tp, launch = s.tp or 1, s.launch
    if launch is None:
        return tp
    facts = load_toml(s.engine.name, "launch.toml").get("draft_tp", {})
    if any(option.name in facts.get("otherwise", []) for option in launch.options):
        return None
    own = launch.number_of("draft_tp")
    return own if own is not None and one_of(s.algorithm, facts.get("own", [])) else tp


def _error(side: Side, ranks: int) -> str:
    return str(side.entry["error"]).replace("{size}", str(padded(side))).replace("{ranks}", str(ranks))


def _reason(s: Subject, side: Side, ranks: int) -> str:
    keys = _keys(s, side)
    name = f"`{keys[0]}` is {side.size}" if keys and _is(s, keys[0], side) else f"{side.formula} is {side.size}"
    if (whole := padded(side)) != side.size:
        return f"{name} and padded to {whole}, no multiple of {ranks}"
    if side.entry.get("fewest"):
        return f"{name}, fewer than {ranks}"
    if side.entry.get("replicated"):
        return f"{name}, and neither {side.size} nor {ranks} divides the other"
    return f"{name}, no multiple of {ranks}"


def _is(s: Subject, key: str, side: Side) -> bool:
    assert s.config is not None
    return bool(raw(s.config, key) == side.size)


def _keys(s: Subject, side: Side) -> list[str]:
    """The config keys that a size is made of, as far as the config has them."""
    assert s.contract is not None and s.config is not None
    keys = [key for word in side.formula.split() for key in _read(s.contract, word)]
    return [key for key in dict.fromkeys(keys) if raw(s.config, key) not in (MISSING, None)]


def _read(contract: Contract, quantity: str) -> list[str]:
    """The config keys that a quantity is read from, the first first; lists and expressions have none."""
    items = [item.partition(" where ")[0] for item in contract.read.get(quantity, []) if isinstance(item, str)]
    return [item for item in items if " " not in item]


def _numbers(able: list[int]) -> str:
    return ", ".join(map(str, able[:-1])) + f" or {able[-1]} ranks" if len(able) > 1 else "1 rank"
