"""Tensors that lead nowhere, told many at once: their names are looked through together for all that a loader knows.

A file may name a million tensors. Where none of the words of a loader's rules stands in a name and no parameter is
called so, the route of the name is known without following it: to no parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
_SPECIAL = {"inside", "having"}  # keys of an entry that speaks of names with certain words in them
_WORDS = ("mapping", "mapping_word")
_OTHER = (
    *("prefixes", "unstacked", "refuse", "rename_once", "unknown_stacked", "none_of", "none_read"),
    *("logs", "order", "ahead", "gathered", "relaid", "versions", "source"),
)
"""Keys of a contract's ``names`` that are heeded here, or that do nothing to a name in which no other word stands."""


def runs(contract: Contract, parameters: Collection[str], tensors: Tensors) -> Iterator[tuple[Piece, str]]:
    """The tensors piece by piece, each with the end of all its routes where this loader knows none of the names in it.

    That is ``unknown`` or ``refused``. An empty one says nothing: the names have to be followed one by one. Every word
    is looked for anywhere in a name, where the loader may ask for it at the beginning alone. Of no more than one piece
    each name is followed by itself.
    """
    words = _words(contract) if len(tensors.pieces) > 1 else None
    end = _end(contract)
    if words is None or not end:
        yield from ((piece, "") for piece in tensors.pieces)
        return
    prefixes = contract.names.get("prefixes", [""])
    called = Called.by(name[len(prefix) :] for prefix in prefixes for name in parameters if name.startswith(prefix))
    for piece in tensors.pieces:
        known = piece.has(words) or (piece.may_be(called) and not called.whole.isdisjoint(piece.names))
        yield piece, "" if known else end


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
