"""What was seen in the tensors of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.header_json import DTYPE_BITS
from drafcheck.tensor import Tensor
from drafcheck.valuescan.formats import FLOATS

if TYPE_CHECKING:
    from drafcheck.valuescan.kernels import Empty


@dataclass(slots=True)
class EmptyRows:
    """The rows of a tensor that hold nothing but zeros: ``count`` of them, the ``first`` one (-1: none).

    Not which they are: a tensor may have as many rows as bytes.
    """

    count: int = 0
    first: int = -1
    _filled: int = -1
    _ends: list[tuple[int, int]] = field(default_factory=list)

    def add(self, first: int, rows: Empty) -> None:
        """Count those of the rows from ``first`` on. Stretches may come in any order, each of them once."""
        if not rows.many:
            self._fill(first + rows.rows - 1)
            return
        self.count += rows.many
        self.first = min(self.first, first + rows.first) if self.first >= 0 else first + rows.first
        if rows.last < rows.rows:
            self._fill(first + rows.rows - rows.last - 1)
        if rows.last and first + rows.rows - 1 > self._filled:
            self._ends.append((first, rows.last))

    def _fill(self, row: int) -> None:
        """Take note of a row that holds something: what lies before it is no end."""
        if row > self._filled:
            self._filled = row
            self._ends = [end for end in self._ends if end[0] > row]

    @property
    def last(self) -> int:
        """How many there are behind the last row that was seen to hold something."""
        return sum(rows for _, rows in self._ends)


@dataclass(slots=True)
class TensorValues:
    """What one tensor holds, as far as it was read.

    ``read`` bytes were of ``length``, each value once. ``bad`` of its values are Inf or NaN, ``first`` is the place of
    the first in storage order. ``largest`` is the largest magnitude of a finite one, as bits of the dtype. ``rows``
    were looked at, of which ``empty`` hold nothing but zeros. ``even``: all values have the same bits, ``value``.
    ``scattered``: they lie in another order than the tensor's, so that rows and places are not those of the tensor.
    ``digest`` is that of all bytes: tensors with different digests are different.
    """

    tensor: Tensor
    read: int = 0
    length: int = 0
    bad: int = 0
    first: int = -1
    largest: int = 0
    rows: int = 0
    empty: EmptyRows = field(default_factory=EmptyRows)
    even: bool = True
    value: int = -1
    digest: int = 0
    scattered: bool = False

    @property
    def seen(self) -> int:
        """How many of its values were read."""
        return self.read * self.tensor.numel // self.length if self.length else 0

    @property
    def whole(self) -> bool:
        """Whether every value was read."""
        return self.read == self.length

    @property
    def absmax(self) -> float | None:
        """The largest magnitude of a finite value; None for dtypes whose values are not looked at."""
        format_ = FLOATS.get(self.tensor.dtype)
        return format_.value(self.largest) if format_ is not None else None

    @property
    def zero(self) -> bool:
        """Whether all that was read are zeros."""
        return self.read > 0 and self.empty.count == self.rows

    @property
    def ones(self) -> bool:
        """Whether all that was read are exactly one."""
        format_ = FLOATS.get(self.tensor.dtype)
        return format_ is not None and self.read > 0 and self.even and self.value == format_.one


@dataclass(frozen=True, slots=True)
class Unread:
    """A tensor whose bytes could not be read, and why: one clause."""

    tensor: Tensor
    why: str


class Changed(NamedTuple):
    """A file that is no longer what it was when it was opened: ``what`` became of it, and whether that is ``sure``."""

    file: str
    what: str
    sure: bool


class Damaged(NamedTuple):
    """The first tensor of a storage whose bytes are not those that were saved; ``broken``: they do not unpack."""

    file: str
    tensor: str
    broken: bool = False


@dataclass(slots=True)
class Values:
    """What all tensors of the files hold that the loader reads; those of ``changed`` files are unread.

    ``damaged`` are storages at an address, and compressed ones, as far as all of one was read.
    """

    tensors: list[TensorValues] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)

    @property
    def read(self) -> float:
        """The share of the bytes that was read, counting those that could not be."""
        lost = sum(u.tensor.numel * DTYPE_BITS[u.tensor.dtype] for u in self.unread) // 8
        every = lost + sum(v.length for v in self.tensors)
        return sum(v.read for v in self.tensors) / every if every else 1.0
