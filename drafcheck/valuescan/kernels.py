"""The numbers of one stretch of a tensor, by views as whole numbers: two passes and a sum while it is in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from drafcheck.valuescan.formats import FLOATS, PARTS, Format

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bits = NDArray[np.unsignedinteger]

SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


_NARROW = 32
"""Values of a row; rows of fewer are looked at column by column, as each row costs as much as many values."""


class Empty(NamedTuple):
    """The rows without a value in a stretch of ``rows``: how ``many``, the first one (-1: none), how many ``last``."""

    rows: int
    many: int = 0
    first: int = -1
    last: int = 0


class Stretch(NamedTuple):
    """What a stretch holds. ``largest`` is the largest magnitude of a finite value, as bits.

    ``empty`` are the rows without a value; ``bad`` is how many values are no finite numbers and ``first`` the place of
    the first one, in values from the start of the stretch. ``even``: all values have the bits ``value``. ``total`` is
    the sum of the bytes as 64-bit numbers, and ``tail`` what is left over.
    """

    largest: int
    empty: Empty
    bad: int
    first: int
    even: bool
    value: int
    total: int
    tail: bytes


def look(dtype: str, data: memoryview, row: int) -> Stretch:
    """What ``data`` holds: whole rows of ``row`` bytes each, of values of ``dtype`` as safetensors spells it."""
    words = np.frombuffer(data, np.uint64, len(data) // 8)
    total, tail = int(np.add.reduce(words)), bytes(data[8 * len(words) :])
    if dtype in PARTS:
        return _parts(FLOATS[PARTS[dtype]], data, look(PARTS[dtype], data, row))
    format_ = FLOATS.get(dtype)
    if format_ is None:
        return _bytes(data, row, total, tail)
    unsigned = np.frombuffer(data, UNSIGNED[format_.width])
    return _floats(format_, unsigned, row // format_.width, total, tail)


def _parts(format_: Format, data: memoryview, stretch: Stretch) -> Stretch:
    """What the real and imaginary parts hold, as the values that they make: one of them makes it no number."""
    bad, first = 0, -1
    if stretch.bad:
        parts = np.frombuffer(data, UNSIGNED[format_.width]).reshape(-1, 2)
        wrong = ((parts & (format_.sign - 1)) > format_.finite).any(axis=1)
        bad, first = int(np.count_nonzero(wrong)), int(wrong.argmax())
    return stretch._replace(largest=0, bad=bad, first=first, even=False)


def _bytes(data: memoryview, row: int, total: int, tail: bytes) -> Stretch:
    """Values that are not numbers of a known form: only whether there is anything."""
    values = np.frombuffer(data, np.uint8)
    zero = not total and not any(tail) and not values.any()
    rows = len(data) // row
    return Stretch(0, Empty(rows, rows, 0, rows) if zero else Empty(rows), 0, -1, zero, 0, total, tail)


def _floats(format_: Format, unsigned: Bits, row: int, total: int, tail: bytes) -> Stretch:
    by_row = maxima(unsigned, row)
    below = int(by_row.max())  # the sign bit set: the negative value of the largest magnitude
    above = int(unsigned.view(SIGNED[format_.width]).max()) if format_.sign else below
    largest = largest_of(format_, below, above)
    empty = of_rows(empty_rows(format_, by_row, unsigned, row)) if format_.fraction else Empty(len(by_row))
    bad, first = 0, -1
    if largest > format_.finite or format_.lone is not None:
        bad, first, largest = count(format_, unsigned)
    even = bool(unsigned[0] == below and unsigned[-1] == below and (unsigned == below).all())
    return Stretch(largest, empty, bad, first, even, int(unsigned[0]), total, tail)


def largest_of(format_: Format, below: int, above: int) -> int:
    """The largest magnitude, by the largest of the unsigned whole numbers and that of the signed ones."""
    return max(above, below & ~format_.sign) if below >= (format_.sign or 1 << 62) else max(above, 0)


def maxima(bits: NDArray[Any], row: int) -> NDArray[Any]:
    """The largest of each row of so many values."""
    table = bits.reshape(-1, row)
    if row > _NARROW:
        largest: NDArray[Any] = table.max(axis=1)
        return largest
    largest = table[:, 0]
    for column in range(1, row):
        largest = np.maximum(largest, table[:, column])
    return largest


def empty_rows(format_: Format, by_row: Bits, unsigned: Bits, row: int) -> NDArray[np.bool_]:
    """Which rows are without a value: of zeros, of which some may be negative ones."""
    empty: NDArray[np.bool_] = by_row == 0
    if not format_.lone:
        doubtful = np.flatnonzero(by_row == format_.sign)
        if doubtful.size:
            empty[doubtful] = maxima(np.bitwise_and(unsigned.reshape(-1, row)[doubtful], format_.sign - 1), row) == 0
    return empty


def of_rows(empty: NDArray[np.bool_]) -> Empty:
    """What is kept of them."""
    many = int(np.count_nonzero(empty))
    if not many:
        return Empty(len(empty))
    return Empty(len(empty), many, int(empty.argmax()), many if many == len(empty) else int(empty[::-1].argmin()))


def count(format_: Format, unsigned: Bits) -> tuple[int, int, int]:
    """How many values are no finite numbers, where the first is, and the largest magnitude of the others."""
    magnitude = unsigned & (format_.sign - 1) if format_.sign else unsigned
    wrong = unsigned == format_.lone if format_.lone is not None else magnitude > format_.finite
    bad = int(np.count_nonzero(wrong))
    right = magnitude[~wrong] if bad else magnitude
    return bad, int(wrong.argmax()) if bad else -1, int(right.max()) if right.size else 0


def as_numbers(dtype: str, data: bytes | memoryview) -> NDArray[np.float64]:
    """The values of a floating point dtype of 16 bits and more, as numbers; for samples only."""
    if dtype == "BF16":
        wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    return np.frombuffer(data, {"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype]).astype(np.float64)
