"""Do the rows of two heads follow each other? Told by how near they lie to each other in each of the two.

The bounds were set where they part heads that were trained from nothing, with their right mapping, from the same heads
with mappings scrambled throughout or in part: at steps from the first to the 4,096th, with Adam and SGD, rates from
1e-5 to 3e-3, batches of 128 to 2,048 tokens, from random rows and from zeros, with many tokens that were never seen.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Matrix = NDArray[np.float64]

SURE = 0.01
"""Rows that follow their tokens less than tokens in any order do with this probability do not follow them.

Under right mappings it was 1e-9 and less, of a thousand rows that anything sets apart.
"""

STRETCH = 8
"""Neighbours of the sample within which frequent tokens are no more frequent than their neighbours, in sorted maps."""

_MANY, _FEW = 1000, 100  # rows that tell even where little sets them apart, and too few rows
_APART, _LITTLE = 1.15, 1.05  # what sets rows apart, and what is enough of many, over random ones
_PEAK, _STRONG = 0.4, 0.85  # of the rows that tell: so many have their token nearer than nine tenths of the others
_NAMED = 0.1  # of the rows: so many have it nearest only where the head has learnt
_FLAT = 0.2  # of the rows in the three farther quarters: a third is in the farthest of them if they are wrong
_LEAN = 0.125  # and no more than this share if they are right
_DIRECTIONS, _SCATTERED = 4, 0.1  # of heads that have learnt: directions, and rows in the farthest quarter if wrong
_SQUARE, _EDGE = 512, 1.3  # rows whose directions are counted, and how far those of random rows reach, and more
_LEAST = 32
_TURNS, _NOTHING = 24, 1e-9
_DOUBTS, _PLACES, _FAR = 5, 4, 3  # so many rows, in so many stretches, so many of them in the farthest quarter


class Concord(NamedTuple):
    """What so many rows of a head beside the rows of their tokens tell.

    ``quarters`` are those rows that have learnt something in both heads, by whether their token lies in the farthest
    quarter of the others, in the next or in the one after; then those that have it nearer than nine tenths of the
    others, and all. ``places`` are the stretches of ids in which the first two lie. ``correlation`` is that of how near
    the rows lie to each other in the two heads, ``p`` the probability of so much of it with tokens in any other order.
    It is that of the rows as they are, or without the direction in which they are spread most: what shows more. Of many
    rows only what sets them apart from their neighbours counts for both: a sorted map of other tokens has the
    frequent ones at the same end. ``directions``: in about so many the rows of the draft's head are spread, where
    nothing else tells.
    """

    rows: int
    quarters: tuple[int, int, int]
    nearest: int
    telling: int
    places: int
    correlation: float
    p: float
    directions: float

    @property
    def amiss(self) -> float:
        """About which share of the rows stands for other tokens: of those a quarter lies in each."""
        far, next_, _ = self.quarters
        return min(4 * far, 2 * (far + next_), self.telling) / self.telling if self.telling else 0.0

    def unrelated(self, structure: tuple[float, float]) -> bool:
        """Whether the rows do not follow their tokens, although something sets the rows of both heads apart."""
        enough = self.rows >= _FEW and min(structure) >= (_LITTLE if self.rows >= _MANY else _APART)
        return enough and self.p >= SURE

    @property
    def scattered(self) -> bool:
        """Whether rows spread in many directions, as after long training, lie anywhere beside those of their tokens.

        Rows that moved in one direction, as in the first steps, may do so under a right mapping.
        """
        return (
            self.directions >= _DIRECTIONS
            and min(self.telling, self.rows) >= _LEAST
            and self.quarters[0] >= _SCATTERED * self.telling
        )

    def mixed(self, named: float) -> bool:
        """Whether rows of other tokens are among them; ``named`` is the share of those that have their own nearest.

        Rows that have learnt little lie in the farther quarters the less the farther these are; those of other tokens
        are as many in each. In a head that has learnt much there are none of the first kind.
        """
        (far, next_, third), peak = self.quarters, self.nearest / self.telling if self.telling else 0.0
        if far + next_ < _DOUBTS or self.places < _PLACES or far < _FLAT * (far + next_ + third):
            return False
        if peak >= _STRONG:
            return far >= _FAR
        return (peak >= _PEAK or named >= _NAMED) and _at_least(far, far + next_ + third, _LEAN) < SURE


def concord(near: Floats, others: Floats, nearer: Floats, places: int, width: int) -> Concord:
    """``near`` and ``others`` are the cosines of the rows and of those of their tokens, each to itself 0.

    ``nearer``: of the rows that tell, the share of the others than which the own token is nearer. ``width`` is the
    width of the draft's rows.
    """
    ends = np.cumsum(np.histogram(nearer, (0, 0.25, 0.5, 0.75, 0.9, 1))[0])
    far, half, third, rest, telling = (int(end) for end in ends)
    ours, theirs = _products(near), _within(_products(others))
    correlation, p = _follow(_within(ours), theirs)
    if p >= SURE:
        correlation, p = min((correlation, p), _follow(_within(_less_widest(ours)), theirs), key=lambda told: told[1])
    doubtful = p < SURE and far >= _SCATTERED * telling > 0
    directions = _directions(near, width) if doubtful else 0.0  # it takes the longest
    quarters = (far, half - far, third - half)
    return Concord(len(near), quarters, telling - rest, telling, places, correlation, p, directions)


def _directions(near: Floats, width: int) -> float:
    """In about how many directions rows of this width are spread farther than random ones; 0 where in none."""
    near = near[:: max(len(near) // _SQUARE, 1), :: max(len(near) // _SQUARE, 1)]
    n = len(near)
    spread = np.linalg.eigvalsh(near.astype(np.float64) + np.eye(n))
    spread = spread[spread > _EDGE * (1 + math.sqrt(n / width)) ** 2]
    return float(spread.sum() ** 2 / (spread**2).sum()) if spread.size else 0.0


def _products(near: Floats) -> Matrix:
    """The same cosines, to itself 1; rows of zeros have none."""
    products: Matrix = near.astype(np.float64)
    np.fill_diagonal(products, near.any(axis=1))
    return products


def _less_widest(products: Matrix) -> Matrix:
    """The same rows without the direction in which they are spread most, which may hide what else they have learnt."""
    along = products.sum(axis=1) + np.arange(len(products))
    for _ in range(_TURNS):
        along = products @ along
        along /= float(np.linalg.norm(along)) or 1.0
    return _normal(products - float(along @ products @ along) * np.outer(along, along))


def _normal(products: Matrix) -> Matrix:
    lengths = np.sqrt(np.maximum(np.diag(products), 0))
    areas = np.outer(lengths, lengths)
    normal: Matrix = np.divide(products, areas, out=np.zeros_like(products), where=areas > _NOTHING)
    return normal


def _within(products: Matrix) -> Matrix:
    """The cosines to rows of other stretches; of many rows less the mean of their stretch."""
    n = len(products) // STRETCH * STRETCH
    if n < _MANY:
        return products * (1 - np.eye(len(products)))
    left = products[:n, :n].copy()
    for _ in range(2):  # the rows, and the columns, which are the same
        means = left.reshape(n // STRETCH, STRETCH, n).mean(axis=1)
        left = (left - np.repeat(means, STRETCH, axis=0)).T
    left, stretch = _normal(left), np.arange(n) // STRETCH
    left[stretch[:, None] == stretch] = 0
    return left


def _follow(one: Matrix, two: Matrix) -> tuple[float, float]:
    """The correlation of two symmetric matrices beside their diagonals, and its probability (Mantel 1967).

    That is the probability of so much in one of them with rows and columns in any other order.
    """
    n = len(one)
    pairs = n * (n - 1)
    one, two = (matrix - matrix.sum() / pairs * (1 - np.eye(n)) for matrix in (one, two))
    squares = [float((matrix**2).sum()) for matrix in (one, two)]
    if n < 4 or not all(squares):
        return 0.0, 1.0
    sums = [float((matrix.sum(axis=1) ** 2).sum()) for matrix in (one, two)]
    shared = [sum_ - square for sum_, square in zip(sums, squares, strict=True)]
    apart = [2 * square - 4 * sum_ for sum_, square in zip(sums, squares, strict=True)]
    variance = math.prod(squares) * 2 / pairs
    variance += math.prod(shared) * 4 / (pairs * (n - 2)) + math.prod(apart) / (pairs * (n - 2) * (n - 3))
    found = float((one * two).sum())
    return found / math.sqrt(math.prod(squares)), math.erfc(found / math.sqrt(2 * variance)) / 2


def _at_least(count: int, of: int, share: float) -> float:
    """The probability of so many, where each is one with this share."""
    return sum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(count, of + 1))
