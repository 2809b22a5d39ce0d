"""DC5xx: config.json."""

from __future__ import annotations

from cases import case
from drafts import HIDDEN, VOCAB, Draft, Json, layer
from weights import zeros


@case("DC501/unregistered")
def unregistered(draft: Draft) -> None:
    draft.set(architectures=["Eagle3LlamaForCausalLM"])


@case("DC501/absent")
def absent(draft: Draft) -> None:
    draft.config.pop("architectures")


@case("DC501/plain-llama")
def plain_llama(draft: Draft) -> None:
    draft.set(architectures=["LlamaForCausalLM"])


@case("DC501/too-early", "0.5.9")
def too_early(draft: Draft) -> None:
    """The MLA class exists since 0.5.12."""
    draft.set(architectures=["Eagle3DeepseekV2ForCausalLM"])


@case("DC502/eagle3")
def model_type_eagle3(draft: Draft) -> None:
    draft.set(model_type="eagle3")


@case("DC502/absent")
def model_type_absent(draft: Draft) -> None:
    draft.config.pop("model_type")


@case("DC502/file-of-auto-map")
def auto_map_missing(draft: Draft) -> None:
    draft.set(model_type="my_draft", auto_map={"AutoConfig": "configuration_my_draft.MyDraftConfig"})


def nested(config: Json) -> Json:
    """The same draft as a speculators config."""
    outside = ("architectures", "draft_vocab_size", "torch_dtype", "tie_word_embeddings")
    inside = {key: value for key, value in config.items() if key not in outside}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.5.0",
        "draft_vocab_size": config["draft_vocab_size"],
        "norm_before_residual": False,
        "target_hidden_size": None,
        "torch_dtype": "bfloat16",
        "transformer_layer_config": inside,
    }


@case("DC503/speculators")
def speculators(draft: Draft) -> None:
    draft.config = nested(draft.config)
    draft.rename(lambda name: name.replace("midlayer", "layers.0"))


@case("good/keys-at-both-levels")
def both_levels(draft: Draft) -> None:
    inner = nested(draft.config)["transformer_layer_config"]
    draft.set(transformer_layer_config=inner)


@case("DC504/eagle-1-as-eagle-3")
def eagle1(draft: Draft) -> None:
    """An EAGLE-1 head: fc takes two states, no norm before the layer, no head of its own."""
    draft.drop(
        "d2t", "t2d", "lm_head.weight", "norm.weight", "midlayer.hidden_norm.weight", "midlayer.input_layernorm.weight"
    )
    draft.rename(lambda name: name.replace("midlayer", "layers.0"))
    draft.shape("fc.weight", HIDDEN, 2 * HIDDEN)
    for part in "qkv":
        name = f"layers.0.self_attn.{part}_proj.weight"
        draft.shape(name, draft.weights[name].shape[0], HIDDEN)
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)
    draft.set(draft_vocab_size=VOCAB)


@case("DC504/eagle-3-as-eagle-1")
def eagle3_class(draft: Draft) -> None:
    draft.set(architectures=["LlamaForCausalLMEagle"])


@case("DC505/refused")
def short_context(draft: Draft) -> None:
    draft.set(max_position_embeddings=128)


@case("DC505/warned-0.4.9", "0.4.9.post2")
def short_context_early(draft: Draft) -> None:
    draft.set(max_position_embeddings=128)


@case("good/longer-context-than-the-target")
def longer_context(draft: Draft) -> None:
    draft.set(max_position_embeddings=4096)


@case("DC508/float16")
def float16(draft: Draft) -> None:
    draft.set(torch_dtype="float16")


@case("DC508/absent")
def dtype_absent(draft: Draft) -> None:
    draft.config.pop("torch_dtype")


@case("good/float16-under-dtype", args="--dtype bfloat16")
def float16_given(draft: Draft) -> None:
    draft.set(torch_dtype="float16")


@case("good/float32-weights-cast")
def float32_weights(draft: Draft) -> None:
    for name, tensor in draft.weights.items():
        if tensor.dtype == "BF16":
            draft.weights[name] = zeros("F32", *tensor.shape)


@case("DC509/size-as-text")
def size_as_text(draft: Draft) -> None:
    draft.set(hidden_size=str(HIDDEN))


@case("DC509/target-hidden-size-null")
def target_hidden_null(draft: Draft) -> None:
    """The attribute exists and is None, which no product can be made of."""
    draft.set(target_hidden_size=None)


@case("DC507/f8-in-a-plain-draft")
def f8_in_a_plain_draft(draft: Draft) -> None:
    """Quantised weights and their scale, and a config that does not say so."""
    name = "midlayer.mlp.down_proj.weight"
    shape = draft.weights[name].shape
    draft.weights[name] = zeros("F8_E4M3", *shape)
    draft.weights[f"{name}_scale"] = zeros("F32", 1)


@case("good/quantised")
def quantised(draft: Draft) -> None:
    """The same with a quantization_config of a method that is not described: nothing is said against it."""
    f8_in_a_plain_draft(draft)
    draft.set(quantization_config={"quant_method": "fbgemm_fp8"})


@case("good/renamed-in-draft-mode", "0.5.15")
def renamed_in_draft_mode(draft: Draft) -> None:
    """Draft mode replaces this name by that of the target's MTP class: no class of this name need be a draft class."""
    draft.set(architectures=["GlmOcrForConditionalGeneration"], model_type="glm_ocr", num_nextn_predict_layers=1)
    draft.set(intermediate_size=8)
    place = "model.layers.0"
    made = layer(place, HIDDEN, 8)
    del made[f"{place}.hidden_norm.weight"]
    norms = ("enorm", "hnorm", "shared_head.norm", "post_self_attn_layernorm", "post_mlp_layernorm")
    made |= {f"{place}.{norm}.weight": zeros("BF16", HIDDEN) for norm in norms}
    draft.weights = made | {f"{place}.eh_proj.weight": zeros("BF16", HIDDEN, 2 * HIDDEN)}
