"""A d2t that is the other map: an entry for each target token, holding its draft id, or whether it is kept."""

from __future__ import annotations

from collections.abc import Sequence

from drafcheck.finding import Confidence

INVERSE = "inverse"
FLAGS = "flags"
INVERTED = (INVERSE, FLAGS)
"""Ways in which the values of a d2t can be meant that no engine reads."""


def inverted(raw: Sequence[int], rows: int | None, mask: bytes | None) -> tuple[str, Confidence] | None:
    """Whether ``raw`` has more values than the head ``rows`` and they are an inverse map or flags; None otherwise.

    An inverse map holds each draft id once and one other value (a negative one, 0 or the number of rows) for the tokens
    that are left out. ``mask`` (t2d) makes it certain.
    """
    if rows is None or rows < 2 or len(raw) <= rows:
        return None
    values = list(raw)
    kinds = set(values)
    if kinds == {0, 1} and values.count(1) == rows:
        kept = [i for i, value in enumerate(values) if value == 1]
        return FLAGS, _sure(kept, mask)
    filler = kinds - set(range(rows))
    if (
        len(kinds - filler) < rows
        or len(filler) > 1
        or len(values) - values.count(_fill(filler)) not in (rows, rows - 1)
    ):
        return None
    return INVERSE, _sure(tokens_of(values, rows), mask)


def tokens_of(raw: Sequence[int], rows: int) -> list[int]:
    """The target token of each draft id, for an inverse map."""
    found = [0] * rows
    for token in range(len(raw) - 1, -1, -1):  # the first token with an id has it: of zeros that fill, too
        if 0 <= raw[token] < rows:
            found[raw[token]] = token
    return found


def _fill(filler: set[int]) -> int:
    return next(iter(filler), 0)


def _sure(kept: list[int], mask: bytes | None) -> Confidence:
    same = mask is not None and mask.count(1) == len(kept) and all(t < len(mask) and mask[t] for t in kept)
    return Confidence.CERTAIN if same else Confidence.LIKELY
