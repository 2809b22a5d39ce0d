"""A tiny DSpark draft for MiniMax M3: dense layers of the target's own kind, stored under ``model.dspark.``."""

from __future__ import annotations

from class_edits import Edit, added, both, config, dropped, shaped, swapped
from drafts import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, VOCAB, Draft, Json
from weights import zeros

LAYERS, INNER, RANK, IDS, BLOCK = 2, 40, 8, [1, 5], 4
PREFIX = "model.dspark."
LAST = f"{PREFIX}layers.1.decoder_layer"


def text_config() -> Json:
    """The config of the language model, with what it says of the draft."""
    return {
        "model_type": "minimax_m2",
        "hidden_size": HIDDEN,
        "intermediate_size": 24,
        "num_hidden_layers": 8,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rotary_dim": HEAD_DIM,
        "max_position_embeddings": 512,
        "use_qk_norm": True,
        "qk_norm_type": "per_head",
        "use_gemma_norm": True,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": VOCAB,
        "tie_word_embeddings": False,
        "dflash_config": {"num_hidden_layers": LAYERS, "num_target_layers": 8, "target_layer_ids": list(IDS)},
        "dspark_config": {"use_dense_ffn": True, "ffn_hidden_size": INNER},
    }


def minimax() -> Draft:
    """The draft, with a confidence head that is passed over."""
    made: Json = {
        "architectures": ["DSparkMiniMaxDraftModel"],
        "model_type": "minimax_m3_vl",
        "text_config": text_config(),
        "dspark_block_size": BLOCK,
        "dspark_markov_rank": RANK,
        "dspark_noise_token_id": 3,
        "torch_dtype": "bfloat16",
    }
    weights = {
        f"{PREFIX}fc.weight": zeros("BF16", HIDDEN, len(IDS) * HIDDEN),
        f"{PREFIX}hidden_norm.weight": zeros("BF16", HIDDEN),
        f"{PREFIX}final_norm.weight": zeros("BF16", HIDDEN),
        f"{PREFIX}markov_head.markov_w1.weight": zeros("BF16", VOCAB, RANK),
        f"{PREFIX}markov_head.markov_w2.weight": zeros("BF16", VOCAB, RANK),
        f"{PREFIX}confidence_head.proj.weight": zeros("BF16", 1, HIDDEN + RANK),
        f"{PREFIX}confidence_head.proj.bias": zeros("BF16", 1),
    }
    for n in range(LAYERS):
        layer = f"{PREFIX}layers.{n}.decoder_layer"
        attention, mlp = f"{layer}.self_attn", f"{layer}.block_sparse_moe"
        weights |= {
            f"{layer}.input_layernorm.weight": zeros("BF16", HIDDEN),
            f"{layer}.post_attention_layernorm.weight": zeros("BF16", HIDDEN),
            f"{attention}.q_proj.weight": zeros("BF16", HEADS * HEAD_DIM, HIDDEN),
            f"{attention}.k_proj.weight": zeros("BF16", KV_HEADS * HEAD_DIM, HIDDEN),
            f"{attention}.v_proj.weight": zeros("BF16", KV_HEADS * HEAD_DIM, HIDDEN),
            f"{attention}.o_proj.weight": zeros("BF16", HIDDEN, HEADS * HEAD_DIM),
            f"{attention}.q_norm.weight": zeros("BF16", HEAD_DIM),
            f"{attention}.k_norm.weight": zeros("BF16", HEAD_DIM),
            f"{mlp}.gate_proj.weight": zeros("BF16", INNER, HIDDEN),
            f"{mlp}.up_proj.weight": zeros("BF16", INNER, HIDDEN),
            f"{mlp}.down_proj.weight": zeros("BF16", HIDDEN, INNER),
        }
    return Draft(config=made, weights=weights)


def said(table: str, **keys: object) -> Edit:
    """Set keys of the text config, or of a table in it; None takes one out."""

    def edit(draft: Draft) -> None:
        text = draft.config["text_config"]
        found = text[table] if table else text
        found.update(keys)
        for key in [key for key, value in keys.items() if value is None]:
            del found[key]

    return edit


