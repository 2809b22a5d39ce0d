"""Which engine takes which checkpoint: one row a checkpoint and engine, for runs with several engines."""

from __future__ import annotations

from collections.abc import Sequence

from drafcheck.finding import Severity
from drafcheck.report.model import CheckpointReport, First, Matrix, Outcome, Report, Verdict
from drafcheck.report.style import Style
from drafcheck.report.table import table
from drafcheck.report.text import printable
from drafcheck.words import plural

WORDS = {
    Outcome.CLEAN: "takes it",
    Outcome.INCOMPLETE: "not known",
    Outcome.DEGRADED: "takes it, with a loss",
    Outcome.BROKEN: "broken",
    Outcome.REFUSED: "refuses it",
    Outcome.NOTHING_TO_CHECK: "nothing to check",
    Outcome.INTERNAL_ERROR: "drafcheck failed",
}
PARTLY = "no fault found, not all checked"
HEAD = ("engine", "verdict", "errors", "warnings", "first finding")
ROOM = 100
"""Characters of a message in the table: the finding itself stands above it."""


def matrix_of(checkpoints: Sequence[CheckpointReport]) -> tuple[Matrix, ...]:
    """A row for each path that was checked for several engines; nothing for the others."""
    grouped: dict[str, list[CheckpointReport]] = {}
    for checkpoint in checkpoints:
        if checkpoint.beside:
            grouped.setdefault(checkpoint.path, []).append(checkpoint)
    return tuple(Matrix(path=path, engines=tuple(map(_verdict, group))) for path, group in grouped.items())


def _verdict(checkpoint: CheckpointReport) -> Verdict:
    first = next((f for f in checkpoint.findings if f.severity is not Severity.NOTE), None)
    return Verdict(
        engine=checkpoint.engine,
        outcome=checkpoint.outcome,
        errors=checkpoint.count(Severity.ERROR),
        warnings=checkpoint.count(Severity.WARNING),
        notes=checkpoint.count(Severity.NOTE),
        first=None
        if first is None
        else First(rule=first.rule, name=first.name, severity=first.severity, message=first.message),
        partly=checkpoint.partly,
    )


def render(report: Report, style: Style) -> str:
    """The matrix as a table for people; empty for a run with one engine."""
    if not report.matrix:
        return ""
    several = len(report.matrix) > 1
    rows = [
        [*([printable(row.path) if number == 0 else ""] if several else []), *cells(verdict)]
        for row in report.matrix
        for number, verdict in enumerate(row.engines)
    ]
    counted = plural(len(report.matrix[0].engines), "engine")
    title = f"{counted}, {plural(len(report.matrix), 'checkpoint')}" if several else printable(report.matrix[0].path)
    return style.bold(title) + "\n" + table(rows, (*(["checkpoint"] if several else []), *HEAD))


def cells(verdict: Verdict) -> list[str]:
    """One verdict in the columns of HEAD."""
    first = verdict.first
    text = "" if first is None else f"{first.rule} {first.name}: {_short(printable(first.message))}"
    engine = printable(f"{verdict.engine.name} {verdict.engine.version}")
    said = PARTLY if verdict.partly else WORDS[verdict.outcome]
    return [engine, said, str(verdict.errors), str(verdict.warnings), text]


def _short(text: str) -> str:
    return text if len(text) <= ROOM else text[: ROOM - 3].rstrip() + "..."
