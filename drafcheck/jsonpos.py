"""JSON files of a checkpoint: parsed as the engines parse them, with the line and column of every key at hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drafcheck.collecting import no_collection
from drafcheck.finding import Location
from drafcheck.lfs import POINTER_LIMIT, lfs_pointer
from drafcheck.source import Source, SourceError
from drafcheck.tensor import Problem, Trouble
from drafcheck.words import json_fault

DOCUMENT_LIMIT = 16 << 20
"""Longer JSON files are not read. In bytes; the config of the largest models has about 100 kB."""

_LONG, _TABLE = 4 << 20, "weight_map"
"""Characters from which on the table of an index is read many entries at once, and its key."""

_ONE = r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+'
_TOKEN = re.compile(rf"\s*({_ONE})", re.DOTALL)
_COARSE = re.compile(rf'\s*(\[[^\[\]{{}}"]*\]|{_ONE})', re.DOTALL)  # a list of a million numbers is one word
_OPENING, _CLOSING = "{[", "}]"
_REWRITE = "write the file again with json.dump"
_PAGE = "this is a web page: download the file again, logged in where that is needed"

Token = tuple[str, int]
"""One word of the text and where it starts."""


@dataclass(slots=True)
class Document:
    """A JSON file. ``data`` is None when it could not be parsed; ``problems`` says why.

    A file with duplicate keys or NaN has both: the engines read it, each in its own way.
    """

    file: str
    data: Any = None
    problems: tuple[Problem, ...] = ()
    text: str = field(default="", repr=False)
    _forgotten: tuple[Source, int] | None = field(default=None, repr=False, compare=False)

    def at(self, *route: str | int) -> Location:
        """Where the key at the end of ``route`` stands; the nearest parent that exists, else the file alone.

        Line and column count from 1, the column in characters.
        """
        text = self._text()
        found = list(self._places(text, route))
        if not found:
            return Location(file=self.file)
        key = ".".join(str(part) for part in route[: len(found)])
        return _location(self.file, key, text, found[-1])

    def forget(self, source: Source) -> None:
        """Keep a long text no longer: should a place in it be asked for, ``source`` is read again."""
        if len(self.text) > DOCUMENT_LIMIT:
            self.text, self._forgotten = "", (source, hash(self.text))

    def _text(self) -> str:
        """The text; an empty one where the file is no longer what it was."""
        if self._forgotten is None:
            return self.text
        source, known = self._forgotten
        try:
            text = source.read(0, source.size()).decode("utf-8")
        except (SourceError, UnicodeDecodeError):
            return ""
        finally:
            source.close()
        return text if hash(text) == known else ""

    def _places(self, text: str, route: tuple[str | int, ...]) -> Iterator[int]:
        """The offset of each key on the way, as far as the way goes."""
        if self.data is None or not text:
            return
        value = 0
        for part in route:
            step = _child(text, value, part)
            if step is None:
                return
            place, value = step
            yield place


def read_document(source: Source, *, trouble: Trouble = Trouble.BAD_CONFIG, limit: int = DOCUMENT_LIMIT) -> Document:
    """Read and parse a JSON object. Never raises on content: what is wrong becomes a Problem of ``trouble``."""
    try:
        size = source.size()
        raw = source.read(0, size if size <= limit else POINTER_LIMIT)
    except SourceError as error:
        return Document(source.name, problems=(Problem(error.trouble, error.message, Location(file=source.name)),))
    pointer = lfs_pointer(raw, size, source.name)
    if pointer:
        return Document(source.name, problems=(pointer,))
    if size > limit:
        message = f"{source.name} has {size} bytes, more than the {limit} that are read of a json file"
        return Document(source.name, problems=(Problem(trouble, message, Location(file=source.name), stops=False),))
    held = [raw]
    del raw  # an index of a million names has 50 MB: nobody keeps the bytes once they are text
    return _parse(source.name, held, trouble)


class _BrokenError(Exception):
    """What is wrong, continuing the file's name, and where (a place of -1: nowhere in particular)."""

    def __init__(self, message: str, place: int = -1) -> None:
        """``message`` continues the file's name."""
        super().__init__(message)
        self.place = place


