"""Do the rows of the draft's head stand for the tokens that d2t names? Told by the weights of both heads alone.

Both heads keep the rows of tokens that are used alike near each other, also where the draft's was trained from nothing
and its rows lie in a space of their own. So a row is not compared with the target's rows, but how near it is to the
other rows of its head is compared with how near the target's rows are to each other. Under the right mapping the draft
row whose neighbours are those of a token is the row of that token; under a wrong one it is any row. On the trained pair
behind the measured accept lengths that names 100 % of 256 rows right, and 0 % once the rows are permuted.

A head that was trained for a few hundred steps seldom has its own token nearest, and has it near all the same: nearer
than most others. Two things tell a wrong mapping then, which ``concord`` works out from more rows (``CLOSER``): how
near the rows lie to each other has nothing to do with how near their tokens do, or rows that agree stand beside others
that lie as often in the farthest quarter as in the next ones. Where neither shows, nothing is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from drafcheck.valuescan.concord import STRETCH, SURE, Concord, concord
from drafcheck.valuescan.kernels import as_numbers
from drafcheck.words import ends, plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drafcheck.matrix import Matrix, Scattered

    Rows = NDArray[np.float32]

SAMPLE = 256
"""So many draft ids are looked at the most, in stretches spread over the draft vocabulary."""

CLOSER = 1024
"""So many are where these do not tell, or hold some in doubt."""

NEIGHBOURS = STRETCH
"""Draft ids of one stretch: their rows lie together, and those of their tokens mostly near, which saves requests."""

COLUMNS = 16_384
"""Of longer rows so many columns are looked at, the first: no hidden state has more, and memory has an end."""

BAD, GOOD = 0.2, 0.5
"""Shares of the sampled rows: below the first a mapping is not the head's own, from the second on it is."""

_LEAST = 32  # ids are too few below that
_STRUCTURE = 1.15  # of the cosines of a head's rows, or of one row, over those of random ones
_RANDOM = 1.02  # what random rows themselves stay below
_NEAR = 0.9  # of the others: than these the token of a row in no doubt is nearer
_ALIKE = 0.25  # a row in doubt is this far from being as often above as below one in no doubt, by any one measure
_THROUGHOUT = 0.9  # of the rows: where these are amiss, so is the mapping

Verdict = Literal["right", "partly", "wrong", "untold"]


class Alignment(NamedTuple):
    """What the comparison says of ``sampled`` draft ids.

    ``agree`` maps each reading of the mapping that was looked at, the one in question first, to the share of the ids
    whose row has the neighbours of the token that it names. ``structure`` is the spread of the cosines of the rows of
    each head, the draft's first, over that of random rows: 1 for a head that nobody trained. ``empty`` are the rows of
    each that hold no number, or zeros alone. ``concord`` is what more rows tell; of these ``doubted``, as draft ids,
    have the token named among the farther half of the others. ``instead``: the shares of those that agree with another
    reading. ``columns``: of so many values of a row nothing more was looked at; None where no row has more. ``others``:
    the rows in doubt are of another kind than those near their tokens, by the draft's head alone: those of tokens that
    training hardly saw, and no accident of the mapping.
    """

    sampled: int
    agree: Mapping[str, float]
    structure: tuple[float, float]
    empty: tuple[int, int]
    concord: Concord
    doubted: tuple[int, ...]
    instead: Mapping[str, float]
    columns: int | None = None
    others: bool = False

    @property
    def chance(self) -> float:
        """The share that would agree with a reading by chance."""
        return 1 / self.sampled

    @property
    def named(self) -> float:
        """The share that agrees with the mapping in question."""
        return next(iter(self.agree.values()))

    @property
    def amiss(self) -> float:
        """About which share of the rows stands for other tokens."""
        return 1.0 if self._throughout else self.concord.amiss

    @property
    def _throughout(self) -> bool:
        """Whether no row need be that of its token."""
        return self.named < BAD and self.concord.unrelated(self.structure)

    @property
    def verdict(self) -> Verdict:
        """What follows for the mapping; ``untold`` where nothing does."""
        if self.named < BAD and max(self.agree.values()) >= GOOD:  # that is no accident, however little sets rows apart
            return "wrong"
        if self._throughout:
            return "wrong"
        proven = not self.others or max(self.instead.values(), default=0.0) >= GOOD
        if self.mixed and proven:
            return "wrong" if self.named < BAD and self.amiss >= _THROUGHOUT else "partly"
        if self.named < BAD and min(self.structure) >= _STRUCTURE and proven and self.concord.scattered:
            return "wrong"
        return "right" if self.named >= GOOD else "untold"

    @property
    def mixed(self) -> bool:
        """Whether rows that do not follow their tokens stand beside others that do, whatever the reason."""
        return min(self.structure) >= _STRUCTURE and self.concord.mixed(self.named)

    def why_untold(self, ours: str, theirs: str) -> str:
        """Why nothing follows, and what would settle it; ``ours`` and ``theirs`` are what to call the heads."""
        for name, empty, structure in zip((ours, theirs), self.empty, self.structure, strict=True):
            if 2 * empty > self.sampled:
                return (
                    f"{empty} of {plural(self.sampled, 'sampled row')} of {name} hold{ends(empty)} no finite number "
                    "but zeros"
                )
            if structure < _STRUCTURE:
                return (
                    f"too little sets the rows of {name} apart from random ones ({structure:.2f} times their cosines)"
                    f"{_SETTLED}"
                )
        some = ", though not for all of them," if self.concord.p < SURE else ""
        return (
            f"{ours} has learnt too little to tell{some} whether its rows are those of other tokens: {self.named:.0%} "
            f"of {plural(self.sampled, 'sampled row')} agree{_SETTLED}"
        )


