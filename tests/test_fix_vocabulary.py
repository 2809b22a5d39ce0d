"""Repairs of config.json about vocabularies and the head: one key, and not a tensor."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import DRAFT_VOCAB, HIDDEN, VOCAB, Draft
from make_fixtures import FIXTURES
from repairing import SGLANG, asked, checked, contents, edits_for, hashed, mended, mended_draft, options_of
from weights import zeros

from drafcheck.fix.edits import SetKey
from drafcheck.session import Options

METHOD = {"proposal_type": "greedy", "speculative_tokens": 3}

EXPECTED = {
    "DC301/trtllm-vocab-size-of-the-draft": ("vocab_size", VOCAB),
    "DC302/config-64": ("draft_vocab_size", DRAFT_VOCAB),
    "DC302/key-absent": ("draft_vocab_size", DRAFT_VOCAB),
    "DC302/key-null": ("draft_vocab_size", DRAFT_VOCAB),
    "DC302/llamacpp-no-draft-vocab-size": ("draft_vocab_size", DRAFT_VOCAB),
    "DC302/trtllm-no-draft-vocab-size": ("draft_vocab_size", DRAFT_VOCAB),
    "DC310/lmdeploy-tied": ("tie_word_embeddings", False),
    "DC310/tied": ("tie_word_embeddings", False),
    "DC312/embedding-of-other-rows": ("vocab_size", VOCAB),
    "DC312/vllm-head-narrower": ("vocab_size", VOCAB),
    "DC312/vllm-token-past-vocab-size": ("vocab_size", VOCAB),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_the_key_says_what_the_tensors_are(case: str) -> None:
    key, value = EXPECTED[case]
    assert asked(FIXTURES / case, case.partition("/")[0], options_of(case)) == [SetKey((key,), value)]
    done = mended(FIXTURES / case, options_of(case))
    assert contents(done) == hashed(done.first)
    assert case.partition("/")[0] not in {f.rule for f in done.last.findings}


@pytest.mark.parametrize("case", ["DC302/head-of-all-rows", "DC310/tied-without-head"])
def test_a_head_that_is_wrong_or_missing_is_no_matter_of_the_config(case: str) -> None:
    assert asked(FIXTURES / case, case.partition("/")[0], options_of(case)) == []


def test_a_nested_config_is_mended_where_the_engine_looks(tmp_path: Path) -> None:
    """vLLM flattens it: the tied flag comes from the nested table, the rows of the head from the top level."""
    draft = Draft()
    body = {k: v for k, v in draft.config.items() if k not in ("architectures", "draft_vocab_size")}
    draft.config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [{"speculative_tokens": 3}],
            "verifier": {"name_or_path": "x"},
        },
        "model_type": "speculators",
        "draft_vocab_size": 64,
        "norm_before_residual": False,
        "transformer_layer_config": {**body, "tie_word_embeddings": True},
    }
    draft.write(tmp_path)
    done = mended(tmp_path, Options(engine="vllm==0.33.0"))
    edits = {edit for one in done.rounds for edit in one.edits if isinstance(edit, SetKey)}
    assert {e for e in edits if e.route[-1] in ("draft_vocab_size", "tie_word_embeddings")} <= {
        SetKey(("draft_vocab_size",), DRAFT_VOCAB),
        SetKey(("transformer_layer_config", "tie_word_embeddings"), False),
    }
    assert not {f.rule for f in done.last.findings} & {"DC302", "DC310"}


def test_an_embedding_with_too_few_rows_is_not_made_to_fit(tmp_path: Path) -> None:
    """It is the embedding that is wrong: the target has more tokens."""
    draft = Draft()
    draft.weights["embed_tokens.weight"] = zeros("BF16", DRAFT_VOCAB, HIDDEN)
    draft.write(tmp_path)
    assert asked(tmp_path, "DC312") == []


def test_a_class_that_has_no_draft_vocabulary_is_not_given_one(tmp_path: Path) -> None:
    """Its head has the rows that `vocab_size` says, whatever else stands there."""
    draft = Draft()
    draft.config["architectures"] = ["LlamaForCausalLMEagle"]
    draft.set(draft_vocab_size=None)
    draft.drop("d2t", "t2d", "midlayer.input_layernorm.weight", "midlayer.hidden_norm.weight", "norm.weight")
    draft.rename(lambda name: name.replace("midlayer", "layers.0"))
    for part, rows in (("q", HIDDEN), ("k", HIDDEN // 2), ("v", HIDDEN // 2)):
        draft.shape(f"layers.0.self_attn.{part}_proj.weight", rows, HIDDEN)
    draft.shape("fc.weight", HIDDEN, 2 * HIDDEN)
    draft.write(tmp_path)
    seen = checked(tmp_path, SGLANG)
    edits = [edit for f in seen.findings if f.rule == "DC302" for edit in edits_for(seen, f)]
    assert not [edit for edit in edits if isinstance(edit, SetKey) and edit.route == ("draft_vocab_size",)]


GOOD = ("draft-vocabulary-padded", "tied-flag-and-borrowed-head", "vocab-size-padded", "head-borrowed", "own-embedding")


@pytest.mark.parametrize("name", GOOD)
def test_a_good_config_is_left(name: str) -> None:
    case = f"good/{name}"
    done = mended(FIXTURES / case, options_of(case))
    assert not done.rounds


def test_a_mended_draft_is_left_as_it_is(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(tie_word_embeddings=True, draft_vocab_size=64)
    draft.write(tmp_path)
    done = mended_draft(tmp_path)
    assert done.last.subject is not None and done.last.subject.config is not None
    (tmp_path / "config.json").write_text(done.last.subject.config.document.text)
    assert not mended_draft(tmp_path).rounds
