"""Drafts for TensorRT-LLM, LMDeploy and llama.cpp's converter: healthy ones, and what each stops at or ruins."""

from __future__ import annotations

from cases import case
from drafts import HIDDEN, TARGET_LAYERS, VOCAB, Draft
from weights import offsets, spread, zeros

TRT, OLD_TRT, LMDEPLOY, LLAMA_CPP = (
    "tensorrt-llm==1.4.0rc0",
    "tensorrt-llm==1.2.0rc2",
    "lmdeploy==0.16.0",
    "llama.cpp==2026.6",
)
DIMENSIONS = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)


def as_it_is(draft: Draft) -> None:
    """Healthy already."""


def as_layers(draft: Draft) -> None:
    """The spelling of speculators and vLLM."""
    draft.rename(lambda name: name.replace("midlayer.", "layers.0."))


def for_lmdeploy(draft: Draft) -> None:
    """The one class name that LMDeploy takes."""
    draft.set(architectures=["LlamaForCausalLM"])


def stated(draft: Draft) -> None:
    """Layers that no default is."""
    draft.set(eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2, 6]})


def wider(draft: Draft) -> None:
    """A draft of another width than its target, and all that goes with it."""
    assert draft.target is not None
    draft.target["hidden_size"] = 2 * HIDDEN
    draft.set(target_hidden_size=2 * HIDDEN)
    draft.shape("fc.weight", HIDDEN, 6 * HIDDEN)
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)


# ---- TensorRT-LLM: what is missing stops the load, what is too much is passed over

case("good/trtllm-healthy-1.2", OLD_TRT)(as_it_is)
case("good/trtllm-layers", TRT)(as_layers)
case("DC101/trtllm-layers-1.2", OLD_TRT)(as_layers)
case("good/trtllm-wider-target", TRT)(wider)
case("DC405/trtllm-ids-of-the-config", TRT)(stated)


@case("good/trtllm-own-table-ignored", TRT)
def own_table_ignored(draft: Draft) -> None:
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB // 2, HIDDEN)


@case("good/trtllm-input-norm", TRT)
def input_norm(draft: Draft) -> None:
    draft.weights["input_norm.weight"] = zeros("BF16", 3 * HIDDEN)
    draft.set(eagle_config={"norm_before_fc": True})


@case("DC407/trtllm-flag-at-the-top", TRT)
def flag_at_the_top(draft: Draft) -> None:
    draft.weights["input_norm.weight"] = zeros("BF16", 3 * HIDDEN)
    draft.set(norm_before_fc=True)


@case("DC102/trtllm-bias-missing", TRT)
def bias_missing(draft: Draft) -> None:
    draft.set(attention_bias=True)


@case("DC103/trtllm-no-k-proj", TRT)
def no_k_proj(draft: Draft) -> None:
    draft.drop("midlayer.self_attn.k_proj.weight")


@case("DC105/trtllm-module-prefix", TRT)
def module_prefix(draft: Draft) -> None:
    draft.rename(lambda name: f"module.{name}")


@case("DC301/trtllm-no-d2t", TRT)
def no_d2t(draft: Draft) -> None:
    draft.drop("d2t", "t2d")


@case("DC301/trtllm-vocab-size-of-the-draft", TRT)
def vocab_size_of_the_draft(draft: Draft) -> None:
    draft.set(vocab_size=draft.config["draft_vocab_size"])


@case("DC309/trtllm-no-head", TRT)
def no_head(draft: Draft) -> None:
    draft.drop("lm_head.weight")


@case("good/trtllm-head-of-the-target", TRT)
def head_of_the_target(draft: Draft) -> None:
    draft.full_vocabulary()
    draft.drop("lm_head.weight")


@case("DC302/trtllm-no-draft-vocab-size", OLD_TRT)
def no_draft_vocab_size(draft: Draft) -> None:
    del draft.config["draft_vocab_size"]


@case("DC401/trtllm-fc-for-four", TRT)
def fc_for_four(draft: Draft) -> None:
    draft.shape("fc.weight", HIDDEN, 4 * HIDDEN)


@case("DC403/trtllm-shallow-target", TRT)
def shallow_target(draft: Draft) -> None:
    assert draft.target is not None
    draft.target["num_hidden_layers"] = TARGET_LAYERS - 3


