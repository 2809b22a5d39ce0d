"""How far the rows of two matrices are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from drafcheck.valuescan.kernels import as_numbers

if TYPE_CHECKING:
    from drafcheck.matrix import Matrix


class Apart(NamedTuple):
    """How many rows differ, the largest difference of two values, and the median cosine of the rows that differ."""

    differ: int
    largest: float
    cosine: float


def apart(one: Matrix, two: Matrix, numbers: Sequence[int]) -> Apart:
    """Compare these rows of two matrices of one width; numbers of different dtypes by what the narrower one can hold.

    Raises SourceError.
    """
    largest, cosines = 0.0, list[float]()
    narrow = max(_STEPS[one.tensor.dtype], _STEPS[two.tensor.dtype])
    for number in numbers:
        first, second = one.read(number), two.read(number)
        if first == second and one.tensor.dtype == two.tensor.dtype:
            continue
        a, b = as_numbers(one.tensor.dtype, first), as_numbers(two.tensor.dtype, second)
        difference = np.abs(a - b)
        if one.tensor.dtype != two.tensor.dtype and bool((difference <= narrow * np.maximum(abs(a), abs(b))).all()):
            continue
        largest = max(largest, float(np.nanmax(difference)) if np.isfinite(difference).any() else 0.0)
        lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
        cosines.append(float(a @ b) / lengths if lengths else 0.0)
    return Apart(len(cosines), largest, float(np.median(cosines)) if cosines else 1.0)


_STEPS = {"BF16": 2**-8, "F16": 2**-10, "F32": 2**-23}
"""The relative distance of two neighbours of each dtype."""
