"""More tiny whole checkpoints with a multi-token-prediction layer: the heads of multimodal and other recent models.

All tensors are zeros, as in mtp_heads.
"""

from __future__ import annotations

from collections.abc import Callable

from mtp_heads import DENSE, HEAD_DIM, HIDDEN, KV_HEADS, LAYERS, Family, Json, bf16, common, gqa, norms
from mtp_heads_later import nested, qwen3_5_moe_config, qwen3_5_moe_weights
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


STREAMS, RANK, INDEX_HEADS, INDEX_DIM = 3, 10, 2, 16


def qwen4_config() -> Json:
    """Qwen4-Exp: Qwen3.5 with experts and several residual streams."""
    config = qwen3_5_moe_config()
    text = config["text_config"] | {"model_type": "qwen4_exp_text", "hc_count": STREAMS, "hc_lowrank": RANK}
    outer = {"architectures": ["Qwen4ExpForConditionalGeneration"], "model_type": "qwen4_exp"}
    return config | outer | {"text_config": text}


def qwen4_weights() -> Weights:
    """The tensors under ``mtp.``, whose layer has no norms but those of its connections."""
    taken = {name: w for name, w in qwen3_5_moe_weights().items() if ".fc." not in name and "_layernorm" not in name}
    del taken["mtp.norm.weight"]
    wide = STREAMS * HIDDEN
    taken |= {f"mtp.{part}.weight": bf16(HIDDEN, HIDDEN) for part in ("fc_embedding", "fc_hidden")}
    taken["mtp.pre_fc_norm_hidden.weight"] = bf16(wide)
    layer = "mtp.layers.0"
    for place in (f"{layer}.attn_hyper_connection", f"{layer}.mlp_hyper_connection", "mtp.hyper_connection_mixer"):
        taken |= {
            f"{place}.hc_norm.weight": bf16(wide),
            f"{place}.input_mix_weight_down.weight": bf16(RANK, wide),
            f"{place}.input_mix_weight_up.weight": bf16(wide, RANK),
        }
        if place.startswith(layer):
            taken[f"{place}.block_inject_weight.weight"] = bf16(STREAMS, wide)
    return taken


def qwen4_indexed_config() -> Json:
    """The same, attending to chosen blocks."""
    config = qwen4_config()
    config["text_config"] |= {"indexer_n_heads": INDEX_HEADS, "indexer_kv_heads": 1, "indexer_head_dim": INDEX_DIM}
    config["text_config"] |= {"indexer_budget": 2048, "indexer_compress_ratio": 4}
    return config


def qwen4_indexed_weights() -> Weights:
    """With what chooses the blocks."""
    place = "mtp.layers.0.self_attn.indexer"
    return qwen4_weights() | {
        f"{place}.index_qk_proj.weight": bf16((INDEX_HEADS + 1) * INDEX_DIM, HIDDEN),
        f"{place}.q_layernorm.weight": bf16(INDEX_DIM),
        f"{place}.k_layernorm.weight": bf16(INDEX_DIM),
    }


QWEN4_OWN = "fc_hidden.weight"

INKLING = "model.mtp.layers.0."


def inkling_config() -> Json:
    """Inkling: the language model stands in text_config; two heads."""
    text = common("", "inkling_model", num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, d_rel=8, rel_extent=32)
    text |= {"dense_intermediate_size": DENSE, "use_embed_norm": True, "use_sconv": True, "sconv_kernel_size": 4}
    text |= {"chain_hidden_post_norm": True, "num_nextn_predict_layers": 2, "dense_mlp_idx": 1, "n_routed_experts": 4}
    return nested("InklingForConditionalGeneration", "inkling_mm_model", text)


