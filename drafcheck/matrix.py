"""Matrices of weight files, row by row: the head and the embedding of a target, or of the checkpoint at hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.checkpoint import open_checkpoint
from drafcheck.errors import NothingToCheck, UsageError
from drafcheck.plan.vocabulary import EMBEDDING, HEAD

if TYPE_CHECKING:
    from pathlib import Path

    from drafcheck.checkpoint import Checkpoint, WeightFile
    from drafcheck.config import TargetConfig
    from drafcheck.tensor import Tensor

_FLOATS = ("BF16", "F16", "F32")

NUMBERS = (*_FLOATS, "F64")
"""The dtypes whose values are compared as they are; narrower ones are nothing without the scales beside them."""


_SHARD = re.compile(r"-\d{5}-of-\d{5}\.", re.ASCII)

APART = 256 << 10
"""Bytes between two rows that are read along with them: from a server they cost less time than another request."""

STRETCH = 4 << 20
"""Bytes that are read and held at once, or one row."""


class Matrix(NamedTuple):
    """A matrix of a weight file, whose rows lie one after another."""

    file: WeightFile
    tensor: Tensor

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return (self.tensor.stop - self.tensor.start) // self.tensor.shape[0]

    def start(self, row: int) -> int:
        """Where a row begins in the file."""
        return self.tensor.start + row * self.width

    def read(self, row: int, count: int = 1) -> bytes:
        """The bytes of so many rows. Raises SourceError."""
        return self.file.read(self.start(row), self.start(row + count))

    def rows(self, numbers: Iterable[int], columns: int | None = None) -> Iterator[tuple[int, memoryview]]:
        """These rows in ascending order, each once, with its number; what lies near is read in one go.

        Of longer rows than ``columns`` only so many values. Raises SourceError.
        """
        if columns is not None and columns < self.tensor.shape[1]:
            length = self.width // self.tensor.shape[1] * columns
            for number in sorted(set(numbers)):
                yield number, memoryview(self.file.read(self.start(number), self.start(number) + length))
            return
        for stretch in _stretches(sorted(set(numbers)), self.width):
            data = memoryview(self.read(stretch[0], stretch[-1] - stretch[0] + 1))
            for number in stretch:
                at = (number - stretch[0]) * self.width
                yield number, data[at : at + self.width]


class Scattered(NamedTuple):
    """A matrix of a PyTorch file that is a view with steps of its storage, or whose storage is compressed."""

    file: WeightFile
    tensor: Tensor

    def rows(self, numbers: Iterable[int], columns: int | None = None) -> Iterator[tuple[int, memoryview]]:
        """These rows in ascending order, each once, with its number.

        Of longer rows than ``columns`` only so many values. Raises SourceError.
        """
        from drafcheck.unplaced import Rows

        held, wide = Rows(self.file, self.tensor), self.tensor.shape[1]
        length = held.width // wide * columns if columns is not None and columns < wide else held.width
        for number in sorted(set(numbers)):
            yield number, memoryview(held.read(number, length))


def _stretches(numbers: Iterable[int], width: int) -> Iterator[list[int]]:
    """Rows of ``width`` bytes that are read together, of numbers in ascending order."""
    stretch: list[int] = []
    for number in numbers:
        near = stretch and (number - stretch[-1] - 1) * width <= APART
        if stretch and not (near and (number - stretch[0] + 1) * width <= STRETCH):
            yield stretch
            stretch = []
        stretch.append(number)
    if stretch:
        yield stretch


def opened(path: str | Path, what: str) -> Checkpoint:
    """A checkpoint that the user names. Raises UsageError, which begins with ``what``."""
    try:
        return open_checkpoint(path)
    except (UsageError, NothingToCheck) as error:
        raise UsageError(f"{what} {error}") from error


def head_of_target(path: str, target: TargetConfig | None = None) -> Matrix:
    """The target's head; its embedding where the two are one. Raises UsageError when it has none that can be copied."""
    weights = opened(path, "--target-weights")
    found = head_in(weights, target)
    if found is None:
        tied = holds(weights, HEAD) or is_tied(weights, target)
        also = f" and no {EMBEDDING}" if tied else f" (tie_word_embeddings is not true: its {EMBEDDING} is another)"
        why = because(weights, HEAD, *([EMBEDDING] if tied else []))
        raise UsageError(f"--target-weights {path}: no {HEAD}{also} there of which rows can be copied{why}")
    return found


def head_in(weights: Checkpoint, target: TargetConfig | None) -> Matrix | None:
    """The head of a target in its weights, the embedding only where that is the head.

    It is not where the files have a head of a dtype that is not compared, nor where they lack the head of a target
    whose two are not one.
    """
    if holds(weights, HEAD):
        return matrix_called(weights, HEAD)
    return matrix_called(weights, EMBEDDING) if is_tied(weights, target) else None


