"""Where the directory of a zip archive lies: as torch's reader (miniz) finds it, and whether others find the same.

miniz takes the last end record of the file and believes the places that are written there. Python's zipfile, which
scanners use, works out from the sizes where the directory should be, and shifts every place by the difference. A file
can be made of which the two read different directories; what torch writes is read alike by both.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from drafcheck.source import Source
from drafcheck.words import ends, plural

DIRECTORY_LIMIT = 16 << 20
"""The longest directory in bytes that is read; that of a state dict of 100,000 tensors has about 8 MB."""

END, END_BYTES = b"PK\x05\x06", 22
"""How the last record of an archive begins, and its length without a comment."""

_ENTRY_BYTES = 46
_LOCATOR, _LOCATOR_BYTES = b"PK\x06\x07", 20
_WIDE, _WIDE_BYTES = b"PK\x06\x06", 56
_PIECE = 4096  # in pieces of so many bytes miniz looks for the end
_STEP = _PIECE - 3
_REACH = END_BYTES + 0xFFFF


class End(NamedTuple):
    """The directory that torch reads: its place, its bytes and its files; ``odd``: why others may read another.

    ``stop`` is where the archive ends, its comment included. ``disk`` is the number that its files have to have.
    """

    start: int
    length: int
    files: int
    odd: str | None
    stop: int
    disk: int = 0


class NoEndError(Exception):
    """There is no end record that torch would take. The message continues the file's name."""


def end_of(source: Source) -> End:
    """What torch finds (mz_zip_reader_read_central_dir). Raises NoEndError, and SourceError."""
    size = source.size()
    place, last = _last(source, size)
    this, first, here, files, length, start, comment = struct.unpack("<4H2IH", last[4:])
    stop = place + END_BYTES + comment
    odd = _misfit(size, place + END_BYTES, comment)
    locator = source.read(place - _LOCATOR_BYTES, place) if place >= _LOCATOR_BYTES + _WIDE_BYTES else b""
    if locator.startswith(_LOCATOR):
        wide_at = int.from_bytes(locator[8:16], "little")
        if wide_at > size - _WIDE_BYTES:
            raise NoEndError("is a broken zip archive: its end names a record behind the end of the file")
        wide = source.read(wide_at, wide_at + _WIDE_BYTES)
        before = place - _LOCATOR_BYTES - _WIDE_BYTES
        if wide_at != before:
            odd = odd or "the place of its directory is written down twice"
        if wide.startswith(_WIDE):
            held, this, first, here, files, length, start = struct.unpack("<Q4x2I4Q", wide[4:])
            _check_wide(held, int.from_bytes(locator[16:20], "little"))
            place = before
        else:
            odd = odd or "the place of its directory is not where it says"
    if start + length != place:
        odd = odd or "its directory is not where its sizes say"
    _check((this, first), here, files, length)
    return End(start, length, files, odd, stop, this)


def _misfit(size: int, end: int, comment: int) -> str | None:
    """What is odd where the comment does not end with the file."""
    there = size - end
    if comment > there:
        return f"its end announces a comment of {plural(comment, 'byte')}, and {there} follow{ends(there)}"
    left = there - comment
    return f"{plural(left, 'byte')} lie{ends(left)} behind its end" if left else None


def _check_wide(held: int, disks: int) -> None:
    """What miniz asks of the wide end record and of its locator alone. Raises NoEndError."""
    if held < _WIDE_BYTES - 12:
        raise NoEndError(f"is a broken zip archive: its end has a length of {plural(held, 'byte')}")
    if disks != 1:
        raise NoEndError(_SEVERAL)


_SEVERAL = "is a broken zip archive: its end says that it is one of several disks"


def _check(disks: tuple[int, int], here: int, files: int, length: int) -> None:
    """What miniz asks of either record. Raises NoEndError."""
    if here != files:
        raise NoEndError(f"is a broken zip archive: its end counts {plural(files, 'file')} and {here} of them here")
    if disks not in ((0, 0), (1, 1)):
        raise NoEndError(_SEVERAL)
    if length < files * _ENTRY_BYTES:
        raise NoEndError(
            f"is a broken zip archive: its directory has {plural(length, 'byte')}, too few for {plural(files, 'file')}"
        )


def _last(source: Source, size: int) -> tuple[int, bytes]:
    """The last end record and its place. Raises NoEndError, and SourceError."""
    at = max(size - END_BYTES, 0)
    tail = source.read(at, size)
    if not tail.startswith(END):  # a comment is rare, and bytes can come from far
        at = max(size - _REACH - _PIECE, 0)
        tail = source.read(at, size)
    found = tail.rfind(END, 0, max(len(tail) - END_BYTES + len(END), 0))
    place = at + found if found >= 0 else -1
    _refuse_unless_reached(place, size)
    return place, tail[found : found + END_BYTES]


def _refuse_unless_reached(place: int, size: int) -> None:
    """Look for a place in pieces from the end on, as mz_zip_reader_locate_header_sig does. Raises NoEndError.

    Its step from the second piece on is one of numbers without a sign: in a file that is too short for it, torch tries
    to read at a negative place.
    """
    start = max(size - _PIECE, 0)
    while start and place < start:
        if size - start >= _REACH:
            break
        if start < _STEP:
            raise NoEndError(f"is a zip archive whose end torch does not find, so far is it from byte {size}")
        start -= _STEP
    if place < start:
        raise NoEndError("is a broken zip archive: it has no directory at its end")
