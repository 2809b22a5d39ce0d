"""Many entries of a safetensors header at once, where they stand in the form in which libraries write them.

A header of a million tensors has 70 MB of JSON. Its quotes are found together, and what stands between them is compared
and turned into numbers a column at a time. What is not exactly in that form is left to the reader of single members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

_QUOTES = 10  # of one entry: its name, three keys and the dtype
_DIGITS = 18  # so many fit into 64 bits with a sign, whatever they are
_WORD = 8
_BEHIND = 64  # bytes: what is looked for at the end of a piece may be cut off there, and is no longer than this
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(_WORD + 1)], dtype=np.uint64)
_ELEMENTS = 1 << 50  # a shape of no more elements has no overflow in it, at any width


class _Form(NamedTuple):
    """What stands before, between and behind the values of an entry."""

    comma: str
    lead: bytes
    shape: bytes
    offsets: bytes
    end: bytes


def _form(colon: str, comma: str) -> _Form:
    pieces = (f'{colon}{{"dtype"{colon}', f'{comma}"shape"{colon}[', f']{comma}"data_offsets"{colon}[', f"]}}{comma}")
    return _Form(comma, *(piece.encode() for piece in pieces))


_FORMS = _form(":", ","), _form(": ", ", ")  # the safetensors library; Python's json


class Column(NamedTuple):
    """A text for each entry: the different ones, and for each entry which of them it is."""

    texts: list[str]
    codes: NDArray[np.intp]


class Entries(NamedTuple):
    """Entries in a row. ``length`` is how many characters they have, the comma behind the last included."""

    length: int
    names: list[str]
    dtypes: Column
    shapes: Column
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


class _Text:
    """A piece of a header, and its bytes one by one and as words of eight."""

    def __init__(self, text: str) -> None:
        raw = text.encode("ascii") + bytes(_BEHIND + _WORD)
        self.text = text
        self.bytes: NDArray[np.uint8] = np.frombuffer(raw, np.uint8)
        self.words: NDArray[np.uint64] = np.ndarray((len(text) + _BEHIND + 1,), "<u8", raw, 0, (1,))

    def stands(self, what: bytes, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether ``what`` stands at each of the places."""
        size = len(what)
        if size < _WORD:
            masked: NDArray[np.bool_] = (self.words[at] & _MASKS[size]) == int.from_bytes(what, "little")
            return masked
        found = np.ones(len(at), dtype=np.bool_)
        for first in {*range(0, size - _WORD + 1, _WORD), size - _WORD}:
            found &= self.words[at + first] == int.from_bytes(what[first : first + _WORD], "little")
        return found

    def column(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Column:
        """The texts between the places."""
        sizes = stops - starts
        if int(sizes.max()) <= _WORD:
            keys = self.words[starts] & _MASKS[sizes]
            _, first, codes = np.unique(keys, return_index=True, return_inverse=True)
            return Column([self.text[starts[i] : stops[i]] for i in first.tolist()], codes)
        every = [self.text[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        number = {text: i for i, text in enumerate(dict.fromkeys(every))}
        return Column(list(number), np.fromiter(map(number.__getitem__, every), np.intp, len(every)))

    def number(self, last: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """The whole numbers whose last digit stands at each place, how long they are, and whether they are plain ones.

        That is: of at least one digit and no more than ``_DIGITS``, without a zero before others.
        """
        value, length = np.zeros(len(last), np.int64), np.zeros(len(last), np.int64)
        going = np.ones(len(last), np.bool_)
        lead = np.zeros(len(last), np.uint8)
        for place in range(_DIGITS + 1):
            digit = self.bytes[last - place] - np.uint8(ord("0"))
            going = going & (digit < 10)
            if not going.any():
                break
            if place == _DIGITS:
                return value, length, ~going
            value += np.where(going, digit, 0).astype(np.int64) * 10**place
            length += going
            lead = np.where(going, digit, lead)
        return value, length, (length > 0) & ((lead > 0) | (length == 1))


def entries(text: str) -> Entries | None:
    """The entries with which ``text`` begins, as far as they are in one of the two forms; None where the first is not.

    The last entry of all is never among them, as nothing shows where it ends.
    """
    if not text.isascii() or "\\" in text:
        return None
    piece = _Text(text)
    if bool((piece.bytes[: len(text)] < 0x20).any()):
        return None
    quotes = np.flatnonzero(piece.bytes[: len(text)] == ord('"'))
    count = (len(quotes) - 1) // _QUOTES
    if count < 1 or quotes[0] != 0:
        return None
    form = next((f for f in _FORMS if text.startswith(f.lead.decode(), int(quotes[1]) + 1)), None)
    return None if form is None else _entries(piece, form, quotes, count)


def _entries(piece: _Text, form: _Form, quotes: NDArray[np.int64], count: int) -> Entries | None:
    after = quotes[_QUOTES : count * _QUOTES + 1 : _QUOTES]
    quotes = quotes[: count * _QUOTES].reshape(count, _QUOTES)
    names, dtypes, shapes = quotes[:, 1], quotes[:, 5] + 1, quotes[:, 5] + 1 + len(form.shape)
    shaped = quotes[:, 8] - form.offsets.index(b'"')
    first, last = shaped + len(form.offsets), after - len(form.end)
    fits = piece.stands(form.lead, names + 1) & (quotes[:, 4] == names + 1 + len(form.lead))
    fits &= piece.stands(form.shape, dtypes) & piece.stands(form.offsets, shaped) & piece.stands(form.end, last)
    stops, length, plain = piece.number(last - 1)
    fits &= plain
    before = last - length - len(form.comma)
    fits &= piece.stands(form.comma.encode(), before)
    starts, length, plain = piece.number(before - 1)
    fits &= plain & (before - length == first)
    whole = count if bool(fits.all()) else int(fits.argmin())
    if whole == 0:
        return None
    every = slice(whole)
    places = zip((quotes[every, 0] + 1).tolist(), names[every].tolist(), strict=True)
    return Entries(
        int(after[whole - 1]),
        [piece.text[a:b] for a, b in places],
        piece.column(quotes[every, 4] + 1, quotes[every, 5]),
        piece.column(shapes[every], shaped[every]),
        starts[every],
        stops[every],
    )


def gapless(found: Entries, widths: list[int], shapes: list[tuple[int, ...]]) -> bool:
    """Whether entries follow each other without a gap, each of the bytes that it needs; False where that is not sure.

    ``widths`` in bits, and ``shapes``, are those of the different dtypes and shapes, in their order.
    """
    counts = np.array([_elements(shape) for shape in shapes], np.int64)[found.shapes.codes]
    sizes = found.stops - found.starts
    sure = bool((counts >= 0).all() and (sizes >= 0).all() and (sizes < _ELEMENTS).all())
    if not sure or bool((found.starts[1:] != found.stops[:-1]).any()):
        return False
    bits = np.array(widths, np.int64)[found.dtypes.codes] * counts
    return bool((bits == 8 * sizes).all())


def _elements(shape: tuple[int, ...]) -> int:
    """How many; -1 for so many that somebody has to look."""
    count = 1
    for size in shape:
        count *= size
        if count >= _ELEMENTS:
            return -1
    return count


def differ(names: Iterable[str], count: int) -> bool:
    """Whether all of so many names are different; False where that is not sure. In less memory than a set takes."""
    hashes = np.fromiter(map(hash, names), np.int64, count)
    hashes.sort()
    return bool((hashes[1:] != hashes[:-1]).all())


def picked(values: list[Any], codes: NDArray[np.intp]) -> list[Any]:
    """The value for each code."""
    get: Callable[[int], Any] = values.__getitem__
    return [values[0]] * len(codes) if len(values) == 1 else list(map(get, codes.tolist()))
