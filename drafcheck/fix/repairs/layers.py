"""Repairs of layer ids: where a release reads them and as it counts them; of widths, and of the switch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.checks.hidden_states import switched_on, width_meant, width_of_the_target
from drafcheck.checks.layers import ids_as_read
from drafcheck.checks.layers_unread import ids_moved, ids_of_the_default
from drafcheck.fix.edits import Edit
from drafcheck.fix.keys import edits_of
from drafcheck.fix.registry import Wishes, repair

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.subject import Subject


@repair("DC401")
def state_the_width(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The width or the number of states that ``fc`` takes."""
    yield from edits_of(s, width_meant(s))


@repair("DC402")
def switch_capturing_on(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The switch that says no although the head was made for captured states."""
    yield from edits_of(s, switched_on(s))


@repair("DC404")
def number_as_the_release_does(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The ids of the layers that the drafter was certainly trained on, as this release counts them."""
    yield from edits_of(s, ids_as_read(s))


@repair("DC405")
def move_the_ids(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The ids under the key at which this release looks; where they stand now others may look for them."""
    for key in (place.key for finding in findings for place in finding.locations[:1]):
        yield from edits_of(s, ids_moved(s, key) if key is not None else None)


@repair("DC406")
def state_the_layers(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The layers that the producer certainly trains on, where this release takes others by default."""
    if any(finding.fixable for finding in findings):
        yield from edits_of(s, ids_of_the_default(s))


@repair("DC409")
def state_the_target_width(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The target's width, for which ``fc`` was made."""
    yield from edits_of(s, width_of_the_target(s))
