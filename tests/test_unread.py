"""Values that a check needs and that do not lie in one piece are read; where they can not be had, that is said."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from pickles import STORAGE, strides
from variants import TRAINED, Pair, build, healthy
from weightfiles import Storage, archive, state, tensor
from weights import Weight

from drafcheck import unplaced
from drafcheck.cli import run
from drafcheck.report.model import CheckpointReport, FailOn, Outcome
from drafcheck.runner import lint
from drafcheck.valuescan import packed

WIDTHS = {"BF16": 2, "I64": 8, "BOOL": 1}
HEAD = TRAINED / "target-head"
RELEASES = ("sglang==0.5.15", "vllm==0.33.0", "llama.cpp", "tensorrt-llm")
MAPPING = {"DC303", "DC304", "DC305", "DC306", "DC307", "DC308"}


def saved(pair: Pair, folder: Path, steps: Mapping[str, int] | None = None, method: int = zipfile.ZIP_STORED) -> Path:
    """The pair as a file of torch.save; of the tensors in ``steps`` each value has so many places in its storage.

    With a step of 0 all of a tensor is its first value.
    """
    items, storages = {}, {}
    for key, (name, weight) in enumerate(pair.weights.items()):
        step, width = (steps or {}).get(name, 1), WIDTHS[weight.dtype]
        values = [weight.raw[i : i + width] for i in range(0, len(weight.raw) if step else width, width)]
        raw = b"".join(value + b"\1" * (step - 1) * width for value in values)
        place = Storage(STORAGE[weight.dtype], str(key), len(raw) // width)
        items[name] = tensor(place, weight.shape, tuple(step * far for far in strides(weight.shape)))
        storages[str(key)] = raw
    pair.weights = {}
    pair.write(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(archive(state(items), storages, method=method))
    return folder


def zeroed() -> Pair:
    pair = healthy()
    pair.weights["d2t"] = Weight("I64", (1024,), bytes(8 * 1024))
    return pair


def check(path: Path, engine: str = RELEASES[0], **more: str) -> CheckpointReport:
    (report,) = lint(path, engine=engine, target=TRAINED / "target", **more).checkpoints  # type: ignore[arg-type]
    return report


def codes(report: CheckpointReport) -> set[str]:
    return {f.rule for f in report.findings}


def lost(report: CheckpointReport) -> set[str]:
    return {s.rule for s in report.skipped if s.asked}


FORMS: dict[str, tuple[dict[str, int], int]] = {
    "strided": ({"d2t": 2}, zipfile.ZIP_STORED),
    "deflated": ({}, zipfile.ZIP_DEFLATED),
    "both": ({"d2t": 3}, zipfile.ZIP_DEFLATED),
}
EXPANDED = {"one value": ({"d2t": 0}, zipfile.ZIP_STORED)}


@pytest.mark.parametrize("form", [*FORMS, *EXPANDED])
@pytest.mark.parametrize("engine", RELEASES)
def test_zeros_are_seen_however_they_are_stored(tmp_path: Path, engine: str, form: str) -> None:
    plain = check(saved(zeroed(), tmp_path / "plain"), engine)
    apart = check(saved(zeroed(), tmp_path / "apart", *{**FORMS, **EXPANDED}[form]), engine)
    assert "DC306" in codes(plain) and "DC306" in codes(apart)
    assert apart.outcome is plain.outcome and lost(apart) == lost(plain) == set()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", RELEASES)
def test_a_healthy_mapping_stays_quiet_however_it_is_stored(tmp_path: Path, engine: str, form: str) -> None:
    plain = check(saved(healthy(), tmp_path / "plain"), engine)
    apart = check(saved(healthy(), tmp_path / "apart", *FORMS[form]), engine)
    assert not any(f.severity.value in ("error", "warning") for f in apart.findings)
    assert apart.outcome is plain.outcome and lost(apart) == set()


@pytest.mark.parametrize("form", FORMS)
def test_a_reference_is_compared_with_mappings_however_these_are_stored(tmp_path: Path, form: str) -> None:
    other = healthy()
    other.weights["d2t"] = Weight("I64", (1024,), other.weights["d2t"].raw[8:] + other.weights["d2t"].raw[-8:])
    there, here = other.write(tmp_path / "other"), saved(healthy(), tmp_path / "here", *FORMS[form])
    for ours, theirs, differs in [
        (here, there, True),
        (there, here, True),
        (here, TRAINED / "draft", False),
        (TRAINED / "draft", here, False),
    ]:
        assert ("DC311" in codes(check(ours, reference=str(theirs)))) is differs


def test_what_would_unpack_to_too_much_is_said_not_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(zeroed(), tmp_path / "x", method=zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(packed, "SIZE", 1000)
    report = check(folder)
    assert report.outcome is Outcome.INCOMPLETE and report.exit_code(FailOn.WARNING) == 1
    assert lost(report) >= MAPPING
    assert run([str(folder), "--engine", RELEASES[0], "--target", str(TRAINED / "target"), "-q"]) == 0
    out = capsys.readouterr().out
    assert "not done as asked" in out and "compressed bytes say that they unpack to 8,192" in out
    assert "not everything was checked" in out and "clean" not in out


def test_a_mask_that_can_not_be_read_leaves_its_rule_undone_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 bytes from each flag to the next are more than the limit, and 5 are not."""
    monkeypatch.setattr(unplaced, "LIMIT", 20_000)
    report = check(saved(healthy(), tmp_path / "x", {"t2d": 30}))
    assert (report.outcome, lost(report)) == (Outcome.INCOMPLETE, {"DC307"})
    assert check(saved(healthy(), tmp_path / "y", {"t2d": 5})).outcome is Outcome.CLEAN


