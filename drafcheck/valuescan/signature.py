"""Is a matrix as it came from its initialisation? Told by its moments, and by what training leaves in it.

An update of training is a sum of few outer products: it moves whole rows and columns together, which independent
numbers do not. So next to the moments, the sums over rows and over columns have to be those of independent numbers, and
so has the largest singular value. What is too small to show in one matrix shows in the spread of all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from drafcheck.contract import Table, load_toml
from drafcheck.source import SourceError
from drafcheck.tensor import View
from drafcheck.valuescan.kernels import as_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drafcheck.checkpoint import Checkpoint
    from drafcheck.tensor import Tensor

_BLOCKS = 8
_BLOCK = 1 << 20
"""So many blocks of so many bytes are read of a matrix, spread over it."""

_ROWS = 1024
_WINDOW = 2 << 20  # bytes that are read at once, with what lies between the values

_SIGMAS = 5.0
LEAST = 1 << 15
"""Matrices of fewer values are not judged: what a short training does to them is within chance."""


class Fit(NamedTuple):
    """The distribution that a matrix is as it was drawn from: who draws it, and its scale (bound or deviation).

    ``excess`` is by how much the sum of the squares of ``values`` numbers exceeds what the distribution leads one to
    expect, in squares.
    """

    by: str
    kind: str
    scale: float
    excess: float = 0.0
    values: int = 0


def judged(tensor: Tensor) -> bool:
    """Whether a tensor is a matrix that is large enough, of numbers wide enough, to tell."""
    return len(tensor.shape) == 2 and tensor.numel >= LEAST and tensor.dtype in ("BF16", "F16", "F32", "F64")


def untouched(checkpoint: Checkpoint, tensor: Tensor, config: Mapping[str, Any]) -> Fit | None:
    """The initialisation that nothing in a matrix speaks against; None when something does. Raises SourceError."""
    candidates = [*_candidates(tensor.shape[-1], config)]
    blocks = []
    for block in _blocks(checkpoint, tensor):
        candidates = [fit for fit in candidates if _within(fit, block)]
        if not candidates:
            return None
        blocks.append(block)
    fitting = (told for fit in candidates if (told := _moments(fit, blocks)) is not None)
    fit = next(fitting, None)
    return fit if fit is not None and all(_independent(block, _deviation(fit)) for block in blocks) else None


def is_fine(checkpoint: Checkpoint, tensor: Tensor) -> bool:
    """Whether the first row of a float32 matrix has numbers that 16 bits do not hold. Raises SourceError."""
    values = np.frombuffer(_rows(checkpoint, tensor, _view(checkpoint, tensor), 0, 1), "<f4")
    with np.errstate(over="ignore"):
        short = (values.view("<u4") & 0xFFFF == 0) | (values == values.astype(np.float16))
    return bool(np.count_nonzero(short) < values.size / 2)


def together(fits: Sequence[Fit]) -> bool:
    """Whether matrices that look untouched one by one do so together: a small excess of all of them is no chance."""
    count = sum(fit.values for fit in fits)
    wide = max(_SQUARES[fit.kind] for fit in fits)
    return abs(float(sum(fit.excess for fit in fits))) < 4 * wide * math.sqrt(count) + _SLACK * count


def _candidates(inputs: int, config: Mapping[str, Any]) -> Iterator[Fit]:
    for entry in load_toml("initial.toml").get("distribution", []):
        scale = _scale(entry, config)
        yield Fit(entry["by"], entry["kind"], scale / math.sqrt(inputs) if "per" in entry else scale)


def _scale(entry: Table, config: Mapping[str, Any]) -> float:
    if "scale" in entry:
        return float(entry["scale"])
    stated = [config.get(key) for key in entry["keys"]]
    numbers = [v for v in stated if isinstance(v, (int, float)) and not isinstance(v, bool) and 0 < v < 1e9]
    return float(numbers[0] if numbers else entry["usual"])


def _blocks(checkpoint: Checkpoint, tensor: Tensor) -> Iterator[NDArray[np.float64]]:
    """Whole rows from all over the matrix; whole columns, as rows, where it lies by columns."""
    view = _view(checkpoint, tensor)
    rows, columns = view.shape
    step = max(min(_BLOCK // (columns * view.width), rows, _ROWS), 1)
    places = sorted({i * (rows - step) // max(_BLOCKS - 1, 1) for i in range(_BLOCKS)})
    last = -step
    for place in places:
        if place >= last + step:  # a small matrix is read once
            last = place
            yield as_numbers(tensor.dtype, _rows(checkpoint, tensor, view, place, step)).reshape(step, columns)


def _view(checkpoint: Checkpoint, tensor: Tensor) -> View:
    """Where the values of a matrix lie, as that of its transpose where it lies by columns. Raises SourceError."""
    file = checkpoint.file(tensor.file)
    view = file.header.views.get(tensor.name) if file is not None else None
    if view is not None and len(view.shape) == 2:
        return view if view.steps[0] >= view.steps[1] else view._replace(shape=view.shape[::-1], steps=view.steps[::-1])
    if file is None or tensor.start < 0:
        raise SourceError(f"the bytes of {tensor.name} cannot be addressed in {tensor.file}")
    rows, columns = tensor.shape
    row = (tensor.stop - tensor.start) // rows
    return View(tensor.start, (rows, columns), (row, row // columns), row // columns)


def _rows(checkpoint: Checkpoint, tensor: Tensor, view: View, first: int, count: int) -> bytes:
    """The values of so many rows. Raises SourceError."""
    from drafcheck.valuescan.views import windows

    file = checkpoint.file(tensor.file)
    assert file is not None  # else there is no view
    part = view._replace(start=view.start + first * view.steps[0], shape=(count, view.shape[1]))
    read = ((w, memoryview(file.read(w.start, w.start + w.length))) for w in windows(part, _WINDOW))
    return b"".join(window.picked(data) for window, data in read)


def _within(fit: Fit, block: NDArray[np.float64]) -> bool:
    """Whether no value lies where the distribution has none."""
    most = 1.005 if fit.kind == "uniform" else 8.0  # bfloat16 rounds the bound up by up to 0.4 %
    return float(np.abs(block).max()) <= most * fit.scale


_SQUARES = {"uniform": math.sqrt(0.8), "normal": math.sqrt(2)}
"""The deviation of one value's square, in squares of the deviation of the value."""

