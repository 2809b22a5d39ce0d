"""DC409 and DC107: a target of another width than the draft, each rule with a failing draft and its passing twin."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import HIDDEN, VOCAB, Draft
from helpers import Edit, codes, lint_draft, of
from test_checks_hidden_states import target
from weights import zeros

from drafcheck import lint
from drafcheck.finding import Confidence, Finding, Severity


def test_a_wider_target_unsaid(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, target(hidden_size=2 * HIDDEN)), "DC409")
    assert f"the drafter's hidden size is {HIDDEN}, the target's {2 * HIDDEN}" in found.message
    assert found.help is not None and f"target_hidden_size to {2 * HIDDEN}" in found.help


def wider(draft: Draft) -> None:
    draft.set(target_hidden_size=2 * HIDDEN)
    draft.shape("fc.weight", HIDDEN, 6 * HIDDEN)
    target(hidden_size=2 * HIDDEN)(draft)


def test_a_wider_target_without_an_embedding(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, wider), "DC409")
    assert "the file has no embed_tokens" in found.message


@pytest.mark.parametrize("width", (HIDDEN, HIDDEN // 2))
def test_states_of_another_width_than_the_target_has(tmp_path: Path, width: int) -> None:
    """An fc made for target_hidden_size loads, and gets what the target has."""

    def narrower(d: Draft) -> None:
        d.set(target_hidden_size=width)
        d.shape("fc.weight", HIDDEN, 3 * width)

    found = of(lint_draft(tmp_path, narrower), "DC409")
    assert [f.severity for f in found] == [Severity.ERROR] * (width != HIDDEN)
    for finding in found:
        assert f"made for states of {width} values, the target's are {HIDDEN} wide" in finding.message


def test_a_wider_target_allowed_for(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        wider(draft)
        draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)

    assert codes(lint_draft(tmp_path, edit)) == set()


def full_beside_a_wider_target(draft: Draft) -> None:
    """All tokens, an embedding of its own, and an fc for the wider states: nothing is missing."""
    wider(draft)
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)
    draft.weights["lm_head.weight"] = zeros("BF16", VOCAB, HIDDEN)
    draft.set(draft_vocab_size=VOCAB)
    del draft.weights["d2t"], draft.weights["t2d"]


@pytest.mark.parametrize("release", ("0.5.2", "0.5.12", "0.5.23"))
def test_tables_that_the_target_replaces_whatever_their_width(tmp_path: Path, release: str) -> None:
    """With draft_vocab_size null embedding and head are the target's, and no target_hidden_size keeps them."""

    def null(draft: Draft) -> None:
        full_beside_a_wider_target(draft)
        draft.set(draft_vocab_size=None)

    report = lint_draft(tmp_path, null, release)
    (found,) = of(report, "DC409")
    assert "`model.embed_tokens.weight`, `lm_head.weight`" in found.message or "`lm_head.weight`, " in found.message
    assert (found.severity, found.confidence) == (Severity.ERROR, Confidence.LIKELY)
    assert of(report, "DC107") == []  # no advice to leave them out
    assert of(lint_draft(tmp_path / "kept", full_beside_a_wider_target, release), "DC409") == []

    def as_wide(draft: Draft) -> None:
        null(draft)
        draft.set(target_hidden_size=HIDDEN)
        draft.shape("fc.weight", HIDDEN, 3 * HIDDEN)
        target(hidden_size=HIDDEN)(draft)

    assert of(lint_draft(tmp_path / "as-wide", as_wide, release), "DC409") == []


def on_vllm(folder: Path, edit: Edit, release: str) -> list[Finding]:
    draft = Draft()
    edit(draft)
    draft.write(folder)
    return list(lint(folder, engine=f"vllm=={release}").checkpoints[0].findings)


@pytest.mark.parametrize("release", ("0.16.0", "0.22.1", "0.33.0"))
def test_a_head_that_the_wider_target_lends(tmp_path: Path, release: str) -> None:
    """vLLM asks only whether the file has a head."""

    def headless(draft: Draft) -> None:
        full_beside_a_wider_target(draft)
        del draft.weights["lm_head.weight"]

    (found,) = of(on_vllm(tmp_path / "headless", headless, release), "DC409")
    assert f"the target's tables of {2 * HIDDEN} columns in the place of `lm_head.weight`" in found.message
    assert (found.severity, found.confidence) == (Severity.ERROR, Confidence.LIKELY)
    assert of(on_vllm(tmp_path / "own", full_beside_a_wider_target, release), "DC409") == []


def test_a_target_that_lends_no_head(tmp_path: Path) -> None:
    edit = target(architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe")
    (found,) = of(lint_draft(tmp_path, edit), "DC601")
    assert "borrow its embedding and head" in found.message