def _cut_by_offsets() -> Pair:
    """A head of which each row is the one of the token d2t[i], and not of i + d2t[i]."""
    pair = healthy()
    offsets, head = pair.offsets(), pair.weights["lm_head.weight"]
    rows = [head.raw[i : i + 512] for i in range(0, len(head.raw), 512)]
    pair.weights["lm_head.weight"] = Weight("BF16", (1024, 256), b"".join(rows[o % 1024] for o in offsets))
    return pair


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("step", [1, 2])
def test_rows_of_a_head_are_looked_at_however_it_is_stored(tmp_path: Path, method: int, step: int) -> None:
    wrong = check(saved(_cut_by_offsets(), tmp_path / "x", {"lm_head.weight": step}, method))
    right = check(saved(healthy(), tmp_path / "y", {"lm_head.weight": step}, method))
    assert "DC313" in codes(wrong) and "DC313" not in codes(right)
    assert not lost(right) and right.outcome is Outcome.CLEAN


def test_a_comparison_asked_for_in_vain_is_incomplete(tmp_path: Path) -> None:
    """As with --values: a head that nobody trained tells nothing beside the target's."""
    random = check(saved(build("00_random_weights"), tmp_path / "x"), target_weights=str(HEAD))
    assert (random.outcome, random.exit_code(FailOn.WARNING), random.exit_code()) == (Outcome.INCOMPLETE, 1, 0)
    assert lost(random) == {"DC805"}
    for folder, apart in (("y", {}), ("z", {"lm_head.weight": 2})):
        plain = check(saved(healthy(), tmp_path / folder, apart), target_weights=str(HEAD))
        assert plain.outcome is Outcome.CLEAN and not lost(plain)


def test_a_reference_with_nothing_to_compare_is_incomplete(tmp_path: Path) -> None:
    pair = healthy()
    for name in ("d2t", "t2d", "lm_head.weight"):
        pair.weights.pop(name)
    pair.config["draft_vocab_size"] = None
    folder = pair.write(tmp_path / "x")
    assert check(folder).outcome is Outcome.CLEAN
    report = check(folder, reference=str(TRAINED / "draft"))
    assert (report.outcome, lost(report)) == (Outcome.INCOMPLETE, {"DC311"})
