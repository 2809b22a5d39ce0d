"""Files beside the weights that no loader takes for any: the state of a training, and pickles under other names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from drafcheck.attacks import is_attack
from drafcheck.contract import load_toml
from drafcheck.source import SourceError

if TYPE_CHECKING:
    from drafcheck.checkpoint import Checkpoint, WeightFile

PICKLE_SUFFIXES = (".pth", ".pkl", ".pickle", ".ckpt", ".joblib")
"""How the names of pickles end that engines never take for weights."""

MOST_PICKLES = 64
"""So many of them are looked at; more in one folder are data."""


def is_state(name: str) -> bool:
    """Whether a file is the state of a training, by its name."""
    return is_leftover(name) or name.endswith(tuple(load_toml("discovery.toml")["training_state"]))


def is_leftover(name: str) -> bool:
    """Whether a name is one of those that trainers leave beside the weights."""
    return any(_matches(name, pattern) for pattern in load_toml("leftovers.toml").get("patterns", []))


def _matches(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern with at most one ``*``; fnmatch would compile a regex for each, at every start."""
    head, star, tail = pattern.partition("*")
    if not star:
        return name == pattern
    return name.startswith(head) and name.endswith(tail) and len(name) >= len(head) + len(tail)


def names_attack(name: str, paths: list[str]) -> bool:
    """Whether one of the names that the file ``name`` asks for makes it an attack.

    Of the state of a training some say nothing: Python writes them for classes that honest ones have in them.
    """
    usual = load_toml("attacks.toml")["states"]["names"] if is_state(name) else []
    return any(is_attack(path) for path in paths if path not in usual)


def asks_for_attack(file: WeightFile) -> bool:
    """Whether a file asks by name for what makes an attack."""
    from drafcheck.pickle_sweep import sweep

    try:
        return names_attack(file.name, [asked.path for asked in sweep(file.source)[0]])
    except SourceError:
        return False
    finally:
        file.source.close()


def other_pickles(checkpoint: Checkpoint) -> Iterator[WeightFile]:
    """The pickles of the folder under names that weights do not have, the first 64. At an address they are not read."""
    from drafcheck.checkpoint import WeightFile

    place = checkpoint.place
    if not place.remote:
        names = (name for name in checkpoint.other if name.endswith(PICKLE_SUFFIXES) and place.is_file(name))
        yield from (WeightFile(place.source(name)) for name in islice(names, MOST_PICKLES))
