"""A checkpoint repaired where it lies: all of it or nothing, however the run ends.

Everything new is made in a hidden folder of the checkpoint. Renaming that is the point of no return: a run that is
killed before leaves the checkpoint as it was, one that is killed after leaves what the next run needs to finish it.
A link is replaced by a file, never what it leads to: other revisions in a Hub cache share the same blob.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from drafcheck.checkpoint import CONFIG, FINISH, UNFINISHED
from drafcheck.errors import UsageError
from drafcheck.fix.pieces import Spliced
from drafcheck.fix.staging import (
    STAGING,
    Busy,
    Hold,
    Made,
    Meter,
    Watch,
    make,
    plain,
    reason,
    sync,
    writing,
)
from drafcheck.fix.write import Check, new_mode, whole
from drafcheck.place import LocalPlace
from drafcheck.source import LocalFile, SourceError

PLAN = "plan.json"
"""In the hidden folder: which names take the place of which files, and which files go."""

PLAN_LIMIT = 64 << 20
"""Bytes of it that are read; that of a thousand shards has 0.1 MB."""

ORIGINAL = f"{CONFIG}.orig"


class Replaced(NamedTuple):
    """What there is to say: the name under which the old config is kept, and links that have become files."""

    original: str | None
    links: tuple[str, ...]


class _Step(NamedTuple):
    """A name that gets a new file, or loses its own (``new`` False), and what must be there for that: see ``_mark``."""

    name: str
    new: bool
    before: list[int] | None


def replace(
    base: LocalPlace,
    files: Mapping[str, Spliced],
    removed: Collection[str],
    *,
    check: Check,
    progress: Meter,
    watch: Watch | None = None,
) -> Replaced:
    """Put ``files`` in place of or beside those of ``base``, and remove ``removed``; the old config is kept.

    ``check`` is given a folder that shows the checkpoint as it will be, before anything is changed; ``watch`` is as in
    ``deliver``. Files keep their permissions and, where that is allowed, their owner. Raises UsageError when another
    run is at work there, when a file can not be read or has changed, and when the disk takes no more; and whatever
    ``check`` raises. Nothing is changed then.
    """
    folder = Path(os.path.realpath(base.folder))
    _refuse_odd(folder, [*files, *removed])
    watch = watch or Watch(base)
    watch.add(piece for file in files.values() for piece in file.pieces)
    with writing(folder):
        hold = _claimed(folder)
    try:
        original = _free_name(folder) if CONFIG in files and os.path.lexists(folder / CONFIG) else None
        steps = [*_steps(folder, files, removed, original)]
        with writing(folder):
            hold.new.mkdir()
            make(_all_new(base, files, original), hold.new, progress)
            _keep_owners(folder, hold.new, files, original)
            _show_rest(folder, hold.new, {*files, *removed})
        check(hold.new)
        watch.confirm()
        links = tuple(name for name in files if (folder / name).is_symlink())
        with writing(folder):
            _write_plan(hold, steps)
    except BaseException:
        hold.remove()
        raise
    with _undisturbed():
        _commit(hold, folder)
        _complete(hold, folder, first=True)
    return Replaced(original, links)


def finish(folder: Path) -> bool:
    """Complete a repair in place that was cut off, and remove what one left that was killed before it changed anything.

    Answers whether the checkpoint changed. Raises UsageError when another run is at work there, and when it can not
    be done.
    """
    folder = Path(os.path.realpath(folder))
    if os.path.lexists(folder / STAGING):
        with contextlib.suppress(OSError):  # it is in nobody's way, if the folder may only be read
            _held(folder, STAGING).remove()
    with writing(folder):
        if not os.path.lexists(folder / UNFINISHED):
            return False
        hold = _held(folder, UNFINISHED)
    with _undisturbed():
        _complete(hold, folder, first=False)
    return True


def _refuse_odd(folder: Path, names: Collection[str]) -> None:
    for name in names:
        if not plain(name) or (folder / name).is_dir():
            raise UsageError(f"{name!r} is not the name of a file in {folder}: nothing was changed")


def _claimed(folder: Path) -> Hold:
    """The hidden folder for this run, made new. Raises UsageError, OSError."""
    if os.path.lexists(folder / STAGING):
        _held(folder, STAGING).remove()
    if os.path.lexists(folder / UNFINISHED):
        raise UsageError(f"{folder}: a repair in place was cut off here; {FINISH} {folder} completes it")
    try:
        (folder / STAGING).mkdir(0o700)
        hold = Hold(folder / STAGING, unlocked=True)
    except (FileExistsError, FileNotFoundError, Busy):
        raise _at_work(folder) from None
    if os.path.lexists(folder / UNFINISHED):  # another run came that far since we looked
        hold.remove()
        raise _at_work(folder)
    return hold


def _held(folder: Path, name: str) -> Hold:
    """A hidden folder that another run left. Raises UsageError when that is still at work, OSError."""
    try:
        return Hold(folder / name, unlocked=name == UNFINISHED)
    except FileNotFoundError:
        raise _at_work(folder) from None
    except Busy as busy:
        if busy.certain:
            raise _at_work(folder) from None
        raise UsageError(
            f"{folder / name} was left by a run that was cut off, or one is still at work, which this file system "
            "does not tell: when none is, remove it"
        ) from None


def _at_work(folder: Path) -> UsageError:
    return UsageError(f"{folder}: another run is repairing it at this moment; nothing was changed")


def _free_name(folder: Path) -> str:
    """The name for the old config: config.json.orig, or the first with a number that is free."""
    name, number = ORIGINAL, 0
    while os.path.lexists(folder / name):
        number += 1
        name = f"{ORIGINAL}.{number}"
    return name


def _all_new(base: LocalPlace, files: Mapping[str, Spliced], original: str | None) -> Iterator[Made]:
    for name, file in files.items():
        yield Made(name, file.pieces, _mode(base, name))
    if original is not None:
        yield Made(original, whole(base, CONFIG), _mode(base, CONFIG))


def _mode(base: LocalPlace, name: str) -> int:
    """The permissions of the file that is replaced, just as they are."""
    with contextlib.suppress(OSError):
        return stat.S_IMODE((base.folder / name).stat().st_mode) & 0o777
    return new_mode(base, name)


def _keep_owners(folder: Path, new: Path, files: Collection[str], original: str | None) -> None:
    """Owner and group of the old files, and the old config's time, where the system lets us."""
    for name in files:
        with contextlib.suppress(OSError):
            old = (folder / name).stat()
            os.chown(new / name, old.st_uid, old.st_gid)
    if original is not None:
        with contextlib.suppress(OSError):
            old = (folder / CONFIG).stat()
            os.utime(new / original, ns=(old.st_atime_ns, old.st_mtime_ns))
            os.chown(new / original, old.st_uid, old.st_gid)


