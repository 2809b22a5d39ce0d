"""Small words for messages: counts, shares, shapes, lists cut short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def count(n: int | None, noun: str) -> str:
    """``1 tensor``, ``12,000 tensors``, and ``? tensors`` of an unknown number."""
    return f"{'?' if n is None else format(n, ',')} {noun}{'' if n == 1 else 's'}"


def plural(n: int, noun: str) -> str:
    """As `count` with plain digits, for numbers that somebody may look for in a file: ``1 byte``, ``12000 bytes``."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def ends(n: int | None) -> str:
    """How a verb ends after so many: ``1 state arrives``, ``2 states arrive``."""
    return "s" if n == 1 else ""


def are(n: int | None) -> str:
    """``1 row is the same``, ``2 rows are the same``."""
    return "is" if n == 1 else "are"


def json_fault(message: str) -> str:
    """What Python's json says of a text, without the place that two of its messages end before."""
    return message.lower().removesuffix(" at").removesuffix(" starting")


def without_blanks(message: str) -> str:
    """A message in which an engine's error without words of its own, or of changing words, is told by its class."""
    for empty in ("Error: ...", "Error: "):
        for end in (")", ";", ","):
            message = message.replace(empty + end, "Error" + end)
        if message.endswith(empty):
            message = message.removesuffix(empty) + "Error"
    return message


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


def numbered(text: str, names: Sequence[str]) -> str:
    """A message with all names (``missing``), the first five (``few``) or their number in it."""
    listed = sorted(names)
    for word, found in (("{missing}", listed), ("{few}", listed[:5]), ("{number}", len(names))):
        text = text.replace(word, str(found))
    return text
