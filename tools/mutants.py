"""Random draft checkpoints: small edits of a healthy one, each with a seed of its own, so that any can be left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from bases import BASES, FINISH
from drafts import Draft
from edits import EDITS
from weights import ITEM


class Step(NamedTuple):
    """One edit and the seed it draws from."""

    name: str
    seed: int


class Recipe(NamedTuple):
    """A checkpoint: a healthy base and the edits made to it, in order."""

    number: int
    base: str
    steps: tuple[Step, ...]
    target: str = "usual"

    def without(self, index: int) -> Recipe:
        """The same checkpoint but for one edit."""
        return self._replace(steps=self.steps[:index] + self.steps[index + 1 :])

    def __str__(self) -> str:
        """Such as ``eagle3: rename-layer, drop``."""
        beside = "" if self.target == "usual" else f" (beside the {self.target} target)"
        return f"{self.base}: {', '.join(step.name for step in self.steps) or 'as it is'}{beside}"


def recipe(seed: int, number: int, bases: tuple[str, ...], targets: tuple[str, ...] = ("usual",)) -> Recipe:
    """The checkpoint of that number; ``seed`` chooses another series. Most have one to four edits."""
    random = Random(f"{seed}/{number}")
    names = sorted(EDITS)
    chosen = random.choices(names, k=random.choice((0, 1, 1, 2, 2, 3, 4)))
    steps = tuple(Step(name, random.getrandbits(32)) for name in chosen)
    return Recipe(number, random.choice(bases), steps, random.choice(targets))


FLOATS = {
    "BF16": lambda n: bytes([0x80 | n, 0x3F]),
    "F16": lambda n: bytes([n << 3 & 0xFF, 0x3C | n >> 5]),
    "F32": lambda n: bytes([0, 0, 0x80 | n, 0x3F]),
    "F64": lambda n: bytes([0, 0, 0, 0, 0, n << 5 & 0xFF, 0xF0 | n >> 3, 0x3F]),
}
"""The bytes of 1 + n / 128 by dtype: a number that every one of them holds, and no other for another n."""


def _fill(draft: Draft) -> None:
    """Give every tensor a value of its own: who watches a loader can not see zeros that are written over zeros."""
    for number, (name, tensor) in enumerate(draft.weights.items()):
        if tensor.data is None and tensor.dtype != "BOOL":
            width = ITEM[tensor.dtype]
            one = FLOATS.get(tensor.dtype, lambda n, width=width: (n + 1).to_bytes(width, "little"))(number % 0x7F)
            draft.weights[name] = replace(tensor, data=one * (tensor.size // width))


def _in_order(folder: Path) -> None:
    """Have the folder list its weight files by their names.

    Some releases read them as the folder lists them, which the file system decides: chance, and no claim of drafcheck.
    """
    files = sorted(folder.glob("*.safetensors"))
    for order in (files[::-1], files):
        for path in order:
            path.rename(path.with_suffix(".moved")).rename(path)
        if list(folder.glob("*.safetensors")) == files:
            return


def write(made: Recipe, folder: Path) -> None:
    """Write the checkpoint of a recipe to a folder."""
    draft = BASES[made.base]()
    for step in made.steps:
        EDITS[step.name](draft, Random(step.seed))
    if made.base in FINISH:
        FINISH[made.base](draft)
    _fill(draft)
    draft.target = None
    draft.write(folder)
    (folder / "args.txt").unlink()
    _in_order(folder)