def inkling_weights() -> Weights:
    """The first head whole, a tensor of the second, and what they have of the model."""
    block = f"{INKLING}transformer_block"
    queries, keys = 4 * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        "model.llm.embed.weight": bf16(128, HIDDEN),
        "model.llm.unembed.weight": bf16(128, HIDDEN),
        "model.llm.embed_norm.weight": bf16(HIDDEN),
        "model.llm.layers.0.attn_norm.weight": bf16(HIDDEN),
        "model.mtp.chain_norm.weight": bf16(HIDDEN),
        "model.mtp.layers.1.hidden_norm.weight": bf16(HIDDEN),
        **norms(INKLING.removesuffix("."), "hidden_norm", "embed_norm"),
        f"{INKLING}input_proj.weight": bf16(HIDDEN, 2 * HIDDEN),
        **norms(block, "attn_norm", "mlp_norm"),
        f"{block}.attn.wq_du.weight": bf16(queries, HIDDEN),
        f"{block}.attn.wk_dv.weight": bf16(keys, HIDDEN),
        f"{block}.attn.wv_dv.weight": bf16(keys, HIDDEN),
        f"{block}.attn.wr_du.weight": bf16(4 * 8, HIDDEN),
        f"{block}.attn.wo_ud.weight": bf16(HIDDEN, queries),
        f"{block}.attn.rel_logits_proj.proj": bf16(8, 32),
        f"{block}.attn.q_norm.weight": bf16(HEAD_DIM),
        f"{block}.attn.k_norm.weight": bf16(HEAD_DIM),
        f"{block}.attn.k_sconv.weight": bf16(keys, 1, 4),
        f"{block}.attn.v_sconv.weight": bf16(keys, 1, 4),
        f"{block}.attn_sconv.weight": bf16(HIDDEN, 1, 4),
        f"{block}.mlp_sconv.weight": bf16(HIDDEN, 1, 4),
        f"{block}.mlp.w13_dn.weight": bf16(2 * DENSE, HIDDEN),
        f"{block}.mlp.w2_md.weight": bf16(HIDDEN, DENSE),
    }


NEWEST = {
    family.name: family
    for family in (
        Family("glm_ocr", "0.5.9", OCR_LAYER, glm_ocr_config, glm_ocr_weights),
        Family("qwen4", "0.5.20", "mtp.", qwen4_config, qwen4_weights, QWEN4_OWN),
        Family("inkling", "0.5.16", INKLING, inkling_config, inkling_weights, "input_proj.weight"),
        Family("qwen4_indexed", "0.5.20", "mtp.", qwen4_indexed_config, qwen4_indexed_weights, QWEN4_OWN),
    )
}


def _scaled(table: Json, key: str) -> None:
    table[key] *= 4


BESIDE: dict[str, Callable[[Json], object]] = {
    "two": lambda config: config["text_config"].update(num_nextn_predict_layers=2),
    "no-count": lambda config: config["text_config"].pop("num_nextn_predict_layers"),
    "layers-less": lambda config: config["text_config"].update(num_hidden_layers=LAYERS - 1),
    "layers-more": lambda config: config["text_config"].update(num_hidden_layers=LAYERS + 1),
    "biased": lambda config: config["text_config"].update(attention_bias=True),
    "bias-unsaid": lambda config: config["text_config"].pop("attention_bias", None),
    "on-top": lambda config: config.update(num_hidden_layers=7),
    "one-stream": lambda config: config["text_config"].update(hc_count=config["text_config"]["hc_count"] // 3),
    "four-streams": lambda config: config["text_config"].update(hc_count=config["text_config"].pop("hc_count") + 1),
    "streams-unsaid": lambda config: config["text_config"].pop("hc_count"),
    "rank-differs": lambda config: config["text_config"].update(hc_lowrank=config["text_config"]["hc_lowrank"] + 2),
    "index-heads": lambda config: config["text_config"].update(
        indexer_n_heads=4 * config["text_config"]["indexer_n_heads"]
    ),
    "no-index-dim": lambda config: config["text_config"].pop("indexer_head_dim"),
    "no-head-dim": lambda config: config["text_config"].pop("head_dim"),
}
"""Changes of configs with a text_config, by name."""
