"""Tiny whole checkpoints with the multi-token-prediction layers that came last: Hunyuan 4, GLM-5 Next, GigaChat 3.5.

All tensors are zeros, as in mtp_heads.
"""

from __future__ import annotations

from mtp_heads import (
    DENSE,
    HEADS,
    HIDDEN,
    KV_LORA,
    LAYER,
    LAYERS,
    NOPE,
    Q_LORA,
    VALUE,
    Family,
    Json,
    bf16,
    deepseek_config,
    deepseek_weights,
    dense,
    mla,
    nextn,
    norms,
    routed,
    target,
)
from mtp_heads_later import INDEX_DIM, INDEX_HEADS, indexer
from weights import Weights, zeros

POOL = 4  # keys that GLM-5 Next's indexer takes together
RANK = 16  # of the gates in GigaChat's norms
FULL = {"layer_types": ["full_attention"] * LAYERS}


def without_keys(config: Json, *keys: str) -> Json:
    """The config without these keys."""
    return {key: value for key, value in config.items() if key not in keys}


def hunyuan4_config() -> Json:
    """Hunyuan 4: latent attention that looks at chosen keys, with a gate and sinks."""
    config = deepseek_config() | {"architectures": ["HYV4ForCausalLM"], "model_type": "hy_v4"}
    config = without_keys(config, "rope_scaling", "rope_theta", "moe_layer_freq", "first_k_dense_replace")
    return config | {
        "index_topk": 64,
        "index_n_heads": INDEX_HEADS,
        "index_head_dim": INDEX_DIM,
        "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"},
    }


def hunyuan4_weights() -> Weights:
    """The tensors under ``model.mtp_layers.0.``."""
    layer = "model.mtp_layers.0"
    found = norms(layer, "enorm", "hnorm", "final_layernorm", "input_layernorm", "post_attention_layernorm")
    found |= {f"{layer}.eh_proj.weight": bf16(HIDDEN, 2 * HIDDEN)}
    found |= mla(f"{layer}.self_attn") | indexer(f"{layer}.self_attn") | routed(f"{layer}.mlp")
    found[f"{layer}.self_attn.linear_gate.weight"] = bf16(HEADS * VALUE, HIDDEN)
    found[f"{layer}.self_attn.learnable_sink_param"] = zeros("F32", HEADS)
    return target() | found


def gigachat_config() -> Json:
    """GigaChat 3.5: latent attention with a gate, a dense layer, and norms with gates of their own."""
    config = deepseek_config() | {"architectures": ["GigaChat35ForCausalLM"], "model_type": "gigachat3_5"}
    return without_keys(config, "rope_scaling") | FULL


def gated_norm(name: str, size: int) -> Weights:
    """A norm with a gate of low rank."""
    return {
        f"{name}.weight": bf16(size),
        f"{name}.gate_up_projection.weight": bf16(RANK, size),
        f"{name}.gate_down_projection.weight": bf16(size, RANK),
    }


def gigachat_weights() -> Weights:
    """The layer after the last one."""
    layer = f"model.layers.{LAYERS}"
    found = nextn(layer) | mla(f"{layer}.self_attn") | dense(f"{layer}.mlp", DENSE)
    found |= norms(layer, "post_self_attn_layernorm", "post_feedforward_layernorm")
    found[f"{layer}.self_attn.gate_proj.weight"] = bf16(HEADS * VALUE, HIDDEN)
    for name in [n for n in found if n.endswith("norm.weight")]:
        found |= gated_norm(name.removesuffix(".weight"), found[name].shape[0])
    return target() | found


def glm5_next_config() -> Json:
    """GLM-5 Next: everything in text_config, latent attention without a rope that looks at chosen keys."""
    text = without_keys(deepseek_config(), "architectures", "rope_scaling")
    text |= {"model_type": "glm5_next_text", "qk_rope_head_dim": 0, **FULL}
    text |= {"index_topk": 64, "index_n_heads": INDEX_HEADS, "index_head_dim": INDEX_DIM, "index_kpool": POOL}
    text |= {"index_kpool_always_select_tail": True, "index_kpool_compress": True}
    outer = {"architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next"}
    return outer | {"tie_word_embeddings": False, "text_config": text}


def glm5_next_weights() -> Weights:
    """The layer after the last one, under the language model's own prefix."""
    attention = f"{LAYER}self_attn"
    found = deepseek_weights() | indexer(attention)
    found[f"{attention}.q_b_proj.weight"] = bf16(HEADS * NOPE, Q_LORA)
    found[f"{attention}.kv_a_proj_with_mqa.weight"] = bf16(KV_LORA, HIDDEN)
    found[f"{attention}.indexer.index_kpool_compress_ape"] = zeros("F32", POOL, INDEX_DIM)
    found[f"{attention}.indexer.index_kpool_compress_gate"] = bf16(INDEX_DIM, HIDDEN)
    return {n.replace("model.", "model.language_model.", 1): w for n, w in found.items()}


HUNYUAN4 = (
    *("other_layer", "as_layer", "long_wq_b", "wide_wq_b", "long_wk", "long_k_norm", "no_indexer", "long_sink"),
    *("one_sink", "no_gate", "long_gate", "wrong_layer_types", "strange_layer_types", "indexed", "two", "renamed_two"),
)
GIGACHAT = (
    *("other_layer", "short_gate_down", "no_gate_up", "no_attention_gate", "long_attention_gate", "ungated", "sparse"),
    *("plain_norms", "gated_norms", "centred_norms", "strange_norms", "pre_norms", "two", "one_layer", "null_q_rank"),
)

GLM5_NEXT = (
    *("other_layer", "as_layer", "with_rope", "no_tail", "no_compress", "no_pool", "no_ape", "short_ape"),
    *("long_pool_gate", "long_wq_b", "no_indexer", "two_of_text", "renamed_two_of_text", "gate_in_expert"),
)
LANGUAGE = LAYER.replace("model.", "model.language_model.")

LATEST = {
    family.name: family
    for family in (
        Family("hunyuan4", "0.5.20", "model.mtp_layers.0.", hunyuan4_config, hunyuan4_weights, also=HUNYUAN4),
        Family("gigachat", "0.5.21", LAYER, gigachat_config, gigachat_weights, also=GIGACHAT),
        Family("glm5_next", "0.5.20", LANGUAGE, glm5_next_config, glm5_next_weights, also=GLM5_NEXT),
    )
}
