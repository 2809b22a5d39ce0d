"""Tensors that lead nowhere, told many at once: their names are looked through together for all that a loader knows.

A file may name a million tensors. Where none of the words of a loader's rules stands in a name and no parameter is
called so, the route of the name is known without following it: to no parameter.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from drafcheck.contract import Contract
    from drafcheck.tensor import Tensor

AT_ONCE = 1024
"""So many names are looked through together; of no more than these each is followed by itself."""

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


def runs(contract: Contract, parameters: Collection[str], tensors: list[Tensor]) -> Iterator[tuple[list[Tensor], bool]]:
    """The tensors piece by piece, each with whether no name in it is one that this loader knows anything about.

    False says nothing: the names have to be followed one by one. Every word is looked for anywhere in a name, where
    the loader may ask for it at the beginning alone.
    """
    words = _words(contract) if len(tensors) > AT_ONCE else None
    if words is None:
        yield tensors, False
        return
    prefixes = contract.names.get("prefixes", [""])
    called = {name[len(prefix) :] for prefix in prefixes for name in parameters if name.startswith(prefix)}
    rest = iter(tensors)
    while piece := list(islice(rest, AT_ONCE)):
        names = [tensor[0] for tensor in piece]
        yield piece, called.isdisjoint(names) and not _any_in(words, "\n".join(names))


def in_doubt(contract: Contract, parameters: Collection[str], tensors: list[Tensor]) -> Iterator[Tensor]:
    """The tensors of which some may lead to a parameter."""
    return (tensor for piece, nowhere in runs(contract, parameters, tensors) if not nowhere for tensor in piece)


def _any_in(words: Iterable[str], text: str) -> bool:
    return any(word in text for word in words)


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
