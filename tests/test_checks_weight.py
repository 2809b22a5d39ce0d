"""DC106 and DC107: bytes without a use, and when they are not worth a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import HIDDEN, VOCAB, Draft
from helpers import lint_draft, of
from make_fixtures import FIXTURES, report
from weights import zeros

from drafcheck.finding import Severity


def embedding(draft: Draft) -> None:
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)


def tables(rows: int) -> object:
    def edit(draft: Draft) -> None:
        draft.weights["midlayer.self_attn.rotary_emb.cos_cached"] = zeros("F32", rows, 1)

    return edit


@pytest.mark.parametrize(("rows", "said"), [(80, 0), (200, 1)])
def test_one_per_cent_is_the_least(rows: int, said: int, tmp_path: Path) -> None:
    """The healthy draft has 35,328 bytes of tensors; one row here is 4."""
    found = of(lint_draft(tmp_path, tables(rows)), "DC106")  # type: ignore[arg-type]
    assert [f.severity for f in found] == [Severity.NOTE] * said


def test_the_mask_of_the_mapping_is_not_meant(tmp_path: Path) -> None:
    """It is 1.6 % of a head that has lost its embedding and its MLP, and what d2t is checked against."""

    def edit(draft: Draft) -> None:
        draft.drop("lm_head.weight", "fc.weight")

    assert not of(lint_draft(tmp_path, edit), "DC106")


def test_both_tensors_in_one_line(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.full_vocabulary()
        draft.set(draft_vocab_size=None)
        embedding(draft)

    [found] = of(lint_draft(tmp_path, edit), "DC107")
    assert "`embed_tokens.weight`" in found.message and "`lm_head.weight`" in found.message
    assert found.severity is Severity.NOTE


def test_an_embedding_of_its_own_is_kept(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        embedding(draft)
        draft.set(target_hidden_size=2 * HIDDEN)
        draft.shape("fc.weight", HIDDEN, 6 * HIDDEN)
        assert draft.target is not None
        draft.target["hidden_size"] = 2 * HIDDEN

    assert not of(lint_draft(tmp_path, edit), "DC107")


def test_nothing_is_said_after_a_refusal(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        embedding(draft)
        draft.shape("norm.weight", HIDDEN + 1)

    assert not of(lint_draft(tmp_path, edit), "DC107")


@pytest.mark.parametrize("version", ("0.4.5", "0.5.1", "0.5.11", "0.5.23"))
def test_the_embedding_is_replaced_in_every_release(version: str, tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        embedding(draft)

    assert len(of(lint_draft(tmp_path, edit, version), "DC107")) == 1


def test_a_file_of_the_target_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSeek's layer comes with the target's embedding and head, which the target itself needs."""
    monkeypatch.chdir(FIXTURES)
    assert "DC10" not in report("good/mtp-layer-of-deepseek")
