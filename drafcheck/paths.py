"""Which checkpoints a list of command-line paths stands for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from drafcheck.address import is_remote
from drafcheck.errors import UsageError


def checkpoints(paths: Iterable[str]) -> list[str]:
    """The checkpoints that ``paths`` name, each once, in order.

    A file that lies beside a config.json stands for their folder: a pre-commit hook passes each changed file. Any
    other path is left as it is, so that it is opened, or missed, under that name. Raises UsageError for an empty
    path, which a script gives for a variable that is not set.
    """
    paths = list(paths)
    refuse_empty(*paths)
    return list(dict.fromkeys(_folder(path) for path in paths))


def refuse_empty(*paths: str | Path | None) -> None:
    """Raises UsageError for an empty path: it would be taken for the folder that one happens to be in."""
    if "" in paths:
        raise UsageError("a path is empty")


def _folder(path: str) -> str:
    if is_remote(path):
        return path
    file = Path(path)
    try:
        beside_config = file.is_file() and (file.parent / "config.json").is_file()
    except (OSError, ValueError):  # what is wrong with it is said when it is opened
        return path
    return str(file.parent) if beside_config else path


def absolute(path: str | Path) -> str:
    """The path from the root on, links not followed. Never fails: a name that no file system takes is left as it is."""
    try:
        return os.path.abspath(path)  # noqa: PTH100 - pathlib's own keeps the dots
    except ValueError:
        return os.path.join(Path.cwd(), path)  # noqa: PTH118
