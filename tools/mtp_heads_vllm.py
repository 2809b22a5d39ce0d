"""Heads of other families' checkpoints as vLLM reads them: under the model type that leads it to their classes.

The corpus for SGLang writes some of them under a model type that its transformers knows. All tensors are zeros.
"""

from __future__ import annotations

from mtp_heads import LAYER, Family, Json
from mtp_heads_later import (
    STEPS,
    exaone_config,
    exaone_weights,
    hunyuan_config,
    hunyuan_weights,
    step_config,
    step_weights,
)

HEADS_OF_STEP = 2


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


OF_VLLM = {
    family.name: family
    for family in (
        Family("exaone_moe", "0.16.0", "mtp.", exaone_moe_config, exaone_weights, "fc.weight"),
        Family("hy_v3", "0.22.1", LAYER, hy_v3_config, hunyuan_weights),
        Family("step3p5_long", "0.16.0", f"model.layers.{STEPS}.", step_of_vllm_config, step_weights),
    )
}
