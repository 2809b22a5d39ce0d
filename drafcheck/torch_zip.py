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

from drafcheck.magic import ZIP
from drafcheck.pickle_machine import PickleError
from drafcheck.pickle_opcodes import Budget
from drafcheck.source import Bounded, Source, SourceStream
from drafcheck.words import plural
from drafcheck.zip_ends import DIRECTORY_LIMIT, AsTorch, End, NoEndError, end_of
from drafcheck.zip_members import DEFLATED, STORED, Unpacked, Window

if TYPE_CHECKING:
    from zipfile import ZipInfo

LOCAL = 30
"""Bytes of a local header, before the name and the extra field."""

_ENCRYPTED = 1 | 1 << 6 | 1 << 13  # miniz.h: torch's reader raises at each of these, and at patches
_PATCHES = 1 << 5
_DIRECTORY = 0x10  # miniz.h: the mark of DOS, whatever system an entry says that it is from
_AHEAD = 256  # torch aligns storages to 64 bytes: header, name, padding and the first bytes come in one read


class UnreadableError(Exception):
    """The file is well-formed but its tensors cannot be had. The message continues the file's name."""


def oddity(source: Source) -> str | None:
    """Why others may find another archive in a file than torch does; None for most. Raises as ``as_torch`` does."""
    odd = _end(source).odd
    return f"is a zip archive that readers take for different ones: {odd}" if odd is not None else None


def _end(source: Source) -> End:
    try:
        end = end_of(source)
    except NoEndError as error:
        raise PickleError(str(error)) from error
    if end.length > DIRECTORY_LIMIT:
        raise UnreadableError(f"is a zip archive with a directory of {plural(end.length, 'byte')}")
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
                "is a zip archive that readers take for different ones: its directory has "
                f"{plural(len(archive.entries), 'file')} and says {end.files}"
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
        with zipfile.ZipFile(Bounded(seen, DIRECTORY_LIMIT)) as archive:
            yield Archive(source, archive.infolist())
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OverflowError, UnicodeError) as error:
        raise PickleError(f"is a broken zip archive: {str(error).lower() or 'truncated'}") from error
    except (NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise PickleError(f"is a zip archive that cannot be read: {str(error).lower()}") from error


class Archive:
    """The files of an archive. ``entries`` are all in the order of the directory, ``members`` each name once."""

    def __init__(self, source: Source, entries: list[ZipInfo]) -> None:
        """What the directory says; nothing of the files is read yet."""
        self._source = source
        self.entries = entries
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
            if info.flag_bits & _ENCRYPTED:
                raise UnreadableError("is an encrypted zip archive")
            if info.flag_bits & _PATCHES:
                raise UnreadableError("is a zip archive of patches")
            _check_entry(info, self._source.size())
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

    def content(self, name: str, limit: int) -> bytes:
        """The bytes of a file, as torch reads it. Raises UnreadableError for more than ``limit``, and PickleError."""
        info = self.members[name]
        if info.compress_type not in (STORED, DEFLATED):
            raise PickleError(f"is a zip archive whose {name:.200} is packed in a way that torch can not read")
        stream = self.stream(info, Budget())
        data = _whole(stream, limit + 1)
        if getattr(stream, "broken", False):
            raise PickleError(f"is a broken zip archive: its {name:.200} cannot be unpacked")
        if len(data) > limit:
            raise UnreadableError(f"has a {name:.200} that unpacks to more than {limit} bytes")
        return data

    def head(self, info: ZipInfo, limit: int, budget: Budget) -> bytes:
        """The first ``limit`` bytes of a file, unpacked. Raises PickleError, and ValueError for unknown packing."""
        if info.compress_type == STORED and limit <= 16:
            return self.begins(info)[1][: min(limit, self._held(info))]
        return _whole(self.stream(info, budget), limit)

    def window(self, info: ZipInfo, name: str) -> Window:
        """A stored file as a file of its own. Raises PickleError."""
        start, _ = self.begins(info)
        return Window(self._source, start, start + self._held(info), name)

    def stream(self, info: ZipInfo, budget: Budget) -> io.RawIOBase:
        """The bytes of a file in order. Raises PickleError, and ValueError for unknown packing."""
        if info.compress_type == STORED:
            return SourceStream(self.window(info, info.filename))
        start, _ = self.begins(info)
        return Unpacked(self._source, start, start + info.compress_size, info.compress_type, budget)

    def _held(self, info: ZipInfo) -> int:
        return max(info.file_size, info.compress_size)  # the directory may give two sizes; readers differ


def _check_entry(info: ZipInfo, size: int) -> None:
    """What miniz asks of each entry when it opens an archive (mz_zip_reader_read_central_dir), and torch of its files.

    Of a file that is marked as a directory torch takes the length, and reads nothing (mz_zip_reader_extract_to_mem):
    the tensor is what lay in memory. Raises PickleError.
    """
    name = f"{info.filename:.200}"
    if info.external_attr & _DIRECTORY and not name.endswith("/"):
        raise PickleError(f"is a zip archive whose {name} is marked as a directory, of which torch reads nothing")
    # Its test for a file that is not packed takes in the time, which torch.save leaves at zero.
    plain = info.compress_type == STORED and info.date_time[3:] == (0, 0, 0)
    if plain and info.file_size != info.compress_size:
        raise PickleError(
            f"is a broken zip archive: its {name} is not packed, and {plural(info.compress_size, 'byte')} of "
            f"{info.file_size}"
        )
    if info.file_size and not info.compress_size:
        raise PickleError(f"is a broken zip archive: its {name} has {plural(info.file_size, 'byte')} packed in none")
    if info.volume not in (0, 1):
        raise PickleError(f"is a broken zip archive: its {name} is on disk {info.volume} of several")
    if info.header_offset + LOCAL + info.compress_size > size:
        raise PickleError(f"is a broken zip archive: its {name} needs bytes behind the end of the file")


def _whole(stream: io.RawIOBase, limit: int) -> bytes:
    """The bytes of a stream, up to so many."""
    parts: list[bytes] = []
    while limit > 0:
        part = stream.read(min(limit, 1 << 20))
        if not part:
            break
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)
