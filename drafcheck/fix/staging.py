"""Hidden folders in which a result is made before it is one, and what becomes of those whose maker was killed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import click

from drafcheck.bar import restored
from drafcheck.errors import UsageError
from drafcheck.fix.pieces import Piece, Span, size_of
from drafcheck.fix.stream import Stream, Tick
from drafcheck.place import Place
from drafcheck.source import LocalFile, SourceError
from drafcheck.words import are, count

LOCK = "lock"
NEW = "new"
"""In the hidden folder: what is locked while its maker lives, and the folder in which the result is made."""

STAGING = ".drafcheck-fix"
"""The hidden folder in a checkpoint that is being repaired in place."""

SHOWN = 256 << 20
"""Bytes from which on a line of progress is shown."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WORDS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be longer than it may be here",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.ENOENT: "the folder it would lie in is not there",
}


class Stamp(NamedTuple):
    """What changes when a file does: where it lies, its length in bytes, the time of its last change."""

    device: int
    inode: int
    size: int
    changed_ns: int


class Watch:
    """Files of this machine that have to stay as they are while they are read."""

    def __init__(self, base: Place) -> None:
        """All files of a folder, as they are now: to be made before the first of them is read."""
        self._seen: dict[Path, Stamp | None] = {}
        for name in [] if base.remote else base.names() or []:
            if plain(name) and base.is_file(name):
                self._add(base.source(name))

    def add(self, pieces: Iterable[Piece]) -> None:
        """Also those that the pieces come from, as they are now."""
        for piece in pieces:
            if isinstance(piece, Span):
                self._add(piece.source)

    def confirm(self) -> None:
        """Raises UsageError when one of them has changed."""
        for path, stamp in self._seen.items():
            if stamp_of(path) != stamp:
                raise UsageError(f"{path} has changed while it was read: nothing was written, try again")

    def _add(self, source: object) -> None:
        if isinstance(source, LocalFile) and source.path not in self._seen:
            self._seen[source.path] = stamp_of(source.path)


def stamp_of(path: Path) -> Stamp | None:
    """The state of the file at ``path``, links followed; None when it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def plain(name: str) -> bool:
    """Whether ``name`` is that of a file of the folder itself: a server far away may say anything."""
    return name not in ("", ".", "..") and not set(name) & {"/", "\0"}


class Meter:
    """Shows how much of a result is written. This one shows nothing."""

    def over(self, total: int) -> AbstractContextManager[Tick]:  # noqa: ARG002
        """What is to be told of bytes as they are written, ``total`` in all."""
        return contextlib.nullcontext(_unseen)


class Bar(Meter):
    """A line of progress on standard error, when somebody is looking and there is much to write."""

    def __init__(self, label: str = "writing") -> None:
        """``label`` stands in front of it."""
        self._label = label

    def over(self, total: int) -> AbstractContextManager[Tick]:
        """As ``Meter.over``."""
        if total < SHOWN or sys.stderr is None or not sys.stderr.isatty():
            return super().over(total)
        return self._shown(total)

    @contextlib.contextmanager
    def _shown(self, total: int) -> Iterator[Tick]:
        with restored(click.progressbar(length=total, label=self._label, file=sys.stderr)) as bar:
            yield bar.update


def _unseen(count: int) -> None:
    """What nobody looks at."""


@contextlib.contextmanager
def writing(what: object) -> Iterator[None]:
    """Within it, what goes wrong on disk is a UsageError that names ``what`` could not be written."""
    try:
        yield
    except SourceError as error:
        raise UsageError(f"{error.message}; nothing was written") from error
    except OSError as error:
        raise UsageError(f"can not write {what}: {reason(error)}; nothing was changed") from error


def reason(error: OSError) -> str:
    """Why, in a few words."""
    return _WORDS.get(error.errno or 0) or (os.strerror(error.errno).lower() if error.errno else str(error))


class Made(NamedTuple):
    """A file to make: its name, what it is made of, and its permissions."""

    name: str
    pieces: tuple[Piece, ...]
    mode: int


def make(files: Iterable[Made], folder: Path, meter: Meter) -> None:
    """Write files into ``folder`` and onto the disk. Raises UsageError when the disk has not the room for them.

    Raises OSError and SourceError when something goes wrong on the way; the caller removes what is there by then.
    """
    files = list(files)
    total = sum(size_of(file.pieces) for file in files)
    _need_room(folder, total)
    with meter.over(total) as tick, Stream(tick) as stream:
        for file in files:
            _make_one(file, folder, stream)
    sync(folder)


def _make_one(file: Made, folder: Path, stream: Stream) -> None:
    goal = os.open(folder / file.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _reserve(goal, size_of(file.pieces))
        stream.write(file.pieces, goal)
        os.fchmod(goal, file.mode)
        os.fsync(goal)
    finally:
        os.close(goal)


def _need_room(folder: Path, total: int) -> None:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return
    free = disk.f_frsize * (disk.f_bavail if os.geteuid() else disk.f_bfree)
    if disk.f_blocks and free < total:
        raise UsageError(
            f"the disk is full: {count(total, 'byte')} {are(total)} to be written and {free:,} {are(free)} free; "
            "nothing was changed"
        )


def _reserve(goal: int, size: int) -> None:
    """Take the room for a file at once, so that a full disk shows before much is written."""
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(goal, 0, size)
        except OSError as error:
            if error.errno in _FULL:
                raise


def sync(folder: Path) -> None:
    """Have the names in a folder on the disk; not every file system can, and those that can not need not."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


class Busy(Exception):
    """Somebody holds the folder; ``certain`` is False where the file system has no locks, so that nobody may."""

    def __init__(self, *, certain: bool) -> None:
        """Whether somebody holds it for certain."""
        super().__init__()
        self.certain = certain


class Hold:
    """A hidden folder of ours. It stays locked as long as this process lives, however it ends."""

    def __init__(self, folder: Path, *, unlocked: bool) -> None:
        """Lock ``folder``; ``unlocked``: where the file system has no locks, take it without.

        Raises Busy when another process holds it, FileNotFoundError when another one has just removed it, OSError.
        """
        self.folder = folder
        if folder.is_symlink():  # whoever made the checkpoint may have put one there
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
        self._file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._take(unlocked=unlocked)
        except BaseException:
            os.close(self._file)
            raise

    def _take(self, *, unlocked: bool) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(certain=True) from None
        except OSError:  # a file system without locks
            if not unlocked:
                raise Busy(certain=False) from None
        if not os.path.samestat(os.fstat(self._file), (self.folder / LOCK).stat()):
            raise FileNotFoundError(errno.ENOENT, "removed and made again", str(self.folder))

    @property
    def new(self) -> Path:
        """The folder in which the result is made."""
        return self.folder / NEW

    def release(self) -> None:
        """Let go of it, and leave it there."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def remove(self) -> None:
        """Remove it with all that is in it, as far as that is possible, and let go of it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.release()
