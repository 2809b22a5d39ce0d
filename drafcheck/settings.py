"""Where settings come from: the nearest drafcheck.toml, or pyproject.toml with [tool.drafcheck], above a checkpoint.

As ruff does it: nothing is merged, a drafcheck.toml wins over the pyproject.toml beside it, a pyproject.toml without
the table is passed over, and the search goes up to the root of the file system, past repositories (.git). Symbolic
links are not followed: what counts is the path as it was given. Of a remote checkpoint the current folder counts.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafcheck.address import is_remote
from drafcheck.errors import UsageError
from drafcheck.paths import absolute

if TYPE_CHECKING:
    from drafcheck.settings_model import Settings

OWN_FILE = "drafcheck.toml"
SHARED_FILE = "pyproject.toml"
TABLE = ("tool", "drafcheck")
OF_SAFETY = ("DC009",)
"""The rules that settings in a checkpoint's own folder can not silence: that loading it would run code."""

_MENTION = re.compile(rb"""\btool["']?[ \t]*(?:\.[ \t]*["']?drafcheck|[\]=])""")
"""What leads to the table, in every spelling: a file that only names a package drafcheck is not parsed."""


@dataclass(slots=True)
class SettingsFile:
    """A settings file that was read. ``explicit``: named with --config, not found on the way up."""

    path: Path
    values: Settings
    text: str
    explicit: bool = False

    @property
    def shown(self) -> str:
        """The file as a message names it."""
        from drafcheck.tomlpos import shown

        return shown(self.path)

    @property
    def folder(self) -> Path:
        """The folder that relative paths in the file start from."""
        return self.path.parent

    def lies_in(self, checkpoint: str) -> bool:
        """Whether it is part of the checkpoint at that path, so that whoever made the one made the other.

        False for a file that --config names: that is the caller's word.
        """
        return not self.explicit and not is_remote(checkpoint) and self.folder == root_of(checkpoint)

    def refuse_own(self, checkpoint: str, key: str, what: str) -> None:
        """Raise UsageError where these settings are part of the checkpoint and have what only the caller may ask for.

        ``what`` says what is not done with ``key``.
        """
        if self.lies_in(checkpoint):
            why = "for settings in the checkpoint's own folder: move the file upward, or name it with --config"
            raise self.wrong(f"{what} {why}", key)

    def line(self, *route: str | int) -> int | None:
        """The line, from 1, of the key at the end of ``route``."""
        from drafcheck.tomlpos import line_of

        return line_of(self.text, (*_table(self.path), *route))

    def wrong(self, message: str, *route: str | int) -> UsageError:
        """The error that says what is wrong with the key at the end of ``route``, and where it stands."""
        line = self.line(*route)
        return UsageError(f"{self.shown}{f':{line}' if line else ''}: {message}")


class Search:
    """Finds the settings of checkpoints; each folder is looked at once in a call."""

    def __init__(self, config: str | Path | None = None, *, upward: bool = True) -> None:
        """``config`` is the one file to use; without it files are searched for only when ``upward``.

        Raises UsageError when ``config`` can not be used.
        """
        self._given = read(Path(absolute(config)), explicit=True) if config is not None else None
        self._upward = upward
        self._seen: dict[str, SettingsFile | None] = {}

    def find(self, checkpoint: str) -> SettingsFile | None:
        """The settings in force for a checkpoint. Raises UsageError for a settings file that can not be used."""
        if self._given is not None or not self._upward:
            return self._given
        return self._above(str(root_of(checkpoint)))

    def _above(self, folder: str) -> SettingsFile | None:
        if folder not in self._seen:
            parent = os.path.dirname(folder)  # noqa: PTH120 - strings: this runs for every checkpoint of a tree
            found = _in_folder(folder)
            self._seen[folder] = found or (self._above(parent) if parent != folder else None)
        return self._seen[folder]


def root_of(checkpoint: str) -> Path:
    """The folder of a checkpoint, absolute, links not followed; the current folder for a remote one."""
    if is_remote(checkpoint):
        return Path.cwd()
    path = absolute(checkpoint)
    return Path(path if os.path.isdir(path) else os.path.dirname(path))  # noqa: PTH112, PTH120


def _in_folder(folder: str) -> SettingsFile | None:
    own, shared = os.path.join(folder, OWN_FILE), os.path.join(folder, SHARED_FILE)  # noqa: PTH118
    # Also what can not be read, such as a pipe or a broken link: nobody else's file has this name.
    if os.path.lexists(own) and not os.path.isdir(own):  # noqa: PTH112
        return read(Path(own))
    return _read_shared(Path(shared)) if os.path.isfile(shared) else None  # noqa: PTH113


def _read_shared(path: Path) -> SettingsFile | None:
    """The settings in a pyproject.toml; None when it has no table for drafcheck, whatever else is in it.

    Raises UsageError for one that may not be read, as ruff stops at it: nobody can tell whether it has the table.
    """
    from drafcheck.tomlpos import LIMIT

    try:
        with path.open("rb") as stream:
            text = stream.read(LIMIT + 1)
    except OSError as error:
        raise UsageError(f"can not read {path}: {error.strerror or error} (--no-config passes over it)") from None
    return _load(path) if b"drafcheck" in text and _MENTION.search(text) else None


def read(path: Path, *, explicit: bool = False) -> SettingsFile:
    """Read and check one settings file. Raises UsageError, with file and line, when it can not be used."""
    found = _load(path, explicit)
    if found is None:
        from drafcheck.tomlpos import shown

        raise UsageError(f"{shown(path)} has no [{'.'.join(TABLE)}]")
    return found


def _load(path: Path, explicit: bool = False) -> SettingsFile | None:
    from drafcheck.tomlpos import parse, read_text

    text = read_text(path)
    data: Any = parse(path, text)
    for key in _table(path):
        data = data.get(key) if isinstance(data, dict) else None
    if data is None:
        return None
    from drafcheck.settings_model import validate

    return validate(path, text, data, explicit=explicit)


def _table(path: Path) -> tuple[str, ...]:
    return TABLE if path.name == SHARED_FILE else ()
