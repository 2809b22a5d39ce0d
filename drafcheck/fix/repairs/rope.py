"""Repair of a rope that is stated where a release does not look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.checks.rope import mirrored
from drafcheck.fix.edits import Edit
from drafcheck.fix.keys import edits_of
from drafcheck.fix.registry import Wishes, repair

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.subject import Subject


@repair("DC506")
def state_it_in_both_forms(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """What the config states in one form in the other one as well; theta stays the one that it states."""
    if any(finding.fixable for finding in findings):
        yield from edits_of(s, mirrored(s))
