"""Dockerfiles: what the image runs, with the last CMD and ENTRYPOINT of its last stage."""

from __future__ import annotations

import json
from typing import NamedTuple

from drafcheck.launch.shell import commands, interpolated
from drafcheck.launch.words import Command, Word

_SHELL = ("RUN", "CMD", "ENTRYPOINT")


class Built(NamedTuple):
    """What a Dockerfile comes to: the command, the base image, and what is run while it is built."""

    command: Command | None
    image: str
    steps: tuple[Command, ...]


def is_dockerfile(text: str) -> bool:
    """Whether a text has the instructions of one: a base image, and something that runs."""
    names = [name for name, _, _ in _instructions(text)]
    return bool(names) and ((names[0] in ("FROM", "ARG") and "FROM" in names) or names[0] in ("CMD", "ENTRYPOINT"))


def read_dockerfile(text: str) -> Built:
    """What a Dockerfile runs, and what it is built from."""
    env: dict[str, str] = {}
    image = ""
    steps: list[Command] = []
    runs: dict[str, tuple[str, int]] = {}
    for name, rest, line in _instructions(text):
        if name == "FROM":
            words = [w for w in rest.split() if not w.startswith("--")]
            image, runs = interpolated(words[0] if words else "", env, line).text, {}
        elif name in ("ENV", "ARG"):
            env.update(_settings(rest, env, line))
        elif name == "RUN":
            steps += commands(rest, env, line)
        elif name in ("CMD", "ENTRYPOINT"):
            runs[name] = (rest, line)
    return Built(_command(runs, env), image, tuple(steps))


def _command(runs: dict[str, tuple[str, int]], env: dict[str, str]) -> Command | None:
    """ENTRYPOINT with CMD behind it; a shell form takes no more arguments."""
    words: list[Word] = []
    for name in ("ENTRYPOINT", "CMD"):
        if name not in runs:
            continue
        rest, line = runs[name]
        listed = _exec_form(rest)
        if listed is None:
            # The shell runs the whole text: as a word of its own it is read as a script.
            words += [Word("sh", line), Word("-c", line), Word(rest, line)]
            break
        words += [Word(word, line) for word in listed]
    return Command(tuple(words), dict(env)) if words else None


def _exec_form(rest: str) -> list[str] | None:
    try:
        listed = json.loads(rest)
    except (ValueError, RecursionError):
        return None
    return listed if isinstance(listed, list) and all(isinstance(word, str) for word in listed) else None


def _settings(rest: str, env: dict[str, str], line: int) -> dict[str, str]:
    """``NAME=value ...`` or the old ``NAME value``."""
    first, blank, value = rest.partition(" ")
    if blank and "=" not in first:
        rest = f"{first}='{value.strip()}'"
    made = commands(f": {rest}", env, line)
    words = made[0].words[1:] if made else ()
    return {w.text.partition("=")[0]: w.text.partition("=")[2] for w in words if "=" in w.text and w.known}


def _escape(text: str) -> str:
    """What continues a line: the directive above everything else may say that it is a backtick."""
    for row in text.split("\n"):
        name, _, value = row.strip().removeprefix("#").partition("=")
        if not row.startswith("#") or not value:
            break
        if name.strip().lower() == "escape":
            return "`" if value.strip() == "`" else "\\"
    return "\\"


def _instructions(text: str) -> list[tuple[str, str, int]]:
    """Name, rest and line of every instruction; comments and continued lines are put right."""
    made: list[tuple[str, str, int]] = []
    parts: list[str] = []
    start, escape = 1, _escape(text)
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if line.startswith("#") or not (line or parts):
            continue
        start = start if parts else number
        parts.append(line.removesuffix(escape))
        if not line.endswith(escape):
            name, _, rest = " ".join(parts).partition(" ")
            made.append((name.upper(), rest.strip(), start))
            parts = []
    if parts:
        name, _, rest = " ".join(parts).partition(" ")
        made.append((name.upper(), rest.strip(), start))
    return made
