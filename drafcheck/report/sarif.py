"""SARIF 2.1.0: findings for code scanning, with the place of a key in its file and of a tensor among its bytes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any

from drafcheck.finding import Finding, Location, Severity
from drafcheck.registry import Rule, declared
from drafcheck.report.fingerprint import fingerprints
from drafcheck.report.full import passed_over, skipped, verdict
from drafcheck.report.model import CheckpointReport, Outcome, Report
from drafcheck.report.place import from_here, named, path_of, primary, told
from drafcheck.report.rules import summary
from drafcheck.report.style import Style
from drafcheck.report.text import printable

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
"""What relative addresses are relative to: the working directory. The name is the one that GitHub gives its root."""

RELATED = 100
"""So many further places of one finding are given; platforms show no more."""

Json = dict[str, Any]
Spans = Mapping[tuple[str | None, str | None], tuple[int, int]]
"""The first byte of a tensor in its file and the one after its last, by file and name."""


def render(report: Report, spans: Mapping[int, Spans] | None = None) -> str:
    """One log with one run, in ASCII. ``spans``: where the tensors of the checkpoint at that position lie."""
    known = declared()
    used = [known[code] for code in sorted({f.rule for f in report.findings}) if code in known]
    results = [
        _result(checkpoint, finding, fingerprint, (spans or {}).get(number, {}))
        for number, checkpoint in enumerate(report.checkpoints)
        for finding, fingerprint in zip(checkpoint.findings, fingerprints(checkpoint), strict=True)
    ]
    run = {
        "tool": {"driver": _driver(report, used)},
        "invocations": [_invocation(report)],
        "originalUriBaseIds": {ROOT: {"description": {"text": "the working directory of drafcheck"}}},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _driver(report: Report, rules: Iterable[Rule]) -> Json:
    urls = project_urls()
    driver: Json = {"name": "drafcheck", "version": report.drafcheck, "semanticVersion": report.drafcheck}
    if home := urls.get("homepage") or urls.get("repository"):
        driver["informationUri"] = home
    return {**driver, "rules": [_rule(rule, urls.get("documentation")) for rule in rules]}


def project_urls() -> dict[str, str]:
    """The addresses that the installed package names, by their labels in lower case; empty when it names none."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        lines = metadata("drafcheck").get_all("Project-URL") or []
    except PackageNotFoundError:
        return {}
    return {label.strip().lower(): url.strip() for label, _, url in (line.partition(",") for line in lines)}


def _rule(rule: Rule, docs: str | None) -> Json:
    doc = inspect.cleandoc(rule.doc).replace("``", "`")
    made: Json = {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": summary(rule)},
        "fullDescription": {"text": summary(rule)},
        "help": {"text": doc.replace("## ", ""), "markdown": doc},
        "defaultConfiguration": {"level": rule.severities[0].value},
        "properties": {"tags": ["draft-checkpoint"], "problem.severity": _problem(rule.severities[0])},
    }
    return made if docs is None else {**made, "helpUri": f"{docs}#{rule.code.lower()}-{rule.name}"}


def _problem(severity: Severity) -> str:
    return "recommendation" if severity is Severity.NOTE else severity.value


def _invocation(report: Report) -> Json:
    """Whether drafcheck itself ran through, the verdicts, and what was not checked."""
    lines = [line for c in report.checkpoints for line in _said(c)] + passed_over(report, verbose=True)
    return {
        "executionSuccessful": all(c.outcome is not Outcome.INTERNAL_ERROR for c in report.checkpoints),
        "toolExecutionNotifications": [{"level": "note", "message": _message(line)} for line in lines],
    }


def _said(checkpoint: CheckpointReport) -> list[str]:
    path = printable(named(checkpoint))
    return [verdict(checkpoint, Style()), *(f"{path}: {line}" for line in skipped(checkpoint))]


def _result(checkpoint: CheckpointReport, finding: Finding, fingerprint: str, spans: Spans) -> Json:
    text = printable(told(checkpoint, finding.message)) + (f"\nhelp: {printable(finding.help)}" if finding.help else "")
    others = finding.locations[1 : 1 + RELATED]
    made: Json = {
        "ruleId": finding.rule,
        "level": finding.severity.value,
        "message": _message(text),
        "locations": [_location(checkpoint, primary(finding), spans)],
        "partialFingerprints": {"drafcheck/v1": fingerprint, "primaryLocationLineHash": f"{fingerprint[:16]}:1"},
        "properties": {
            "name": finding.name,
            "confidence": finding.confidence.value,
            "engine": f"{checkpoint.engine.name} {checkpoint.engine.version}",
            "checkpoint": printable(checkpoint.path),
            "fixable": finding.fixable,
        },
    }
    if others:
        made["relatedLocations"] = [
            {"id": number, **_location(checkpoint, place, spans)} for number, place in enumerate(others, 1)
        ]
    return made


def _message(text: str) -> Json:
    """Literal text. Braces would be placeholders, ``[...](...)`` would be a link that a name smuggles in."""
    return {"text": text.replace("{", "{{").replace("}", "}}").replace("](", "] (")}


def _location(checkpoint: CheckpointReport, place: Location, spans: Spans) -> Json:
    made: Json = {
        "physicalLocation": {
            "artifactLocation": artifact(from_here(path_of(checkpoint, place.file))),
            "region": _region(place, spans.get((place.file, place.tensor))),
        }
    }
    name = printable(place.tensor or place.key or "")
    if name:
        kind = "tensor" if place.tensor else "property"
        made["logicalLocations"] = [{"name": name, "fullyQualifiedName": name, "kind": kind}]
        made["message"] = _message(name)
    return made


def _region(place: Location, span: tuple[int, int] | None) -> Json:
    # GitHub shows no result without a line; a region may have both, and neither is inferred from the other.
    region: Json = {"startLine": place.line or 1}
    if place.column is not None:
        region["startColumn"] = place.column
    if span is not None:
        region |= {"byteOffset": span[0], "byteLength": span[1] - span[0]}
    return region


def artifact(path: str) -> Json:
    """The address of a file: relative to the working directory, or absolute for a file elsewhere."""
    from urllib.parse import quote

    if "://" in path:
        scheme, _, rest = path.partition("://")
        return {"uri": f"{quote(scheme)}://{quote(rest, safe='/@:')}"}
    if path.startswith("/"):
        return {"uri": f"file://{quote(path)}"}
    return {"uri": quote(path), "uriBaseId": ROOT}
