"""TOML files that people write: read with care, and with the line of a key at hand for messages."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drafcheck.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LIMIT = 1 << 20
"""Longer files are refused. In bytes; nobody writes so much by hand."""

DEEPEST = 100
"""Tables in tables; a key of more parts is refused before it is read, as reading it takes the square of the parts."""

_QUOTED = re.compile(r""" "[^"]*" | '[^']*' """, re.VERBOSE)
_BETWEEN_KEYS = re.compile(r"[^\w\s.-]")
_PLACE = re.compile(r"\(at (?:line (\d+), column \d+|end of document)\)")
_LONGEST = 500  # lines of one statement; a longer one is not looked into for its place

Route = tuple[str | int, ...]
"""The way to a value: keys, and positions in lists."""


def shown(path: Path) -> str:
    """A path as a message names it: relative when it lies below the current folder, else as it is."""
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except (OSError, ValueError):
        return str(path)


def read_text(path: Path) -> str:
    """The text of a file of people. Raises UsageError when it can not be read, is too long or is not UTF-8."""
    try:
        if not path.is_file():
            raise UsageError(f"{shown(path)} is not a file" if path.exists() else f"{shown(path)} does not exist")
        with path.open("rb") as stream:
            raw = stream.read(LIMIT + 1)
        if len(raw) > LIMIT:
            raise UsageError(f"{shown(path)} is longer than the {LIMIT:,} bytes that are read of such a file")
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown(path)} is not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:  # a null byte in the name is a ValueError
        raise UsageError(f"can not read {path}: {getattr(error, 'strerror', None) or error}") from None


def parse(path: Path, text: str) -> dict[str, Any]:
    """The TOML document ``text`` of the file ``path``. Raises UsageError, with the line, when it is none."""
    try:
        if (long := _long_key(text)) is not None:
            raise UsageError(f"{shown(path)}:{long}: a key of more than {DEEPEST} parts, too deep to be read")
        table: dict[str, Any] = tomllib.loads(text)
        return table
    except RecursionError:
        raise UsageError(f"{shown(path)} is nested too deeply to be read") from None
    except ValueError as error:
        found = _PLACE.search(str(error))
        line = f":{found[1] or text.count(chr(10)) + 1}" if found else ""
        why = _PLACE.sub("", str(error)).strip().partition(";")[0]
        raise UsageError(f"{shown(path)}{line}: not TOML: {why[:1].lower()}{why[1:]}") from None


def _long_key(text: str) -> int | None:
    """The first line, from 1, with a key of too many parts; quoted parts count as well."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") >= DEEPEST:
            keys = _BETWEEN_KEYS.split(_QUOTED.sub("_", line))
            if any(key.count(".") >= DEEPEST for key in keys):
                return number
    return None


def line_of(text: str, route: Route) -> int | None:
    """The line, from 1, of the statement that gives the value at ``route``, or of its nearest parent.

    ``text`` is known to be TOML. None when not even the first key is there.
    """
    best, found = 0, None
    for line, here in _statements(text):
        alike = _shared(here, route)
        if alike > best:
            best, found = alike, line
    return found


def _shared(one: Route, other: Route) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _statements(text: str) -> Iterator[tuple[int, Route]]:
    """Where each header and each assignment starts, and the way to what it gives."""
    table: Route = ()
    arrays: Counter[Route] = Counter()
    for line, chunk, parsed in _chunks(text):
        way = _spine(parsed)
        if not chunk.lstrip().startswith("["):
            yield line, (*table, *way)
            continue
        table = _within(way, arrays)
        if chunk.lstrip().startswith("[["):
            table = (*table, arrays[table])
            arrays[table[:-1]] += 1
        yield line, table


def _within(way: Route, arrays: Counter[Route]) -> Route:
    """``way`` with the position of the last element of every list of tables that it leads through."""
    there: Route = ()
    for part in way[:-1]:
        there = (*there, part)
        if arrays[there]:
            there = (*there, arrays[there] - 1)
    return (*there, *way[-1:])


def _spine(table: Any) -> Route:
    """The keys from the top down, as long as there is one; ``[[a.b]]`` ends with its list."""
    way: Route = ()
    while isinstance(table, dict) and len(table) == 1:
        key, table = next(iter(table.items()))
        way = (*way, key)
    return way


def _chunks(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Each statement with its first line: lines are taken together until they are TOML by themselves.

    A list or a string over several lines is not before it ends, so that is exact.
    """
    chunk, start = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        chunk = f"{chunk}\n{line}" if chunk else line
        start = start if "\n" in chunk else number
        parsed = _parsed(chunk) if number - start < _LONGEST else None
        if parsed is not None:
            if parsed:
                yield start, chunk, parsed
            chunk = ""


def _parsed(chunk: str) -> dict[str, Any] | None:
    try:
        table: dict[str, Any] = tomllib.loads(chunk)
        return table
    except (ValueError, RecursionError):
        return None
