"""The numbers inside small tensors (d2t, t2d), from raw little-endian bytes, without numpy."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence

from drafcheck.words import are, plural

LARGEST = 1 << 22
"""More values than any vocabulary has: a longer tensor is not decoded."""

_INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "I8": "b", "U64": "Q", "U32": "I", "U16": "H", "U8": "B", "BOOL": "B"}
_FLOATS = {"F32": "f", "F64": "d"}
_WIDTHS = {"F16": 2, "BF16": 2}


class DecodeError(Exception):
    """The values cannot be read; the text is one lower-case clause."""


def is_integer(dtype: str) -> bool:
    """Whether a dtype, as safetensors spells it, holds whole numbers (BOOL counts)."""
    return dtype in _INTEGERS


def is_float(dtype: str) -> bool:
    """Whether a dtype, as safetensors spells it, holds floating point numbers of any width."""
    return dtype.startswith(("F", "BF"))


def decode(dtype: str, data: bytes) -> list[int]:
    """The values of a tensor as whole numbers, in storage order.

    Raises DecodeError for a dtype without whole numbers in it, ragged data, or values with fractions.
    """
    if dtype in _INTEGERS:
        return _native(_INTEGERS[dtype], data).tolist()
    return _whole(_decode_floats(dtype, data))


def _native(code: str, data: bytes) -> array[int]:
    values: array[int] = array(code)
    _fill(values, data)
    return values


def _fill(values: array[int] | array[float], data: bytes) -> None:
    if len(data) % values.itemsize:
        raise DecodeError(
            f"{plural(len(data), 'byte')} {are(len(data))} no whole number of {values.itemsize}-byte values"
        )
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()


def _decode_floats(dtype: str, data: bytes) -> Sequence[float]:
    if dtype in _FLOATS:
        values: array[float] = array(_FLOATS[dtype])
        _fill(values, data)
        return values
    if dtype not in _WIDTHS:
        raise DecodeError(f"values of dtype {dtype} are not read")
    if len(data) % 2:
        raise DecodeError(f"{plural(len(data), 'byte')} {are(len(data))} no whole number of 2-byte values")
    if dtype == "F16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    wide = [half << 16 for half in _native("H", data)]
    return struct.unpack(f"<{len(wide)}f", struct.pack(f"<{len(wide)}I", *wide))


def _whole(values: Sequence[float]) -> list[int]:
    broken = sum(not value.is_integer() for value in values)
    if broken:
        whole = "is no whole number" if broken == 1 else "are not whole numbers"
        raise DecodeError(f"{broken} of {plural(len(values), 'value')} {whole}")
    return list(map(int, values))
