"""Rules and the contract book as text to read: ``drafcheck rule`` and ``drafcheck contracts``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

from drafcheck.contract import contract_files, engines, releases
from drafcheck.contract_tables import contract_table
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


def contracts() -> str:
    """The engines, releases and draft classes that the contract book describes."""
    blocks = []
    for engine in engines():
        known = releases(engine)
        blocks.append(f"{engine} {known[0]} to {known[-1]} ({len(known)} releases)\n")
        blocks.append(table(_revisions(engine), ("draft class", "algorithm", "releases", "what it takes")))
    return "\n".join(blocks)


def _revisions(engine: str) -> list[tuple[str, str, str, str]]:
    rows = []
    for stem in contract_files(engine):
        book = contract_table(engine, stem)
        head = (", ".join(book.get("architectures", [])), ", ".join(book.get("algorithms", [])))
        for revision in book.get("revision", []):
            rows.append((*head, revision.get("versions", "all"), revision.get("summary", "")))
            head = ("", "")
    return rows


def _line(line: str, style: Style) -> str:
    if heading := _HEADING.match(line):
        return style.bold(heading[1])
    return _CODE.sub(r"\1", line)
