"""Rounds of repair: check, ask the repairs for edits, make them, check what would be there, until nothing is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from drafcheck.errors import UsageError
from drafcheck.finding import Finding, Severity
from drafcheck.fix.edits import Edit, Edits, merged
from drafcheck.fix.possible import why_not
from drafcheck.fix.registry import Known, Wishes, load_repairs
from drafcheck.fix.state import NOTHING_CHANGED, State, after
from drafcheck.report.build import outcome
from drafcheck.report.model import Outcome
from drafcheck.runner import Examination, examine

if TYPE_CHECKING:
    from drafcheck.checkpoint import Checkpoint
    from drafcheck.place import Place
    from drafcheck.session import Setup

ROUNDS = 8
"""What one repair brings to light the next round mends; more than three have not been seen."""

_WORSE = list(Outcome)
_NOTHING = "nothing was written"


@dataclass(frozen=True)
class Repaired:
    """A finding, the edits that were to mend it, and what an unsafe one costs."""

    finding: Finding
    edits: tuple[Edit, ...]
    cost: str | None = None


@dataclass(frozen=True)
class Round:
    """What one round did: the checkpoint before it, its repairs, and their edits in one list."""

    seen: Examination
    repaired: tuple[Repaired, ...]
    edits: Edits


@dataclass(frozen=True)
class Mended:
    """The whole repair; ``last`` is how the checkpoint checks as it would be.

    ``beyond`` are the findings left whose repair is known and can not be written, each with the reason.
    """

    rounds: tuple[Round, ...]
    last: Examination
    state: State
    beyond: tuple[tuple[Finding, str], ...] = ()

    @property
    def first(self) -> Examination:
        """How the checkpoint checks as it is."""
        return self.rounds[0].seen if self.rounds else self.last

    @property
    def repaired(self) -> tuple[Repaired, ...]:
        """All repairs, in the order in which they were made."""
        return tuple(done for one in self.rounds for done in one.repaired)


class FailedRepairError(UsageError):
    """The mended checkpoint is not as it should be, so that nothing may be delivered."""


def mend(path: str, setup: Setup, place: Place, wishes: Wishes) -> Mended:
    """What repairs make of the checkpoint in ``place``, called ``path``, for the engine of ``setup``.

    Only findings of the rules chosen there are mended, and none that is suppressed; all rules judge the result.
    Nothing is written. Raises UsageError when repairs contradict each other or what the user gave can not be used,
    FailedRepairError when a repaired finding is still there or a new error is.
    """
    chosen = frozenset(setup.chosen)
    setup = replace(setup, chosen=setup.rules)
    state = State(path, place)
    rounds: list[Round] = []
    beyond: list[tuple[Finding, str]] = []
    seen = _seen(state, setup)
    while len(rounds) < ROUNDS:
        asked = list(_repairs(seen, chosen, wishes))
        beyond = [(one.finding, why) for one in asked if (why := _hindrance(seen, one)) is not None]
        repaired = tuple(one for one in asked if all(one.finding is not finding for finding, _ in beyond))
        edits = merged((one.finding.rule, edit) for one in repaired for edit in one.edits)
        if not edits or seen.subject is None:
            break
        state = after(state, seen.subject.checkpoint, edits)
        rounds.append(Round(seen, repaired, edits))
        seen = _seen(state, setup)
    mended = Mended(tuple(rounds), seen, state, tuple(beyond))
    if mended.first.subject is not None:
        _refuse_damaged(mended.first.subject.checkpoint, state)
    confirm(mended)
    return mended


def _refuse_damaged(checkpoint: Checkpoint, state: State) -> None:
    """Raises UsageError where the bytes of a pickle that would go are not those that were saved: it alone shows it."""
    for file in checkpoint.files:
        if file.header.sums and file.name in state.removed:
            from drafcheck.checksums import damaged  # for these files alone

            name = next(damaged(file), None)
            if name is not None:
                raise UsageError(
                    f"{file.name} has other bytes than were saved, by the archive's checksum of `{name:.200}`, and as "
                    f"safetensors nothing would show that{NOTHING_CHANGED}"
                )


def confirm(mended: Mended) -> None:
    """Raises FailedRepairError when a repaired finding is still there, or an error that was not there before."""
    there = {_identity(f) for f in mended.last.findings}
    for one in mended.repaired:
        if _identity(one.finding) in there:
            raise FailedRepairError(f"{_NOTHING}: the repair of {one.finding.rule} did not help: {one.finding.message}")
    known, about = _known(mended), _mourned(mended)
    errors = [f for f in mended.last.findings if f.severity is Severity.ERROR and f.rule not in known]
    new = [f for f in errors if not f.about or not about.issuperset(f.about)]
    if new and not stopped(mended.first):
        raise FailedRepairError(f"{_NOTHING}: once {_codes(mended)} is repaired, {new[0].rule} shows: {new[0].message}")
    if _WORSE.index(outcome(mended.last)) > _WORSE.index(outcome(mended.first)):
        error = next((f"{f.rule}: {f.message}" for f in mended.last.findings if f.severity is Severity.ERROR), "")
        now = f"the checkpoint would be {outcome(mended.last).value} and no more {outcome(mended.first).value}"
        raise FailedRepairError(f"{_NOTHING}: once {_codes(mended)} is repaired, {now}: {error}")


def _codes(mended: Mended) -> str:
    return " and ".join(dict.fromkeys(one.finding.rule for one in mended.repaired))


def stopped(seen: Examination) -> bool:
    """Whether the engine stops at the checkpoint: then what it did not come to is not known yet, and no new fault."""
    return outcome(seen) in (Outcome.REFUSED, Outcome.NOTHING_TO_CHECK)


def _known(mended: Mended) -> set[str]:
    """The rules whose errors are no news: they had some before, or could not run, as when the class is unknown."""
    before = [one.seen for one in mended.rounds] or [mended.last]
    found = {f.rule for seen in before for f in seen.findings if f.severity is Severity.ERROR}
    return found | {code for seen in before for code, _ in seen.skipped}


def _mourned(mended: Mended) -> set[str]:
    """The tensors and parameters that an error was about before: half of one is no new fault where all was lost."""
    before = [one.seen for one in mended.rounds] or [mended.last]
    return {name for seen in before for f in seen.findings if f.severity is Severity.ERROR for name in f.about}


def _seen(state: State, setup: Setup) -> Examination:
    """The checkpoint of a state, checked. Raises UsageError when a rule of drafcheck's own fails on it."""
    seen = examine(state.given, setup, partial(State.opened, state))
    if seen.crashed:
        what, crash = next(iter(seen.crashed.items()))
        raise UsageError(f"drafcheck itself failed ({what}: {crash}); nothing was changed")
    return seen


def _repairs(seen: Examination, chosen: frozenset[str], wishes: Wishes) -> Iterator[Repaired]:
    known = load_repairs()
    for finding in seen.findings:
        if finding.rule in chosen:
            for one in known.get(finding.rule, []):
                edits = _edits(one, seen, finding, wishes)
                if edits:
                    yield Repaired(finding, edits, one.cost)


def _hindrance(seen: Examination, one: Repaired) -> str | None:
    assert seen.subject is not None
    return why_not(seen.subject, one.finding.rule, one.edits)


def _edits(known: Known, seen: Examination, finding: Finding, wishes: Wishes) -> tuple[Edit, ...]:
    if seen.subject is None or (known.cost is not None and not wishes.unsafe):
        return ()
    return tuple(known.work(seen.subject, [finding], wishes))


def _identity(finding: Finding) -> tuple[str, str, Sequence[str]]:
    return finding.rule, finding.message, finding.about
