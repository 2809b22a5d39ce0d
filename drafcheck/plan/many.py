"""Tensors that lead nowhere, told many at once: their names are looked through together for all that a loader knows.

A file may name a million tensors. Where none of the words of a loader's rules stands in a name and no parameter is
called so, the route of the name is known without following it: to no parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.plan.alike import Alike
from drafcheck.plan.model import Parameters
from drafcheck.plan.names import route
from drafcheck.tensors import Called

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from drafcheck.contract import Contract
    from drafcheck.tensor import Tensor
    from drafcheck.tensors import Piece, Tensors

_PARTS = (
    *("skips", "drop", "drop_word", "drop_start", "direct", "harmless", "strip", "bare"),
    *("rename", "rename_start", "alias", "becomes", "at_sight"),
)
_NOWHERE = {"unknown", "refused", "elsewhere"}
_SPECIAL = {"inside", "having"}  # keys of an entry that speaks of names with certain words in them
_WORDS = ("mapping", "mapping_word")
_OTHER = (
    *("prefixes", "unstacked", "refuse", "rename_once", "unknown_stacked", "none_of", "none_read"),
    *("logs", "order", "ahead", "gathered", "relaid", "versions", "source"),
)
"""Keys of a contract's ``names`` that are heeded here, or that do nothing to a name in which no other word stands."""


def runs(contract: Contract, parameters: Collection[str], tensors: Tensors) -> Iterator[tuple[Piece, str]]:
    """The tensors piece by piece, each with the end of all its routes where it is the same one and leads nowhere.

    That is ``unknown``, ``refused`` or ``elsewhere``. An empty one says nothing: the names have to be followed one by
    one. Every word is looked for anywhere in a name, where the loader may ask for it at the beginning alone; of names
    in which one stands those that differ in numbers are followed together. Of no more than one piece each name is
    followed by itself.
    """
    if len(tensors.pieces) < 2:
        yield from ((piece, "") for piece in tensors.pieces)
        return
    words, end = _words(contract), _end(contract)
    prefixes = contract.names.get("prefixes", [""])
    called = Called.by(name[len(prefix) :] for prefix in prefixes for name in parameters if name.startswith(prefix))
    followed = _Followed(contract, parameters)
    for piece in tensors.pieces:
        known = words is None or not end or piece.has(words)
        known = known or (piece.may_be(called) and not called.whole.isdisjoint(piece.names))
        yield piece, followed.end(piece) if known else end


class _Followed:
    """The ends of names that were followed, of those that differ only in numbers once."""

    def __init__(self, contract: Contract, parameters: Collection[str]) -> None:
        modules = parameters.modules if isinstance(parameters, Parameters) else ()
        self._contract, self._parameters = contract, parameters
        self._alike = Alike(contract, [*parameters, *modules])
        self._ends: dict[str, str] = {}
        self._own = [".bias", "lm_head", *contract.names.get("harmless", [])]

    def end(self, piece: Piece) -> str:
        """That of all names of a piece; empty where they have several, or one that leads somewhere."""
        if not piece.lines[1] or piece.may_hold(self._own):  # at these the plan itself looks
            return ""
        ends: set[str] = set()
        for form in set(self._alike.forms(list(piece.names))):
            if form not in self._ends:
                self._ends[form] = route(self._contract, form, self._parameters).end
            ends.add(self._ends[form])
            if len(ends) > 1 or not ends <= _NOWHERE:
                return ""
        return ends.pop()


def in_doubt(contract: Contract, parameters: Collection[str], tensors: Tensors) -> Iterator[Tensor]:
    """The tensors of which some may lead to a parameter."""
    return (t for piece, end in runs(contract, parameters, tensors) if not end for t in piece.tensors)


def _end(contract: Contract) -> str:
    """What becomes of a name of which neither a word nor a module is known; empty where that depends on its beginning.

    As in ``drafcheck.plan.names.nowhere``: the first entry that speaks of a name counts.
    """
    ends: set[str] = set()
    for entry in contract.unknown:
        if not _SPECIAL & set(entry):
            ends.add("unknown" if entry.get("dropped") else "refused")
            if not entry.get("under"):
                break
    else:
        ends.add("unknown")
    return ends.pop() if len(ends) == 1 else ""


def _words(contract: Contract) -> list[str] | None:
    """Every word that makes the loader do something else with a name than find no parameter; None: it does so always.

    ``.bias`` and ``lm_head`` are looked at by the plan itself.
    """
    names = contract.names
    if any(key not in {*_PARTS, *_WORDS, *_OTHER} for key in names):
        return None
    listed = [_first(entry) for key in _PARTS for entry in names.get(key, ())]
    starts = [start for entry in names.get("refuse", ()) for start in entry["start"]]
    told = [names[key] for key in _WORDS if names.get(key)]
    of_some = [word for entry in contract.unknown for word in (*entry.get("having", ()), entry.get("inside", ""))]
    ignored = [entry.get("ignored", "") for entry in contract.unknown]
    told += [word for word in (*of_some, *ignored) if word]
    return sorted({*listed, *starts, *told, *contract.stacked, ".bias", "lm_head"}, key=len)


def _first(entry: str | list[str]) -> str:
    return entry if isinstance(entry, str) else entry[0]
