"""JSON with parts that a shell, or whoever fills in a manifest, has yet to replace."""

from __future__ import annotations

import re

from drafcheck.launch.pieces import NAME, closing_bracket

_HOLE = re.compile(r"(?<![\w.+-])[\w.+-]*\0[\w.+\0-]*")


def marked(text: str) -> str:
    """``text`` with each unknown part (``$N``, ``$(...)``, backticks) replaced: by ``"$"``, and by ``$`` in a string.

    So what stands around an unknown value can be read. Where more than a value is missing it is no JSON still.
    """
    made: list[str] = []
    at, inside = 0, False
    while at < len(text):
        char = text[at]
        if char in "$`":
            at = _behind(text, at)
            made.append("$" if inside else "\0")
            continue
        if inside and char == "\\":
            char = text[at : at + 2]
        elif char == '"':
            inside = not inside
        made.append(char)
        at += len(char)
    return _HOLE.sub('"$"', "".join(made))


def _behind(text: str, at: int) -> int:
    """The position after the unknown part that begins at ``at``."""
    if text[at] == "`":
        end = text.find("`", at + 1)
        return end + 1 if end >= 0 else len(text)
    follows = text[at + 1 : at + 2]
    if follows and follows in "({":
        return closing_bracket(text, at + 1, follows, ")" if follows == "(" else "}")
    end = at + 1
    while end < len(text) and text[end] in NAME:
        end += 1
    return end if end > at + 1 else min(at + 2, len(text)) if follows and follows in "@*#?!-" else end
