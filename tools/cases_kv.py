"""DC605: drafts whose KV cache pages a release of vLLM does not keep beside the target's, and some that it does."""

from __future__ import annotations

from cases import case
from cases_launch import launched
from cases_vllm_wiring import target
from drafts import HEADS, HIDDEN, KV_HEADS, Draft

NARROW = 4
LAYER = "midlayer.self_attn"
SERVE = "vllm serve /models/target --speculative-config"


def other_pages(draft: Draft, size: int = NARROW, heads: int = KV_HEADS) -> None:
    """Attention of another geometry than the target's."""
    draft.set(head_dim=size, num_key_value_heads=heads)
    draft.shape(f"{LAYER}.q_proj.weight", HEADS * size, 2 * HIDDEN)
    draft.shape(f"{LAYER}.o_proj.weight", HIDDEN, HEADS * size)
    for part in "kv":
        draft.shape(f"{LAYER}.{part}_proj.weight", heads * size, 2 * HIDDEN)


def windows(draft: Draft) -> None:
    """A target in which every other layer keeps a window only."""
    target(draft, architectures=["GptOssForCausalLM"], model_type="gpt_oss", sliding_window=128)


@case("DC605/narrow-heads-0.9.2", "vllm==0.9.2", args="--tp 1")
def narrow(draft: Draft) -> None:
    draft.set(architectures=["LlamaForCausalLM"])
    other_pages(draft)


@case("good/vllm-kv-narrow-heads-0.11.0", "vllm==0.11.0", args="--tp 1")
def narrow_taken(draft: Draft) -> None:
    other_pages(draft)


@case("good/vllm-kv-equal-pages-0.9.2", "vllm==0.9.2", args="--tp 1")
def equal_pages(draft: Draft) -> None:
    """Half the heads, each twice as wide."""
    draft.set(architectures=["LlamaForCausalLM"])
    other_pages(draft, 16, 1)


@case("DC605/fewer-heads-0.9.2", "vllm==0.9.2")
def fewer_heads(draft: Draft) -> None:
    """One key/value head beside two: two ranks hold one of each."""
    draft.set(architectures=["LlamaForCausalLM"])
    other_pages(draft, 8, 1)


@case("good/vllm-kv-fewer-heads-of-two-ranks", "vllm==0.9.2", args="--tp 2")
def fewer_heads_shared(draft: Draft) -> None:
    fewer_heads(draft)


@case("DC605/windows-0.11.0", "vllm==0.11.0", args="--tp 1")
@case("good/vllm-kv-windows-0.16.0", "vllm==0.16.0", args="--tp 1")
def beside_windows(draft: Draft) -> None:
    """Pages of half the size: 0.16.0 puts two of them together."""
    windows(draft)
    other_pages(draft)


@case("DC605/windows-0.22.1", "vllm==0.22.1", args="--tp 1")
@case("good/vllm-kv-windows-0.33.0", "vllm==0.33.0", args="--tp 1")
def indivisible(draft: Draft) -> None:
    """Pages of three quarters of the size."""
    windows(draft)
    other_pages(draft, 6)


@case("DC605/draft-with-a-window", "vllm==0.22.1", args="--tp 1")
def own_window(draft: Draft) -> None:
    other_pages(draft, 6)
    draft.set(layer_types=["sliding_attention"], sliding_window=128)


@case("good/vllm-kv-one-group", "vllm==0.22.1")
def one_group(draft: Draft) -> None:
    """The option with which all layers keep every token."""
    indivisible(draft)
    config = '{"method": "eagle3", "model": "/models/vllm-kv-one-group", "num_speculative_tokens": 3}'
    launched(draft, f"{SERVE} '{config}' --disable-hybrid-kv-cache-manager")
