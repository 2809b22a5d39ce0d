"""Is a matrix as it came from its initialisation? Told by its moments, and by what training leaves in rows and columns.

An update of training is a sum of few outer products: it moves whole rows and columns together, which independent
numbers do not. So next to the spread, the sums over rows and over columns have to be those of independent numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from drafcheck.contract import Table, load_toml
from drafcheck.values.kernels import as_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drafcheck.checkpoint import Checkpoint
    from drafcheck.tensor import Tensor

_BLOCKS = 8
_BLOCK = 1 << 20
"""So many blocks of so many bytes are read of a matrix, spread over it."""

_SIGMAS = 5.0
LEAST = 1 << 15
"""Matrices of fewer values are not judged: what a short training does to them is within chance."""


class Fit(NamedTuple):
    """The distribution that a matrix is as it was drawn from: who draws it, and its scale (bound or deviation)."""

    by: str
    kind: str
    scale: float


def judged(tensor: Tensor) -> bool:
    """Whether a tensor is a matrix that is large enough, of numbers wide enough, to tell."""
    return len(tensor.shape) == 2 and tensor.numel >= LEAST and tensor.dtype in ("BF16", "F16", "F32", "F64")


def untouched(checkpoint: Checkpoint, tensor: Tensor, config: Mapping[str, Any]) -> Fit | None:
    """The initialisation that nothing in a matrix speaks against; None when something does. Raises SourceError."""
    candidates = [*_candidates(tensor, config)]
    blocks = []
    for block in _blocks(checkpoint, tensor):
        candidates = [fit for fit in candidates if _within(fit, block)]
        if not candidates:
            return None
        blocks.append(block)
    return next((fit for fit in candidates if _moments(fit, blocks) and _independent(blocks)), None)


def _candidates(tensor: Tensor, config: Mapping[str, Any]) -> Iterator[Fit]:
    for entry in load_toml("initial.toml").get("distribution", []):
        scale = _scale(entry, config)
        yield Fit(entry["by"], entry["kind"], scale / math.sqrt(tensor.shape[-1]) if "per" in entry else scale)


def _scale(entry: Table, config: Mapping[str, Any]) -> float:
    if "scale" in entry:
        return float(entry["scale"])
    stated = [config.get(key) for key in entry["keys"]]
    numbers = [v for v in stated if isinstance(v, (int, float)) and not isinstance(v, bool) and 0 < v < 1e9]
    return float(numbers[0] if numbers else entry["usual"])


def _blocks(checkpoint: Checkpoint, tensor: Tensor) -> Iterator[NDArray[np.float64]]:
    """Whole rows from all over the matrix."""
    rows, columns = tensor.shape
    row = (tensor.stop - tensor.start) // rows
    step = max(min(_BLOCK // row, rows), 1)
    places = sorted({i * (rows - step) // max(_BLOCKS - 1, 1) for i in range(_BLOCKS)})
    last = -step
    for place in places:
        if place >= last + step:  # a small matrix is read once
            last = place
            start = tensor.start + place * row
            data = checkpoint.read(tensor._replace(start=start, stop=start + step * row))
            yield as_numbers(tensor.dtype, data).reshape(step, columns)


def _within(fit: Fit, block: NDArray[np.float64]) -> bool:
    """Whether no value lies where the distribution has none."""
    most = 1.005 if fit.kind == "uniform" else 8.0  # bfloat16 rounds the bound up by up to 0.4 %
    return bool(np.abs(block).max() <= most * fit.scale)


def _moments(fit: Fit, blocks: Sequence[NDArray[np.float64]]) -> bool:
    values = np.concatenate([block.ravel() for block in blocks])
    variance, kurtosis = (fit.scale**2 / 3, 1.8) if fit.kind == "uniform" else (fit.scale**2, 3.0)
    root = math.sqrt(values.size)
    spread = float((values**2).mean()) / variance - 1
    peaked = float((values**4).mean()) / variance**2 / kurtosis - 1
    mean = float(values.mean()) / math.sqrt(variance)
    # The deviations of these three among independent numbers: of the fourth moment 96 / 9 and 0.88, of the second 2
    # and 0.8, over the number of values.
    spread_sigma, peak_sigma = (0.9, 1.4) if fit.kind == "uniform" else (1.42, 3.3)
    slack = 1e-4  # what rounding to 16 bits does
    return bool(
        abs(spread) < _SIGMAS * spread_sigma / root + slack
        and abs(peaked) < _SIGMAS * peak_sigma / root + 4 * slack
        and abs(mean) < _SIGMAS / root + slack
    )


def _independent(blocks: Sequence[NDArray[np.float64]]) -> bool:
    """Whether the sums over rows and over columns spread as sums of independent numbers do."""
    return all(_alike(block, axis) for block in blocks for axis in (0, 1))


def _alike(block: NDArray[np.float64], axis: int) -> bool:
    sums = block.sum(axis=axis)
    expected = float((block**2).mean()) * block.shape[axis]
    if sums.size < 64 or not expected:
        return True
    ratio = float((sums**2).mean()) / expected
    return abs(ratio - 1) < _SIGMAS * math.sqrt(2 / sums.size)
