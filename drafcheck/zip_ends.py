"""Where the directory of a zip archive lies: as torch's reader (miniz) finds it, and whether others find the same.

miniz takes the last end record of the file and believes the places that are written there. Python's zipfile, which
scanners use, works out from the sizes where the directory should be, and shifts every place by the difference. A file
can be made of which the two read different directories; what torch writes is read alike by both.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from drafcheck.source import Source
from drafcheck.words import plural

DIRECTORY_LIMIT = 16 << 20
"""The longest directory in bytes that is read; that of a state dict of 100,000 tensors has about 8 MB."""

_ENTRY, _ENTRY_BYTES = b"PK\x01\x02", 46
_OLDEST = 45  # the version that archives of more than 4 GB need
END, END_BYTES = b"PK\x05\x06", 22
"""How the last record of an archive begins, and its length without a comment."""

_LOCATOR, _LOCATOR_BYTES = b"PK\x06\x07", 20
_WIDE, _WIDE_BYTES = b"PK\x06\x06", 56


class End(NamedTuple):
    """The directory that torch reads: its place, its bytes and its files; ``odd``: why others may read another.

    ``stop`` is where the archive ends, its comment included.
    """

    start: int
    length: int
    files: int
    odd: str | None
    stop: int


class NoEndError(Exception):
    """There is no end record that torch would take. The message continues the file's name."""


def end_of(source: Source) -> End:
    """What torch finds. Raises NoEndError, and SourceError."""
    size = source.size()
    place, last = _last(source, size)
    files, length, start, comment = struct.unpack("<H2IH", last[10:])
    stop = place + END_BYTES + comment
    odd = None if stop == size else "there are bytes behind its end"
    locator = source.read(max(place - _LOCATOR_BYTES, 0), place)
    if locator.startswith(_LOCATOR) and len(locator) == _LOCATOR_BYTES:
        wide_at = int.from_bytes(locator[8:16], "little")
        wide = source.read(wide_at, wide_at + _WIDE_BYTES)
        before = place - _LOCATOR_BYTES - _WIDE_BYTES
        if wide_at != before:
            odd = odd or "the place of its directory is written down twice"
        if wide.startswith(_WIDE) and len(wide) == _WIDE_BYTES:
            _check_wide(wide, int.from_bytes(locator[16:20], "little"))
            files, length, start = struct.unpack("<3Q", wide[32:])
            place = before
        else:
            odd = odd or "the place of its directory is not where it says"
    if start + length != place:
        odd = odd or "its directory is not where its sizes say"
    return End(start, length, files, odd, stop)


def _check_wide(wide: bytes, disks: int) -> None:
    """What miniz asks of the wide end record and of its locator (mz_zip_reader_read_central_dir). Raises NoEndError."""
    held, this, first, here, files = struct.unpack("<Q4x2I2Q", wide[4:40])
    if disks != 1 or this or first:
        raise NoEndError("is a broken zip archive: its end says that it is one of several disks")
    if here != files:
        raise NoEndError(f"is a broken zip archive: its end counts {plural(files, 'file')} and {here} of them here")
    if held < _WIDE_BYTES - 12:
        raise NoEndError(f"is a broken zip archive: its end has a length of {plural(held, 'byte')}")


def _last(source: Source, size: int) -> tuple[int, bytes]:
    """The last end record and its place. Raises NoEndError, and SourceError."""
    for reach in (END_BYTES, END_BYTES + (1 << 16)):  # a comment is rare, and bytes can come from far
        first = max(size - reach, 0)
        tail = source.read(first, size)
        at = tail.rfind(END, 0, max(len(tail) - END_BYTES + len(END), 0))
        if at >= 0:
            return first + at, tail[at : at + END_BYTES]
    raise NoEndError("is a broken zip archive: it has no directory at its end")


def _takeable(listed: bytes) -> bytes:
    """A directory in which no file needs a version of the format that zipfile refuses, which miniz does not look at."""
    taken, at = bytearray(listed), 0
    while listed.startswith(_ENTRY, at) and at + _ENTRY_BYTES <= len(listed):
        if listed[at + 6] > _OLDEST:
            taken[at + 6] = _OLDEST
        at += _ENTRY_BYTES + sum(struct.unpack_from("<3H", listed, at + 28))
    return bytes(taken)


class AsTorch:
    """A file with another directory appended, the one that torch reads, so that zipfile reads that one too."""

    def __init__(self, source: Source, end: End) -> None:
        """Raises SourceError."""
        self.name = source.name
        self._source = source
        self._size = source.size()
        listed = _takeable(source.read(end.start, end.start + end.length))
        at = self._size
        wide = struct.pack("<4sQ2H2I4Q", _WIDE, 44, 45, 45, 0, 0, end.files, end.files, len(listed), at)
        locator = struct.pack("<4sIQI", _LOCATOR, 0, at + len(listed), 1)
        last = struct.pack("<4s4H2IH", END, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
        self._more = listed + wide + locator + last

    def size(self) -> int:
        """The length in bytes, with what is appended."""
        return self._size + len(self._more)

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``, as far as they are there. Raises SourceError."""
        there = self._source.read(start, min(stop, self._size)) if start < self._size else b""
        if stop <= self._size:
            return there
        return there + self._more[max(start - self._size, 0) : stop - self._size]

    def close(self) -> None:
        """Nothing is held open."""

    def expect(self, _: object) -> None:
        """Nothing."""
