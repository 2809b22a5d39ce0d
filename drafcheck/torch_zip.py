"""The zip archive around a torch pickle, read as torch reads it.

torch's reader (miniz) looks at the central directory for sizes and places, and at neither checksums nor the names in
the local headers (torch 2.13 loads a file whose data.pkl has a wrong one): what such a check would refuse is loaded by
engines, and must be looked at all the same.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from drafcheck.pickle_machine import PickleError
from drafcheck.source import Source, SourceStream
from drafcheck.zip_ends import DIRECTORY_LIMIT, AsTorch, End, NoEndError, end_of

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

ZIP = b"PK\x03\x04"
LOCAL = 30
"""Bytes of a local header, before the name and the extra field."""

_AHEAD = 256  # torch aligns storages to 64 bytes: header, name, padding and the first bytes come in one read
_DEFLATED = 8
_PACKED_WHOLE = 1 << 16  # the bytes of a packed file that are unpacked for a first look at it


class UnreadableError(Exception):
    """The file is well-formed but its tensors cannot be had. The message continues the file's name."""


@contextmanager
def opened(source: Source) -> Iterator[Archive]:
    """The archive that torch finds in a file. Raises PickleError for whatever is wrong with it, such as a directory
    that others find elsewhere; UnreadableError, and SourceError."""
    end = _end(source)
    if end.odd is not None:
        raise PickleError(f"is a zip archive that readers take for different ones: {end.odd}")
    with as_torch(source) as archive:
        yield archive


def _end(source: Source) -> End:
    try:
        end = end_of(source)
    except NoEndError as error:
        raise PickleError(str(error)) from error
    if end.length > DIRECTORY_LIMIT:
        raise UnreadableError(f"is a zip archive with a directory of {end.length} bytes")
    if end.start + end.length > source.size():
        raise PickleError("is a broken zip archive: its directory is not in the file")
    return end


@contextmanager
def as_torch(source: Source) -> Iterator[Archive]:
    """What torch reads, whatever others read. Raises PickleError, UnreadableError and SourceError."""
    end = _end(source)
    with _archive(source, AsTorch(source, end)) as archive:
        if len(archive.entries) != end.files:
            raise PickleError(
                f"is a zip archive that readers take for different ones: its directory has {len(archive.entries)} "
                f"files and says {end.files}"
            )
        yield archive


@contextmanager
def as_others(source: Source) -> Iterator[Archive]:
    """What Python's zipfile reads, and those who use it. Raises PickleError and SourceError."""
    with _archive(source, source) as archive:
        yield archive


@contextmanager
def _archive(source: Source, seen: Source) -> Iterator[Archive]:
    """The archive of a file whose directory is read from ``seen``."""
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(io.BufferedReader(SourceStream(seen))) as archive:
            yield Archive(source, archive)
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OverflowError, UnicodeError) as error:
        raise PickleError(f"is a broken zip archive: {str(error).lower() or 'truncated'}") from error
    except (NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise PickleError(f"is a zip archive that cannot be read: {str(error).lower()}") from error


class Archive:
    """The files of an archive. ``entries`` are all in the order of the directory, ``members`` each name once."""

    def __init__(self, source: Source, archive: ZipFile) -> None:
        """What the directory says; nothing of the files is read yet."""
        self._source = source
        self.entries = archive.infolist()
        self._known: dict[int, tuple[int, bytes]] = {}

    @cached_property
    def members(self) -> dict[str, ZipInfo]:
        """By name. Raises PickleError for a name that is there twice, UnreadableError for a file that is encrypted."""
        found: dict[str, ZipInfo] = {}
        names: set[str] = set()
        for info in self.entries:
            if info.filename != info.orig_filename:  # cut at a NUL, or replaced by what its extra field says
                raise PickleError(f"is a zip archive with a file of two names: {info.filename:.200}")
            if info.filename.lower() in names:  # torch looks names up without regard to case
                raise PickleError(f"is a zip archive with two files called {info.filename:.200}")
            if info.flag_bits & 1:
                raise UnreadableError("is an encrypted zip archive")
            found[info.filename] = info
            names.add(info.filename.lower())
        return found

    @property
    def prefix(self) -> str:
        """The folder in which torch looks for its files: that of the first one."""
        folder, slash, _ = self.entries[0].filename.partition("/") if self.entries else ("", "", "")
        return folder + slash

    def start(self, name: str) -> int:
        """Where the bytes of a stored file begin. Raises PickleError when they are not all there."""
        info = self.members[name]
        start, _ = self.begins(info)
        if start + info.file_size > self._source.size():
            raise PickleError(f"is truncated: {info.filename:.200} needs bytes up to {start + info.file_size}")
        return start

    def begins(self, info: ZipInfo) -> tuple[int, bytes]:
        """Where the bytes of a file begin, and the first few of them as they are stored. Raises PickleError."""
        at = info.header_offset
        if at not in self._known:
            # The directory does not say where the data starts: names and extra fields before it vary in length.
            local = self._source.read(at, at + _AHEAD)
            if len(local) < LOCAL or not local.startswith(ZIP):
                raise PickleError(f"is a broken zip archive: no file {info.filename:.200} where its directory says")
            start = LOCAL + sum(struct.unpack("<HH", local[26:LOCAL]))
            first = local[start : start + 16]
            if len(first) < 16:
                first = self._source.read(at + start, at + start + 16)
            self._known[at] = at + start, first
        return self._known[at]

    def first(self, info: ZipInfo) -> bytes:
        """The first 16 bytes of a file, unpacked; fewer when it has no more."""
        if info.compress_type == 0:
            return self.begins(info)[1][: max(info.file_size, info.compress_size)]
        return self._unpacked(info, 16, _PACKED_WHOLE)

    def is_tar(self, info: ZipInfo) -> bool:
        """Whether a file is a tar archive, which says so behind its first 257 bytes."""
        return info.file_size >= 512 and self.head(info, 512)[257:262] == b"ustar"

    def content(self, name: str, limit: int) -> bytes:
        """The bytes of a file. Raises UnreadableError for more than ``limit``, else as ``head`` does."""
        data = self.head(self.members[name], limit + 1)
        if len(data) > limit:
            raise UnreadableError(f"has a {name:.200} that unpacks to more than {limit} bytes")
        return data

    def head(self, info: ZipInfo, limit: int) -> bytes:
        """The first ``limit`` bytes of a file, unpacked. Raises PickleError, and zlib.error for broken data."""
        if info.compress_type == 0:
            start, _ = self.begins(info)
            held = max(info.file_size, info.compress_size)  # the directory may give two sizes; readers differ
            return self._source.read(start, start + min(held, limit))
        return self._unpacked(info, limit, info.compress_size)

    def _unpacked(self, info: ZipInfo, limit: int, packed: int) -> bytes:
        import bz2
        import zlib

        start, _ = self.begins(info)
        raw = self._source.read(start, start + min(packed, info.compress_size))
        if info.compress_type == _DEFLATED:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(raw, limit)
        if info.compress_type == 12:
            return bz2.BZ2Decompressor().decompress(raw, limit)
        raise PickleError(f"is a zip archive whose {info.filename:.200} is packed in a way that torch can not read")
