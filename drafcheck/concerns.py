"""What a draft class has to have for a rule to say anything about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.heads import misfit
from drafcheck.plan.vocabulary import HEAD

if TYPE_CHECKING:
    from drafcheck.subject import Subject


def concerned(s: Subject, what: str) -> bool:
    """Whether rules about ``what`` have something to look at.

    ``fit``: tensors of the kind that the class is for; another kind of head is DC504's alone. ``mapping``: and the
    class reads d2t. ``head``: and it takes a head from the file. ``aux``: and it is fed auxiliary hidden states;
    ``states``: those, or the outputs of layers that it lists.
    Without a contract nothing is known, and every rule is concerned.
    """
    contract = s.contract
    if contract is None:
        return True
    return {
        "mapping": bool(contract.mapping) and contract.mapping["semantics"] != "none",
        "head": bool(contract.mapping) or (s.load is not None and HEAD in s.load.parameters and _takes_a_head(s)),
        "aux": contract.states == "aux",
        "states": contract.states in ("aux", "layers"),
    }.get(what, True) and misfit(s) is None


def _takes_a_head(s: Subject) -> bool:
    assert s.load is not None
    return HEAD not in s.load.fills_from_target