def _show_rest(folder: Path, new: Path, others: Collection[str]) -> None:
    """Links to all that stays as it is, so that ``new`` looks like the checkpoint will."""
    for name in os.listdir(folder):  # noqa: PTH208 - a name that is not utf-8 must survive
        if name not in others and name != STAGING:
            try:
                (new / name).symlink_to(Path("..", "..", name))
            except OSError:
                if not (folder / name).is_file():
                    continue
                shutil.copyfile(folder / name, new / name)  # a file system without links


def _steps(folder: Path, files: Collection[str], removed: Collection[str], original: str | None) -> Iterator[_Step]:
    """The config last, then what is kept of it: until then the old one says what is there."""
    for name in sorted(files, key=lambda name: (name == CONFIG, name)):
        yield _Step(name, True, _mark(folder / name))
    if original is not None:
        yield _Step(original, True, None)
    for name in sorted(set(removed) - set(files)):
        if os.path.lexists(folder / name):
            yield _Step(name, False, _mark(folder / name))


def _mark(path: Path) -> list[int] | None:
    """By which the file (or link) at ``path`` is known again: its size and time; None when there is none."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return [status.st_size, status.st_mtime_ns]


def _write_plan(hold: Hold, steps: Collection[_Step]) -> None:
    with (hold.folder / PLAN).open("w", encoding="ascii") as file:  # json writes other characters as \\u
        json.dump([[*step] for step in steps], file)
        file.flush()
        os.fsync(file.fileno())
    sync(hold.folder)


def _commit(hold: Hold, folder: Path) -> None:
    """The point of no return. Raises UsageError, and then nothing has changed."""
    try:
        with writing(folder):
            hold.folder.rename(folder / UNFINISHED)
    except BaseException:
        hold.remove()
        raise
    hold.folder = folder / UNFINISHED
    sync(folder)


def _complete(hold: Hold, folder: Path, *, first: bool) -> None:
    """Take the steps that are left, then remove the hidden folder; ``first`` when none was taken by an earlier run.

    Raises UsageError. Then nothing has changed, or the next run goes on.
    """
    changed = not first
    for step in _plan(hold):
        try:
            changed |= _take(step, hold, folder)
        except OSError as error:
            why = f"{folder / step.name} can not be replaced: {reason(error)}"
            if not changed:
                _clear(hold)
                raise UsageError(f"{why}; nothing was changed") from error
            hold.release()
            raise UsageError(f"{why}; the repair is half done, {FINISH} {folder} completes it") from error
    sync(folder)
    _clear(hold)


def _clear(hold: Hold) -> None:
    """Remove the hidden folder. Without its plan it is known to be done with, whenever we are killed from here on."""
    with contextlib.suppress(OSError):
        (hold.folder / PLAN).unlink()
    hold.remove()


def _take(step: _Step, hold: Hold, folder: Path) -> bool:
    """Take a step; False when it was taken before. Raises OSError, and UsageError when the file there is another."""
    goal, new = folder / step.name, hold.new / step.name
    gone = new if step.new else goal
    if _mark(goal) != step.before:
        if not os.path.lexists(gone):
            return False
        hold.release()
        raise UsageError(
            f"{goal} has changed since its repair was cut off: remove {hold.folder} to leave it at that, "
            "or put the file back"
        )
    with contextlib.suppress(FileNotFoundError):
        if step.new:
            new.replace(goal)
        else:
            goal.unlink()
    return True


def _plan(hold: Hold) -> list[_Step]:
    """The steps that were written down; none when all were taken. Raises UsageError: anybody may have written it."""
    path = hold.folder / PLAN
    if not os.path.lexists(path):
        return []
    try:
        if path.is_symlink() or hold.new.is_symlink():
            raise ValueError("it leads elsewhere")
        steps = [_Step(*step) for step in json.loads(LocalFile(path).read(0, PLAN_LIMIT))]
        if not all(isinstance(step.name, str) and plain(step.name) for step in steps):
            raise ValueError("it names what is no file of the checkpoint")
    except (OSError, SourceError, ValueError, TypeError, RecursionError) as error:
        hold.release()
        raise UsageError(f"{path} does not say how to complete the repair that was cut off: {error}") from error
    return steps


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Within it Ctrl-C waits: what takes milliseconds is brought to its end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if came:
            signal.raise_signal(signal.SIGINT)
