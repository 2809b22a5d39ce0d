"""DC205: drafts that the ranks of the launch cannot share, and some that they can."""

from __future__ import annotations

from cases import case
from cases_launch import CHAIN, EAGLE3, SGLANG, launched
from cases_mtp import become
from drafts import HEAD_DIM, HIDDEN, Draft
from weights import zeros

LAYER = "midlayer"


def heads(draft: Draft, queries: int, keys: int) -> None:
    """Another number of heads, and projections of that size; Llama's config class wants one that divides the width."""
    draft.set(model_type="mistral", num_attention_heads=queries, num_key_value_heads=keys)
    draft.shape(f"{LAYER}.self_attn.q_proj.weight", queries * HEAD_DIM, 2 * HIDDEN)
    draft.shape(f"{LAYER}.self_attn.o_proj.weight", HIDDEN, queries * HEAD_DIM)
    for name in ("k_proj", "v_proj"):
        draft.shape(f"{LAYER}.self_attn.{name}.weight", keys * HEAD_DIM, 2 * HIDDEN)


@case("DC205/heads", args="--tp 8")
@case("DC205/vllm-heads", "vllm==0.33.0", args="--tp 8")
@case("DC205/trtllm-heads", "tensorrt-llm==1.4.0rc0", args="--tp 8")
@case("good/key-value-heads-copied", args="--tp 4")
@case("good/vllm-key-value-heads-copied", "vllm==0.33.0", args="--tp 4")
def as_it_is(draft: Draft) -> None:
    """Four heads, two of keys and values."""


@case("DC205/key-value-heads", args="--tp 2")
@case("DC205/vllm-key-value-heads", "vllm==0.33.0", args="--tp 2")
def three_key_value_heads(draft: Draft) -> None:
    heads(draft, 6, 3)


@case("DC205/vocabulary", "0.5.21", args="--tp 3")
@case("good/vocabulary-padded-for-the-ranks", "0.5.22", args="--tp 3")
def three_ranks(draft: Draft) -> None:
    """Everything but the vocabulary is shared by three: 256 rows are not, unless they are padded for it."""
    heads(draft, 6, 3)


@case("DC205/mlp", args="--tp 4")
def uneven_mlp(draft: Draft) -> None:
    draft.set(intermediate_size=50)
    for name in ("gate_proj", "up_proj"):
        draft.weights[f"{LAYER}.mlp.{name}.weight"] = zeros("BF16", 50, HIDDEN)
    draft.weights[f"{LAYER}.mlp.down_proj.weight"] = zeros("BF16", HIDDEN, 50)


@case("DC205/launched")
def launched_for_eight(draft: Draft) -> None:
    launched(draft, f"{SGLANG} {EAGLE3.replace('{draft}', '/models/launched')} {CHAIN} --tp 8")


@case("good/launched-with-attention-by-data")
def attention_by_data(draft: Draft) -> None:
    """Eight ranks, of which two share the attention of a request."""
    path = "/models/launched-with-attention-by-data"
    launched(draft, f"{SGLANG} {EAGLE3.replace('{draft}', path)} {CHAIN} --tp 8 --dp 4 --enable-dp-attention")


@case("DC205/mtp-more-ranks-than-experts", "0.5.9", args="--tp 8")
def more_ranks_than_experts(draft: Draft) -> None:
    become(draft, "deepseek")
