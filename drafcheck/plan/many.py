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
_WORDS = ("mapping", "mapping_word")
_OTHER = (
    *("prefixes", "unstacked", "refuse", "rename_once", "unknown_stacked", "none_of", "none_read"),
    *("logs", "order", "ahead", "gathered", "relaid", "versions", "source"),
)
"""Keys of a contract's ``names`` that are heeded here, or that do nothing to a name in which no other word stands."""


def runs(contract: Contract, parameters: Collection[str], tensors: Tensors) -> Iterator[tuple[Piece, bool]]:
    """The tensors piece by piece, each with whether no name in it is one that this loader knows anything about.

    False says nothing: the names have to be followed one by one. Every word is looked for anywhere in a name, where
    the loader may ask for it at the beginning alone. Of no more than one piece each name is followed by itself.
    """
    words = _words(contract) if len(tensors.pieces) > 1 else None
    if words is None:
        yield from ((piece, False) for piece in tensors.pieces)
        return
    prefixes = contract.names.get("prefixes", [""])
    called = Called.by(name[len(prefix) :] for prefix in prefixes for name in parameters if name.startswith(prefix))
    for piece in tensors.pieces:
        known = piece.has(words) or (piece.may_be(called) and not called.whole.isdisjoint(piece.names))
        yield piece, not known


def in_doubt(contract: Contract, parameters: Collection[str], tensors: Tensors) -> Iterator[Tensor]:
    """The tensors of which some may lead to a parameter."""
    return (t for piece, nowhere in runs(contract, parameters, tensors) if not nowhere for t in piece.tensors)


def _words(contract: Contract) -> list[str] | None:
    """Every word that makes the loader do something else with a name than find no parameter; None: it does so always.

    ``.bias`` and ``lm_head`` are looked at by the plan itself.
    """
    names = contract.names
    if contract.unknown or any(key not in {*_PARTS, *_WORDS, *_OTHER} for key in names):
        return None
    listed = [_first(entry) for key in _PARTS for entry in names.get(key, ())]
    starts = [start for entry in names.get("refuse", ()) for start in entry["start"]]
    told = [names[key] for key in _WORDS if names.get(key)]
    return sorted({*listed, *starts, *told, *contract.stacked, ".bias", "lm_head"}, key=len)


def _first(entry: str | list[str]) -> str:
    return entry if isinstance(entry, str) else entry[0]
