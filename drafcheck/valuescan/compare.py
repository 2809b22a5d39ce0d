"""How far the rows of two matrices are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from drafcheck.valuescan.formats import FLOATS
from drafcheck.valuescan.kernels import as_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drafcheck.matrix import Matrix, Scattered


class Apart(NamedTuple):
    """How many of so many ``rows`` differ, the largest difference of two values, the median cosine of those rows."""

    rows: int
    differ: int
    largest: float
    cosine: float


def apart(one: Matrix | Scattered, two: Matrix, numbers: Sequence[int]) -> Apart:
    """Compare these rows of two matrices of one width and of dtypes that ``matrix.NUMBERS`` names.

    Where the dtypes are two, one was cast to the other or both from a third: what rounding does is no difference.
    Raises SourceError.
    """
    largest, cosines = 0.0, list[float]()
    dtypes = {one.tensor.dtype, two.tensor.dtype}
    rounded = [FLOATS[dtype] for dtype in dtypes] if len(dtypes) > 1 else []
    share = sum(2.0 ** -(f.fraction + 1) for f in rounded) * _MARGIN
    least = sum(f.value(1) / 2 for f in rounded) * _MARGIN  # below the normal numbers the steps are of one size
    for (_, first), (_, second) in zip(one.rows(numbers), two.rows(numbers), strict=True):
        if not rounded and bytes(first) == bytes(second):
            continue
        a, b = as_numbers(one.tensor.dtype, first), as_numbers(two.tensor.dtype, second)
        with np.errstate(invalid="ignore"):
            difference = np.abs(a - b)
            near = difference <= share * np.minimum(np.maximum(abs(a), abs(b)), _FINITE) + least
        if bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all()):
            continue
        largest = max(largest, float(np.nanmax(difference)) if np.isfinite(difference).any() else 0.0)
        cosines.append(_cosine(a, b))
    return Apart(len(set(numbers)), len(cosines), largest, float(np.median(cosines)) if cosines else 1.0)


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Of what is finite in both."""
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else 0.0


_MARGIN = 1.01  # the larger of two rounded numbers may be a little smaller than what they were rounded from
_FINITE = np.finfo(np.float64).max