_SETTLED = "; a later training state would tell, or the mapping that the trainer kept (--reference)"


def aligned(ours: Matrix | Scattered, theirs: Matrix, readings: Mapping[str, Sequence[int]]) -> Alignment | None:
    """Compare the rows of the draft's head with the target's, whatever the widths of the two.

    ``readings`` are ways to read the mapping, each with the target token of every draft id; the first is the one in
    question. The others are looked at where it is not right, and those one token off, whose rows lie beside, in any
    case. None when too few ids have a row in both heads. Raises SourceError.
    """
    ids = sampled(_known(ours, theirs, next(iter(readings.values()))))
    if len(ids) < _LEAST:
        return None
    found = _compared(ours, theirs, readings, ids)
    wide = max(ours.tensor.shape[1], theirs.tensor.shape[1]) > COLUMNS
    return found._replace(columns=COLUMNS) if wide else found


def _compared(
    ours: Matrix | Scattered, theirs: Matrix, readings: Mapping[str, Sequence[int]], ids: list[int]
) -> Alignment:
    rows = theirs.tensor.shape[0]
    tokens = _tokens(readings, ids, rows)
    name, named = next(iter(tokens.items()))
    beside = {other: one for other, one in tokens.items() if _near(one, named)}
    kept = _fetched(theirs, beside.values())
    sight = _Sight(_stacked(ours, _fetched(ours, [ids]), ids), _stacked(theirs, kept, named), ids, named)
    found = sight.judged(name)
    for other in list(beside)[1:]:
        found = sight.also(found, other, _stacked(theirs, kept, beside[other]), beside[other])
    if (found.named >= GOOD and not found.doubted) or min(found.structure) < _RANDOM:
        return found
    del kept
    for other, one in tokens.items():
        if other not in beside and found.named < GOOD:
            found = sight.also(found, other, _stacked(theirs, _fetched(theirs, [one]), one), one)
    return (
        found
        if found.verdict == "wrong" and max(found.agree.values()) >= GOOD
        else _closer(found, ours, theirs, readings)
    )


def _closer(
    found: Alignment, ours: Matrix | Scattered, theirs: Matrix, readings: Mapping[str, Sequence[int]]
) -> Alignment:
    """The same with what more rows tell. Raises SourceError."""
    rows = theirs.tensor.shape[0]
    first = next(iter(readings.values()))
    ids = sampled(_known(ours, theirs, first), CLOSER)
    named = [first[i] for i in ids]
    sight = _Sight(
        _stacked(ours, _fetched(ours, [ids]), ids), _stacked(theirs, _fetched(theirs, [named]), named), ids, named
    )
    seen = sight.judged("")
    found = found._replace(concord=seen.concord, doubted=seen.doubted, structure=seen.structure, others=seen.others)
    if not found.mixed or len(sight.anchors) < _LEAST:
        return found
    doubts = list(seen.doubted)
    told = list(_tokens(readings, doubts, rows).items())[1:]
    return found._replace(
        instead={name: sight.instead(_stacked(theirs, _fetched(theirs, [tokens]), tokens)) for name, tokens in told}
    )


