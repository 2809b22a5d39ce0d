"""One line a finding, for editors, scripts and expected outputs: stable from release to release."""

from __future__ import annotations

from drafcheck.finding import Finding
from drafcheck.report.model import CheckpointReport, Report
from drafcheck.report.place import first_place, told
from drafcheck.report.text import printable


def render(report: Report, *, quiet: bool = False) -> str:
    """``path/file:line:column: DC101 error message`` for each finding; nothing when there is none.

    ``quiet`` keeps the errors only.
    """
    return "".join(
        f"{_line(checkpoint, finding)}\n"
        for checkpoint in report.checkpoints
        for finding in checkpoint.findings
        if not quiet or finding.severity.rank == 0
    )


def _line(checkpoint: CheckpointReport, finding: Finding) -> str:
    where = first_place(checkpoint, finding)
    return f"{where}: {finding.rule} {finding.severity.value} {printable(told(checkpoint, finding.message))}"
