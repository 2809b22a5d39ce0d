"""Folders with files, wherever they are: what a checkpoint is read from.

A path or an address becomes a ``Place`` and, when it names a file, the name of that file. All that follows asks the
place, and does not care whether it is a folder of this machine, a repository of the Hub, a web server or a bucket.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from drafcheck.address import is_remote, join
from drafcheck.errors import UsageError
from drafcheck.source import LocalFile, Source


class Place(Protocol):
    """A folder. Names are relative to it, with ``/`` between the parts of those that lie deeper."""

    @property
    def remote(self) -> bool:
        """Whether reading costs requests, so that only what is needed should be read."""

    @property
    def complete(self) -> bool:
        """Whether ``names`` lists everything: a web server does not tell what else it has."""

    def names(self) -> list[str] | None:
        """The files and folders in it in alphabetical order, None when it may not be read. Raises UsageError."""

    def below(self, folder: str) -> list[str]:
        """The files and folders in a folder of it in alphabetical order; none when it may not be read."""

    def holds(self, name: str) -> bool:
        """Whether there is something of that name, be it readable or not. Raises UsageError."""

    def is_file(self, name: str) -> bool:
        """Whether there is a file of that name; False also for names that cannot be one. Raises UsageError."""

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder of that name."""

    def source(self, name: str) -> Source:
        """The bytes of a file, which need not be there: the source says so when it is read."""

    def address(self, name: str) -> str:
        """The path or address of a file, as it would be given on the command line."""

    def confirm_absent(self, what: str) -> None:
        """Say that ``what`` is really not there. Raises UsageError where that is not known: a cache holds a part."""


class LocalPlace:
    """A folder of this machine."""

    remote = False
    complete = True

    def __init__(self, folder: Path) -> None:
        """The folder at ``folder``; nothing is read yet."""
        self.folder = folder

    def names(self) -> list[str] | None:
        """The files and folders in it in alphabetical order, None when it may not be read."""
        return _listing(self.folder)

    def below(self, folder: str) -> list[str]:
        """The files and folders in a folder of it."""
        return _listing(self.folder / folder) or []

    def holds(self, name: str) -> bool:
        """Whether there is something of that name; a broken link is something."""
        return os.path.lexists(self._path(name))

    def is_file(self, name: str) -> bool:
        """Whether there is a file of that name, or a link to one."""
        # os.path, not pathlib: it says False also to names that no file system takes.
        return os.path.isfile(self._path(name))  # noqa: PTH113

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder of that name, or a link to one."""
        return os.path.isdir(self._path(name))  # noqa: PTH112

    def source(self, name: str) -> Source:
        """The bytes of a file."""
        return LocalFile(self.folder / name, name)

    def address(self, name: str) -> str:
        """The path of a file."""
        return str(self.folder / name)

    def confirm_absent(self, what: str) -> None:
        """What is not in a folder is not there."""

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)  # noqa: PTH118


class ListedPlace:
    """A folder far away whose files are known: their names, their sizes, and how to open one."""

    remote = True
    complete = True

    def __init__(self, address: str, files: Mapping[str, int | None], opener: Callable[[str], Source]) -> None:
        """``files`` maps each name to its size in bytes (None: not known), ``opener`` gives the bytes of one."""
        self._address = address
        self._files = files
        self._open = opener

    def names(self) -> list[str]:
        """The files and folders in it in alphabetical order."""
        return sorted({name.partition("/")[0] for name in self._files})

    def below(self, folder: str) -> list[str]:
        """The files and folders in a folder of it."""
        inside = (name[len(folder) + 1 :] for name in self._files if name.startswith(folder + "/"))
        return sorted({name.partition("/")[0] for name in inside})

    def holds(self, name: str) -> bool:
        """Whether there is a file or a folder of that name."""
        return self.is_file(name) or self.is_folder(name)

    def is_file(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return name in self._files

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder of that name."""
        return any(file.startswith(name + "/") for file in self._files)

    def source(self, name: str) -> Source:
        """The bytes of a file. Raises UsageError when there is none of that name."""
        if name not in self._files:
            raise UsageError(f"there is no {name} in {self._address}")
        return self._open(name)

    def address(self, name: str) -> str:
        """The address of a file."""
        return join(self._address, name)

    def confirm_absent(self, what: str) -> None:
        """What is not in the list is not there."""


def locate(path: str | Path) -> tuple[Place, str | None]:
    """The folder that a path or an address means and, when it names a file, the file's name in that folder.

    Raises UsageError when there is nothing, when it may not be opened or cannot be reached.
    """
    if isinstance(path, str) and is_remote(path):
        from drafcheck.address import open_address

        return open_address(path)
    spot = Path(path)
    return (LocalPlace(spot), None) if _is_folder(spot) else (LocalPlace(spot.parent), spot.name)


def inside(files: Mapping[str, int | None], folder: str) -> dict[str, int | None]:
    """The files of ``folder`` (empty: all of them) under their names in it."""
    prefix = folder + "/" if folder else ""
    return {name[len(prefix) :]: size for name, size in files.items() if name.startswith(prefix)}


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{path}: {reason.lower()}") from error


def _listing(folder: Path) -> list[str] | None:
    """The names in a folder in alphabetical order, None when it, or what is in it, may not be read."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  (a name that is not utf-8 must survive)
        os.stat(os.path.join(folder, "."))  # noqa: PTH116, PTH118 - a folder may be listed that may not be entered
    except OSError:
        return None
    return names
