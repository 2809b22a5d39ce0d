"""Looks through a whole file for pickles that ask for code, wherever a reader might find one.

A plain state dict is one pickle that ``drafcheck.pickle_machine`` understands. Beside it an archive can hold other
pickles, a stream can go on after its first one, and a file can be two formats at once: other programs that open the
same file read those.
"""

from __future__ import annotations

import io
import zlib
from contextlib import suppress
from typing import IO

from drafcheck.pickle_listing import Asked, evident, listed
from drafcheck.pickle_machine import PickleError
from drafcheck.source import Memory, Source, SourceStream
from drafcheck.torch_zip import ZIP, Archive, UnreadableError, as_others, as_torch

MEMBER_LIMIT = 64 << 20
"""Bytes of one file of an archive that are looked through."""

STREAM_LIMIT = 64 << 20
"""Bytes of a bare pickle that are looked through."""

NUMBERS_LIMIT = 1 << 20
"""Bytes of a storage that are looked through when it begins like a pickle."""

TOTAL_LIMIT = 256 << 20
"""Bytes of all files of an archive that are looked through."""

SUFFIXES = (".pkl", ".pickle", ".joblib", ".dill", ".dat", ".data", ".bin", ".pt", ".pth", ".ckpt")
_MAGIC = tuple(bytes((0x80, protocol)) for protocol in range(6))
_DEPTH = 3  # archives in archives
_NUMPY = b"\x93NUMPY"
_SUSPECT = (*_MAGIC, _NUMPY, ZIP)
_TAR = slice(257, 262)


class Bounded(io.BufferedReader):
    """Reads at most STREAM_LIMIT at once: no room is set aside for what a pickle only claims to hold."""

    def read(self, size: int | None = -1, /) -> bytes:
        """As a buffered reader does."""
        return super().read(STREAM_LIMIT if size is None or size < 0 else min(size, STREAM_LIMIT))


def sweep(source: Source) -> list[Asked]:
    """The foreign globals in a file that is no plain state dict. Raises SourceError."""
    found = _Sweep()
    found.file(source, "", 0)
    return found.asked


def beside(archive: Archive, stream: IO[bytes], name: str) -> list[Asked]:
    """Those behind the pickle that ``stream`` has read, which is the file ``name``, and in the other files.

    Raises SourceError, and UnreadableError when there is more of them than is looked through.
    """
    found = _Sweep()
    found.asked += listed(stream, name)
    found.members(archive, "", 0, but=name)
    if found.left < 0:
        raise UnreadableError("has more files beside its tensors than are looked through")
    return found.asked


class _Sweep:
    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.left = TOTAL_LIMIT

    def file(self, source: Source, member: str, depth: int) -> None:
        """A whole file, or one in an archive, in every form that its bytes can be taken for."""
        head = source.read(0, 512)
        if head.startswith(_NUMPY):
            self._array(source, member)
        elif not head.startswith(ZIP):
            self.asked += listed(Bounded(SourceStream(source, STREAM_LIMIT)), member)
        if depth < _DEPTH:
            self._zip(source, member, depth)
            if head[_TAR] == b"ustar":
                self._tar(source, member, depth)

    def _array(self, source: Source, member: str) -> None:
        """A numpy file, whose elements are a pickle when they are objects."""
        raw = source.read(0, MEMBER_LIMIT)
        wide = raw[6:7] > b"\x01"
        start = (12 if wide else 10) + int.from_bytes(raw[8 : 12 if wide else 10], "little")
        if b"O" in raw[:start]:
            stream = io.BytesIO(raw)
            stream.seek(start)
            self.asked += listed(stream, member)

    def _zip(self, source: Source, member: str, depth: int) -> None:
        # What is broken, or no archive, is refused anyway. Torch and scanners may find different ones in a file.
        seen: list[tuple[str, int]] = []
        for reader in (as_torch, as_others):
            with suppress(PickleError, UnreadableError), reader(source) as archive:
                listing = [(info.filename, info.header_offset) for info in archive.entries]
                if listing != seen:
                    self.members(archive, member, depth)
                seen = listing

    def _tar(self, source: Source, member: str, depth: int) -> None:
        import tarfile

        with (
            suppress(tarfile.TarError, EOFError, ValueError, OverflowError),
            tarfile.open(fileobj=io.BufferedReader(SourceStream(source)), mode="r:") as archive,
        ):
            for info in archive:
                stream = archive.extractfile(info) if info.isfile() and self.left >= 0 else None
                if stream is not None:
                    self._data(stream.read(min(info.size, MEMBER_LIMIT)), _joined(member, info.name), depth)

    def members(self, archive: Archive, member: str, depth: int, but: str = "") -> None:
        """The files of a zip archive, ``but`` one; storages only where their first bytes are those of a pickle."""
        prefix = archive.prefix + "data/"
        for info in archive.entries:
            if info.filename == but or self.left < 0:
                continue
            name = _joined(member, info.filename)
            with suppress(
                PickleError, zlib.error, OverflowError, ValueError, EOFError
            ):  # torch does not read it either
                first = archive.first(info)
                if info.filename.startswith(prefix) and not info.filename.endswith(SUFFIXES):
                    if first.startswith(_MAGIC):
                        self.asked += evident(io.BytesIO(self._taken(archive.head(info, NUMBERS_LIMIT))), name)
                elif info.filename.endswith(SUFFIXES) or first.startswith(_SUSPECT) or archive.is_tar(info):
                    self._data(archive.head(info, MEMBER_LIMIT), name, depth)

    def _data(self, data: bytes, member: str, depth: int) -> None:
        self.file(Memory(self._taken(data), member), member, depth + 1)

    def _taken(self, data: bytes) -> bytes:
        self.left -= len(data)
        return data


def _joined(member: str, name: str) -> str:
    return f"{member}/{name}" if member else name
