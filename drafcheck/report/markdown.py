"""The report as GitHub-flavoured Markdown, for ``$GITHUB_STEP_SUMMARY`` and comments."""

from __future__ import annotations

import re
from collections.abc import Iterator

from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.report.full import beside, checked, passed_over, skipped, total, unmet, verdict
from drafcheck.report.model import CheckpointReport, Outcome, Report
from drafcheck.report.place import detail, from_here, named, path_of, primary
from drafcheck.report.style import Style
from drafcheck.report.text import printable
from drafcheck.words import plural

LIMIT = 1_000_000
"""In bytes of UTF-8: GitHub drops a step summary of more than 1 MiB as a whole."""

LISTED = 200
"""So many checkpoints have a row of their own in the first table."""

_RESERVE = 500  # bytes for the sentence that says what is left out
_SPECIAL = re.compile(r"[\\`*_\[\]<>&|~$\"']|(?<=\w):(?=//)|(?<=\bwww)\.|[@#]")
_HEAD = "| severity | rule | finding | where |\n|---|---|---|---|\n"


def render(report: Report, *, quiet: bool = False, limit: int = LIMIT) -> str:
    """A heading, a table of the checkpoints, then the findings of each; never more than ``limit`` bytes.

    What does not fit is counted at the end, the checkpoints with errors come first. ``quiet`` keeps the errors only.
    """
    text = _heading(report)
    order = sorted(report.checkpoints, key=lambda c: min((f.severity.rank for f in c.findings), default=9))
    left = 0
    for checkpoint in order:
        text, dropped = _extend(text, checkpoint, quiet, limit - _RESERVE)
        left += dropped
    if left:
        text += f"\n**{plural(left, 'more finding')} left out**: a summary takes {limit:,} bytes at most.\n"
    return text


def escape(text: str) -> str:
    """Text of strangers as literal Markdown: no markup, link, HTML, table cell, formula, mention or issue number."""
    return _SPECIAL.sub(_entity, printable(text))


def code(text: str) -> str:
    """Text of strangers as code. Not between backticks: a name may hold any number of them."""
    return f"<code>{escape(text)}</code>"


def prose(text: str) -> str:
    """A message of drafcheck: what stands between backticks as code, the rest as literal text."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick without its partner is part of some name
        return escape(text)
    return "".join(code(part) if number % 2 else escape(part) for number, part in enumerate(parts))


def _entity(found: re.Match[str]) -> str:
    char = found.group()
    # GitHub looks for mentions and numbers after the entities are resolved: a space of no width parts them.
    return f"&#{ord(char)};{'&#8203;' if char in '@#' else ''}"


def _heading(report: Report) -> str:
    lines = [f"## drafcheck: {total(report)}", ""]
    faulty = [c for c in report.checkpoints if c.outcome is not Outcome.CLEAN]
    clean = [c for c in report.checkpoints if c.outcome is Outcome.CLEAN]
    rows = [*faulty, *clean][:LISTED]
    lines += ["| checkpoint | verdict | errors | warnings | notes |", "|---|---|---|---|---|"]
    lines += [_row(c) for c in rows]
    if more := len(report.checkpoints) - len(rows):
        lines.append(f"| and {more} more | | | | |")
    lines += ["", *(f"- {escape(line)}" for line in passed_over(report))] if report.passed_over else []
    return "\n".join(lines) + "\n"


def _row(checkpoint: CheckpointReport) -> str:
    counts = " | ".join(str(checkpoint.count(severity)) for severity in Severity)
    return f"| {_called(checkpoint)} | {checkpoint.outcome.value} | {counts} |"


def _called(checkpoint: CheckpointReport) -> str:
    """The path, and the engine in a run with several."""
    engine = f" on {escape(f'{checkpoint.engine.name} {checkpoint.engine.version}')}" if checkpoint.beside else ""
    return code(from_here(checkpoint.path)) + engine


def _extend(text: str, checkpoint: CheckpointReport, quiet: bool, limit: int) -> tuple[str, int]:
    """``text`` with the section of one checkpoint, as much as fits, and how many findings did not."""
    shown = [f for f in checkpoint.findings if not quiet or f.severity is Severity.ERROR]
    if not shown and (quiet or checkpoint.outcome is Outcome.CLEAN):
        return text, 0
    room = limit - len(text.encode())
    parts = [_title(checkpoint, quiet), *([_HEAD] if shown else [])]
    room -= sum(len(part.encode()) for part in parts)
    rows: list[str] = []
    for row in (_finding(checkpoint, f) for f in shown):
        room -= len(row.encode())
        if room < 0:
            break
        rows.append(row)
    if room < 0 and not rows:
        return text, len(shown)
    return text + "".join([*parts, *rows]), len(shown) - len(rows)


def _title(checkpoint: CheckpointReport, quiet: bool) -> str:
    lines = ["", f"### {_called(checkpoint)}", "", escape(_verdict(checkpoint)) + ".", ""]
    if not quiet and checkpoint.outcome is not Outcome.NOTHING_TO_CHECK:
        lines += [
            f"- {escape(line)}"
            for line in (checked(checkpoint), *beside(checkpoint), *skipped(checkpoint), *unmet(checkpoint))
        ] + [""]
    return "\n".join(lines) + "\n"


def _verdict(checkpoint: CheckpointReport) -> str:
    return verdict(checkpoint, Style()).removeprefix(f"{printable(named(checkpoint))}: ")


def _finding(checkpoint: CheckpointReport, finding: Finding) -> str:
    lines = "<br>".join(_lines(finding))
    where = primary(finding)
    numbers = "".join(f":{n}" for n in (where.line, where.column) if n is not None)
    places = [code(from_here(path_of(checkpoint, where.file)) + numbers)]
    places += [code(inside)] if (inside := detail(where)) else []
    places += [f"and {more} more"] if (more := len(finding.locations) - 1) > 0 else []
    rule = f"{finding.rule} {finding.name}"
    return f"| {finding.severity.value} | {rule} | {lines} | {'<br>'.join(places)} |\n"


def _lines(finding: Finding) -> Iterator[str]:
    yield prose(finding.message)
    if finding.help:
        yield f"**help:** {prose(finding.help)}"
    if finding.confidence is not Confidence.CERTAIN:
        yield f"**confidence:** {finding.confidence.value}"
