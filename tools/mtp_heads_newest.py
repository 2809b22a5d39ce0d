"""More tiny whole checkpoints with a multi-token-prediction layer: the heads of multimodal and other recent models.

All tensors are zeros, as in mtp_heads.
"""

from __future__ import annotations

from collections.abc import Callable

from mtp_heads import DENSE, HEAD_DIM, HIDDEN, KV_HEADS, LAYERS, Family, Json, bf16, common, gqa, norms
from mtp_heads_later import nested
from weights import Weights

OCR_LAYER = f"model.language_model.layers.{LAYERS}."


def glm_ocr_config() -> Json:
    """GLM-OCR: the language model stands in text_config."""
    text = common("", "glm_ocr_text", num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, attention_bias=False)
    text |= {"num_nextn_predict_layers": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    text["rope_parameters"] |= {"mrope_section": [2, 3, 3], "partial_rotary_factor": 1.0}
    return nested("GlmOcrForConditionalGeneration", "glm_ocr", text)


def glm_ocr_weights() -> Weights:
    """The layer after the last one of the language model; gate and up in one tensor."""
    layer = OCR_LAYER.removesuffix(".")
    after = ("post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm")
    return {
        "lm_head.weight": bf16(128, HIDDEN),
        "model.language_model.embed_tokens.weight": bf16(128, HIDDEN),
        "model.visual.blocks.0.norm1.weight": bf16(HIDDEN),
        **norms(layer, "enorm", "hnorm", "shared_head.norm", "input_layernorm", *after),
        f"{layer}.eh_proj.weight": bf16(HIDDEN, 2 * HIDDEN),
        f"{layer}.shared_head.head.weight": bf16(128, HIDDEN),
        f"{layer}.embed_tokens.weight": bf16(128, HIDDEN),
        **gqa(f"{layer}.self_attn"),
        f"{layer}.mlp.gate_up_proj.weight": bf16(2 * DENSE, HIDDEN),
        f"{layer}.mlp.down_proj.weight": bf16(HIDDEN, DENSE),
    }


NEWEST = {family.name: family for family in (Family("glm_ocr", "0.5.9", OCR_LAYER, glm_ocr_config, glm_ocr_weights),)}

BESIDE: dict[str, Callable[[Json], object]] = {
    "two": lambda config: config["text_config"].update(num_nextn_predict_layers=2),
    "no-count": lambda config: config["text_config"].pop("num_nextn_predict_layers"),
    "layers-less": lambda config: config["text_config"].update(num_hidden_layers=LAYERS - 1),
    "layers-more": lambda config: config["text_config"].update(num_hidden_layers=LAYERS + 1),
    "biased": lambda config: config["text_config"].update(attention_bias=True),
    "bias-unsaid": lambda config: config["text_config"].pop("attention_bias", None),
    "on-top": lambda config: config.update(num_hidden_layers=7),
    "no-head-dim": lambda config: config["text_config"].pop("head_dim"),
}
"""Changes of configs with a text_config, by name."""
