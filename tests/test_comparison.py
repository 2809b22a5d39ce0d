"""A draft vocabulary beside that of a reference: what counts as a difference, and what cannot be told."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import DRAFT_VOCAB, HIDDEN, VOCAB, Draft
from weights import Weights, integers, mask, offsets, spread, write_safetensors, zeros

from drafcheck import lint
from drafcheck.report.model import CheckpointReport

KEPT = spread(DRAFT_VOCAB, VOCAB)
MAPPING: Weights = {"d2t": offsets(KEPT), "t2d": mask(VOCAB, KEPT)}


def compared(room: Path, draft: Draft, reference: Weights) -> CheckpointReport:
    draft.write(room / "draft")
    write_safetensors(room / "reference.safetensors", reference)
    return lint(room / "draft", engine="sglang==0.5.15", reference=room / "reference.safetensors").checkpoints[0]


def codes(report: CheckpointReport) -> list[str]:
    return [f.rule for f in report.findings if f.rule.startswith("DC3")]


def by_frequency() -> Draft:
    """As ModelOpt orders draft ids."""
    draft = Draft()
    draft.weights["d2t"] = offsets(KEPT[::-1])
    return draft


def test_a_set_says_nothing_about_the_order(tmp_path: Path) -> None:
    report = compared(tmp_path, by_frequency(), {"t2d": MAPPING["t2d"]})
    assert codes(report) == []
    assert report.reference is not None
    assert (report.reference.ordered, report.reference.shared, report.reference.permutation) == (False, 128, False)


def test_the_same_set_in_another_order(tmp_path: Path) -> None:
    report = compared(tmp_path, by_frequency(), MAPPING)
    assert codes(report) == ["DC311"]
    assert report.reference is not None
    assert (report.reference.agree, report.reference.permutation, report.reference.orphan_rows) == (0, True, 0)


def test_absolute_values_in_both_are_compared_as_meant(tmp_path: Path) -> None:
    """The draft's are DC305's fault; what was meant is the same."""
    draft = Draft()
    draft.weights["d2t"] = integers(KEPT)
    assert codes(compared(tmp_path, draft, {"d2t": integers(KEPT), "t2d": MAPPING["t2d"]})) == ["DC305"]


def test_a_reference_of_another_vocabulary_says_so(tmp_path: Path) -> None:
    report = compared(tmp_path, Draft(), {"d2t": offsets(KEPT[::-1]), "t2d": mask(4 * VOCAB, KEPT)})
    [found] = [f for f in report.findings if f.rule == "DC311"]
    assert f"made for {4 * VOCAB:,} target tokens" in found.message


@pytest.mark.parametrize("values", (None, zeros("I64", DRAFT_VOCAB)), ids=("missing", "never filled"))
def test_a_draft_without_its_mapping_can_take_the_references(tmp_path: Path, values: object) -> None:
    draft = Draft()
    draft.drop("d2t", "t2d")
    if values is not None:
        draft.weights["d2t"] = zeros("I64", DRAFT_VOCAB)
    report = compared(tmp_path, draft, MAPPING)
    [found] = [f for f in report.findings if f.rule == "DC311"]
    assert found.help == "use the reference's d2t if lm_head came from it: the checkpoint has no mapping of its own"


def test_lengths_that_differ(tmp_path: Path) -> None:
    report = compared(tmp_path, Draft(), {"d2t": offsets(KEPT[:100])})
    [found] = [f for f in report.findings if f.rule == "DC311"]
    assert "100 of 128 draft ids agree" in found.message
    assert "the lengths differ" in found.message
    assert report.reference is not None
    assert (report.reference.only_here, report.reference.orphan_rows, report.reference.permutation) == (28, 0, False)


def test_a_draft_class_without_a_contract_is_compared_by_names(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(architectures=["Eagle3DraftModel"])
    report = compared(tmp_path, draft, {"d2t": offsets(spread(DRAFT_VOCAB, VOCAB, salt=3))})
    assert report.contract is None
    assert codes(report) == ["DC311"]


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    draft = Draft()
    draft.drop("d2t", "t2d", "lm_head.weight")
    report = compared(tmp_path, draft, MAPPING)
    assert report.reference is None
    assert ("DC311", "needs a vocabulary mapping to compare") in [(s.rule, s.why) for s in report.skipped]


def test_without_a_reference_there_is_no_comparison(tmp_path: Path) -> None:
    Draft().write(tmp_path)
    report = lint(tmp_path, engine="sglang==0.5.15").checkpoints[0]
    assert report.reference is None
    assert ("DC311", "needs --reference") in [(s.rule, s.why) for s in report.skipped]


def test_full_vocabulary_is_its_own_mapping(tmp_path: Path) -> None:
    draft = Draft()
    draft.full_vocabulary()
    report = compared(tmp_path, draft, {"lm_head.weight": zeros("BF16", VOCAB, HIDDEN)})
    assert codes(report) == []
    assert report.reference is not None
    assert report.reference.agree == VOCAB
