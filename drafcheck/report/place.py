"""Where a finding points to, as text: ``ckpt/config.json:12:3``."""

from __future__ import annotations

from pathlib import PurePath

from drafcheck.finding import Finding, Location
from drafcheck.report.model import CheckpointReport
from drafcheck.report.text import printable


def place(report: CheckpointReport, location: Location) -> str:
    """The file as the reader of the report would open it, with line and column where they are known."""
    parts = [_path(report, location.file), location.line, location.column]
    if location.line is None:
        parts = parts[:1]
    return ":".join(printable(str(p)) for p in parts if p is not None)


def detail(location: Location) -> str:
    """What the location means inside its file: the tensor, or the key; empty when it is the whole file."""
    return printable(location.tensor or location.key or "")


def first_place(report: CheckpointReport, finding: Finding) -> str:
    """Where the finding points to first; the checkpoint itself when it has no location."""
    return place(report, finding.locations[0] if finding.locations else Location())


def _path(report: CheckpointReport, file: str | None) -> str:
    if file is None:
        return report.path
    if file == report.target or PurePath(file).is_absolute() or PurePath(report.path).name == file:
        return report.path if PurePath(report.path).name == file else file
    return (PurePath(report.path) / file).as_posix()
