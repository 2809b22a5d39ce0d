"""A mended checkpoint as a new folder, which is whole or not there at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from drafcheck.errors import UsageError
from drafcheck.fix.pieces import Piece, Span, Spliced
from drafcheck.fix.staging import STAGING, Busy, Hold, Made, Meter, Watch, make, plain, reason, sync, writing
from drafcheck.place import Place
from drafcheck.source import LocalFile

Check = Callable[[Path], None]
"""Looks at the finished folder before it gets its name, and raises when it may not have it."""

LONGEST = 100
"""Bytes of the goal's name that the hidden folder beside it is called by."""


class Delivered(NamedTuple):
    """The new folder, and what of the old one was not taken along: folders, and what is no file."""

    folder: Path
    left_out: tuple[str, ...]


def deliver(
    base: Place,
    files: Mapping[str, Spliced],
    removed: Collection[str],
    goal: Path,
    *,
    check: Check,
    progress: Meter,
    watch: Watch | None = None,
) -> Delivered:
    """Write the files of ``base`` but for ``removed``, with ``files`` in place of or beside them, into a new folder.

    It is made under a hidden name beside ``goal``, brought onto the disk, given to ``check`` and then renamed, in one
    step. Nothing is left there whatever goes wrong; what a killed run left behind is removed by the next one.
    ``watch`` knows how the files of ``base`` were before they were read for the first time (default: as they are now).
    Raises UsageError when there is something at ``goal`` other than an empty folder, when a file can not be read or
    has changed, and when the disk takes no more; and whatever ``check`` raises.
    """
    goal = _resolved(goal)
    _sweep(goal)
    need_free(goal)
    watch = watch or Watch(base)
    watch.add(piece for file in files.values() for piece in file.pieces)
    names, left_out = taken_along(base, {*removed, *files})
    with writing(goal):
        hold = _hidden(goal)
    try:
        with writing(goal):
            hold.new.mkdir()
            make([*_changed(base, files), *_copies(base, names)], hold.new, progress)
        check(hold.new)
        watch.confirm()
        _name(hold.new, goal)
    finally:
        hold.remove()
    return Delivered(goal, tuple(left_out))


def _resolved(goal: Path) -> Path:
    """The path of the new folder, links followed. Raises UsageError for a name that no file system takes."""
    try:
        return Path(os.path.realpath(goal))
    except ValueError as error:
        raise UsageError(f"can not write {goal}: {error}") from error


def need_free(goal: Path) -> None:
    """Raises UsageError when there is something at ``goal`` already, or nothing can be made there."""
    try:
        if os.path.lexists(goal) and (not stat.S_ISDIR(goal.stat().st_mode) or any(goal.iterdir())):
            raise UsageError(f"{goal} is there already and is no empty folder: name another one with --output")
        if not goal.parent.is_dir():
            raise UsageError(f"can not write {goal}: there is no folder {goal.parent}")
    except OSError as error:
        raise UsageError(f"can not write {goal}: {reason(error)}") from error


def taken_along(base: Place, replaced: Collection[str]) -> tuple[list[str], list[str]]:
    """The files of ``base`` that are copied as they are, and what can not be."""
    names = base.names()
    if names is None:
        raise UsageError(f"{base.address('')}: the folder may not be read")
    taken: list[str] = []
    left_out: list[str] = []
    for name in names:
        if name not in replaced and name != STAGING:
            (taken if plain(name) and base.is_file(name) else left_out).append(name)
    return taken, left_out


def _changed(base: Place, files: Mapping[str, Spliced]) -> Iterator[Made]:
    for name, file in files.items():
        if not plain(name):
            raise UsageError(f"{name!r} is no name of a file: nothing was written")
        yield Made(name, file.pieces, new_mode(base, name))


def _copies(base: Place, names: Collection[str]) -> Iterator[Made]:
    for name in names:
        yield Made(name, whole(base, name), new_mode(base, name))


def whole(base: Place, name: str) -> tuple[Piece, ...]:
    """All bytes of a file of ``base``. Raises SourceError."""
    source = base.source(name)
    try:
        return (Span(source, 0, source.size()),)
    finally:
        source.close()


def new_mode(base: Place, name: str) -> int:
    """The permissions of a new file: of the old one, if there is one, what the process gives to new files."""
    mask = os.umask(0)
    os.umask(mask)
    source = base.source(name) if base.is_file(name) else None
    if isinstance(source, LocalFile):
        with suppress(OSError):
            return stat.S_IMODE(source.path.stat().st_mode) & 0o777 & ~mask
    return 0o666 & ~mask


def _stem(goal: Path) -> str:
    name = goal.name
    while len(os.fsencode(name)) > LONGEST:
        name = name[:-1]
    return f".{name}.drafcheck-"


def _hidden(goal: Path) -> Hold:
    """A new hidden folder beside ``goal``. Raises OSError."""
    while True:
        folder = goal.with_name(_stem(goal) + secrets.token_hex(4))
        with suppress(FileExistsError):
            folder.mkdir(0o700)
            try:
                return Hold(folder, unlocked=True)
            except (Busy, FileNotFoundError):  # another run took it for one that was left behind
                continue


def _sweep(goal: Path) -> None:
    """Remove the hidden folders beside ``goal`` whose makers are no more."""
    pattern = re.compile(re.escape(_stem(goal)) + "[0-9a-f]{8}")
    with suppress(OSError):
        left = [entry for entry in os.scandir(goal.parent) if pattern.fullmatch(entry.name)]
        for entry in left:
            if entry.is_dir(follow_symlinks=False):
                with suppress(Busy, OSError):
                    Hold(Path(entry.path), unlocked=False).remove()


def _name(folder: Path, goal: Path) -> None:
    """Give the finished folder its name. Raises UsageError when somebody else has taken it meanwhile."""
    try:
        if goal.is_dir():
            folder.chmod(stat.S_IMODE(goal.stat().st_mode))
        folder.rename(goal)
    except OSError as error:
        taken = error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
        why = "somebody else has made it meanwhile" if taken else reason(error)
        raise UsageError(f"can not write {goal}: {why}; nothing was written") from error
    with suppress(OSError):
        sync(goal.parent)
