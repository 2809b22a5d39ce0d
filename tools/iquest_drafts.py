"""A tiny head of IQuest Q1: a checkpoint of its own, with one layer of experts, an embedding and a head."""

from __future__ import annotations

from class_edits import Edit, added, config, dropped, prefixed, shaped, swapped, without
from drafts import Draft, Json
from mtp_heads import EXPERTS, HEAD_DIM, HEADS, HIDDEN, INNER, KV_HEADS, VOCAB, bf16, gqa, norms
from weights import Weights, zeros

LAYER = "mtp.mtp_model_layer"
AROUND = ("attention_norm", "attn_out_norm", "feed_forward_norm", "ffn_out_norm")


def target_config() -> Json:
    """What the config says of the target, and what the head has of it."""
    return {
        "model_type": "iquest_q1",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": 8,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "rotary_dim": 8,
        "max_position_embeddings": 512,
    }


def weights() -> Weights:
    """Every tensor of the head."""
    return {
        "embed_tokens.weight": bf16(VOCAB, HIDDEN),
        "lm_head.weight": bf16(VOCAB, HIDDEN),
        "target_final_norm.weight": bf16(HIDDEN),
        **norms("mtp", "enorm", "hnorm", "final_layernorm"),
        "mtp.eh_proj.weight": bf16(HIDDEN, 2 * HIDDEN),
        **norms(LAYER, *AROUND),
        **gqa(f"{LAYER}.self_attn", norm=True),
        f"{LAYER}.self_attn.sink_k": bf16(1, KV_HEADS, HEAD_DIM),
        f"{LAYER}.mlp.router.weight": zeros("F32", EXPERTS, HIDDEN),
        f"{LAYER}.mlp.experts.fc": bf16(EXPERTS, 2 * INNER, HIDDEN),
        f"{LAYER}.mlp.experts.proj": bf16(EXPERTS, HIDDEN, INNER),
    }


def iquest() -> Draft:
    """The head, whose sizes stand in target_config."""
    made: Json = {
        "architectures": ["IQuestQ1MTP"],
        "model_type": "iquest_q1_mtp",
        "num_draft_slots": 3,
        "num_target_layers": 8,
        "target_config": target_config(),
        "dtype": "bfloat16",
    }
    return Draft(config=made, weights=weights())


IQUEST: dict[str, Edit] = {
    "healthy": lambda _: None,
    "flat": lambda draft: draft.config.update(
        {k: v for k, v in draft.config.pop("target_config").items() if k not in ("model_type", "num_hidden_layers")}
    ),
    "prefix": prefixed("model."),
    "wrapped": prefixed("module."),
    "extra": added("mtp.extra.weight", 3),
    "extra-outside": added("layers.0.extra.weight", 3),
    "extra-bias": added(f"{LAYER}.self_attn.q_proj.bias", HEADS * HEAD_DIM),
    "freq": added(f"{LAYER}.self_attn.rotary_emb.inv_freq", 3),
    "no-eh": dropped("mtp.eh_proj.weight"),
    "no-norms": dropped("mtp.enorm.weight", f"{LAYER}.attn_out_norm.weight"),
    "no-head": dropped("lm_head.weight"),
    "no-embedding": dropped("embed_tokens.weight"),
    "no-k": dropped(f"{LAYER}.self_attn.k_proj.weight"),
    "no-sink": dropped(f"{LAYER}.self_attn.sink_k"),
    "sink-flat": shaped(f"{LAYER}.self_attn.sink_k", KV_HEADS, HEAD_DIM),
    "sink-wide": shaped(f"{LAYER}.self_attn.sink_k", KV_HEADS, 2 * HEAD_DIM),
    "sinkless": config(enable_sink_attention=False),
    "no-router": dropped(f"{LAYER}.mlp.router.weight"),
    "gate": swapped("router", "gate"),
    "router-rows": shaped(f"{LAYER}.mlp.router.weight", EXPERTS + 1, HIDDEN),
    "no-experts": dropped(f"{LAYER}.mlp.experts.fc"),
    "no-proj": dropped(f"{LAYER}.mlp.experts.proj"),
    "experts-few": shaped(f"{LAYER}.mlp.experts.fc", EXPERTS - 1, 2 * INNER, HIDDEN),
    "experts-many": shaped(f"{LAYER}.mlp.experts.fc", EXPERTS + 1, 2 * INNER, HIDDEN),
    "experts-wide": shaped(f"{LAYER}.mlp.experts.fc", EXPERTS, 2 * INNER, HIDDEN + 8),
    "proj-short": shaped(f"{LAYER}.mlp.experts.proj", EXPERTS, HIDDEN, INNER - 8),
    "wide-eh": shaped("mtp.eh_proj.weight", HIDDEN, HIDDEN),
    "long-k": shaped(f"{LAYER}.self_attn.k_proj.weight", 2 * KV_HEADS * HEAD_DIM, HIDDEN),
    "short-o": shaped(f"{LAYER}.self_attn.o_proj.weight", HIDDEN, HEADS * HEAD_DIM - 8),
    "head-rows": shaped("lm_head.weight", VOCAB // 2, HIDDEN),
    "two-layers": config(num_hidden_layers=2),
    "no-slots": config(num_draft_slots=0),
    "other-depth": config(num_target_layers=9),
    "depth-unsaid": without("num_target_layers"),
    "router-half": config(moe_router_dtype="bf16"),
    "over-encoding": config(use_over_encoding=True),
    "half-head": config(enable_lm_head_fp32=False),
    "own-heads": config(num_key_value_heads=HEADS),
    "more-experts": config(num_experts=EXPERTS + 2),
}
