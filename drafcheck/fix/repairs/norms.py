"""Repairs of the flags with which norms are applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.checks.norms import flag_set
from drafcheck.fix.edits import Edit
from drafcheck.fix.keys import edits_of
from drafcheck.fix.registry import Wishes, repair
from drafcheck.normflags import unswitched

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.subject import Subject


@repair("DC407")
def set_the_flag(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The flag of norms whose tensors are there, where this release looks for it."""
    meant = {name for finding in findings if finding.fixable for name in finding.about}
    for group in unswitched(s):
        if any(tensor.name in meant for tensor in group.tensors):
            yield from edits_of(s, flag_set(s, group))
