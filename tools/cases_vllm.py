"""Drafts for vLLM: what its EAGLE-3 classes refuse, drop without a word, and borrow from the target."""

from __future__ import annotations

from cases import case
from cases_vocabulary import bfloat16, float32
from drafts import DRAFT_VOCAB, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, VOCAB, Draft, layer
from weights import Weight, offsets, spread, zeros

ATTENTION = "midlayer.self_attn"
RELEASES = ("0.11.0", "0.16.0", "0.22.1", "0.33.0")


def as_it_is(draft: Draft) -> None:
    """Healthy already."""


for _release in RELEASES:
    case(f"good/vllm-healthy-{_release}", f"vllm=={_release}")(as_it_is)


@case("good/vllm-healthy-0.9.2", "vllm==0.9.2")
def healthy_092(draft: Draft) -> None:
    draft.set(architectures=["LlamaForCausalLM"])


# ---- Names


@case("DC104/vllm-extra-tensor", "vllm==0.33.0")
def extra_tensor(draft: Draft) -> None:
    draft.weights["extra_head.weight"] = zeros("BF16", 4, HIDDEN)


@case("DC104/vllm-bias-0.22.1", "vllm==0.22.1")
def bias_refused(draft: Draft) -> None:
    draft.weights[f"{ATTENTION}.q_proj.bias"] = zeros("BF16", HEADS * HEAD_DIM)


@case("DC204/vllm-bias-dropped", "vllm==0.33.0")
def bias_dropped(draft: Draft) -> None:
    draft.weights[f"{ATTENTION}.q_proj.bias"] = Weight("BF16", (HEADS * HEAD_DIM,), b"\x80\x3f" * (HEADS * HEAD_DIM))


@case("DC204/vllm-biases-missing", "vllm==0.33.0")
def biases_missing(draft: Draft) -> None:
    draft.set(attention_bias=True)


@case("good/vllm-biases", "vllm==0.33.0")
def biases_there(draft: Draft) -> None:
    draft.set(attention_bias=True)
    rows = {"q": HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM, "o": HIDDEN}
    for part, size in rows.items():
        draft.weights[f"{ATTENTION}.{part}_proj.bias"] = zeros("BF16", size)


@case("DC105/vllm-model-prefix", "vllm==0.33.0")
def model_prefix(draft: Draft) -> None:
    bare = ("lm_head.weight", "d2t", "t2d")
    draft.rename(lambda name: name if name in bare else f"model.{name}")


@case("DC105/vllm-model-before-d2t", "vllm==0.22.1")
def model_before_the_map(draft: Draft) -> None:
    draft.rename(lambda name: name.replace("d2t", "model.d2t"))


@case("DC105/vllm-module-0.16.0", "vllm==0.16.0")
def module(draft: Draft) -> None:
    draft.rename(lambda name: f"module.{name}")


@case("DC102/vllm-no-fc", "vllm==0.33.0")
def no_fc(draft: Draft) -> None:
    draft.drop("fc.weight")


@case("DC103/vllm-no-k-proj", "vllm==0.33.0")
def no_k_proj(draft: Draft) -> None:
    draft.drop(f"{ATTENTION}.k_proj.weight")


@case("DC201/vllm-more-kv-rows", "vllm==0.33.0")
def more_kv_rows(draft: Draft) -> None:
    for part in "kv":
        draft.shape(f"{ATTENTION}.{part}_proj.weight", 4 * HEAD_DIM, 2 * HIDDEN)


@case("DC203/vllm-second-layer-missing", "vllm==0.33.0")
def second_layer_missing(draft: Draft) -> None:
    draft.set(num_hidden_layers=2)


@case("good/vllm-two-layers", "vllm==0.33.0")
def two_layers(draft: Draft) -> None:
    draft.set(num_hidden_layers=2)
    draft.weights |= layer("layers.1", HIDDEN)
    draft.drop("layers.1.hidden_norm.weight")  # built, and never used


@case("good/vllm-kv-scales-0.22.1", "vllm==0.22.1")
def kv_scales(draft: Draft) -> None:
    draft.weights[f"{ATTENTION}.k_proj.k_scale"] = zeros("F32", 1)


# ---- The vocabulary


@case("DC104/vllm-map-at-full-vocabulary", "vllm==0.33.0")
def map_at_full_vocabulary(draft: Draft) -> None:
    draft.full_vocabulary()
    draft.weights["d2t"] = zeros("I64", VOCAB)


@case("good/vllm-map-at-full-vocabulary-0.22.1", "vllm==0.22.1")
def map_at_full_vocabulary_taken(draft: Draft) -> None:
    map_at_full_vocabulary(draft)


@case("DC301/vllm-no-d2t", "vllm==0.33.0")
def no_map(draft: Draft) -> None:
    draft.drop("d2t", "t2d")


@case("DC302/vllm-short-d2t", "vllm==0.33.0")
def short_map(draft: Draft) -> None:
    draft.weights["d2t"] = offsets(spread(DRAFT_VOCAB, VOCAB)[:100])


@case("DC308/vllm-d2t-bf16", "vllm==0.33.0")
def map_in_bf16(draft: Draft) -> None:
    wide = 1024
    draft.set(vocab_size=wide)
    draft.target = {**(draft.target or {}), "vocab_size": wide}
    draft.drop("t2d")
    draft.weights["d2t"] = bfloat16([4 * i for i in range(DRAFT_VOCAB)])


@case("good/vllm-d2t-f32", "vllm==0.33.0")
def map_in_f32(draft: Draft) -> None:
    draft.weights["d2t"] = float32([token - i for i, token in enumerate(spread(DRAFT_VOCAB, VOCAB))])


@case("DC309/vllm-rows-of-another-head", "vllm==0.33.0")
def rows_of_another_head(draft: Draft) -> None:
    draft.drop("lm_head.weight")


@case("DC309/vllm-0.9.2", "vllm==0.9.2")
def head_uninitialised(draft: Draft) -> None:
    draft.set(architectures=["LlamaForCausalLM"])
    head_borrowed(draft)


@case("good/vllm-head-borrowed", "vllm==0.33.0")
def head_borrowed(draft: Draft) -> None:
    draft.full_vocabulary()
    draft.drop("lm_head.weight")


@case("DC312/vllm-head-narrower", "vllm==0.33.0")
def head_narrower(draft: Draft) -> None:
    draft.full_vocabulary()
    draft.set(vocab_size=2 * VOCAB)


@case("DC312/vllm-token-past-vocab-size", "vllm==0.22.1")
def token_past_vocab_size(draft: Draft) -> None:
    draft.set(vocab_size=128)


# ---- Norms of q and k


@case("good/vllm-qwen3", "vllm==0.33.0")
def qwen3(draft: Draft) -> None:
    draft.set(architectures=["Qwen3ForCausalLM"], model_type="qwen3")
    for part in "qk":
        draft.weights[f"{ATTENTION}.{part}_norm.weight"] = zeros("BF16", HEAD_DIM)


@case("DC102/vllm-qwen3-without-norms", "vllm==0.33.0")
def qwen3_without_norms(draft: Draft) -> None:
    draft.set(architectures=["Qwen3ForCausalLM"], model_type="qwen3")


@case("DC509/vllm-model-type-of-deepseek", "vllm==0.33.0")
def model_type_of_deepseek(draft: Draft) -> None:
    """Whatever the class is called, vLLM makes an MTP draft of it, and then looks for a class that there is not."""
    draft.set(model_type="deepseek_v3")