def is_tied(weights: Checkpoint, target: TargetConfig | None) -> bool:
    """Whether a target without a head in its files has its embedding for one: it says nothing else.

    The config beside the weights is asked first. Where the key is absent, it is the class's to say: whole files in
    which no head was saved are those of a class that ties, and one shard says nothing.
    """
    configs = (config for config in (weights.config, target) if config is not None)
    said = (table.get("tie_word_embeddings") for config in configs for table in (config.language, config.data))
    whole = weights.index is not None or not any(_SHARD.search(file.name) for file in weights.files)
    return next((flag for flag in said if isinstance(flag, bool)), whole)


def embedding_of_target(path: str) -> Matrix:
    """The target's embedding. Raises UsageError when it has none that can be copied."""
    weights = opened(path, "--target-weights")
    found = matrix_called(weights, EMBEDDING)
    if found is None:
        why = because(weights, EMBEDDING)
        raise UsageError(f"--target-weights {path}: no {EMBEDDING} there of which rows can be copied{why}")
    return found


def matrix_called(weights: Checkpoint, name: str) -> Matrix | None:
    """The matrix of that name with the shortest prefix, as the layers' own lie deeper; only its file is read."""
    file, tensor = _called(_files(weights, name), name) or (None, None)
    return Matrix(file, tensor) if file is not None and tensor is not None and _is_plain(tensor) else None


def _called(files: Iterable[WeightFile], name: str) -> tuple[WeightFile, Tensor] | None:
    tensors = [(f, t) for f in files for t in f.header.tensors if _is_called(t.name, name) and not f.header.faults]
    return min(tensors, key=lambda found: len(found[1].name), default=None)


def _files(weights: Checkpoint, name: str) -> list[WeightFile]:
    """The files in which the matrix of that name is looked for."""
    place = _indexed(weights, name)
    named = weights.file(place) if place is not None else None
    return [named] if named is not None else [] if _has_index(weights) else list(weights.files)


def _has_index(weights: Checkpoint) -> bool:
    return weights.index is not None and bool(weights.index.weight_map)


def _indexed(weights: Checkpoint, name: str) -> str | None:
    """The file in which the index has the matrix of that name."""
    told = weights.index.weight_map if weights.index is not None else {}
    first = min((n for n in told if _is_called(n, name)), key=len, default=None)
    return told[first] if first is not None else None


def because(weights: Checkpoint, *names: str) -> str:
    """Why there is no matrix of any of these names, behind a colon; "" where nothing is in its way."""
    found = (why for name in names if (why := _why_none(weights, name)) is not None)
    return next((f": {why:.300}" for why in found), "")


def _why_none(weights: Checkpoint, name: str) -> str | None:
    files, place = _files(weights, name), _indexed(weights, name)
    if place is not None and not files:
        return f"the index says {place:.100}, which is not there"
    fault = next((file.header.faults[0].said for file in files if file.header.faults), None)
    file, tensor = _called(files, name) or (None, None)
    if file is None or tensor is None or _is_plain(tensor):
        return fault
    if tensor.dtype not in _FLOATS:
        return f"{tensor.name:.100} is {tensor.dtype}"
    known = file.header.uncopied.get(tensor.name)
    return f"{tensor.name:.100} {known.why}" if known is not None else f"{tensor.name:.100} is {list(tensor.shape)}"


def holds(weights: Checkpoint, name: str) -> bool:
    """Whether there is a tensor of that name, of whatever dtype."""
    if weights.index is not None and weights.index.weight_map:
        return any(_is_called(n, name) for n in weights.index.weight_map)
    return any(_is_called(t.name, name) for file in weights.files for t in file.header.tensors)


def _is_called(name: str, wanted: str) -> bool:
    return (name == wanted or name.endswith("." + wanted)) and "layers." not in name


def _is_plain(tensor: Tensor) -> bool:
    """Whether the rows of a matrix are floats that lie one after another."""
    return len(tensor.shape) == 2 and tensor.shape[0] > 0 and tensor.start >= 0 and tensor.dtype in _FLOATS


def matrix_in(checkpoint: Checkpoint, tensor: Tensor) -> Matrix | None:
    """A matrix of the checkpoint at hand; None when its rows are no stretches of its file."""
    file = checkpoint.file(tensor.file)
    plain = len(tensor.shape) == 2 and tensor.shape[0] > 0 and tensor.start >= 0
    even = plain and (tensor.stop - tensor.start) % tensor.shape[0] == 0
    return Matrix(file, tensor) if file is not None and even else None


def compared_in(checkpoint: Checkpoint, tensor: Tensor) -> Matrix | Scattered | None:
    """A matrix of the checkpoint at hand of which rows are compared, and none is copied as it lies."""
    file = checkpoint.file(tensor.file)
    if file is None or len(tensor.shape) != 2 or 0 in tensor.shape:
        return None
    view, packed = file.header.views.get(tensor.name), file.header.packed.get(tensor.name)
    shape = view.shape if view is not None else packed.view.shape if packed is not None else None
    steps = view.steps if view is not None else packed.view.steps if packed is not None else ()
    scattered = shape == tensor.shape and all(steps)  # of values that repeat the reader has each once
    return Scattered(file, tensor) if scattered else matrix_in(checkpoint, tensor)
