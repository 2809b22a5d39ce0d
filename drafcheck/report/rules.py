"""Rules as text to read: ``drafcheck rule``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

from drafcheck.registry import Rule
from drafcheck.report.style import Style
from drafcheck.report.table import table

_CODE = re.compile(r"`{1,2}([^`]+)`{1,2}")
_HEADING = re.compile(r"^## (.+)$")


def summary(rule: Rule) -> str:
    """The first paragraph of the rule's documentation on one line, without Markdown."""
    first = inspect.cleandoc(rule.doc).partition("\n\n")[0]
    return _CODE.sub(r"\1", " ".join(first.split()))


def severities(rule: Rule) -> str:
    """``error`` or ``error/warning``, the default first."""
    return "/".join(s.value for s in rule.severities)


def page(rule: Rule, style: Style) -> str:
    """The whole documentation of a rule as plain text."""
    head = style.bold(f"{rule.code} {rule.name}")
    lines = [f"{head} ({severities(rule)}, since {rule.since})", ""]
    lines += [_line(line, style) for line in inspect.cleandoc(rule.doc).splitlines()]
    return "\n".join(lines) + "\n"


def catalogue(rules: Iterable[Rule]) -> str:
    """One line a rule: code, name, severities, summary."""
    return table(
        [(r.code, r.name, severities(r), summary(r)) for r in rules], ("code", "name", "severity", "fires when")
    )


def _line(line: str, style: Style) -> str:
    if heading := _HEADING.match(line):
        return style.bold(heading[1])
    return _CODE.sub(r"\1", line)
