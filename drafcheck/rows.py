"""A few rows of lm_head, read by range to see whether they repeat where d2t does: never the whole head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.source import SourceError

if TYPE_CHECKING:
    from drafcheck.checkpoint import Checkpoint
    from drafcheck.tensor import Tensor
    from drafcheck.unplaced import Rows

PAIRS = 16
"""So many pairs of rows are compared at the most."""

HEAD = 256
"""So many bytes of a row are read first: those of two trained rows differ in the first few."""

_WHOLE = 4  # so many pairs are compared to their ends, once all have begun alike
_BLANK = 4  # after so many pairs without values the head is taken for one without
_NEAR = 64  # so far from a place two neighbours with one offset are looked for
_SCANNED = 4096  # so many values of an unsorted d2t are looked through for two alike


class Repeats(NamedTuple):
    """Rows that are the same byte by byte: ``pairs`` of them, ``first`` the draft ids of the first pair."""

    pairs: int
    first: tuple[int, int]


def rows_repeat_with(checkpoint: Checkpoint, head: Tensor, raw: Sequence[int]) -> Repeats | None:
    """Whether rows of ``head`` are the same where values of ``raw`` (d2t as stored) are, and differ where they do.

    None when they are not, or when the rows hold nothing but zeros. ``head`` has a row for each value. Raises
    SourceError.
    """
    return _compare(_Rows(checkpoint, head, len(raw)), raw)


def _compare(rows: _Rows, raw: Sequence[int]) -> Repeats | None:
    alike: list[tuple[int, int]] = []
    blank = 0
    for one, two in islice(pairs_alike(raw), PAIRS):
        first, second = rows.start(one), rows.start(two)
        if not any(first) and not any(second):
            blank += 1
            if blank == _BLANK:
                return None
        elif first != second:
            return None  # nearly always at the first pair
        else:
            alike.append((one, two))
    if len(alike) < 2 or not _others_differ(rows, raw, alike):
        return None
    whole = all(rows.whole(one) == rows.whole(two) for one, two in alike[:_WHOLE])
    return Repeats(len(alike), alike[0]) if whole else None


def _others_differ(rows: _Rows, raw: Sequence[int], alike: list[tuple[int, int]]) -> bool:
    """Whether rows with different values of d2t differ: else the rows are all the same, whatever d2t says."""
    offsets = {raw[one]: one for one, _ in alike}
    if len(offsets) < 2:
        return False
    return len({rows.start(one) for one in offsets.values()}) == len(offsets)


def pairs_alike(raw: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Draft ids with one value of d2t, spread over the vocabulary where neighbours share theirs, as in sorted maps."""
    found = False
    for start in range(0, len(raw), max(len(raw) // PAIRS, 1)):
        near = enumerate(pairwise(raw[start : start + min(_NEAR, len(raw) // PAIRS + 1) + 1]), start)
        place = next((i for i, (a, b) in near if a == b), None)
        if place is not None:
            found = True
            yield place, place + 1
    if not found:
        yield from _anywhere(raw[:_SCANNED])


def _anywhere(raw: Sequence[int]) -> Iterator[tuple[int, int]]:
    seen: dict[int, int] = {}
    for i, value in enumerate(raw):
        if value in seen:
            yield seen[value], i
        seen[value] = i


class _Rows:
    """The rows of a matrix in a weight file, by range."""

    def __init__(self, checkpoint: Checkpoint, head: Tensor, rows: int) -> None:
        self._checkpoint = checkpoint
        self._head = head
        self._apart = _apart(checkpoint, head) if head.start < 0 else None
        self._width = self._apart.width if self._apart is not None else (head.stop - head.start) // max(rows, 1)

    def start(self, row: int) -> bytes:
        """The first bytes of a row. Raises SourceError."""
        return self._read(row, min(self._width, HEAD))

    def whole(self, row: int) -> bytes:
        """All bytes of a row. Raises SourceError."""
        return self._read(row, self._width)

    def _read(self, row: int, length: int) -> bytes:
        if self._apart is not None:
            return self._apart.read(row, length)
        at = self._head.start + row * self._width
        return self._checkpoint.read(self._head._replace(start=at, stop=at + length))


def _apart(checkpoint: Checkpoint, head: Tensor) -> Rows:
    """The rows of a head that does not lie in one piece. Raises SourceError."""
    from drafcheck.unplaced import Rows

    file = checkpoint.file(head.file)
    if file is None:
        raise SourceError(f"there is no {head.file}")
    return Rows(file, head)
