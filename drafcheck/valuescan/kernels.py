"""The numbers of one stretch of a tensor, by views as whole numbers: two passes and a sum while it is in the cache."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drafcheck.valuescan.formats import FLOATS, Format

_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

Bits = NDArray[np.unsignedinteger]


class Stretch(NamedTuple):
    """What a stretch holds. ``largest`` is the largest magnitude of a finite value, as bits.

    ``zero_rows`` are the rows without a value, counted from the stretch's first; ``bad`` is how many values are no
    finite numbers and ``first`` the place of the first one, in values from the start of the stretch. ``even``: all
    values have the bits ``value``. ``total`` is the sum of the bytes as 64-bit numbers, and ``tail`` what is left over.
    """

    largest: int
    zero_rows: NDArray[np.intp]
    bad: int
    first: int
    even: bool
    value: int
    total: int
    tail: bytes


_NONE: NDArray[np.intp] = np.empty(0, np.intp)


def look(dtype: str, data: memoryview, row: int) -> Stretch:
    """What ``data`` holds: whole rows of ``row`` bytes each, of values of ``dtype`` as safetensors spells it."""
    words = np.frombuffer(data, np.uint64, len(data) // 8)
    total, tail = int(np.add.reduce(words)), bytes(data[8 * len(words) :])
    format_ = FLOATS.get(dtype)
    if format_ is None:
        return _bytes(data, row, total, tail)
    unsigned = np.frombuffer(data, _UNSIGNED[format_.width])
    return _floats(format_, unsigned, row // format_.width, total, tail)


def _bytes(data: memoryview, row: int, total: int, tail: bytes) -> Stretch:
    """Values that are not numbers of a known form: only whether there is anything."""
    values = np.frombuffer(data, np.uint8)
    zero = not total and not any(tail) and not values.any()
    rows = np.arange(len(data) // row) if zero else _NONE
    return Stretch(0, rows, 0, -1, zero, 0, total, tail)


def _floats(format_: Format, unsigned: Bits, row: int, total: int, tail: bytes) -> Stretch:
    by_row = unsigned.reshape(-1, row).max(axis=1)
    below = int(by_row.max())  # the sign bit set: the negative value of the largest magnitude
    above = int(unsigned.view(_SIGNED[format_.width]).max()) if format_.sign else below
    largest = max(above, below & ~format_.sign) if below >= (format_.sign or 1 << 62) else max(above, 0)
    zero_rows = _empty(format_, by_row, unsigned, row) if format_.fraction else _NONE
    bad, first = 0, -1
    if largest > format_.finite or format_.lone is not None:
        bad, first, largest = _count(format_, unsigned)
    even = bool(unsigned[0] == below and unsigned[-1] == below and (unsigned == below).all())
    return Stretch(largest, zero_rows, bad, first, even, int(unsigned[0]), total, tail)


def _empty(format_: Format, by_row: Bits, unsigned: Bits, row: int) -> NDArray[np.intp]:
    """The rows without a value: of zeros, of which some may be negative ones."""
    rows = np.flatnonzero(by_row == 0)
    if not format_.lone:
        doubtful = np.flatnonzero(by_row == format_.sign)
        negative = [n for n in doubtful if not (unsigned[n * row : (n + 1) * row] & (format_.sign - 1)).any()]
        rows = np.union1d(rows, np.asarray(negative, np.intp)) if negative else rows
    return rows


def _count(format_: Format, unsigned: Bits) -> tuple[int, int, int]:
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
