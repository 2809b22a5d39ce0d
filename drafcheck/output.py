"""Where reports go: standard output, or a file that is whole or not there at all."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from drafcheck.errors import UsageError


def write_out(text: str) -> None:
    """Print ``text``. A reader that has gone away (``| head``) ends the output, not the run.

    Raises UsageError when standard output takes nothing: a full disk, or it was closed from the beginning.
    """
    if text and sys.stdout is None:
        raise UsageError("can not write to standard output: it is closed")
    _write(sys.stdout, text)


def write_err(text: str) -> None:
    """Print ``text`` on standard error, in the same way; nothing where that is closed."""
    _write(sys.stderr, text)


def write_file(path: str, text: str) -> None:
    """Replace ``path`` by ``text`` in one step: written beside it first, then renamed. A device is written as it is.

    Raises UsageError when that fails; an older file at ``path`` is then unchanged.
    """
    goal = Path(os.path.realpath(path))
    try:
        if goal.exists() and not stat.S_ISREG(goal.stat().st_mode):
            goal.write_text(text, encoding="utf-8")
        else:
            _replace(goal, text)
    except OSError as error:
        raise UsageError(f"can not write {path}: {error.strerror or error}") from None


def _replace(goal: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{goal.name[:100]}.", dir=goal.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        os.chmod(name, _mode(goal))  # noqa: PTH101 - mkstemp gives 0600, a report is for everybody
        os.replace(name, goal)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mode(goal: Path) -> int:
    if goal.exists():
        return stat.S_IMODE(goal.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None or not text:
        return
    try:
        stream.write(_encodable(stream, text))
        stream.flush()
    except BrokenPipeError:
        let_go(stream)
    except OSError as error:
        let_go(stream)
        raise UsageError(f"can not write to {stream.name}: {error.strerror or error}") from None


def let_go(stream: TextIO | None) -> None:
    """Write nothing more to a stream that takes nothing.

    Python would complain once more when it flushes at exit, and exit with 120: this gives it somewhere to flush to.
    """
    if stream is not None:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _encodable(stream: TextIO, text: str) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
