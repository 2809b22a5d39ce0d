"""Tiny healthy drafts of the classes other than EAGLE-3's Llama: EAGLE-1, EAGLE-3 with MLA, DFlash, Domino, DSpark."""

from __future__ import annotations

from drafts import (
    DRAFT_VOCAB,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    TARGET_LAYERS,
    VOCAB,
    Draft,
    Json,
    draft_config,
    layer,
    target_config,
)
from weights import Weights, mask, offsets, spread, zeros

Q_RANK, KV_RANK, ROPE, NOPE, V_DIM = 12, 10, 4, 8, 8
RANK, GRU, EMBED = 8, 16, 12
IDS = [1, 5]


def plain_layer(prefix: str, *, norms: bool = True, bias: bool = False) -> Weights:
    """One decoder layer over a single hidden state; ``norms``: with q_norm and k_norm."""
    made = layer(prefix, inputs=HIDDEN)
    del made[f"{prefix}.hidden_norm.weight"]
    if norms:
        made |= {f"{prefix}.self_attn.{x}_norm.weight": zeros("BF16", HEAD_DIM) for x in "qk"}
    if bias:
        made |= {
            f"{prefix}.self_attn.{x}_proj.bias": zeros("BF16", (HEADS if x == "q" else KV_HEADS) * HEAD_DIM)
            for x in "qkv"
        }
    return made