def per_layer_norms(draft: Draft) -> None:
    """One norm over all queries, one over all keys."""
    draft.config["text_config"] |= {"qk_norm_type": "per_layer"}
    for name in [n for n in draft.weights if ".q_norm." in n or ".k_norm." in n]:
        draft.shape(name, (HEADS if ".q_norm." in name else KV_HEADS) * HEAD_DIM)


MINIMAX: dict[str, Edit] = {
    "healthy": lambda _: None,
    "language-model": swapped(PREFIX, "language_model.model.dspark."),
    "bare-prefix": swapped(PREFIX, "dspark."),
    "no-prefix": swapped(PREFIX, ""),
    "module-prefix": swapped(PREFIX, "module.model.dspark."),
    "mlp": swapped("block_sparse_moe", "mlp"),
    "norm": swapped("final_norm", "norm"),
    "extra": added(f"{PREFIX}extra.weight", 3),
    "extra-outside": added("model.layers.0.self_attn.q_proj.weight", 3),
    "rotary": added(f"{LAST}.self_attn.rotary_emb.inv_freq", 3),
    "no-fc": dropped(f"{PREFIX}fc.weight"),
    "wide-fc": shaped(f"{PREFIX}fc.weight", HIDDEN, 3 * HIDDEN),
    "long-fc": shaped(f"{PREFIX}fc.weight", HIDDEN + 8, 2 * HIDDEN),
    "no-norm": dropped(f"{PREFIX}hidden_norm.weight"),
    "no-v": dropped(f"{LAST}.self_attn.v_proj.weight"),
    "no-up": dropped(f"{LAST}.block_sparse_moe.up_proj.weight"),
    "no-o": dropped(f"{LAST}.self_attn.o_proj.weight"),
    "no-markov": dropped(f"{PREFIX}markov_head.markov_w1.weight"),
    "no-confidence": dropped(f"{PREFIX}confidence_head.proj.weight", f"{PREFIX}confidence_head.proj.bias"),
    "long-k": shaped(f"{LAST}.self_attn.k_proj.weight", 2 * KV_HEADS * HEAD_DIM, HIDDEN),
    "short-k": shaped(f"{LAST}.self_attn.k_proj.weight", KV_HEADS * HEAD_DIM // 2, HIDDEN),
    "q-norm-width": shaped(f"{LAST}.self_attn.q_norm.weight", 2 * HEAD_DIM),
    "per-layer-norms": per_layer_norms,
    "plain-norms": said("", use_gemma_norm=False),
    "no-gemma-key": said("", use_gemma_norm=None),
    "three-layers": said("dflash_config", num_hidden_layers=3),
    "one-layer": said("dflash_config", num_hidden_layers=1),
    "ffn-differs": said("dspark_config", ffn_hidden_size=48),
    "ffn-in-text": both(said("dspark_config", ffn_hidden_size=None), said("", dspark_ffn_hidden_size=INNER)),
    "no-ffn": said("dspark_config", ffn_hidden_size=None),
    "not-dense": said("dspark_config", use_dense_ffn=False),
    "dense-in-text": both(said("dspark_config", use_dense_ffn=None), config(dspark_use_dense_ffn=True)),
    "no-ids": said("dflash_config", target_layer_ids=None),
    "three-ids": said("dflash_config", target_layer_ids=[1, 3, 5]),
    "ids-out": said("dflash_config", target_layer_ids=[1, 8]),
    "ids-twice": said("dflash_config", target_layer_ids=[1, 1]),
    "no-rank": lambda draft: draft.config.pop("dspark_markov_rank"),
    "rank-differs": config(dspark_markov_rank=4),
    "rank-zero": config(dspark_markov_rank=0),
    "no-block": lambda draft: draft.config.pop("dspark_block_size"),
    "no-noise": lambda draft: draft.config.pop("dspark_noise_token_id"),
    "gated": config(dspark_markov_head_type="gated"),
    "strange-head": config(dspark_markov_head_type="transformer"),
    "gelu": said("", hidden_act="gelu"),
    "in-text": lambda draft: draft.config["text_config"].update(
        {key: draft.config.pop(key) for key in [k for k in draft.config if k.startswith("dspark_")]}
    ),
}