@case("DC408/trtllm-normed-residual", TRT)
def normed_residual(draft: Draft) -> None:
    draft.set(norm_before_residual=True)


# ---- LMDeploy: one class name, one spelling, and no word about what is missing

case("good/lmdeploy-healthy", LMDEPLOY)(for_lmdeploy)
case("DC501/lmdeploy-class-name", LMDEPLOY)(as_it_is)


@case("DC104/lmdeploy-layers", LMDEPLOY)
def lmdeploy_layers(draft: Draft) -> None:
    for_lmdeploy(draft)
    as_layers(draft)


@case("DC203/lmdeploy-two-layers", LMDEPLOY)
def lmdeploy_two_layers(draft: Draft) -> None:
    for_lmdeploy(draft)
    draft.set(num_hidden_layers=2)


@case("DC301/lmdeploy-full-vocabulary", LMDEPLOY)
def lmdeploy_full_vocabulary(draft: Draft) -> None:
    for_lmdeploy(draft)
    draft.full_vocabulary()


@case("good/lmdeploy-zeros-at-full-vocabulary", LMDEPLOY)
def lmdeploy_zeros(draft: Draft) -> None:
    lmdeploy_full_vocabulary(draft)
    draft.weights["d2t"] = zeros("I64", VOCAB)


@case("DC310/lmdeploy-tied", LMDEPLOY)
def lmdeploy_tied(draft: Draft) -> None:
    for_lmdeploy(draft)
    draft.set(tie_word_embeddings=True)


@case("DC402/lmdeploy-another-target", LMDEPLOY)
def lmdeploy_another_target(draft: Draft) -> None:
    for_lmdeploy(draft)
    assert draft.target is not None
    draft.target["architectures"] = ["Qwen3ForCausalLM"]


@case("DC405/lmdeploy-ids-of-the-config", LMDEPLOY)
def lmdeploy_ids(draft: Draft) -> None:
    for_lmdeploy(draft)
    stated(draft)


# ---- llama.cpp: the converter maps every name, and looks into d2t

case("good/llamacpp-healthy", LLAMA_CPP)(as_it_is)
case("good/llamacpp-layers", LLAMA_CPP)(as_layers)
case("good/llamacpp-wider-target", LLAMA_CPP)(wider)
case("DC301/llamacpp-no-d2t", LLAMA_CPP)(no_d2t)
case("DC309/llamacpp-no-head", LLAMA_CPP)(no_head)
case("DC405/llamacpp-ids-of-the-config", LLAMA_CPP)(stated)


@case("good/llamacpp-nested", LLAMA_CPP)
def nested(draft: Draft) -> None:
    body = {key: draft.config.pop(key) for key in DIMENSIONS}
    draft.set(architectures=["Eagle3Speculator"], transformer_layer_config=body, norm_before_residual=True)


@case("DC104/llamacpp-extra-tensor", LLAMA_CPP)
def extra_tensor(draft: Draft) -> None:
    draft.weights["extra_head.weight"] = zeros("BF16", 4, HIDDEN)


@case("DC104/llamacpp-bias", LLAMA_CPP)
def bias(draft: Draft) -> None:
    draft.weights["midlayer.self_attn.o_proj.bias"] = zeros("BF16", HIDDEN)


@case("DC302/llamacpp-no-draft-vocab-size", LLAMA_CPP)
def not_told_as_eagle3(draft: Draft) -> None:
    del draft.config["draft_vocab_size"]


@case("DC302/llamacpp-longer-d2t", LLAMA_CPP)
def longer_d2t(draft: Draft) -> None:
    draft.weights["d2t"] = offsets(spread(draft.config["draft_vocab_size"] + 8, VOCAB))


@case("DC303/llamacpp-out-of-range", LLAMA_CPP)
def out_of_range(draft: Draft) -> None:
    draft.drop("t2d")
    draft.weights["d2t"] = offsets([*range(1, draft.config["draft_vocab_size"]), VOCAB + 5])


@case("DC304/llamacpp-twice", LLAMA_CPP)
def twice(draft: Draft) -> None:
    draft.drop("t2d")
    draft.weights["d2t"] = offsets([min(i, 120) for i in range(draft.config["draft_vocab_size"])])
