"""Looks through a whole file for pickles that ask for code, wherever a reader might find one.

A plain state dict is one pickle that ``drafcheck.pickle_machine`` understands. Beside it an archive can hold other
pickles, a stream can go on after its first one, and a file can be two formats at once: other programs that open the
same file read those.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from drafcheck.magic import ZIP
from drafcheck.pickle_listing import Asked, evident, listed, spoken
from drafcheck.pickle_machine import PickleError
from drafcheck.pickle_opcodes import Budget
from drafcheck.source import Bounded, Memory, Source
from drafcheck.torch_zip import Archive, UnreadableError, as_others, as_torch
from drafcheck.zip_ends import END, END_BYTES, NoEndError, end_of
from drafcheck.zip_fronts import fronts
from drafcheck.zip_members import BZIPPED, GZIP, STORED, XZ, ZLIB, Unpacked, Window

if TYPE_CHECKING:
    from zipfile import ZipInfo

MEMBER_LIMIT = 16 << 20
"""Bytes of a packed file that are held to be looked through as an archive; a pickle may be longer."""

STREAM_LIMIT = 64 << 20
"""The longest string of a pickle that is held."""

SUFFIXES = (".pkl", ".pickle", ".joblib", ".dill", ".dat", ".data", ".bin", ".pt", ".pth", ".ckpt")
_MAGIC = tuple(bytes((0x80, protocol)) for protocol in range(6))
_DEPTH = 3  # archives in archives
_NUMPY = b"\x93NUMPY"
_ZLIB = tuple(b"x" + level for level in (b"\x01", b"\x5e", b"\x9c", b"\xda"))  # joblib's usual way
_PACKED = {b"\x1f\x8b\x08": GZIP, b"BZh": BZIPPED, b"\xfd7zXZ\0": XZ, b"]\0\0": XZ, **dict.fromkeys(_ZLIB, ZLIB)}
_CLOSED = {
    b"7z\xbc\xaf\x27\x1c": "a 7z",
    b"Rar!\x1a\x07": "a rar",
    b"\x28\xb5\x2f\xfd": "a zstd",
    b"\x04\x22M\x18": "an lz4",
}
_TEXT = tuple(bytes((code,)) for code in b"()cdilpFILNSVXU]}0123KTBGMJP")  # how a pickle without a magic can begin
_SUSPECT = (*_MAGIC, _NUMPY, ZIP, *_PACKED, *_CLOSED)
_ENTRY = 20  # an entry of an inner archive costs as much time as so many opcodes


def sweep(source: Source) -> tuple[list[Asked], str | None]:
    """The foreign globals in a file that is no plain state dict, and what was not looked at. Raises SourceError."""
    found = _Sweep()
    found.file(source, "", 0)
    return found.asked, found.budget.cut


def beside(archive: Archive, stream: IO[bytes], name: str) -> tuple[list[Asked], str | None]:
    """The same for what is behind the pickle that ``stream`` has read, which is the file ``name``, and in the others.

    Raises SourceError.
    """
    found = _Sweep()
    found.asked += listed(stream, found.budget, name)
    found.members(archive, "", 0, but=name)
    return found.asked, found.budget.cut


def behind(source: Source, end: int) -> tuple[list[Asked], str | None]:
    """The same for a file of before 1.6 whose storages end at ``end``: what follows, and an archive at its end.

    Raises SourceError.
    """
    found = _Sweep()
    size = source.size()
    found.tail(source, end, "")
    if end < size or source.read(max(size - END_BYTES, 0), size).startswith(END):
        found.archives(source, "", 0)
    return found.asked, found.budget.cut


def posing(source: Source) -> tuple[list[Asked], str | None]:
    """The same for a file under the name of another format, whose bytes may be anything. Raises SourceError."""
    head = source.read(0, 512)
    if head.startswith(_SUSPECT) or _is_tar(head):
        return sweep(source)
    found = _Sweep()
    found.asked += spoken(Bounded(source, STREAM_LIMIT), found.budget)
    found.archives(source, "", 0)
    return found.asked, found.budget.cut


class _Sweep:
    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.budget = Budget()

    def file(self, source: Source, member: str, depth: int) -> None:
        """A whole file, or one in an archive, in every form that its bytes can be taken for."""
        head = source.read(0, 512)
        packed = next((kind for magic, kind in _PACKED.items() if head.startswith(magic)), None)
        if head.startswith(_NUMPY):
            self._array(source, member)
        elif not head.startswith(ZIP):
            self.asked += listed(Bounded(source, STREAM_LIMIT), self.budget, member)
        inner = ZIP in head[:4] or packed is not None or _is_tar(head)
        if depth > _DEPTH:
            if inner:
                self.budget.stop(f"{member:.200} is an archive in more than {_DEPTH} others")
            return
        if closed := next((name for magic, name in _CLOSED.items() if head.startswith(magic)), None):
            self.budget.stop(f"{member or source.name:.200} is {closed} archive")
        self.archives(source, member, depth)
        if packed is not None:
            self._unpacked(Unpacked(source, 0, source.size(), packed, self.budget), member, depth)
        if _is_tar(head):
            self._tar(source, member, depth)

    def _array(self, source: Source, member: str) -> None:
        """A numpy file, whose elements are a pickle when they are objects."""
        raw = source.read(0, 1 << 17)
        wide = raw[6:7] > b"\x01"
        start = (12 if wide else 10) + int.from_bytes(raw[8 : 12 if wide else 10], "little")
        if b"O" in raw[:start] or b"\\" in raw[:start]:
            stream = Bounded(source, STREAM_LIMIT)
            stream.seek(start)
            self.asked += listed(stream, self.budget, member)

    def archives(self, source: Source, member: str, depth: int) -> None:
        """What torch and others find in a file that they take for a zip archive."""
        # What is broken, or no archive, is refused anyway. Torch and scanners may find different ones in a file.
        seen: list[tuple[str, int]] | None = None
        for reader in (as_torch, as_others):
            try:
                with suppress(PickleError), reader(source) as archive:
                    if depth:
                        self.budget.opcodes -= _ENTRY * len(archive.entries)
                    listing = [(info.filename, info.header_offset) for info in archive.entries]
                    if listing != (seen or []):
                        self.members(archive, member, depth)
                    seen = listing
            except UnreadableError as error:
                self.budget.stop(f"{member or source.name:.200} {error}")
        if seen is None and source.read(0, len(ZIP)) == ZIP:
            self.members(Archive(source, fronts(source)), member, depth)
        with suppress(NoEndError):
            self.tail(source, end_of(source).stop, member)

    def tail(self, source: Source, at: int, member: str) -> None:
        """What lies from a place on where the file should be at its end."""
        if at < source.size():
            stream = Bounded(source, STREAM_LIMIT)
            stream.seek(at)
            how = listed if source.read(at, at + 2) in _MAGIC else spoken
            self.asked += how(stream, self.budget, member)

    def _tar(self, source: Source, member: str, depth: int) -> None:
        import tarfile

        with (
            suppress(tarfile.TarError, EOFError, ValueError, OverflowError),
            tarfile.open(fileobj=Bounded(source, MEMBER_LIMIT), mode="r:") as archive,
        ):
            for info in archive:
                self.budget.opcodes -= _ENTRY
                if self._over(member):
                    return
                if info.isfile():
                    name = _joined(member, info.name)
                    self.file(Window(source, info.offset_data, info.offset_data + info.size, name), name, depth + 1)

    def members(self, archive: Archive, member: str, depth: int, but: str = "") -> None:
        """The files of a zip archive, ``but`` one; storages only where their first bytes are those of a pickle."""
        for info in archive.entries:
            if self._over(member):
                return
            if info.filename == but:
                continue
            # What cannot be read at all, torch does not read either.
            with suppress(PickleError, OverflowError, EOFError):
                try:
                    self._member(archive, info, _joined(member, info.filename), depth)
                except ValueError as error:
                    self.budget.stop(f"{_joined(member, info.filename):.200} is packed otherwise: {error}")

    def _over(self, member: str) -> bool:
        if self.budget.spent:
            self.budget.stop(f"{member or 'the file'} has more in it than is looked through")
        return self.budget.spent

    def _member(self, archive: Archive, info: ZipInfo, name: str, depth: int) -> None:
        first = archive.head(info, 16, self.budget)
        if info.filename.startswith(archive.prefix + "data/") and not info.filename.endswith(SUFFIXES):
            if first.startswith(_MAGIC):
                self.asked += evident(_buffered(archive, info, self.budget), self.budget, name)
        elif (
            info.filename.endswith(SUFFIXES)
            or first.startswith(_SUSPECT)
            or _is_tar(archive.head(info, 512, self.budget))
        ):
            if info.compress_type == STORED:
                self.file(archive.window(info, name), name, depth + 1)
            else:
                self._unpacked(archive.stream(info, self.budget), name, depth)
        elif first[:1] in _TEXT:
            self.asked += spoken(_buffered(archive, info, self.budget), self.budget, name)

    def _unpacked(self, stream: io.RawIOBase, member: str, depth: int) -> None:
        """A packed file: held as a whole when it is short, else only its pickles are looked for."""
        whole = io.BufferedReader(stream, 1 << 16)
        data = whole.read(MEMBER_LIMIT + 1)
        if len(data) <= MEMBER_LIMIT:
            self.file(Memory(data, member), member, depth + 1)
            return
        if not data.startswith((ZIP, _NUMPY, *_PACKED, *_CLOSED)) and not _is_tar(data[:512]):
            self.asked += listed(io.BufferedReader(_Chained(data, whole)), self.budget, member)
        else:
            self.budget.stop(f"{member:.200} is an archive that unpacks to more than {MEMBER_LIMIT} bytes")


class _Chained(io.RawIOBase):
    """Bytes, and then a stream."""

    def __init__(self, data: bytes, then: IO[bytes]) -> None:
        self._first, self._then = io.BytesIO(data), then

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._first.read(len(buffer)) or self._then.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _buffered(archive: Archive, info: ZipInfo, budget: Budget) -> IO[bytes]:
    return io.BufferedReader(archive.stream(info, budget), 1 << 13)


def _is_tar(head: bytes) -> bool:
    """Whether bytes are the first header of a tar archive: by its name, or by its checksum in those of before 1988."""
    if len(head) < 512 or head[257:262] == b"ustar":
        return len(head) >= 512
    told = head[148:156].strip(b" \0")
    if not told or not set(told) <= set(b"01234567"):
        return False
    return int(told, 8) == sum(head[:148]) + 8 * 32 + sum(head[156:512])


def _joined(member: str, name: str) -> str:
    return f"{member}/{name}" if member else name
