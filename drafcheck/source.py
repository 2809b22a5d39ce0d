"""Bytes at a place: the only way in which drafcheck reads what a checkpoint holds."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from drafcheck.tensor import Trouble
from drafcheck.words import count

bytes_read: dict[str, int] = {}
"""How many bytes were read from each path in this process; tests and benchmarks look here."""

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)
_ERRORS = {
    errno.ENOENT: "is not there (a broken link?)",
    errno.EACCES: "may not be read (no permission)",
    errno.EPERM: "may not be read (no permission)",
    errno.ELOOP: "is a symbolic link that leads back to itself",
    errno.ENXIO: "is not a regular file",
    errno.ENAMETOOLONG: "has a name that is too long for this system",
}


class SourceError(Exception):
    """The bytes of a file cannot be had, which is a fault of the checkpoint.

    ``message`` is one lower-case sentence that names the file.

    ``trouble`` says which family of finding it belongs to.
    """

    def __init__(self, message: str, trouble: Trouble = Trouble.UNREADABLE) -> None:
        """One sentence, and the family of finding it belongs to."""
        super().__init__(message)
        self.message = message
        self.trouble = trouble


class Source(Protocol):
    """Something with bytes at places. ``name`` is relative to the checkpoint, for messages."""

    @property
    def name(self) -> str:
        """The file's path relative to the checkpoint."""

    def size(self) -> int:
        """The length in bytes. Raises SourceError."""

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``; shorter at the end of the file. Raises SourceError."""

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """Say which (start, stop) will be read later, for sources that can fetch neighbours together."""

    def close(self) -> None:
        """Give back what is held open; a later read opens it again."""


class LocalFile:
    """A regular file on this machine, opened at the first use and never written to.

    Pipes, devices, sockets and directories raise SourceError at once: opening them would block or act.
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        """A file at ``path``, called ``name`` in messages (default: its last part). Opens nothing yet."""
        self.path = path
        self.name = path.name if name is None else name
        self._fd = -1
        self._size = 0
        self._first: os.stat_result | None = None

    def size(self) -> int:
        """The length in bytes. Raises SourceError."""
        self._open()
        return self._size

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``; shorter at the end of the file. Raises SourceError."""
        self._open()
        stop = min(stop, self._size)
        chunks: list[bytes] = []
        while start < stop:
            chunk = self._pread(start, stop)
            if not chunk:  # the file was cut while we read it
                break
            chunks.append(chunk)
            start += len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def read_into(self, buffer: memoryview, start: int) -> memoryview:
        """Fill ``buffer`` with the bytes from ``start`` on, and give it back. Raises SourceError at the file's end."""
        self._open()
        done = 0
        while done < len(buffer):
            try:
                got = os.preadv(self._fd, [buffer[done:]], start + done)
            except (OSError, OverflowError) as error:
                raise SourceError(f"{self.name} could not be read: {_reason(error)}") from error
            if not got:
                raise SourceError(f"{self.name} ends before byte {start + len(buffer)}")
            done += got
        self._count(done)
        return buffer

    def expect_all(self) -> None:
        """Say that the file will be read from one end to the other, where the system wants to know."""
        if hasattr(os, "posix_fadvise"):
            with suppress(SourceError, OSError):
                self._open()
                os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """Nothing: the system reads ahead by itself."""

    def close(self) -> None:
        """Give the file descriptor back; a later read opens the file again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        """Give the file descriptor back."""
        self.close()

    def _pread(self, start: int, stop: int) -> bytes:
        try:
            chunk = os.pread(self._fd, min(stop - start, 1 << 30), start)
        except (OSError, OverflowError) as error:
            raise SourceError(f"{self.name} could not be read: {_reason(error)}") from error
        self._count(len(chunk))
        return chunk

    def _count(self, length: int) -> None:
        key = str(self.path)
        bytes_read[key] = bytes_read.get(key, 0) + length

    def _open(self) -> None:
        if self._fd >= 0:
            return
        # O_NONBLOCK: opening a pipe for reading would otherwise wait for a writer.
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise SourceError(f"{self.name} {_reason(error)}") from error
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise SourceError(f"{self.name} is {_kind(status.st_mode)}, not a regular file")
        self._fd, self._size = fd, status.st_size
        self._first = self._first or status

    def changed(self) -> tuple[str, bool] | None:
        """What became of the file since it was first opened, a clause, and whether its bytes are others for sure.

        Told by its size and its time of change, both at its path. None where nothing did.
        """
        if self._first is None:
            return None
        try:
            now = self.path.stat()
        except OSError as error:
            return f"{_reason(error)}, and was when it was opened", True
        if now.st_size != self._first.st_size:
            return f"has {count(now.st_size, 'byte')}, and had {self._first.st_size:,} when it was opened", True
        if now.st_mtime_ns != self._first.st_mtime_ns:
            return "was written to, or replaced by another of its size, since it was opened", False
        return None


class Memory:
    """Bytes in memory, such as an archive that lies in another one."""

    def __init__(self, data: bytes, name: str) -> None:
        """``data`` as a file of that name."""
        self.name = name
        self._data = data

    def size(self) -> int:
        """The length in bytes."""
        return len(self._data)

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``, as far as they are there."""
        return self._data[max(start, 0) : max(stop, 0)]

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """Nothing: all is there."""

    def close(self) -> None:
        """Nothing is held open."""


class SourceStream(io.RawIOBase):
    """A Source as the seekable stream that zipfile and pickle readers want."""

    def __init__(self, source: Source, limit: int | None = None) -> None:
        """The bytes of ``source``, which ends after ``limit`` bytes when one is given. Raises SourceError."""
        self._source = source
        self._at = 0
        self._size = source.size() if limit is None else min(source.size(), limit)

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place, which may lie past the end. Raises OSError for one before the start, as files do."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "a place before the start of the file")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        """The place where the next read starts."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` and answer with how many bytes that took. Raises SourceError."""
        data = self._source.read(self._at, min(self._at + len(buffer), self._size))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class Bounded(io.BufferedReader):
    """Reads at most ``most`` bytes at once: no room is set aside for what a file only claims to hold."""

    def __init__(self, source: Source, most: int, limit: int | None = None) -> None:
        """As ``SourceStream``. Raises SourceError."""
        super().__init__(SourceStream(source, limit))
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        """As a buffered reader does."""
        return super().read(self._most if size is None or size < 0 else min(size, self._most))


def _kind(mode: int) -> str:
    return next((words for test, words in _KINDS if test(mode)), "something else")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return _ERRORS.get(error.errno, f"could not be opened: {os.strerror(error.errno).lower()}")
    return f"could not be opened: {error}"
