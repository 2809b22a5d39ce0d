"""Repairs of values in config.json: sizes that follow from the tensors, the dtype, the length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.checks.config import dtype_shared, length_needed
from drafcheck.conversion import route_to
from drafcheck.fix.edits import Edit
from drafcheck.fix.keys import edits_of
from drafcheck.fix.registry import Wishes, repair
from drafcheck.layercount import counted
from drafcheck.sizes import one_readings
from drafcheck.values import value_meant

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.subject import Subject


@repair("DC201")
def say_what_the_tensors_are(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The sizes that follow from the shapes of the tensors that do not fit."""
    meant = {name for finding in findings for name in finding.about}
    for one in one_readings(s):
        if one.key in meant or not one.mends.isdisjoint(meant):
            yield from _size(s, one.key, one.value)


@repair("DC202")
def state_head_dim(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The head_dim of the tensors."""
    for one in one_readings(s):
        if one.key == "head_dim":
            yield from _size(s, one.key, one.value)


def _size(s: Subject, key: str, value: int) -> Iterator[Edit]:
    route = route_to(s, key)
    yield from edits_of(s, {route: value} if route is not None else None)


@repair("DC203")
def count_the_layers(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The number of layers that the file holds."""
    if any(finding.fixable for finding in findings):
        yield from edits_of(s, counted(s))


@repair("DC508")
def share_the_dtype(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The target's dtype."""
    if any(finding.fixable for finding in findings):
        yield from edits_of(s, dtype_shared(s))


@repair("DC509")
def write_the_value_meant(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The one value that the key can have been meant to hold."""
    yield from edits_of(s, value_meant(s))


@repair("DC505", cost="the drafter then proposes at positions that it was not trained on")
def raise_the_length(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The target's context length."""
    yield from edits_of(s, length_needed(s))