_FOURTHS = {"uniform": 1.8, "normal": 3.0}
_PEAKS = {"uniform": 1.4, "normal": 3.3}
"""The fourth moment over the square of the second, and the deviation of one value's share in it, over that."""

_SLACK = 1e-4  # what rounding to 16 bits does to the second moment; to the fourth four times that


def _deviation(fit: Fit) -> float:
    return fit.scale / math.sqrt(3) if fit.kind == "uniform" else fit.scale


def _moments(fit: Fit, blocks: Sequence[NDArray[np.float64]]) -> Fit | None:
    """The fit with its excess; None when mean, spread or shape are not those of the distribution."""
    values = np.concatenate([block.ravel() for block in blocks]) / _deviation(fit)
    root = math.sqrt(values.size)
    squares = values**2
    excess = float(squares.sum()) - values.size
    peak = float((squares**2).mean()) / _FOURTHS[fit.kind] - 1
    fits = (
        abs(float(values.mean())) < _SIGMAS / root + _SLACK
        and abs(excess) < _SIGMAS * _SQUARES[fit.kind] * root + _SLACK * values.size
        and abs(peak) < _SIGMAS * _PEAKS[fit.kind] / root + 4 * _SLACK
    )
    return fit._replace(excess=excess, values=int(values.size)) if fits else None


def _independent(block: NDArray[np.float64], deviation: float) -> bool:
    """Whether no rows or columns of a block move together."""
    return all(_alike(block, axis) for axis in (0, 1)) and _largest(block) < _edge(block, deviation)


def _alike(block: NDArray[np.float64], axis: int) -> bool:
    """Whether the sums along an axis spread as sums of independent numbers do."""
    sums = block.sum(axis=axis)
    expected = float((block**2).mean()) * block.shape[axis]
    if sums.size < 64 or not expected:
        return True
    ratio = float((sums**2).mean()) / expected
    return bool(abs(ratio - 1) < _SIGMAS * math.sqrt(2 / sums.size))


def _edge(block: NDArray[np.float64], deviation: float) -> float:
    """Where the singular values of a matrix of independent numbers end, and a little more."""
    rows, columns = (math.sqrt(size) for size in block.shape)
    spread = (rows + columns) * (1 / rows + 1 / columns) ** (1 / 3)  # of the square of the largest, as Tracy and Widom
    return deviation * math.sqrt((rows + columns) ** 2 + 5 * spread)


def _largest(block: NDArray[np.float64]) -> float:
    """The largest singular value, about: never more than it is."""
    vector = np.random.default_rng(0).standard_normal(block.shape[1])
    for _ in range(12):
        vector = block.T @ (block @ vector)
        vector /= float(np.linalg.norm(vector)) or 1.0
    return float(np.linalg.norm(block @ vector))
