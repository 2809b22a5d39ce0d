"""The long table of an index, read many entries at once where each is a plain pair of strings.

The index of a million tensors has 50 MB. Between its quotes stand, in turn, a name, a colon, a file and a comma.
"""

from __future__ import annotations

import re

_AT_ONCE = 1 << 18
"""Characters that are taken together."""

_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")
_SPACE = re.compile(r"[ \t\n\r]*")


def without_table(text: str, key: str) -> tuple[dict[str, str], str] | None:
    """The entries of the table under ``key``, and the text without these; None where they have to be read as others.

    The last entries of the table stay in the text, and any from the first on that is no plain pair. The text stays JSON
    if it was, and does not become JSON if it was none.
    """
    if "\\" in text or text.count(f'"{key}"') != 1:
        return None
    found = re.search(rf'"{re.escape(key)}"[ \t\n\r]*:[ \t\n\r]*\{{', text)
    if found is None:
        return None
    table: dict[str, str] = {}
    known: dict[str, str] = {}
    at, count = found.end(), 0
    while (cut := text.rfind('",', at, at + _AT_ONCE) + 2) > 1:
        words = text[at:cut].split('"')
        names, files = words[1::4], words[3::4]
        if not _are_pairs(words) or not "".join(names).isprintable() or not "".join(set(files)).isprintable():
            break
        table.update(zip(names, map(known.setdefault, files, files), strict=True))
        at, count = cut, count + len(names)
    start = _SPACE.match(text, at)
    if not table or len(table) < count or start is None or not text.startswith('"', start.end()):
        return None
    return table, text[: found.end()] + text[at:]


def _are_pairs(words: list[str]) -> bool:
    """Whether pieces between quotes are white space, then again and again a name, a colon, a file and a comma."""
    return (
        len(words) % 4 == 1
        and _SPACE.fullmatch(words[0]) is not None
        and all(map(_COLON.fullmatch, set(words[2::4])))
        and all(map(_COMMA.fullmatch, set(words[4::4])))
    )
