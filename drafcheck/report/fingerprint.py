"""A name for each finding that stays the same from run to run, by which a platform knows it again."""

from __future__ import annotations

import json

from drafcheck.finding import Finding
from drafcheck.report.model import CheckpointReport
from drafcheck.report.place import from_here, path_of, primary


def fingerprints(report: CheckpointReport) -> list[str]:
    """32 hexadecimal digits for each finding, in order; no two are alike.

    They depend on the rule, the file as seen from the working directory, and the tensor or key that the finding
    points to first, and in a run with several on the engine: not on lines, messages, severities or versions, so an
    edit elsewhere or another release of the engine or of drafcheck leaves them as they are. Further findings with the
    same place are numbered.
    """
    from hashlib import sha256

    seen: dict[str, int] = {}
    made = []
    for finding in report.findings:
        identity = _identity(report, finding)
        seen[identity] = number = seen.get(identity, 0) + 1
        made.append(sha256(f"{identity}{number}".encode()).hexdigest()[:32])
    return made


def _identity(report: CheckpointReport, finding: Finding) -> str:
    where = primary(finding)
    parts = [finding.rule, from_here(path_of(report, where.file)), where.tensor, where.key]
    return json.dumps(parts + _engine(report))


def _engine(report: CheckpointReport) -> list[str]:
    """Nothing for the only engine of a run; the release as well where a run has two of one engine."""
    engine = report.engine
    alike = any(other.name == engine.name for other in report.beside)
    return [engine.name, *([engine.version] if alike else [])] if report.beside else []
