"""Which report goes where: the nth ``--output-file`` belongs to the nth ``--format``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath

from drafcheck.errors import UsageError
from drafcheck.words import plural

STDOUT = "-"
DEFAULT = "full"

_ENDINGS = {".sarif": ("sarif",), ".xml": ("junit",), ".md": ("markdown",), ".json": ("json", "sarif", "gitlab")}


def pairs(formats: Sequence[str], files: Sequence[str]) -> list[tuple[str, str | None]]:
    """Each format with its file, None for standard output, which ``-`` and a missing file stand for.

    Raises UsageError when two reports would go to one place, when there are more files than formats, and when one of
    several files has the ending of another format: then the order is not as meant.
    """
    formats = list(formats) or [DEFAULT]
    if len(files) > len(formats):
        raise UsageError(
            f"{plural(len(files), 'time')} --output-file and {plural(len(formats), 'time')} --format: the nth file is "
            f"for the nth format, and {files[len(formats)]} has none"
        )
    goals = [*files, *[STDOUT] * (len(formats) - len(files))]
    made = [(name, None if goal == STDOUT else goal) for name, goal in zip(formats, goals, strict=True)]
    _refuse_shared(made)
    _refuse_weights(made)
    if len(formats) > 1:
        _refuse_swapped(made)
    return made


_PARTS = ("config.json", ".safetensors", ".bin", ".pt", ".index.json")
"""How the files of a checkpoint end: a report must not take the place of one that is there."""


def _refuse_weights(made: Sequence[tuple[str, str | None]]) -> None:
    for _, goal in made:
        if goal is not None and goal.endswith(_PARTS) and os.path.lexists(goal):
            raise UsageError(f"{goal} is there already and is called like a file of a checkpoint: name another file")


def _refuse_shared(made: Sequence[tuple[str, str | None]]) -> None:
    taken: dict[str | None, str] = {}
    for name, goal in made:
        place = None if goal is None else os.path.realpath(goal)
        if place in taken:
            where = f"to {goal}" if goal is not None else "to standard output: give each but one an --output-file"
            raise UsageError(f"the formats {taken[place]} and {name} would both go {where}")
        taken[place] = name


def _refuse_swapped(made: Sequence[tuple[str, str | None]]) -> None:
    for name, goal in made:
        meant = _ENDINGS.get(PurePath(goal or "").suffix.lower())
        if meant is not None and name not in meant:
            raise UsageError(
                f"the {name} report would go to {goal}: the nth --output-file is for the nth --format; "
                f"put --format {meant[0]} in the place of its file, or - in the place of a file for standard output"
            )
