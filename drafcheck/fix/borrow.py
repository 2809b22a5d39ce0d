"""Stretches of other checkpoints: rows of a target's head or embedding; and heads that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.checkpoint import open_checkpoint
from drafcheck.errors import NothingToCheck, UsageError
from drafcheck.fix.edits import Content
from drafcheck.fix.pieces import Span
from drafcheck.plan.vocabulary import EMBEDDING, HEAD
from drafcheck.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from drafcheck.checkpoint import Checkpoint, WeightFile
    from drafcheck.tensor import Tensor

_CHUNK = 8 << 20  # bytes compared at a time
_FLOATS = ("BF16", "F16", "F32")


class Zeros:
    """A file of nothing but zeros, as long as one likes, of which rows without a source are stretches."""

    name = "zeros"

    def size(self) -> int:
        """More than anybody reads."""
        return 1 << 62

    def read(self, start: int, stop: int) -> bytes:
        """Zeros."""
        return bytes(stop - start)

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """Nothing: there is nothing to fetch."""

    def close(self) -> None:
        """Nothing: there is nothing held open."""


class Matrix(NamedTuple):
    """A matrix of a weight file, row by row."""

    file: WeightFile
    tensor: Tensor

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return (self.tensor.stop - self.tensor.start) // self.tensor.shape[0]

    def rows(self, numbers: Sequence[int | None]) -> Content:
        """These rows one below the other; None stands for a row of zeros."""
        zeros = Zeros()  # one after another, so that neighbours are one stretch
        empty = (Span(zeros, i * self.width, (i + 1) * self.width) for i in range(len(numbers)))
        pieces = [nothing if n is None else self._row(n) for n, nothing in zip(numbers, empty, strict=True)]
        return Content(self.tensor.dtype, (len(numbers), *self.tensor.shape[1:]), tuple(pieces))

    def whole(self, rows: int) -> Content:
        """The first so many rows."""
        tensor = self.tensor
        span = Span(self.file.source, tensor.start, tensor.start + rows * self.width)
        return Content(tensor.dtype, (rows, *tensor.shape[1:]), (span,))

    def _row(self, number: int) -> Span:
        start = self.tensor.start + number * self.width
        return Span(self.file.source, start, start + self.width)


def opened(path: str | Path, what: str) -> Checkpoint:
    """A checkpoint that the user names. Raises UsageError, which begins with ``what``."""
    try:
        return open_checkpoint(path)
    except (UsageError, NothingToCheck) as error:
        raise UsageError(f"{what} {error}") from error


def head_of_target(path: str) -> Matrix:
    """The target's head; its embedding where the two are one. Raises UsageError when it has none that can be copied."""
    weights = opened(path, "--target-weights")
    found = _matrix(weights, HEAD) or _matrix(weights, EMBEDDING)
    if found is None:
        raise UsageError(f"--target-weights {path}: no {HEAD} and no {EMBEDDING} there of which rows can be copied")
    return found


def embedding_of_target(path: str) -> Matrix:
    """The target's embedding. Raises UsageError when it has none that can be copied."""
    found = _matrix(opened(path, "--target-weights"), EMBEDDING)
    if found is None:
        raise UsageError(f"--target-weights {path}: no {EMBEDDING} there of which rows can be copied")
    return found


def _matrix(weights: Checkpoint, name: str) -> Matrix | None:
    """The matrix of that name with the shortest prefix, as the layers' own lie deeper; only its file is read."""
    if weights.index is not None and weights.index.weight_map:
        names = sorted((n for n in weights.index.weight_map if _is_called(n, name)), key=len)
        files = [file for n in names[:1] if (file := weights.file(weights.index.weight_map[n])) is not None]
    else:
        files = list(weights.files)
    tensors = [(f, t) for f in files for t in f.header.tensors if _is_called(t.name, name) and not f.header.problems]
    file, tensor = min(tensors, key=lambda found: len(found[1].name), default=(None, None))
    return Matrix(file, tensor) if file is not None and tensor is not None and _is_plain(tensor) else None


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


def same_head(path: str, checkpoint: Checkpoint, tensor: Tensor) -> bool:
    """Whether the checkpoint at ``path`` has the same head, byte by byte. Nothing is compared over a network."""
    ours = matrix_in(checkpoint, tensor)
    try:
        weights = open_checkpoint(path)
        theirs = _matrix(weights, HEAD)
        if ours is None or theirs is None or checkpoint.place.remote or weights.place.remote:
            return False
        alike = (ours.tensor.dtype, ours.tensor.shape) == (theirs.tensor.dtype, theirs.tensor.shape)
        return alike and all(one == two for one, two in _chunks(ours, theirs))
    except (UsageError, NothingToCheck, SourceError):
        return False


def _chunks(*matrices: Matrix) -> Iterator[tuple[bytes, ...]]:
    """The bytes of several matrices of one size, a stretch of each at a time."""
    length = matrices[0].tensor.stop - matrices[0].tensor.start
    for at in range(0, length, _CHUNK):
        stop = min(at + _CHUNK, length)
        yield tuple(m.file.read(m.tensor.start + at, m.tensor.start + stop) for m in matrices)
