"""From what a rule yields to a finding: with its code, its severity, and how sure it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.contract import load_toml
from drafcheck.finding import Confidence, Finding
from drafcheck.lookup import hangs_on_launch
from drafcheck.registry import Hit, Rule
from drafcheck.words import without_blanks

if TYPE_CHECKING:
    from drafcheck.subject import Subject


def is_proven(rule: Rule, subject: Subject) -> bool:
    """Whether what the rule rests on was seen to be so.

    A contract may have been read only, not run; another release may have stood in for the one asked for; and what is
    built may hang on a launch that was not named.
    """
    if rule.needs and load_toml(subject.engine.name, "engine.toml").get("proof") == "read":
        return False  # nothing of the engine was run
    contract = subject.contract
    if contract is None or not {"contract", "load"} & set(rule.needs):
        return True
    if subject.config is not None and hangs_on_launch(contract, subject.config):
        return False
    if not contract.proven or subject.engine.exact:
        return contract.proven
    from drafcheck.proof import requires_the_same

    return requires_the_same(subject.engine, contract.architecture)


def finding_of(rule: Rule, hit: Hit, *, proven: bool = True) -> Finding:
    """The finding that a hit of ``rule`` stands for; not a certain one on a contract that is not ``proven``.

    Raises ValueError for a severity that the rule does not declare.
    """
    severity = hit.severity or rule.severities[0]
    if severity not in rule.severities:
        raise ValueError(f"{rule.code} declares no severity {severity.value}")
    return Finding(
        rule=rule.code,
        name=rule.name,
        severity=severity,
        confidence=hit.confidence if proven or hit.confidence is not Confidence.CERTAIN else Confidence.LIKELY,
        message=without_blanks(hit.message),
        locations=tuple(dict.fromkeys(hit.locations)),  # two words of one line have one place
        help=hit.help,
        fixable=hit.fixable,
        about=hit.about,
    )
