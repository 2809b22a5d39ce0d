"""Workflow commands of GitHub Actions: an annotation for each finding on the page of the run and of the change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from drafcheck.finding import Finding, Severity
from drafcheck.report.full import closing, passed_over
from drafcheck.report.model import CheckpointReport, Report
from drafcheck.report.place import from_here, path_of, primary, told
from drafcheck.report.style import Style
from drafcheck.report.text import printable
from drafcheck.words import plural

LIMIT = 10
"""GitHub shows so many annotations of each type from one step and drops the rest without a word."""

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}

Found = tuple[CheckpointReport, Finding]


def render(report: Report, *, quiet: bool = False) -> str:
    """``::error file=...,line=...,col=...,title=...::message`` lines, errors first, then what was checked.

    Where there are more than GitHub shows of a type, the last annotation sums up the rest. ``quiet`` keeps the
    errors only. No line that is not meant as a command can be taken for one, whatever a checkpoint's names are.
    """
    lines = [line for severity in Severity if not quiet or severity.rank == 0 for line in _of(report, severity)]
    lines += [_plain(line) for c in report.checkpoints for line in closing(c, Style(), quiet=quiet).splitlines()]
    lines += map(_plain, passed_over(report))
    return "".join(f"{line}\n" for line in lines)


def escape_data(text: str) -> str:
    """The message of a command: ``%`` and line ends as GitHub's toolkit escapes them."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """The value of a command's property: the delimiters ``:`` and ``,`` as well."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _of(report: Report, severity: Severity) -> Iterator[str]:
    found = [(c, f) for c in report.checkpoints for f in c.findings if f.severity is severity]
    shown = LIMIT if len(found) <= LIMIT else LIMIT - 1
    yield from (_annotation(checkpoint, finding) for checkpoint, finding in found[:shown])
    if found[shown:]:
        yield _rest(found[shown:], severity)


def _annotation(checkpoint: CheckpointReport, finding: Finding) -> str:
    where = primary(finding)
    text = printable(told(checkpoint, finding.message)) + (f"\nhelp: {printable(finding.help)}" if finding.help else "")
    properties = {
        "file": printable(from_here(path_of(checkpoint, where.file))),
        "line": str(where.line or ""),
        "col": str(where.column or ""),
        "title": f"{finding.rule} {finding.name}",
    }
    return _command(finding.severity, properties, text)


def _rest(found: Sequence[Found], severity: Severity) -> str:
    rules = Counter(finding.rule for _, finding in found)
    listed = ", ".join(f"{rule} ({count})" for rule, count in sorted(rules.items()))
    where = plural(len({checkpoint.path for checkpoint, _ in found}), "checkpoint")
    title = f"and {plural(len(found), f'more {severity.value}')}"
    text = f"{title} in {where}: {listed}; GitHub shows {LIMIT} annotations of a type, the whole report has them all"
    return _command(severity, {"title": title}, text)


def _command(severity: Severity, properties: dict[str, str], text: str) -> str:
    given = ",".join(f"{key}={escape_property(value)}" for key, value in properties.items() if value)
    return f"::{_COMMANDS[severity]} {given}::{escape_data(text)}"


def _plain(line: str) -> str:
    # The runner also obeys "##[command]" anywhere in a line, an older spelling.
    return "drafcheck: " + line.replace("##[", "## [")
