"""Small words for messages: counts, shares, shapes, lists cut short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def count(n: int, noun: str) -> str:
    """``1 tensor``, ``12,000 tensors``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def share(part: int, whole: int) -> str:
    """A share in per cent with one digit, ``0 %`` of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def shape(sizes: Iterable[int]) -> str:
    """A shape as the field writes it: ``[7168, 21504]``; an unknown size is ``?``."""
    return "[" + ", ".join("?" if size < 0 else str(size) for size in sizes) + "]"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first names in backquotes, then how many more there are."""
    shown = ", ".join(f"`{name}`" for name in names[:most])
    rest = len(names) - most
    return f"{shown} and {rest:,} more" if rest > 0 else shown
