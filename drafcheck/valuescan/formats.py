"""How the numbers of each dtype look as whole numbers: which are no finite ones, which is one, what the largest is.

A floating point number without its sign bit, read as a whole number, grows with its magnitude; infinities and NaN
come last. So the largest of the signed whole numbers is the largest positive value, and the largest of the unsigned
ones, where its sign bit is set, the negative value of the largest magnitude: no number need be converted.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Format(NamedTuple):
    """A floating point dtype of whole bytes.

    ``width`` is that of one value in bytes, ``finite`` the largest magnitude, as bits, that is still a number, ``one``
    the bits of 1.0; then the widths of exponent and fraction in bits, and the ``bias`` of the exponent. ``lone``: the
    only bits that are no number (``0x80`` where there is no negative zero), in place of a range at the end.
    """

    width: int
    finite: int
    one: int
    exponent: int
    fraction: int
    bias: int
    lone: int | None = None

    @property
    def limit(self) -> float:
        """The magnitude from which on a number becomes none on a cast: half a step past the largest one.

        Numbers are rounded to the nearest, and the largest one is odd, so that half a step goes up.
        """
        last = self.value(self.finite)
        return last + (last - self.value(self.finite - 1)) / 2

    @property
    def sign(self) -> int:
        """The sign bit; 0 for a dtype without one."""
        has = self.exponent + self.fraction < 8 * self.width
        return 1 << (8 * self.width - 1) if has else 0

    def value(self, bits: int) -> float:
        """The magnitude that ``bits`` stand for, the sign bit left out. Infinity for what is no finite number."""
        bits &= (self.sign or 1 << 8 * self.width) - 1
        if bits > self.finite:
            return math.inf
        exponent, fraction = bits >> self.fraction, bits & ((1 << self.fraction) - 1)
        if self.fraction == 0:
            return math.ldexp(1.0, exponent - self.bias)
        if exponent == 0:
            return math.ldexp(fraction, 1 - self.bias - self.fraction)
        return math.ldexp((1 << self.fraction) + fraction, exponent - self.bias - self.fraction)


FLOATS = {
    "BF16": Format(2, 0x7F7F, 0x3F80, 8, 7, 127),
    "F16": Format(2, 0x7BFF, 0x3C00, 5, 10, 15),
    "F32": Format(4, 0x7F7FFFFF, 0x3F800000, 8, 23, 127),
    "F64": Format(8, 0x7FEFFFFFFFFFFFFF, 0x3FF0000000000000, 11, 52, 1023),
    "F8_E4M3": Format(1, 0x7E, 0x38, 4, 3, 7),
    "F8_E5M2": Format(1, 0x7B, 0x3C, 5, 2, 15),
    "F8_E4M3FNUZ": Format(1, 0x7F, 0x40, 4, 3, 8, lone=0x80),
    "F8_E5M2FNUZ": Format(1, 0x7F, 0x40, 5, 2, 16, lone=0x80),
    "F8_E8M0": Format(1, 0xFE, 0x7F, 8, 0, 127),
}
"""The dtypes whose values are looked at, by safetensors' name. The bits are those of IEEE 754, of bfloat16, and of the
OCP 8-bit floating point and microscaling formats (FNUZ: those of ml_dtypes)."""

PARTS = {"C64": "F32"}
"""The dtypes whose values are several numbers of another one: complex numbers, which torch copies the real part of."""

NAMES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}
"""What torch and the engines call the dtypes that draft models are built in."""

BUILT = {name: FLOATS[dtype] for name, dtype in NAMES.items()}
"""The forms of the dtypes that engines build draft models in."""
