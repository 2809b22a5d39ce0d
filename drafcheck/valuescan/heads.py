"""Do the rows of the draft's head stand for the tokens that d2t names? Told by the weights of both heads alone.

Both heads keep the rows of tokens that are used alike near each other, also where the draft's was trained from nothing
and its rows lie in a space of their own. So a row is not compared with the target's rows, but how near it is to the
other rows of its head is compared with how near the target's rows are to each other. Under the right mapping the draft
row whose neighbours are those of a token is the row of that token; under a wrong one it is any row. On the trained pair
behind the measured accept lengths that names 100 % of 256 rows right, and 0 % once the rows are permuted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from drafcheck.valuescan.kernels import as_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drafcheck.matrix import Matrix

SAMPLE = 256
"""So many draft ids are looked at, spread over the draft vocabulary."""

_LEAST = 32  # ids are too few below that
_STRUCTURE = 1.15  # of the cosines of a head's rows, over those of random ones


class Alignment(NamedTuple):
    """What the comparison says of ``sampled`` draft ids.

    ``agree`` maps each reading of the mapping to the share of the ids whose row has the neighbours of the token that it
    names. ``structure`` is the spread of the cosines of the rows of each head, the draft's first, over that of random
    rows: 1 for a head that nobody trained.
    """

    sampled: int
    agree: Mapping[str, float]
    structure: tuple[float, float]

    @property
    def chance(self) -> float:
        """The share that would agree with a reading by chance."""
        return 1 / self.sampled

    @property
    def tells(self) -> bool:
        """Whether both heads have learnt which tokens are alike: otherwise nothing follows."""
        return min(self.structure) >= _STRUCTURE


def aligned(ours: Matrix, theirs: Matrix, readings: Mapping[str, Sequence[int]]) -> Alignment | None:
    """Compare the rows of the draft's head with the target's, whatever the widths of the two.

    ``readings`` are ways to read the mapping, each with the target token of every draft id; the first is the one in
    question. None when too few ids have a row in both heads. Raises SourceError.
    """
    rows = theirs.tensor.shape[0]
    first = next(iter(readings.values()))
    known = [i for i in range(min(len(first), ours.tensor.shape[0])) if 0 <= first[i] < rows]
    ids = [known[i * len(known) // SAMPLE] for i in range(SAMPLE)] if len(known) > SAMPLE else known
    if len(ids) < _LEAST:
        return None
    near = _cosines(_rows(ours, ids))
    agree: dict[str, float] = {}
    structures = [_structure(near, ours)]
    for name, reading in readings.items():
        tokens = [reading[i] if i < len(reading) and 0 <= reading[i] < rows else -1 for i in ids]
        theirs_near = _cosines(_rows(theirs, tokens))
        structures.append(_structure(theirs_near, theirs))
        agree[name] = _share(near, theirs_near, tokens)
    return Alignment(len(ids), agree, (structures[0], structures[1]))


def _share(ours: NDArray[np.float32], theirs: NDArray[np.float32], tokens: Sequence[int]) -> float:
    """The share of the rows whose nearest, by their neighbours, is the one of the same place; others count as wrong."""
    nearest = (_unit(ours) @ _unit(theirs).T).argmax(axis=1)
    right = (nearest == np.arange(len(nearest))) & (np.asarray(tokens) >= 0)
    return float(right.mean())


def _cosines(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """How near each row is to each other; to itself 0."""
    unit = _unit(rows)
    near: NDArray[np.float32] = unit @ unit.T
    np.fill_diagonal(near, 0)
    return near


def _structure(near: NDArray[np.float32], matrix: Matrix) -> float:
    count = len(near)
    spread = float(np.sqrt((near**2).sum() / (count * (count - 1))))
    return spread * float(np.sqrt(matrix.tensor.shape[1]))


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows less their mean, of length one."""
    rows = rows - rows.mean(axis=0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float32] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit


def _rows(matrix: Matrix, numbers: Sequence[int]) -> NDArray[np.float32]:
    """Rows as numbers; a row of number -1 is zeros, and so is a value that is no finite number."""
    blank = bytes(matrix.width)
    data = b"".join(matrix.read(number) if number >= 0 else blank for number in numbers)
    rows = as_numbers(matrix.tensor.dtype, data).astype(np.float32).reshape(len(numbers), -1)
    rows[~np.isfinite(rows)] = 0
    return rows