def eagle1(architecture: str = "LlamaForCausalLMEagle") -> Draft:
    """EAGLE-1 and 2: fc over embedding and hidden state, a layer without input_layernorm, no norm, no head."""
    qwen = architecture.startswith("Qwen2")
    config = {**draft_config(), "architectures": [architecture]}
    del config["draft_vocab_size"]
    if qwen:
        del config["attention_bias"], config["mlp_bias"], config["head_dim"]
        config["model_type"] = "qwen2"
    weights = {
        "fc.weight": zeros("BF16", HIDDEN, 2 * HIDDEN),
        "fc.bias": zeros("BF16", HIDDEN),
        **plain_layer("layers.0", norms=False, bias=qwen),
        "embed_tokens.weight": zeros("BF16", VOCAB, HIDDEN),
    }
    del weights["layers.0.input_layernorm.weight"]
    target = target_config()
    if qwen:
        target |= {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    return Draft(config=config, weights=weights, target=target)


YARN = {
    "rope_type": "yarn",
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


def mla_config() -> Json:
    """config.json of an EAGLE-3 draft with multi-head latent attention."""
    config = {**draft_config(), "architectures": ["Eagle3DeepseekV2ForCausalLM"], "model_type": "deepseek_v3"}
    del config["head_dim"], config["mlp_bias"]
    latent = {
        "q_lora_rank": Q_RANK,
        "kv_lora_rank": KV_RANK,
        "qk_rope_head_dim": ROPE,
        "qk_nope_head_dim": NOPE,
        "v_head_dim": V_DIM,
        "num_key_value_heads": HEADS,
        "rope_scaling": YARN,
    }
    return {**config, **latent}


def mla_weights(prefix: str = "layers.0") -> Weights:
    """The tensors of such a draft; the two down projections stay apart, as trainers save them."""
    kept = spread(DRAFT_VOCAB, VOCAB)
    attention = f"{prefix}.self_attn"
    made = {name: w for name, w in layer(prefix).items() if ".self_attn." not in name}
    return {
        "d2t": offsets(kept),
        "t2d": mask(VOCAB, kept),
        "fc.weight": zeros("BF16", HIDDEN, 3 * HIDDEN),
        f"{attention}.q_a_proj.weight": zeros("BF16", Q_RANK, 2 * HIDDEN),
        f"{attention}.kv_a_proj_with_mqa.weight": zeros("BF16", KV_RANK + ROPE, 2 * HIDDEN),
        f"{attention}.q_a_layernorm.weight": zeros("BF16", Q_RANK),
        f"{attention}.kv_a_layernorm.weight": zeros("BF16", KV_RANK),
        f"{attention}.q_b_proj.weight": zeros("BF16", HEADS * (NOPE + ROPE), Q_RANK),
        f"{attention}.kv_b_proj.weight": zeros("BF16", HEADS * (NOPE + V_DIM), KV_RANK),
        f"{attention}.o_proj.weight": zeros("BF16", HIDDEN, HEADS * V_DIM),
        **made,
        "norm.weight": zeros("BF16", HIDDEN),
        "embed_tokens.weight": zeros("BF16", VOCAB, HIDDEN),
        "lm_head.weight": zeros("BF16", DRAFT_VOCAB, HIDDEN),
    }


def mla(prefix: str = "layers.0") -> Draft:
    """EAGLE-3 with MLA, as made for Kimi-K2."""
    target = {**target_config(), "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}
    return Draft(config=mla_config(), weights=mla_weights(prefix), target=target)


def dflash(architecture: str = "DFlashDraftModel", layers: int = 2) -> Draft:
    """DFlash: Qwen3 layers over a block of masked tokens, fc over the states of two target layers."""
    config = {
        **draft_config(),
        "architectures": [architecture],
        "model_type": "qwen3",
        "num_hidden_layers": layers,
        "num_target_layers": TARGET_LAYERS,
        "block_size": 4,
        "layer_types": ["full_attention"] * layers,
        "dflash_config": {"mask_token_id": 3, "target_layer_ids": IDS},
    }
    del config["draft_vocab_size"], config["mlp_bias"]
    weights: Weights = {"fc.weight": zeros("BF16", HIDDEN, len(IDS) * HIDDEN)}
    for n in range(layers):
        weights |= plain_layer(f"layers.{n}")
    weights |= {name: zeros("BF16", HIDDEN) for name in ("hidden_norm.weight", "norm.weight")}
    return Draft(config=config, weights=weights)


def domino() -> Draft:
    """DFlash with Domino's projector."""
    draft = dflash()
    draft.config["dflash_config"] |= {
        "projector_type": "domino",
        "gru_hidden_dim": GRU,
        "emb_dim": EMBED,
        "pure_draft_prefix_len": 1,
        "shift_label": True,
    }
    draft.weights |= {
        "prefix_gru.weight_ih_l0": zeros("BF16", 3 * GRU, HIDDEN),
        "prefix_gru.weight_hh_l0": zeros("BF16", 3 * GRU, GRU),
        "embed_proj.0.weight": zeros("BF16", EMBED, HIDDEN + GRU),
        "embed_proj.2.weight": zeros("BF16", VOCAB, EMBED),
    }
    return draft


def dspark(architecture: str = "Qwen3DSparkModel", kind: str = "vanilla") -> Draft:
    """DSpark: DFlash with a Markov head and a confidence head."""
    draft = dflash(architecture)
    draft.set(markov_rank=RANK, markov_head_type=kind, enable_confidence_head=True, confidence_head_with_markov=True)
    draft.weights |= {
        "markov_head.markov_w1.weight": zeros("BF16", VOCAB, RANK),
        "markov_head.markov_w2.weight": zeros("BF16", VOCAB, RANK),
        "confidence_head.proj.weight": zeros("BF16", 1, HIDDEN + RANK),
        "confidence_head.proj.bias": zeros("BF16", 1),
    }
    if kind == "gated":
        draft.weights |= {
            "markov_head.gate_proj.weight": zeros("BF16", RANK, HIDDEN + RANK),
            "markov_head.gate_proj.bias": zeros("BF16", RANK),
        }
    if kind == "rnn":
        draft.weights |= {
            "markov_head.joint_proj.weight": zeros("BF16", 3 * RANK, HIDDEN + 2 * RANK),
            "markov_head.joint_proj.bias": zeros("BF16", 3 * RANK),
        }
    return draft


def fuse(draft: Draft, parts: list[str], into: str) -> None:
    """Lay tensors one below the other under a new name."""
    taken = [draft.weights.pop(part) for part in parts]
    draft.weights[into] = zeros("BF16", sum(t.shape[0] for t in taken), *taken[0].shape[1:])
