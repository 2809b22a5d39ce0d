"""Text made fit for a terminal. Names inside a checkpoint are written by strangers: they pass through here once."""

from __future__ import annotations

import re

LONGEST_WORD = 200
LONGEST_TEXT = 4000

_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def printable(text: str) -> str:
    """``text`` on one line, with nothing in it that a terminal would obey or hide.

    Control characters (so ANSI escapes too), bidirectional overrides, invisible and unassigned characters,
    odd spaces and lone surrogates become ``\\x1b`` or ``\\u202e``; words over 200 and texts over 4000 characters
    lose their middle, which is replaced by its length.
    """
    text = _LONG_WORD.sub(lambda m: _shorten(m.group(), LONGEST_WORD), text)
    text = _shorten(text, LONGEST_TEXT)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 6
    return f"{text[:head]}[...{len(text) - head - tail} characters...]{text[-tail:]}"


def _escape(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
