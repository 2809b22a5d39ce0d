"""Small tensors that lie side by side: read in one go, and those of one form looked at together.

What a stretch is told to hold is what ``drafcheck.valuescan.kernels.look`` says of it alone. A call of numpy for each
of 300,000 tensors takes longer than all that they hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from drafcheck.valuescan.formats import FLOATS, Format
from drafcheck.valuescan.kernels import (
    SIGNED,
    UNSIGNED,
    Empty,
    Stretch,
    count,
    empty_rows,
    largest_of,
    look,
    maxima,
    of_rows,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drafcheck.valuescan.kernels import Bits

_FEW = 4  # so many of one form or fewer are looked at one by one
_WORD = 8


class Small(NamedTuple):
    """Where a tensor lies in what was read, from byte ``start`` on, in rows of ``row`` bytes."""

    dtype: str
    start: int
    length: int
    row: int


def look_at(data: memoryview, tensors: Sequence[Small]) -> list[Stretch]:
    """What each of the tensors holds."""
    found: dict[int, Stretch] = {}
    forms: dict[tuple[str, int, int], list[int]] = {}
    for number, (dtype, _, length, row) in enumerate(tensors):
        forms.setdefault((dtype, length, row), []).append(number)
    for (dtype, length, row), numbers in forms.items():
        starts = [tensors[n].start for n in numbers]
        if len(numbers) <= _FEW:
            told = [look(dtype, data[start : start + length], row) for start in starts]
        else:
            told = list(_alike(dtype, _gathered(data, starts, length), row))
        found.update(zip(numbers, told, strict=True))
    return [found[n] for n in range(len(tensors))]


def _gathered(data: memoryview, starts: list[int], length: int) -> NDArray[np.uint8]:
    """The bytes of tensors of one length, a row for each; copied where they do not follow each other."""
    first, count = starts[0], len(starts)
    if starts[-1] - first == (count - 1) * length:  # they do not overlap
        return np.frombuffer(data, np.uint8, count * length, first).reshape(count, length)
    places: NDArray[np.void] = np.ndarray((len(data) - length + 1,), f"V{length}", data, 0, (1,))
    bytes_: NDArray[np.uint8] = places[np.array(starts)].view(np.uint8)
    return bytes_.reshape(count, length)


def _alike(dtype: str, table: NDArray[np.uint8], row: int) -> Iterator[Stretch]:
    """What tensors of one form hold, whose bytes are the rows of the table."""
    whole = table.shape[1] // _WORD * _WORD
    totals = np.add.reduce(np.ascontiguousarray(table[:, :whole]).view(np.uint64), axis=1).tolist()
    tails = [tail.tobytes() for tail in table[:, whole:]] if whole < table.shape[1] else [b""] * len(table)
    format_ = FLOATS.get(dtype)
    if format_ is None:
        return _bytes(table, row, totals, tails)
    return _floats(format_, table.view(UNSIGNED[format_.width]), row // format_.width, totals, tails)


def _bytes(table: NDArray[np.uint8], row: int, totals: list[int], tails: list[bytes]) -> Iterator[Stretch]:
    rows = table.shape[1] // row
    something: list[bool] = np.asarray(table.any(axis=1)).tolist()
    for filled, total, tail in zip(something, totals, tails, strict=True):
        empty = Empty(rows) if filled else Empty(rows, rows, 0, rows)
        yield Stretch(0, empty, 0, -1, not filled, 0, total, tail)


def _floats(format_: Format, values: Bits, row: int, totals: list[int], tails: list[bytes]) -> Iterator[Stretch]:
    by_row = maxima(values, row)
    rows = values.shape[1] // row
    below = maxima(by_row, rows)
    above = maxima(values.view(SIGNED[format_.width]), values.shape[1]) if format_.sign else below
    empty: list[Empty] = [Empty(rows)] * len(values)
    if format_.fraction:
        empty = _empties(empty_rows(format_, by_row, values, row).reshape(-1, rows))
    even, value = _even(values, below), values[:, 0].tolist()
    most: list[int] = below.tolist()
    for number, positive in enumerate(above.tolist()):
        largest, bad, first = largest_of(format_, most[number], positive), 0, -1
        if largest > format_.finite or format_.lone is not None:
            bad, first, largest = count(format_, values[number])
        bits = even[number], value[number], totals[number], tails[number]
        yield Stretch(largest, empty[number], bad, first, *bits)


def _even(values: Bits, below: Bits) -> list[bool]:
    """Whether all values of a tensor have the same bits."""
    even: NDArray[np.bool_] = (values[:, 0] == below) & (values[:, -1] == below)
    doubtful = np.flatnonzero(even)
    even[doubtful] = (values[doubtful] == below[doubtful, None]).all(axis=1)
    told: list[bool] = even.tolist()
    return told


def _empties(empty: NDArray[np.bool_]) -> list[Empty]:
    """Of each tensor the rows without a value."""
    rows = empty.shape[1]
    many = np.count_nonzero(empty, axis=1)
    found = [Empty(rows)] * len(empty)
    for number in np.flatnonzero(many).tolist():
        found[number] = of_rows(empty[number])
    return found