def _known(ours: Matrix | Scattered, theirs: Matrix, tokens: Sequence[int]) -> list[int]:
    """The draft ids that have a row in both heads."""
    rows = theirs.tensor.shape[0]
    return [i for i in range(min(len(tokens), ours.tensor.shape[0])) if 0 <= tokens[i] < rows]


def sampled(known: Sequence[int], most: int = SAMPLE) -> list[int]:
    """At most so many of these draft ids, in ascending order: stretches of neighbours from the first to the last."""
    if len(known) <= most:
        return list(known)
    stretches = most // NEIGHBOURS
    starts = (i * (len(known) - NEIGHBOURS) // (stretches - 1) for i in range(stretches))
    return [known[place] for place in sorted({start + i for start in starts for i in range(NEIGHBOURS)})]


def _tokens(readings: Mapping[str, Sequence[int]], ids: Sequence[int], rows: int) -> dict[str, list[int]]:
    """The token of each id by each reading, -1 where it has none; readings that say the same are there once."""
    told: dict[str, list[int]] = {}
    for name, reading in readings.items():
        tokens = [reading[i] if i < len(reading) and 0 <= reading[i] < rows else -1 for i in ids]
        if tokens not in told.values():
            told[name] = tokens
    return told


def _near(tokens: Sequence[int], others: Sequence[int]) -> bool:
    return all(one < 0 or abs(one - other) <= 1 for one, other in zip(tokens, others, strict=True))


class _Sight:
    """How near the sampled rows of the draft's head are to each other, and those of the target of their tokens.

    ``anchors`` are the places of those that agree with the mapping in question, ``doubts`` of those in doubt.
    """

    def __init__(self, draft: Rows, rows: Rows, ids: Sequence[int], tokens: Sequence[int]) -> None:
        """``draft`` are the rows of the draft ids, ``rows`` the target's of the tokens."""
        self.near, self._others = _cosines(draft), _cosines(rows)
        self._draft, self._rows, self._ids, self._tokens = draft, rows, ids, tokens
        self.anchors = np.empty(0, np.intp)
        self.doubts = np.empty(0, np.intp)

    def judged(self, name: str) -> Alignment:
        """What follows for the mapping in question, called ``name``."""
        draft, rows = self._draft, self._rows
        alike = _unit(self.near) @ _unit(self._others).T
        hits, own = _hits(alike, self._tokens), np.diag(alike)
        spreads = _spreads(self.near, draft.shape[1]), _spreads(self._others, rows.shape[1])
        tells = np.flatnonzero(np.minimum(*spreads) >= _STRUCTURE)
        nearer = (alike < own[:, None]).sum(axis=1) / (len(own) - 1)  # the share of the others than which its token is
        self.anchors = np.flatnonzero(hits)
        self.doubts = tells[nearer[tells] < 1 / 2]
        return Alignment(
            sampled=len(self._ids),
            agree={name: float(hits.mean())},
            structure=(_structure(self.near, draft), _structure(self._others, rows)),
            empty=(_empty(draft), _empty(rows)),
            concord=concord(
                self.near, self._others, nearer[tells], len({int(i) // NEIGHBOURS for i in self.doubts}), draft.shape[1]
            ),
            doubted=tuple(self._ids[int(i)] for i in self.doubts),
            instead={},
            others=_differ((spreads[0], _sides(draft)), self.doubts, tells[nearer[tells] >= _NEAR]),
        )

    def also(self, found: Alignment, name: str, rows: Rows, tokens: Sequence[int]) -> Alignment:
        """The same, and the share of another reading with these ``rows`` of the target."""
        hits = _hits(_unit(self.near) @ _unit(_cosines(rows)).T, tokens)
        return found._replace(agree={**found.agree, name: float(hits.mean())})

    def instead(self, rows: Rows) -> float:
        """The share of the rows in doubt to which these are nearer than any sampled one, by the rows that agree."""
        ours = _unit(self.near[:, self.anchors])[self.doubts]
        named = self._others[:, self.anchors]
        best = (ours @ _unit(named).T).max(axis=1)
        centre = self._rows[self._rows.any(axis=1)].mean(axis=0)
        profiles = _normal(rows - centre) @ _normal(self._rows[self.anchors] - centre).T
        return float(((ours * _unit(profiles, named.mean(axis=0))).sum(axis=1) >= best).mean())


def _hits(alike: Rows, tokens: Sequence[int]) -> NDArray[np.bool_]:
    """The rows whose nearest, by their neighbours, is the one of the same place; those without a token are none."""
    hits: NDArray[np.bool_] = (alike.argmax(axis=1) == np.arange(len(alike))) & (np.asarray(tokens) >= 0)
    return hits


def _cosines(rows: Rows) -> Rows:
    """How near each row is to each other; to itself 0."""
    unit = _unit(rows)
    near: Rows = unit @ unit.T
    np.fill_diagonal(near, 0)
    return near


def _spreads(near: Rows, width: int) -> Rows:
    """Of each row: the spread of its cosines over that of a random one of this width."""
    spreads: Rows = np.sqrt((near**2).sum(axis=1) / (len(near) - 1) * width)
    return spreads


def _sides(draft: Rows) -> Rows:
    """How far each row lies to the side on which most rows lie."""
    filled = draft[draft.any(axis=1)]
    sides: Rows = draft @ filled.mean(axis=0) if len(filled) else np.zeros(len(draft), np.float32)
    return sides


def _differ(measures: Iterable[Rows], some: NDArray[np.intp], others: NDArray[np.intp]) -> bool:
    """Whether a measure tells some rows from others. Which rows a wrong mapping moves has nothing to do with them.

    Told by the share of pairs in which it is larger (Mann and Whitney 1947).
    """
    if not len(some) or not len(others):
        return False
    larger = (float((measure[some][:, None] > measure[others][None, :]).mean()) for measure in measures)
    return any(abs(share - 1 / 2) >= _ALIKE for share in larger)


def _structure(near: Rows, rows: Rows) -> float:
    """The same of all rows that hold something."""
    count = len(rows) - _empty(rows)
    return float(np.sqrt((near**2).sum() / (count * (count - 1)) * rows.shape[1])) if count > 1 else 0.0


def _empty(rows: Rows) -> int:
    return len(rows) - int(np.count_nonzero(rows.any(axis=1)))


def _unit(rows: Rows, centre: Rows | None = None) -> Rows:
    """The rows less their mean, of length one; rows of zeros stay what they are and count for no mean."""
    filled = np.asarray(rows.any(axis=1))
    if not filled.any():
        return rows
    middle = rows[filled].mean(axis=0) if centre is None else centre
    return _normal(np.where(filled[:, None], rows - middle, 0))


def _normal(rows: Rows) -> Rows:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    normal: Rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return normal


def _fetched(matrix: Matrix | Scattered, numbers: Iterable[Sequence[int]]) -> dict[int, bytes]:
    """The bytes of these rows, those of the numbers below 0 left out. Raises SourceError."""
    wanted = {number for some in numbers for number in some if number >= 0}
    return {number: bytes(data) for number, data in matrix.rows(wanted, _columns(matrix))}


def _columns(matrix: Matrix | Scattered) -> int:
    return min(matrix.tensor.shape[1], COLUMNS)


def _stacked(matrix: Matrix | Scattered, kept: Mapping[int, bytes], numbers: Sequence[int]) -> Rows:
    """Rows as numbers, of length one, so that none outweighs the others however large its numbers are.

    A row of number -1 is zeros, and so is a value that is no finite number.
    """
    rows: Rows = np.zeros((len(numbers), _columns(matrix)), np.float32)
    for place, number in enumerate(numbers):
        if number >= 0:
            values = as_numbers(matrix.tensor.dtype, kept[number])
            values[np.logical_not(np.isfinite(values))] = 0
            largest = float(np.abs(values).max())
            rows[place] = values / (largest or 1.0)
    return _normal(rows)
