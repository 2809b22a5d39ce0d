"""JUnit XML: a test suite for each checkpoint, a test case for each rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.registry import declared
from drafcheck.report.full import skipped, unmet, verdict
from drafcheck.report.model import INTERNAL_ERROR, CheckpointReport, FailOn, Outcome, Report
from drafcheck.report.place import detail, named, place
from drafcheck.report.style import Style
from drafcheck.report.text import printable

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_NO_TEST = (Outcome.INTERNAL_ERROR, Outcome.NOTHING_TO_CHECK)


def render(
    report: Report,
    ran: Mapping[int, Sequence[str]] | None = None,
    *,
    fail_on: FailOn = FailOn.ERROR,
    limits: Mapping[int, FailOn] | None = None,
) -> str:
    """One ``testsuites`` element.

    ``ran`` holds the codes of the rules that ran on the checkpoint at that position: those without a finding are
    test cases that passed. A finding below ``fail_on`` (``never`` counts as ``error``) does not fail its test case
    and stands in its output; ``limits`` are those of single checkpoints, by position. Whatever XML can not
    hold is escaped before it comes here (see ``printable``).
    """
    from xml.etree.ElementTree import Element, indent, tostring

    root = Element("testsuites", name="drafcheck")
    names = {rule.code: rule.name for rule in declared().values()}
    for number, checkpoint in enumerate(report.checkpoints):
        own = (limits or {}).get(number, fail_on)
        limit = Severity.WARNING if own is FailOn.WARNING else Severity.ERROR
        here = {code: names.get(code, "") for code in (ran or {}).get(number, ())}
        here |= {s.rule: names.get(s.rule, "") for s in checkpoint.skipped}
        here |= {f.rule: f.name for f in checkpoint.findings}
        root.append(_suite(checkpoint, dict(sorted(here.items())), limit))
    for count in ("tests", "failures", "errors"):  # Jenkins' schema knows no sum of the skipped
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    indent(root)
    # In ASCII, with references for the rest: standard output may have another encoding than the one declared here.
    text: bytes = tostring(root, encoding="us-ascii")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text.decode()}\n'


def _suite(checkpoint: CheckpointReport, rules: Mapping[str, str], limit: Severity) -> Element:
    from xml.etree.ElementTree import Element, SubElement

    suite = Element("testsuite", name=printable(named(checkpoint)))
    properties = SubElement(suite, "properties")
    for name, value in _properties(checkpoint):
        SubElement(properties, "property", name=name, value=printable(value))
    for code, name in rules.items():
        suite.append(_case(checkpoint, code, name, limit))
    lines = [*map(printable, skipped(checkpoint)), *unmet(checkpoint), verdict(checkpoint, Style())]
    SubElement(suite, "system-out").text = "\n".join(lines)
    counts = {"tests": "testcase", "failures": "*/failure", "errors": "*/error", "skipped": "*/skipped"}
    for count, route in counts.items():
        suite.set(count, str(len(suite.findall(route))))
    return suite


def _properties(checkpoint: CheckpointReport) -> list[tuple[str, str]]:
    engine = f"{checkpoint.engine.name} {checkpoint.engine.version}"
    rows = [("engine", engine), ("algorithm", checkpoint.algorithm), ("contract", checkpoint.contract)]
    rows += [("target", checkpoint.target), ("outcome", checkpoint.outcome.value)]
    return [(name, value) for name, value in rows if value]


def _case(checkpoint: CheckpointReport, code: str, name: str, limit: Severity) -> Element:
    from xml.etree.ElementTree import Element, SubElement

    findings = [f for f in checkpoint.findings if f.rule == code]
    why = next((s.why for s in checkpoint.skipped if s.rule == code), None)
    case = Element("testcase", name=f"{code} {name}".strip(), classname=printable(named(checkpoint)))
    failing = [f for f in findings if f.severity.rank <= limit.rank]
    if failing:
        tag = "error" if code == INTERNAL_ERROR or checkpoint.outcome in _NO_TEST else "failure"
        fault = SubElement(case, tag, message=printable(failing[0].message), type=failing[0].severity.value)
        fault.text = "\n\n".join(_text(checkpoint, f) for f in failing)
    elif why is not None and not findings:
        SubElement(case, "skipped", message=printable(why))
    if rest := [f for f in findings if f not in failing]:
        SubElement(case, "system-out").text = "\n\n".join(_text(checkpoint, f) for f in rest)
    return case


def _text(checkpoint: CheckpointReport, finding: Finding) -> str:
    lines = [f"{finding.severity.value}: {printable(finding.message)}"]
    for location in finding.locations:
        inside = detail(location)
        lines.append(f" --> {place(checkpoint, location)}{f' ({inside})' if inside else ''}")
    lines += [f"help: {printable(finding.help)}"] if finding.help else []
    lines += [] if finding.confidence is Confidence.CERTAIN else [f"confidence: {finding.confidence.value}"]
    return "\n".join(lines)
