"""Where a finding points to, as text: ``ckpt/config.json:12:3``."""

from __future__ import annotations

import os
from pathlib import PurePath

from drafcheck.address import is_remote, join
from drafcheck.finding import Finding, Location
from drafcheck.report.model import CheckpointReport
from drafcheck.report.text import printable


def named(report: CheckpointReport) -> str:
    """What to call the checkpoint: its path, and the engine in a run with several. Not made printable."""
    return f"{report.path} on {report.engine.name} {report.engine.version}" if report.beside else report.path


def told(report: CheckpointReport, text: str) -> str:
    """A message with the engine that it is true of before it, in a run with several."""
    return f"{report.engine.name} {report.engine.version}: {text}" if report.beside else text


def place(report: CheckpointReport, location: Location) -> str:
    """The file as the reader of the report would open it, with line and column where they are known."""
    parts = [path_of(report, location.file), location.line, location.column]
    if location.line is None:
        parts = parts[:1]
    return ":".join(printable(str(p)) for p in parts if p is not None)


def detail(location: Location) -> str:
    """What the location means inside its file: the tensor, or the key; empty when it is the whole file."""
    return printable(location.tensor or location.key or "")


def first_place(report: CheckpointReport, finding: Finding) -> str:
    """Where the finding points to first; the checkpoint itself when it has no location."""
    return place(report, primary(finding))


def primary(finding: Finding) -> Location:
    """The first location; an empty one, which stands for the checkpoint itself, when the finding has none."""
    return finding.locations[0] if finding.locations else Location()


def path_of(report: CheckpointReport, file: str | None) -> str:
    """The path under which the reader of the report finds ``file``, which is relative to the checkpoint.

    None stands for the checkpoint itself. The path is not made printable.
    """
    if file is None:
        return report.path
    target = report.target or ""
    if (
        (report.launch is not None and file == report.launch.file)
        or file in (target, f"{target.rstrip('/')}/config.json")
        or PurePath(file).is_absolute()
        or PurePath(report.path).name == file
    ):
        return report.path if PurePath(report.path).name == file else file
    if is_remote(report.path):  # a path would lose one of the slashes
        return join(report.path, file)
    path = PurePath(report.path) / file
    return os.path.normpath(path) if file.startswith("..") else path.as_posix()  # a settings file above it


def from_here(path: str) -> str:
    """``path`` relative to the working directory, which is the root of the repository in most CI jobs.

    A path outside it stays absolute, an address (``scheme://``) stays as it is.
    """
    if is_remote(path):
        return path
    whole = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links
    short = os.path.relpath(whole)
    return whole if short == ".." or short.startswith("../") else short
