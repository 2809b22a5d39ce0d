"""Random faults on healthy drafts: a repair never makes it worse, keeps what bytes it can, and is done at once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from bases import BASES, HIDDEN, VOCAB
from drafts import dump, target_config
from mutants import recipe, write
from repairing import contents, edits_for, hashed, mended, setup_for

from drafcheck.fix.edits import Drop, Replace
from drafcheck.fix.mend import FailedRepairError, Mended, mend
from drafcheck.fix.registry import Wishes
from drafcheck.fix.state import MendedPlace
from drafcheck.report.build import outcome
from drafcheck.report.model import Outcome
from drafcheck.session import Options

RELEASES = ("sglang==0.4.8", "sglang==0.5.9", "sglang==0.5.23", "vllm==0.11.0", "vllm==0.33.0", "llama.cpp==2026.6")
BATCHES, EACH = 8, 12


def drafted(seed: int, number: int, folder: Path) -> Path:
    """A random draft, with a target beside it or without."""
    write(recipe(seed, number, tuple(BASES)), folder)
    if Random(f"{seed}/{number}/target").random() < 0.6:
        beside = {**target_config(), "hidden_size": HIDDEN, "vocab_size": VOCAB}
        (folder / "target_config.json").write_bytes(dump(beside))
    return folder


def tried(folder: Path, options: Options, wishes: Wishes) -> Mended | None:
    """The repair; None where it would bring to light an error that names had hidden, so that nothing is delivered."""
    try:
        return mended(folder, options, wishes)
    except FailedRepairError as error:
        assert "once DC" in str(error)
        return None


@pytest.mark.parametrize("batch", range(BATCHES))
def test_repairs_of_random_drafts(batch: int, tmp_path: Path) -> None:
    random, repaired = Random(batch), 0
    for number in range(EACH):
        options = Options(engine=random.choice(RELEASES))
        wishes = Wishes(unsafe=random.random() < 0.3)
        done = tried(drafted(batch, number, tmp_path / str(number)), options, wishes)
        if done is not None:
            flags_are_right(done)
            nothing_is_worse(done)
            bytes_are_kept(done)
            nothing_is_left_to_do(done, options, wishes)
            repaired += bool(done.rounds)
    assert repaired


def flags_are_right(done: Mended) -> None:
    for seen in (done.first, done.last):
        for finding in seen.findings:
            assert finding.fixable == bool(edits_for(seen, finding)), finding


def nothing_is_worse(done: Mended) -> None:
    order = list(Outcome)
    assert order.index(outcome(done.last)) <= order.index(outcome(done.first))
    before = [one.seen for one in done.rounds]
    there = {f.rule for seen in before for f in seen.findings if f.severity.value == "error"}
    unknown = {code for seen in before for code, _ in seen.skipped}  # what could not be asked before
    new = {f.rule for f in done.last.findings if f.severity.value == "error"} - there - unknown
    assert not (new and done.rounds) or outcome(done.first) is Outcome.REFUSED


def bytes_are_kept(done: Mended) -> None:
    """Whatever no edit drops or replaces is there, under one name or another."""
    touched = {e.tensor.name for one in done.rounds for e in one.edits if isinstance(e, (Drop, Replace))}
    before = sorted(tensor for name, tensor in hashed(done.first).items() if name not in touched)
    after = sorted(contents(done).values())
    for tensor in before:
        after.remove(tensor)


def nothing_is_left_to_do(done: Mended, options: Options, wishes: Wishes) -> None:
    """What was repaired is not repaired again."""
    place = MendedPlace(done.state.base, done.state.files, done.state.removed)
    again = mend(done.state.given, setup_for(done.state.given, options), place, wishes) if done.rounds else None
    assert again is None or not again.rounds
