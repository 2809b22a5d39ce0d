"""A Code Quality report for GitLab: findings in the widget of a merge request and beside the changed lines."""

from __future__ import annotations

import json

from drafcheck.finding import Finding, Severity
from drafcheck.report.fingerprint import fingerprints
from drafcheck.report.model import CheckpointReport, Report
from drafcheck.report.place import from_here, path_of, primary, told
from drafcheck.report.text import printable

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.NOTE: "info"}


def render(report: Report) -> str:
    """A JSON array in ASCII, one object a finding; line 1 where a finding has no line."""
    issues = [
        _issue(checkpoint, finding, fingerprint)
        for checkpoint in report.checkpoints
        for finding, fingerprint in zip(checkpoint.findings, fingerprints(checkpoint), strict=True)
    ]
    return json.dumps(issues, indent=2) + "\n"


def _issue(checkpoint: CheckpointReport, finding: Finding, fingerprint: str) -> dict[str, object]:
    where = primary(finding)
    return {
        "type": "issue",
        "check_name": finding.rule,
        "description": f"{finding.rule} {finding.name}: {printable(told(checkpoint, finding.message))}",
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[finding.severity],
        "location": {"path": from_here(path_of(checkpoint, where.file)), "lines": {"begin": where.line or 1}},
    }
