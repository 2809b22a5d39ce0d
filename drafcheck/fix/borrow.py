"""Stretches of other checkpoints: rows of a target's head or embedding; and heads that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drafcheck.checkpoint import open_checkpoint
from drafcheck.errors import NothingToCheck, UsageError
from drafcheck.fix.edits import Content
from drafcheck.fix.pieces import Span
from drafcheck.matrix import Matrix, matrix_called, matrix_in
from drafcheck.plan.vocabulary import HEAD
from drafcheck.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from drafcheck.checkpoint import Checkpoint
    from drafcheck.tensor import Tensor

_CHUNK = 8 << 20  # bytes compared at a time


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


def picked_rows(matrix: Matrix, numbers: Sequence[int | None]) -> Content:
    """Rows of a matrix one below the other; None stands for a row of zeros."""
    zeros = Zeros()  # one after another, so that neighbours are one stretch
    empty = (Span(zeros, i * matrix.width, (i + 1) * matrix.width) for i in range(len(numbers)))
    pieces = [nothing if n is None else _row(matrix, n) for n, nothing in zip(numbers, empty, strict=True)]
    return Content(matrix.tensor.dtype, (len(numbers), *matrix.tensor.shape[1:]), tuple(pieces))


def first_rows(matrix: Matrix, count: int) -> Content:
    """The first so many rows of a matrix."""
    span = Span(matrix.file.source, matrix.start(0), matrix.start(count))
    return Content(matrix.tensor.dtype, (count, *matrix.tensor.shape[1:]), (span,))


def _row(matrix: Matrix, number: int) -> Span:
    return Span(matrix.file.source, matrix.start(number), matrix.start(number + 1))


def same_head(path: str, checkpoint: Checkpoint, tensor: Tensor) -> bool:
    """Whether the checkpoint at ``path`` has the same head, byte by byte. Nothing is compared over a network."""
    ours = matrix_in(checkpoint, tensor)
    try:
        weights = open_checkpoint(path)
        theirs = matrix_called(weights, HEAD)
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
