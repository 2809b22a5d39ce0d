"""Changes in the text of a JSON file that leave all the rest of it as its author wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from drafcheck.jsonpos import members


class _Object(NamedTuple):
    """An object in a text: where its brace stands, and how its members are laid out."""

    start: int
    indent: str | None  # what stands before each member on its line; None: they share a line


def with_key(text: str, route: Sequence[str], value: Any) -> str:
    """``text`` with the value at the end of ``route`` set. What stands in the way and is no object gives way to one.

    ``text`` holds a JSON object. Of a key that is given twice the last one is changed: it is the one that counts.
    """
    start = text.index("{")
    for depth, key in enumerate(route):
        found = [m for m in members(text, start) if m.key == key]
        rest = route[depth + 1 :]
        if not found:
            return _inserted(text, start, key, _nested(rest, value))
        last = found[-1]
        if not rest or text[last.start] != "{":
            new = _dumped(text, _nested(rest, value), _layout(text, start))
            return text[: last.start] + new + text[last.stop :]
        start = last.start
    return text


def without_key(text: str, route: Sequence[str]) -> str:
    """``text`` without the key at the end of ``route``; the same text when it is not there."""
    start = text.index("{")
    for key in route[:-1]:
        found = [m for m in members(text, start) if m.key == key and text[m.start] == "{"]
        if not found:
            return text
        start = found[-1].start
    while True:
        every = list(members(text, start))
        number = next((n for n, m in enumerate(every) if m.key == route[-1]), None)
        if number is None:
            return text
        text = _cut(text, start, every, number)


def _cut(text: str, start: int, every: Sequence[Any], number: int) -> str:
    """The text without one member, and without the comma that parts it from a neighbour."""
    if number + 1 < len(every):
        return text[: every[number].place] + text[every[number + 1].place :]
    end = every[number].stop
    return text[: every[number - 1].stop if number else start + 1] + text[end:]


def _nested(route: Sequence[str], value: Any) -> Any:
    for key in reversed(route):
        value = {key: value}
    return value


def _inserted(text: str, start: int, key: str, value: Any) -> str:
    layout = _layout(text, start)
    every = list(members(text, start))
    new = f"{json.dumps(key)}: {_dumped(text, value, layout)}"
    if not every:
        return text[: start + 1] + new + text[text.index("}", start) :]
    end = every[-1].stop
    gap = ", " if layout.indent is None else ",\n" + layout.indent
    return text[:end] + gap + new + text[end:]


def _layout(text: str, start: int) -> _Object:
    first = next(members(text, start), None)
    if first is None or "\n" not in text[start : first.place]:
        return _Object(start, None)
    return _Object(start, text[text.rindex("\n", start, first.place) + 1 : first.place])


def _dumped(text: str, value: Any, layout: _Object) -> str:
    """A value as JSON text, laid out as its neighbours are."""
    plain = text.isascii()
    if layout.indent is None or not isinstance(value, (Mapping, list)) or not value:
        return json.dumps(value, ensure_ascii=plain)
    outer = text[text.rfind("\n", 0, layout.start) + 1 :]
    outer = outer[: len(outer) - len(outer.lstrip(" \t"))]
    step = layout.indent.removeprefix(outer) or "  "
    lines = json.dumps(value, indent=step, ensure_ascii=plain).split("\n")
    return "\n".join(_hung(lines, layout.indent))


def _hung(lines: Sequence[str], indent: str) -> Iterator[str]:
    yield lines[0]
    yield from (indent + line for line in lines[1:])
