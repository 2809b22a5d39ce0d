"""What a launch line says, as options of a check: for whatever the command line leaves open."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from drafcheck.contract import load_toml
from drafcheck.errors import UsageError
from drafcheck.launch.find import Found
from drafcheck.launch.model import Launch
from drafcheck.launch.read import STDIN, launch_for
from drafcheck.session import Options


def launched(options: Options, given: Options, found: Found, checkpoint: str) -> tuple[Options, Launch]:
    """The options completed by the command in ``found`` that is meant for the checkpoint, and that command.

    ``given`` are those of the command line alone. They win over the launch line; what the settings say wins over a
    launch line that the settings name. Raises UsageError where the launch starts another engine than the one asked for.
    """
    first = given if given.launch is not None else options
    launch = launch_for(str(options.launch), found, checkpoint, first.engine or options.engine)
    return (
        replace(
            options,
            engine=_engine(first.engine, options.engine, launch),
            algorithm=first.algorithm or _word(launch, "algorithm", "algorithms") or options.algorithm,
            dtype=first.dtype or _word(launch, "dtype", "dtypes") or options.dtype,
            target=first.target if first.target is not None else _target(launch) or options.target,
            tp=first.tp or launch.number_of("tp") or options.tp,
        ),
        launch,
    )


def _engine(asked: str | None, settled: str | None, launch: Launch) -> str:
    pinned = f"{launch.engine}=={launch.version}" if launch.version else launch.engine
    wanted, _, version = (asked or "").partition("==")
    if asked and wanted.strip().lower() != launch.engine:
        raise UsageError(f"{launch.file} starts {launch.engine}, and {wanted} is asked for")
    if asked:
        return asked if version else pinned
    same = (settled or "").partition("==")[0].strip().lower() == launch.engine
    return str(settled) if same and not launch.version else pinned


def _word(launch: Launch, key: str, kind: str) -> str | None:
    """A word that the engine has in some release; what it does not have is for a rule to say."""
    word = launch.said.get(key)
    known = load_toml(launch.engine, "engine.toml").get(kind, [])
    return word if word and word.lower() in (name.lower() for name in known) else None


def _target(launch: Launch) -> str | None:
    """The target's folder, when it is one of this machine: seen from here, or from the launch file."""
    target = launch.said.get("target")
    if not target:
        return None
    above = "" if launch.file == STDIN else str(Path(launch.file).parent)
    for path in (target, os.path.join(above, target)):  # noqa: PTH118 - a name that no file system takes stays a text
        if os.path.isfile(os.path.join(path, "config.json")):  # noqa: PTH113, PTH118
            return path
    return None
