"""Every fixture, repaired: no verdict is worse, no other tensor changes, nothing is repaired twice."""

from __future__ import annotations

import pytest
from make_fixtures import FIXTURES
from repairing import hashed, mended, options_of, untouched

from drafcheck.errors import NothingToCheck, UsageError
from drafcheck.finding import Severity
from drafcheck.fix.mend import Mended, mend
from drafcheck.fix.registry import Wishes, load_repairs
from drafcheck.fix.state import MendedPlace
from drafcheck.report.build import outcome
from drafcheck.report.model import Outcome

CASES = sorted(path.parent.relative_to(FIXTURES).as_posix() for path in FIXTURES.glob("*/*/args.txt"))
LINTED = [case for case in CASES if not case.startswith(("DC7", "DC9"))]

NO_FIXTURE = {"DC406"}
"""No producer is known that leaves its ids out and is certain to have trained on others than a release's default."""


def holds(done: Mended) -> None:
    """What every repair has to keep."""
    order = list(Outcome)
    assert order.index(outcome(done.last)) <= order.index(outcome(done.first))
    before, after = (hashed(seen) for seen in (done.first, done.last) if seen.subject is not None)
    renamed = {
        edit.tensor.name: edit.name
        for one in done.rounds
        for edit in one.edits
        if hasattr(edit, "name") and hasattr(edit, "tensor")
    }
    for tensor in untouched(done):
        if renamed.get(tensor.name, tensor.name) in after:
            assert after[renamed.get(tensor.name, tensor.name)] == before[tensor.name]
    assert not again(done).rounds


def again(done: Mended) -> Mended:
    """A repaired checkpoint, repaired once more."""
    place = MendedPlace(done.state.base, done.state.files, done.state.removed)
    return mend(done.state.given, done.last.setup, place, Wishes())


@pytest.mark.parametrize("case", LINTED)
def test_repairs_of_fixtures(case: str) -> None:
    folder = FIXTURES / case
    try:
        done = mended(folder, options_of(case))
    except (UsageError, NothingToCheck) as error:
        assert "once DC" in str(error)  # a fault behind the first, which nothing repairs
        return
    if done.rounds:
        holds(done)
        repaired = {(one.finding.rule, one.finding.message) for one in done.repaired}
        assert not repaired & {(f.rule, f.message) for f in done.last.findings}


def test_every_code_that_is_repaired_has_a_fixture_that_shows_it() -> None:
    shown: set[str] = set()
    for case in LINTED:
        if case.startswith("DC"):
            try:
                done = mended(FIXTURES / case, options_of(case))
            except UsageError:
                continue
            left = {f.rule for f in done.last.findings if f.severity is not Severity.NOTE}
            shown |= {one.finding.rule for one in done.repaired} - left
    safe = {code for code, known in load_repairs().items() if any(one.cost is None for one in known)}
    assert safe - shown == NO_FIXTURE
