"""The hidden size that the tensors were made for, where the config gives another one to all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafcheck.subject import Subject

_TABLES = ("embed_tokens.weight", "head.weight")
"""How the parameters end that hold a row for each token: ``lm_head.weight`` and ``shared_head.head.weight`` too."""

LEAST = 3
"""So many norms must agree, and none may fit the config, before the config is taken to be the one that is wrong."""


def hidden_size_meant(s: Subject) -> int | None:
    """The hidden size that the norms agree on, when it is not the config's; None when that is not the fault."""
    if s.load is None:
        return None
    plan = s.load
    norms = {
        name for name, p in plan.parameters.items() if p.formula == ("hidden_size",) and not name.endswith(".bias")
    }
    if any(write.parameter in norms for write in plan.writes):
        return None
    shapes = [r.tensor.shape for r in plan.lost.because("shape") if r.tensor is not None and r.parameter in norms]
    widths = {shape[0] for shape in shapes if len(shape) == 1}
    return widths.pop() if len(shapes) >= LEAST and len(widths) == 1 else None


def of_another_width(s: Subject) -> list[str]:
    """The tables of tokens that the release takes from the target although its rows are not as long as the draft's."""
    theirs = s.target.hidden_size if s.target is not None else None
    if s.load is None or theirs is None:
        return []
    tables = (s.load.parameters[name] for name in s.load.fills_from_target if name.endswith(_TABLES))
    return [p.name for p in tables if len(p.shape) == 2 and p.shape[1] not in (-1, theirs)]