def _parse(file: str, held: list[bytes], trouble: Trouble) -> Document:
    text, notes = "", _Notes()
    try:
        text = _decode(held.pop())
        data = _load_index(text, notes) if len(text) >= _LONG else None
        if data is None:
            notes = _Notes()
            data = _load(text, notes)
    except _BrokenError as error:
        place = _location(file, None, text, error.place) if error.place >= 0 else Location(file=file)
        return Document(file, problems=(Problem(trouble, f"{file} {error}", place, _mend(text)),), text=text)
    return Document(file, data, tuple(_doubts(file, text, notes, trouble)), text)


def _mend(text: str) -> str:
    page = text[:1000].lstrip().lower().startswith(("<!doctype", "<html", "<?xml"))
    return _PAGE if page else _REWRITE


def _decode(raw: bytes) -> str:
    if not raw or raw.isspace():
        raise _BrokenError("is empty")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _BrokenError(f"is not utf-8 text (byte {error.start})") from error


def _load_index(text: str, notes: _Notes) -> dict[str, Any] | None:
    """A long text with the table of an index in it; None for any other, and for one with something to say about it."""
    from drafcheck.json_bulk import differ, without_table  # for long ones alone

    found = without_table(text, _TABLE)
    if found is None:
        return None
    table, rest = found
    try:
        data = _load(rest, notes)
    except _BrokenError:
        return None  # whose place in the whole text is to be told
    last = data.get(_TABLE)
    if not isinstance(last, dict) or notes.duplicates:
        return None
    table.rest = last
    data[_TABLE] = table
    return data if differ(table) else None


def _load(text: str, notes: _Notes) -> dict[str, Any]:
    try:
        with no_collection():
            data = json.loads(text, object_pairs_hook=notes.pairs, parse_constant=notes.constant)
    except RecursionError as error:
        raise _BrokenError("is nested too deeply to be read") from error
    except json.JSONDecodeError as error:
        raise _BrokenError(f"is not json: {json_fault(error.msg)}", error.pos) from error
    except ValueError as error:  # integers of more than 4300 digits
        raise _BrokenError(f"cannot be read: {str(error).split(';')[0].lower()}") from error
    if not isinstance(data, dict):
        raise _BrokenError(f"holds {_kind(data)} where an object is wanted")
    return data


class _Notes:
    """What json.loads lets through although it is not JSON."""

    def __init__(self) -> None:
        self.duplicates = False
        self.constants = False

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        self.duplicates |= len(members) != len(pairs)
        return members

    def constant(self, text: str) -> float:
        self.constants = True
        return float(text)


def _doubts(file: str, text: str, notes: _Notes, trouble: Trouble) -> Iterator[Problem]:
    if notes.duplicates:
        key, place = _duplicate(text)
        message = f"{file} gives the key {key!r:.80} twice in one object: the engines take the last"
        yield Problem(trouble, message, _location(file, key, text, place), f"remove one of the two {key!r:.80}", False)
    if notes.constants:
        word, place = next(t for t in _tokens(text, 0) if t[0].lstrip("-") in ("NaN", "Infinity"))
        message = f"{file} holds {word}, which is not json: other readers refuse the file"
        yield Problem(
            trouble, message, _location(file, None, text, place), f"replace {word} by a number or null", False
        )


def _kind(data: Any) -> str:
    if data is None:
        return "null"
    if isinstance(data, bool):
        return "a boolean"
    if isinstance(data, list):
        return "a list"
    return "a string" if isinstance(data, str) else "a number"


def _location(file: str, key: str | None, text: str, place: int) -> Location:
    line = text.count("\n", 0, place) + 1
    return Location(file=file, key=key, line=line, column=place - text.rfind("\n", 0, place))


