"""The table of rules: declared with ``@rule``, selected by code or name, run in order of code."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.finding import Confidence, Location, Severity

if TYPE_CHECKING:
    from drafcheck.subject import Subject


class Hit(NamedTuple):
    """What a check yields; the registry adds code, name and the default severity.

    ``severity`` must be one that the rule declares; ``None`` means the rule's first. ``about`` names every tensor or
    parameter that is meant, where ``locations`` show only the first few: suppressions and baselines go by it.
    ``stops``: the server will not start, although the load plan knows of no refusal.
    """

    message: str
    locations: tuple[Location, ...] = ()
    help: str | None = None
    severity: Severity | None = None
    confidence: Confidence = Confidence.CERTAIN
    fixable: bool = False
    stops: bool = False
    about: tuple[str, ...] = ()


Check = Callable[["Subject"], Iterator[Hit]]


class Rule(NamedTuple):
    """One rule of the catalogue: a code, a kebab name, and the check that decides.

    ``severities`` lists every severity that the check may give, the default first.
    ``needs`` names the parts of the Subject without which the rule is skipped
    (see ``drafcheck.subject.NEEDS``). ``concerns`` names what a draft class must have for the rule to say anything
    (see ``drafcheck.concerns``); where it has not, there is nothing to check and nothing is skipped. ``reads`` names
    the tensors whose values it looks at (``d2t``, ``t2d``, ``lm_head``): where those cannot be had, it was not done.
    """

    code: str
    name: str
    severities: tuple[Severity, ...]
    needs: tuple[str, ...]
    since: str
    check: Check
    concerns: str = ""
    reads: tuple[str, ...] = ()

    @property
    def doc(self) -> str:
        """The rule's documentation: the docstring of its check."""
        return self.check.__doc__ or ""


PREFIX = "DC"
"""What the codes of built-in rules, and no others, begin with."""

_RULES: dict[str, Rule] = {}


def rule(
    code: str,
    name: str,
    *severities: Severity,
    needs: tuple[str, ...] = (),
    since: str = "0.1.0",
    concerns: str = "",
    reads: tuple[str, ...] = (),
) -> Callable[[Check], Check]:
    """Declare the decorated generator as the check of rule ``code``.

    Raises ValueError when a code or name is declared twice.
    """

    def declare(check: Check) -> Check:
        if code in _RULES or any(r.name == name for r in _RULES.values()):
            raise ValueError(f"rule {code} {name} is declared twice")
        _RULES[code] = Rule(code, name, severities, needs, since, check, concerns, reads)
        return check

    return declare


def load_rules() -> dict[str, Rule]:
    """All built-in rules by code, in order of code; imports the check modules once."""
    for module in sorted(Path(__file__).with_name("checks").glob("[a-z]*.py")):
        importlib.import_module(f"drafcheck.checks.{module.stem}")
    return {code: rule for code, rule in declared().items() if prefix_of(code) == PREFIX}


def declared() -> dict[str, Rule]:
    """Every rule declared so far in this process, those of plugins too, by code, in order of code."""
    return dict(sorted(_RULES.items()))


def forget(codes: Iterable[str]) -> None:
    """Take rules out again: those of a plugin that can not be used."""
    for code in codes:
        _RULES.pop(code, None)


def prefix_of(code: str) -> str:
    """The letters of a code, ``DC`` of the built-in rules."""
    return code.rstrip("0123456789")
