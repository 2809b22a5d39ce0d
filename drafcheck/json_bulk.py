"""The long table of an index, read many entries at once where each is a plain pair of strings.

The index of a million tensors has 50 MB. Between its quotes stand, in turn, a name, a colon, a file and a comma.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Iterator

_AT_ONCE = 1 << 18
"""Characters that are taken together."""

_FEW = 1 << 16
"""Names that are told apart in a set; of more of them the hashes are."""

_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")
_SPACE = re.compile(r"[ \t\n\r]*")
_ENTRY = re.compile(r'([ \t\n\r]*")[^"]*("[ \t\n\r]*:[ \t\n\r]*"([^"]*)")([ \t\n\r]*,[ \t\n\r]*)"')


class _Pairs(NamedTuple):
    """Names, and the file of each or, in one, of all."""

    names: list[str]
    files: list[str]


def without_table(text: str, key: str) -> tuple[Listing, str] | None:
    """The entries of the table under ``key``, and the text without these; None where they have to be read as others.

    The last entries of the table stay in the text, and any from the first on that is no plain pair. The text stays JSON
    if it was, and does not become JSON if it was none.
    """
    if "\\" in text or text.count(f'"{key}"') != 1:
        return None
    found = re.search(rf'"{re.escape(key)}"[ \t\n\r]*:[ \t\n\r]*\{{', text)
    if found is None:
        return None
    table, at = Listing(), found.end()
    for pairs, stop in _pieces(text, at):
        table.add(*pairs)
        at = stop
    start = _SPACE.match(text, at)
    if not len(table) or start is None or not text.startswith('"', start.end()):
        return None
    return table, text[: found.end()] + text[at:]


def _pieces(text: str, at: int) -> Iterator[tuple[_Pairs, int]]:
    """The entries from ``at`` on in pieces, each with the place where it ends, as long as all are plain pairs."""
    known: dict[str, str] = {}
    while (cut := text.rfind('",', at, at + _AT_ONCE) + 2) > 1:
        piece = text[at:cut]
        pairs = _in_one_file(piece) or _in_several(piece)
        if pairs is None or not "".join(pairs.names).isprintable() or not "".join(set(pairs.files)).isprintable():
            return
        yield pairs._replace(files=list(map(known.setdefault, pairs.files, pairs.files))), cut
        at = cut


def _in_one_file(piece: str) -> _Pairs | None:
    """The entries of a piece where all lie in one file and are written alike, which takes a third of the time."""
    found = _ENTRY.match(piece)
    end = f"{found[2]}," if found is not None else ""
    if found is None or not piece.endswith(end):
        return None
    names = piece[found.end(1) : -len(end)].split(f'{found[2]}{found[4]}"')
    return _Pairs(names, [found[3]]) if piece.count('"') == 4 * len(names) else None


def _in_several(piece: str) -> _Pairs | None:
    words = piece.split('"')
    return _Pairs(words[1::4], words[3::4]) if _are_pairs(words) else None


def _are_pairs(words: list[str]) -> bool:
    """Whether pieces between quotes are white space, then again and again a name, a colon, a file and a comma."""
    return (
        len(words) % 4 == 1
        and _SPACE.fullmatch(words[0]) is not None
        and all(map(_COLON.fullmatch, set(words[2::4])))
        and all(map(_COMMA.fullmatch, set(words[4::4])))
    )


def differ(table: Listing) -> bool:
    """Whether no name is there twice; of very many, False where that is not sure."""
    if len(table) <= _FEW:
        return len(set(table)) == len(table)
    from drafcheck import header_bulk  # numpy, which is worth its import for so many

    return header_bulk.differ(table, len(table))
