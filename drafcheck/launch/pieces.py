"""Parts of shell words, the variables that hold them, and how words fall apart into arguments."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import NamedTuple

from drafcheck.errors import UsageError
from drafcheck.launch.words import Word

LONGEST = 1 << 20
"""Characters that all expansions of a script may come to."""

NAME = set(string.ascii_letters + string.digits + "_")


class Piece(NamedTuple):
    """A part of a word: what it is, whether quotes held it together, and what is missing in it."""

    text: str
    quoted: bool = True
    missing: str = ""
    ends: bool = False  # the next piece belongs to another word: between the elements of an array


Value = list[list[Piece]]
"""What a variable holds: one word, or the words of an array."""


class Variables:
    """What the script has set so far."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """``env`` is what is known from outside."""
        self.values: dict[str, Value] = {name: [[Piece(text)]] for name, text in env.items()}
        self.unsure: set[str] = set()
        self.spent = 0

    def get(self, name: str) -> Value | None:
        """The value; None when it is not known."""
        return None if name in self.unsure else self.values.get(name)

    def set(self, name: str, value: Value, *, sure: bool) -> None:
        """Give a value. ``sure`` is False under a condition: then it is only known when that changes nothing."""
        if not sure and self.values.get(name) != value:
            self.unsure.add(name)
        elif sure:
            self.unsure.discard(name)
        self.values[name] = value

    def forget(self, name: str) -> None:
        """What it holds is not known any more."""
        self.unsure.add(name)

    def known(self) -> dict[str, str]:
        """Those that hold one text that is wholly known."""
        names = (name for name in self.values if name not in self.unsure)
        return {name: text_of(self.values[name][0]) for name in names if _is_plain(self.values[name])}

    def charge(self, value: Value) -> Value:
        """Count what is expanded. Raises UsageError where that is more than anybody means."""
        self.spent += sum(len(piece.text) + 1 for word in value for piece in word)
        if self.spent > LONGEST:
            raise UsageError(f"the launch file expands to more than {LONGEST:,} characters")
        return value


def _is_plain(value: Value) -> bool:
    return len(value) == 1 and not any(piece.missing for piece in value[0])


def text_of(pieces: list[Piece]) -> str:
    """The pieces put together."""
    return "".join(piece.text for piece in pieces)


def closing_bracket(text: str, start: int, opening: str, closing: str) -> int:
    """The position after the bracket that closes the one at ``start``; the end of the text without one."""
    depth, at = 0, start
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "'" and (opening == "(" or depth == 0):
            end = text.find("'", at + 1)
            at = end if end >= 0 else len(text)
        elif char == opening:
            depth += 1
        elif char == closing:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(text)


def is_name(text: str) -> bool:
    """Whether a variable may be called so."""
    return bool(text) and not text[0].isdigit() and set(text) <= NAME


def assignment(pieces: list[Piece]) -> tuple[str, bool, list[Piece]] | None:
    """``NAME=value`` or ``NAME+=value``: the name, whether it adds, and the value."""
    if not pieces or pieces[0].missing:
        return None
    name, mark, rest = pieces[0].text.partition("=")
    add = name.endswith("+")
    if not mark or not is_name(name.removesuffix("+")):
        return None
    return name.removesuffix("+"), add, [pieces[0]._replace(text=rest), *pieces[1:]] if rest else pieces[1:]


def split(pieces: list[Piece], line: int) -> list[Word]:
    """The arguments that one written word comes to: what was not quoted falls apart at blanks."""
    made: list[Word] = []
    text: list[str] = []
    missing: list[str] = []
    loose = started = False

    def close() -> None:
        nonlocal loose, started
        if started:
            made.append(Word("".join(text), line, tuple(dict.fromkeys(missing)), loose))
        text.clear()
        missing.clear()
        loose = started = False

    for piece in pieces:
        if piece.missing:
            missing.append(piece.missing)
            loose = loose or not piece.quoted
        if piece.quoted or piece.missing:
            text.append(piece.text)
            started = True
        else:
            for number, part in enumerate(_blanks(piece.text)):
                if number % 2:
                    close()
                elif part:
                    text.append(part)
                    started = True
        if piece.ends:
            close()
    close()
    return made


def _blanks(text: str) -> list[str]:
    """Runs of other characters and, at odd positions, of blanks."""
    parts = [""]
    for char in text:
        if (char in " \t\n") != (len(parts) % 2 == 0):
            parts.append("")
        parts[-1] += char
    return parts
