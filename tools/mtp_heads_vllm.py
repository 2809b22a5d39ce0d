"""Heads of other families' checkpoints as vLLM reads them: under the model type that leads it to their classes.

The corpus for SGLang writes some of them under a model type that its transformers knows. All tensors are zeros.
"""

from __future__ import annotations

from mtp_heads import (
    DENSE,
    HEAD_DIM,
    HIDDEN,
    KV_HEADS,
    LAYER,
    VOCAB,
    Family,
    Json,
    bf16,
    common,
    deepseek_config,
    deepseek_weights,
    dense,
    gqa,
    nextn,
    norms,
    qwen,
    target,
)
from mtp_heads_later import (
    STEPS,
    exaone_config,
    exaone_weights,
    hunyuan_config,
    hunyuan_weights,
    nested,
    step_config,
    step_weights,
)
from weights import Weights

HEADS_OF_STEP = 2
NARROW = ("narrow_expert", "narrow_down")
ROPE = {"rope_type": "default", "rope_theta": 1e4}
VISION = {"depth": 1, "hidden_size": HIDDEN, "intermediate_size": DENSE, "num_heads": 4, "out_hidden_size": HIDDEN}


def exaone_moe_config() -> Json:
    """K-EXAONE under its own model type."""
    lists = {"mlp_layer_types": ["dense", "sparse"], "first_k_dense_replace": 1, "sliding_window": 64}
    config = exaone_config() | {"model_type": "exaone_moe", **lists}
    return config | {"sliding_window_pattern": "LG", "layer_types": ["sliding_attention", "full_attention"]}


def hy_v3_config() -> Json:
    """Hunyuan 3 under its own model type."""
    return hunyuan_config() | {"model_type": "hy_v3"}


def step_of_vllm_config() -> Json:
    """Step-3.5-Flash with lists that go on for the layers of the head, as the published config has them."""
    config = step_config() | {"num_nextn_predict_layers": HEADS_OF_STEP}
    for key in ("layer_types", "partial_rotary_factors", "rope_theta", "swiglu_limits", "swiglu_limits_shared"):
        config[key] = config[key] + config[key][-1:] * HEADS_OF_STEP
    windowed = ["full_attention", "sliding_attention"] * (STEPS // 2) + ["sliding_attention"] * HEADS_OF_STEP
    return config | {"layer_types": windowed}


def openpangu_config() -> Json:
    """openPangu-Ultra-MoE: DeepSeek's layer with two norms more."""
    config = deepseek_config() | {"architectures": ["PanguUltraMoEForCausalLM"], "model_type": "pangu_ultra_moe"}
    del config["topk_method"], config["scoring_func"]
    code = {"AutoConfig": "org/openPangu--configuration_openpangu_moe.PanguUltraMoEConfig"}
    more = {"rope_scaling": None, "router_enable_expert_bias": True, "sandwich_norm": True}
    return config | more | {"auto_map": code}  # its config class comes along with the checkpoint


def openpangu_weights() -> Weights:
    """The layer after the last one."""
    return deepseek_weights() | norms(LAYER.rstrip("."), "pre_mlp_layernorm", "post_mlp_layernorm")


def text_config(model_type: str, **keys: object) -> Json:
    """The language model of a config that nests it."""
    return common("", model_type, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, **keys)


def exaone4_5_config() -> Json:
    """EXAONE 4.5: a dense layer whose norms follow attention and MLP; the language model in text_config."""
    window = {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 64,
        "sliding_window_pattern": "LG",
    }
    text = text_config("exaone4", rope_parameters={"rope_type": "default", "rope_theta": 1e4}, **window)
    vision = {"depth": 1, "hidden_size": HIDDEN, "intermediate_size": DENSE, "num_heads": 4, "out_hidden_size": HIDDEN}
    more = {"vision_config": vision, "num_nextn_predict_layers": 1, "vocab_size": VOCAB}
    return nested("Exaone4_5_ForConditionalGeneration", "exaone4_5", text, **more)


def exaone4_5_weights() -> Weights:
    """The tensors under ``mtp.``, beside a language model under its own prefix."""
    head = {n: w for n, w in qwen("mtp", routed_=False).items() if "layers.0.input_layernorm" not in n}
    head |= norms("mtp.layers.0", "post_feedforward_layernorm")
    return {n.replace("model.", "model.language_model.", 1): w for n, w in target().items()} | head


def glm_ocr_config() -> Json:
    """GLM-OCR: a dense layer with a norm before and after each half; the language model in text_config."""
    text = text_config(
        "glm_ocr_text", rope_parameters={"rope_type": "default", "rope_theta": 1e4}, num_nextn_predict_layers=1
    )
    vision = {"depth": 1, "hidden_size": HIDDEN, "intermediate_size": DENSE, "num_heads": 4, "out_hidden_size": HIDDEN}
    return nested("GlmOcrForConditionalGeneration", "glm_ocr", text, vision_config=vision)


def glm_ocr_weights() -> Weights:
    """The layer after the last one, of the language model."""
    layer = "model.language_model.layers.2"
    found = nextn(layer) | norms(layer, "post_self_attn_layernorm", "post_mlp_layernorm") | gqa(f"{layer}.self_attn")
    found |= {n: w for n, w in dense(f"{layer}.mlp").items() if "down" in n}
    found[f"{layer}.mlp.gate_up_proj.weight"] = bf16(2 * DENSE, HIDDEN)
    return {n.replace("model.", "model.language_model.", 1): w for n, w in target().items()} | found


OF_VLLM = {
    family.name: family
    for family in (
        Family("exaone_moe", "0.16.0", "mtp.", exaone_moe_config, exaone_weights, "fc.weight"),
        Family("hy_v3", "0.22.1", LAYER, hy_v3_config, hunyuan_weights),
        Family("openpangu", "0.16.0", LAYER, openpangu_config, openpangu_weights, also=NARROW),
        Family("exaone4_5", "0.22.1", "mtp.", exaone4_5_config, exaone4_5_weights, "fc.weight"),
        Family("glm_ocr", "0.16.0", "model.language_model.layers.2.", glm_ocr_config, glm_ocr_weights),
        Family("step3p5_long", "0.16.0", f"model.layers.{STEPS}.", step_of_vllm_config, step_weights),
    )
}
