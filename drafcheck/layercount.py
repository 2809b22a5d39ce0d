"""The number of decoder layers that the file holds, as config.json would have to say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from drafcheck.checks.layer import layer_elsewhere
from drafcheck.checks.names import absent_layers
from drafcheck.conversion import route_to
from drafcheck.lookup import is_integer
from drafcheck.sizes import key_of
from drafcheck.tensors import NO_LAYER
from drafcheck.trial import Changes, Route, tried

if TYPE_CHECKING:
    from drafcheck.subject import Subject
    from drafcheck.tensors import Piece

KEY = "num_hidden_layers"


class Held(NamedTuple):
    """How many decoder layers the file holds, and whether they are the first so many."""

    number: int
    gapless: bool


def layers_held(s: Subject) -> Held:
    """The decoder layers in the file; a layer without a number is the first."""
    if s.load is None:
        return Held(0, gapless=True)
    held = bytearray()  # a flag a layer: a file may name a million
    for piece in s.load.seen.pieces:
        numbers = piece.different_layers
        if NO_LAYER in numbers:
            unnumbered = piece.may_hold(("layer",)) and _has_unnumbered(piece)
            numbers = (set(numbers) - {NO_LAYER}) | ({0} if unnumbered else set())
        held += bytes(max(0, max(numbers, default=-1) + 1 - len(held)))
        if isinstance(numbers, range):
            held[numbers.start : numbers.stop] = b"\1" * len(numbers)
            continue
        for number in numbers:
            held[number] = 1
    return Held(sum(held), gapless=all(held))


def _has_unnumbered(piece: Piece) -> bool:
    both = zip(piece.names, piece.layers, strict=True)
    return any(number == NO_LAYER and "layer" in name for name, number in both)


def counted(s: Subject) -> Changes | None:
    """The changes with which config.json says as many layers as the file holds.

    None where the layers have a gap, or where this release then still builds others, or refuses.
    """
    if s.load is None or s.contract is None or s.config is None:
        return None
    said = s.contract.value("num_layers", s.config)
    if (elsewhere := layer_elsewhere(s.load, s.contract)) is not None:
        return _of_the_target(s, elsewhere)
    refused = s.load.refused is not None and s.load.refused.cause == "layers"
    wrong = refused or absent_layers(s.load) or said == 0
    held = layers_held(s) if wrong else Held(0, gapless=True)
    if not held.number or not held.gapless:
        return None
    changes = _saying(s, KEY if refused else key_of(s.contract, s.config, "num_layers") or KEY, held.number)
    return changes if _agrees(s, changes) else None


def _of_the_target(s: Subject, number: int) -> Changes | None:
    """The number of the target's own layers, after which the head lies; where the target has just so many."""
    assert s.contract is not None
    key = s.contract.read[s.contract.names["layer"]["count"]][0]
    known = s.target is not None and s.target.num_hidden_layers == number
    return {tuple(key.split(".")): number} if known and isinstance(key, str) else None


def _saying(s: Subject, key: str, number: int) -> Changes:
    """The key, and a list with an entry for each layer cut to as many."""
    assert s.config is not None
    changes: dict[Route, object] = {}
    route, kinds = route_to(s, key), s.config.data.get("layer_types")
    if route is not None:
        changes[route] = number
    listed = route_to(s, "layer_types")
    if listed is not None and isinstance(kinds, list) and len(kinds) > number and is_integer(s.config.data.get(key)):
        changes[listed] = kinds[:number]
    return changes


def _agrees(s: Subject, changes: Changes) -> bool:
    trial = tried(s, changes)
    if trial is None or trial.load is None or trial.refused is not None:
        return False
    stopped = trial.load.refused is not None and trial.load.refused.stage != "load"
    return not stopped and not absent_layers(trial.load)
