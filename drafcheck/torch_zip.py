"""The zip archive around a torch pickle, read as torch reads it.

torch's reader (miniz) looks at the central directory for sizes and places, and at neither checksums nor the names in
the local headers (torch 2.13 loads a file whose data.pkl has a wrong one): what such a check would refuse is loaded by
engines, and must be looked at all the same. It opens the files that it needs and no others, and finds them by their
names without regard to case.
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
from drafcheck.zip_directory import LOCAL, BrokenDirectoryError, entries_of, found_first, raw_name
from drafcheck.zip_ends import DIRECTORY_LIMIT, End, NoEndError, end_of
from drafcheck.zip_members import DEFLATED, STORED, Unpacked, Window

if TYPE_CHECKING:
    from zipfile import ZipInfo

_ENCRYPTED = 1 | 1 << 6  # miniz.h: torch's reader raises at each of these, and at patches, when it opens such a file
_PATCHES = 1 << 5
_DIRECTORY = 0x10  # miniz.h: the mark of DOS, whatever system an entry says that it is from
_AHEAD = 256  # torch aligns storages to 64 bytes: header, name, padding and the first bytes come in one read


class UnreadableError(Exception):
    """The file is well-formed but its tensors cannot be had. The message continues the file's name."""


@contextmanager
def as_torch(source: Source) -> Iterator[Archive]:
    """What torch reads, whatever others read. Raises PickleError, UnreadableError and SourceError."""
    end = _end(source)
    try:
        listed = source.read(end.start, end.start + end.length)
        entries, more = entries_of(listed, end, source.size())
    except BrokenDirectoryError as error:
        raise PickleError(str(error)) from error
    yield Archive(source, entries, end.odd or more)


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
def as_others(source: Source) -> Iterator[Archive]:
    """What Python's zipfile reads, and those who use it. Raises PickleError and SourceError."""
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(Bounded(source, DIRECTORY_LIMIT)) as archive:
            yield Archive(source, archive.infolist())
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OverflowError, UnicodeError) as error:
        raise PickleError(f"is a broken zip archive: {str(error).lower() or 'truncated'}") from error
    except (NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise PickleError(f"is a zip archive that cannot be read: {str(error).lower()}") from error


def read_alike(source: Source, archive: Archive) -> bool:
    """Whether others find the same files in an archive as torch does. Raises SourceError."""
    try:
        with as_others(source) as other:
            return [_place(info) for info in other.entries] == [_place(info) for info in archive.entries]
    except PickleError:
        return False


def is_another(source: Source) -> bool:
    """Whether a file is a zip archive of something else than torch.save writes. Raises SourceError.

    One that has its directory and no data.pkl. Torch writes that first: its header still names it where the directory
    is damaged.
    """
    try:
        with as_torch(source) as archive, as_others(source) as other:
            if not archive.entries or archive.has_pickle or other.has_pickle:
                return False
            at = archive.entries[0].header_offset
            local = source.read(at, at + _AHEAD)
    except (PickleError, UnreadableError):
        return False
    name = local[LOCAL : LOCAL + int.from_bytes(local[26:28], "little")]
    return local.startswith(ZIP) and not _is_pickle(name.lower())


def _is_pickle(name: bytes) -> bool:
    return name.rpartition(b"/")[2] == b"data.pkl"


def _place(info: ZipInfo) -> tuple[str, int, int, int, int]:
    return info.filename, info.header_offset, info.compress_size, info.file_size, info.compress_type


class Archive:
    """The files of an archive. ``entries`` are all of them, in the order of the directory."""

    def __init__(self, source: Source, entries: list[ZipInfo], odd: str | None = None) -> None:
        """What the directory says, and what is ``odd`` about it; nothing of the files is read yet."""
        self._source = source
        self.entries = entries
        self._odd = odd
        self._known: dict[int, tuple[int, bytes]] = {}

    @property
    def odd(self) -> str | None:
        """Why others may find another archive in the file, or take another file of it; None for most."""
        return self._odd or self.doubled or self._cut

    @cached_property
    def _names(self) -> dict[bytes, int]:
        """The number of each name in the directory, the last one of a name; without regard to case."""
        return {raw_name(info).lower(): number for number, info in enumerate(self.entries)}

    @property
    def has_pickle(self) -> bool:
        """Whether there is a data.pkl, in whatever folder."""
        return any(map(_is_pickle, self._names))

    @cached_property
    def doubled(self) -> str | None:
        """Which name is there twice: readers take one or the other."""
        if len(self._names) == len(self.entries):
            return None
        twice = (info for n, info in enumerate(self.entries) if self._names[raw_name(info).lower()] != n)
        return f"there are two files called {next(twice).filename:.200}"

    @property
    def _cut(self) -> str | None:
        """A name that others cut, as it has a NUL."""
        found = next((info.filename for info in self.entries if "\0" in info.filename), None)
        return None if found is None else f"there is a file of two names, {found.partition(chr(0))[0]:.200}"

    @property
    def prefix(self) -> str:
        """The folder in which torch looks for its files: that of the first one."""
        folder, slash, _ = self.entries[0].filename.partition("/") if self.entries else ("", "", "")
        return folder + slash

    @cached_property
    def _folder(self) -> bytes:
        return b"".join(raw_name(self.entries[0]).partition(b"/")[:2]) if self.entries else b""

    def named(self, name: str) -> ZipInfo | None:
        """The file that torch finds under a name in its folder; None when there is none."""
        wanted = (self._folder + name.encode("utf-8", "surrogatepass")).lower()
        number = self._names.get(wanted)
        if number is None or self.doubled is None:
            return None if number is None else self.entries[number]
        return self.entries[found_first([raw_name(info).lower() for info in self.entries], wanted)]

    def opened(self, info: ZipInfo) -> int:
        """Where the bytes of a file begin that torch opens. Raises PickleError and UnreadableError where it stops.

        Of a file that is marked as a directory it takes the length, and reads nothing: the tensor is what lay in memory
        (mz_zip_reader_extract_to_mem). Of one without bytes it looks at no header.
        """
        name = f"{info.filename:.200}"
        if info.flag_bits & _ENCRYPTED:
            raise UnreadableError("is an encrypted zip archive")
        if info.flag_bits & _PATCHES:
            raise UnreadableError("is a zip archive of patches")
        if info.compress_type not in (STORED, DEFLATED):
            raise PickleError(f"is a zip archive whose {name} is packed in a way that torch can not read")
        if not info.compress_size:
            return info.header_offset
        if info.external_attr & _DIRECTORY:
            raise PickleError(f"is a zip archive whose {name} is marked as a directory, of which torch reads nothing")
        start, _ = self.begins(info)
        length = self._held(info) if info.compress_type == STORED else info.compress_size
        if start + length > self._source.size():
            raise PickleError(f"is truncated: {name} needs bytes up to {start + length}")
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

    def content(self, info: ZipInfo, limit: int) -> bytes:
        """The bytes of a file, as torch reads it. Raises UnreadableError for more than ``limit``, and PickleError.

        Torch takes as many as the directory says; of packed ones that are broken it would take what lay in memory.
        """
        self.opened(info)
        data = _whole(self.stream(info, Budget()), limit + 1) if info.compress_size else b""
        if len(data) > limit:
            raise UnreadableError(f"has a {info.filename:.200} that unpacks to more than {plural(limit, 'byte')}")
        if len(data) < info.file_size:
            raise PickleError(f"is a broken zip archive: its {info.filename:.200} cannot be unpacked")
        return data[: info.file_size]

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
