"""For DC705: options that hold an integer, and what is written in its place."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from drafcheck.checks.launch import at, entries, launch_of
from drafcheck.finding import Confidence
from drafcheck.registry import Hit

if TYPE_CHECKING:
    from drafcheck.contract import Table
    from drafcheck.launch.model import Launch
    from drafcheck.subject import Subject


_ARGPARSE = "argument ...: invalid int value"


class Held(NamedTuple):
    """What a key holds: as it is written, and as a value. ``typed``: JSON, which tells a text from a number."""

    text: str
    value: Any
    typed: bool


def numbers(s: Subject) -> Iterator[Hit]:
    """Values that are no integers where the parser takes one, and integers below the least that makes sense."""
    from drafcheck.checks.launch_flags import spelled

    launch, book = launch_of(s)
    seen: set[str] = set()
    for entry in entries(book, "numbers", s):
        for key in entry["keys"]:
            held = None if key in seen else _held(launch, book, key)
            said = _said(s, entry, held) if held is not None else None
            if held is None or said is None:
                continue
            seen.add(key)
            sure = s.engine.exact and _refused(entry)
            yield Hit(
                f"{spelled(book, key)} is {_cut(held.text)}: {said}",
                (at(launch, key),),
                help="write a whole number above 0",
                confidence=Confidence.CERTAIN if sure else Confidence.LIKELY,
                stops=_refused(entry),
            )


def _refused(entry: Table) -> bool:
    """Whether the engine says so itself, at start."""
    return bool(entry.get("error"))


def _said(s: Subject, entry: Table, held: Held) -> str | None:
    """What is wrong with a value, in words; None for nothing, or for what cannot be known."""
    number = _taken(held, lax=bool(entry.get("lax")))
    least = entry.get("least")
    if number is None:
        error = entry.get("mistyped", entry.get("error")) if held.typed else _ARGPARSE
        return f"{s.engine} takes an integer ({error})" if _refused(entry) else None
    if least is None or math.isnan(number) or number >= least:
        return None
    if entry.get("checked"):
        return f"{s.engine} takes {least} or more ({entry['error']})"
    return f"{least} is the least that can be drafted with, and {s.engine} does not check it at start"


def _held(launch: Launch, book: Table, key: str) -> Held | None:
    """What is given under a key; None for nothing, and for what is not wholly known."""
    from drafcheck.launch.arguments import json_of

    option, text = launch.places.get(key), launch.said.get(key)
    if option is None or text is None or option.fault:
        return None
    name = book.get("json", {}).get("keys", {}).get(key, "")
    if not name or option.name in book["options"].get(key, []):
        return Held(text, text, typed=False)
    if "." not in option.name:
        value = (json_of(option) or {}).get(name)
        return Held(json.dumps(value), value, typed=True)
    try:
        return Held(text, json.loads(text), typed=True)
    except (ValueError, RecursionError):
        return Held(text, text, typed=True)


def _taken(held: Held, *, lax: bool) -> float | None:
    """The number that the parser makes of it; None where it makes none. NaN: it makes one, and what follows is open."""
    value = held.value
    if not held.typed:
        return _integer(value)  # argparse asks int() itself
    if isinstance(value, float):
        whole = math.isfinite(value) and value.is_integer()
        return value if whole and lax else None if lax else math.nan
    if isinstance(value, str) and lax:
        return _integer(value.strip().removesuffix(".0"))
    return _finite(value) if isinstance(value, int) else None


def _integer(text: str) -> float | None:
    try:
        return _finite(int(text))
    except ValueError:  # thousands of digits as well
        return None


def _finite(value: int) -> float:
    """As a float, which every comparison with a small number comes out the same for."""
    return float(max(min(value, 1 << 53), -(1 << 53)))


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