def _tokens(text: str, start: int, words: re.Pattern[str] = _TOKEN) -> Iterator[Token]:
    """The words of a text that is known to be JSON, from ``start`` on."""
    match = words.match(text, start)
    while match:
        yield match[1], match.start(1)
        match = words.match(text, match.end())


def _child(text: str, value: int, part: str | int) -> tuple[int, int] | None:
    """(place of the key, place of its value) for one member of the value at ``value``; the last one counts."""
    opening, place = next(_tokens(text, value))
    if opening == "{" and isinstance(part, str):
        return _plain_member(text, value, part) or _member(_tokens(text, place + 1, _COARSE), part)
    if opening == "[" and isinstance(part, int):
        return _element(_tokens(text, place + 1, _COARSE), part)
    return None


def _plain_member(text: str, value: int, name: str) -> tuple[int, int] | None:
    """The same for a key that can be searched for, which spares the words of an index of a million tensors.

    That is one that stands in the text once, between quotes that are its own as no escape is in the text and no
    punctuation in the key, and before which nothing is nested in the object. None says nothing.
    """
    quoted = f'"{name}"'
    place = text.find(quoted, value)
    if place < 0 or "\\" in text or any(mark in name for mark in '"\\:,{}[]') or text.find(quoted, place + 1) >= 0:
        return None
    if any(text.find(mark, value + 1, place) >= 0 for mark in "{}[]"):
        return None
    after = _tokens(text, place + len(quoted))
    return (place, next(after)[1]) if next(after)[0] == ":" else None


def _member(tokens: Iterator[Token], name: str) -> tuple[int, int] | None:
    found = None
    for word, place in tokens:
        if word == "}":
            break
        if word == ",":
            continue
        next(tokens)  # the colon
        value = next(tokens)
        if _unquoted(word) == name:
            found = (place, value[1])
        _pass_over(*value, tokens)
    return found


class Member(NamedTuple):
    """A member of an object: its key, where that stands, and the text of its value from ``start`` to ``stop``."""

    key: str
    place: int
    start: int
    stop: int


def members(text: str, start: int) -> Iterator[Member]:
    """The members of the object whose brace stands at ``start`` in a text that is known to be JSON, in order."""
    tokens = _tokens(text, start, _COARSE)
    next(tokens)  # the brace
    for word, place in tokens:
        if word == "}":
            return
        if word == ",":
            continue
        next(tokens)  # the colon
        value, begin = next(tokens)
        yield Member(_unquoted(word), place, begin, begin + _pass_over(value, begin, tokens))


def _unquoted(word: str) -> str:
    return str(json.loads(word, strict=False)) if "\\" in word else word[1:-1]


def _element(tokens: Iterator[Token], index: int) -> tuple[int, int] | None:
    for word, place in tokens:
        if word == "]":
            break
        if word == ",":
            index -= 1
            continue
        if index == 0:
            return place, place
        _pass_over(word, place, tokens)
    return None


def _pass_over(word: str, start: int, tokens: Iterator[Token]) -> int:
    """Consume the rest of the value that starts with ``word`` at ``start``; how many characters it has in all."""
    place, depth = start, int(word in _OPENING)
    while depth:
        word, place = next(tokens)
        depth += (word in _OPENING) - (word in _CLOSING)
    return place + len(word) - start


def _duplicate(text: str) -> tuple[str, int]:
    """The first key that its object has already, and its place; the text is known to have one."""
    open_objects: list[set[str] | None] = []
    before = ""
    for word, place in _tokens(text, 0, _COARSE):
        if word in _OPENING:
            open_objects.append(set() if word == "{" else None)
        elif word in _CLOSING:
            open_objects.pop()
        elif before in ("{", ",") and open_objects and (keys := open_objects[-1]) is not None:
            key = _unquoted(word)
            if key in keys:
                return key, place
            keys.add(key)
        before = word
    return "", 0
