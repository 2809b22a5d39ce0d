"""Tiny whole checkpoints with the multi-token-prediction layers that came last: Hunyuan 4, GLM-5 Next, GigaChat 3.5.

All tensors are zeros, as in mtp_heads.
"""

from __future__ import annotations

from mtp_heads import (
    DENSE,
    EXPERTS,
    HEADS,
    HIDDEN,
    INNER,
    KV_LORA,
    LAYER,
    LAYERS,
    NOPE,
    Q_LORA,
    ROPE,
    VALUE,
    VOCAB,
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

STAGES, MARKOV = 2, 16  # of a DSpark head
STREAMS, O_LORA, O_GROUPS = 4, 16, 2
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


def dots3_config() -> Json:
    """Dots 3: a dense layer with a sliding window and latent attention with a gate."""
    config = deepseek_config() | {"architectures": ["Dots3NoteForCausalLM"], "model_type": "dots3_note"}
    config["rope_scaling"] = None
    sizes = {"q_lora_rank": Q_LORA, "kv_lora_rank": KV_LORA, "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "v_head_dim": VALUE}
    sliding = {f"swa_{key}": size for key, size in (sizes | heads).items()}
    return config | sliding | {"sliding_window_size": 64, "layer_types": ["full_attention", "sliding_attention"]}


def dots3_weights() -> Weights:
    """The layer after the last one, and an embedding of its own."""
    layer = f"model.layers.{LAYERS}"
    found = nextn(layer) | mla(f"{layer}.self_attn") | dense(f"{layer}.mlp", DENSE)
    found[f"{layer}.self_attn.g_proj.weight"] = bf16(HEADS, HIDDEN)
    found[f"{layer}.self_attn.k_rope_only_layernorm.weight"] = bf16(ROPE)
    del found[f"{layer}.embed_tokens.weight"]
    return target() | found | {"model.mtp.embed_tokens.weight": bf16(VOCAB, HIDDEN)}


def deepseek_v4_config() -> Json:
    """DeepSeek-V4: one key for all queries, several residual streams, and names of its own."""
    config = deepseek_config() | {"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4"}
    config = without_keys(config, "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "first_k_dense_replace")
    streams = {"hc_mult": STREAMS, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6}
    outputs = {"o_lora_rank": O_LORA, "o_groups": O_GROUPS, "num_key_value_heads": 1, "head_dim": NOPE + ROPE}
    return (
        config
        | streams
        | outputs
        | {
            "compress_ratios": [0] * (LAYERS + 1),
            "compress_rope_theta": 40000,
            "index_topk": 64,
            "index_n_heads": INDEX_HEADS,
            "index_head_dim": INDEX_DIM,
            "num_hash_layers": 0,
            "sliding_window": 128,
            "scoring_func": "sqrtsoftplus",
            "swiglu_limit": 10.0,
        }
    )


def deepseek_v4_weights() -> Weights:
    """The tensors under ``mtp.0.``."""
    layer, attention, mixed = "mtp.0", "mtp.0.attn", (2 + STREAMS) * STREAMS
    head = NOPE + ROPE
    found = norms(layer, "enorm", "hnorm", "norm", "attn_norm", "ffn_norm")
    found |= {f"{layer}.{name}.weight": bf16(HIDDEN, HIDDEN) for name in ("e_proj", "h_proj")}
    found |= {f"{layer}.emb.tok_emb.weight": bf16(VOCAB, HIDDEN), f"{layer}.head.weight": bf16(VOCAB, HIDDEN)}
    for part, rows in (("attn", mixed), ("ffn", mixed), ("head", STREAMS)):
        found[f"{layer}.hc_{part}_fn"] = zeros("F32", rows, STREAMS * HIDDEN)
        found[f"{layer}.hc_{part}_base"] = zeros("F32", rows)
        found[f"{layer}.hc_{part}_scale"] = zeros("F32", 1 if part == "head" else 3)
    found |= {
        f"{attention}.attn_sink": zeros("F32", HEADS),
        f"{attention}.wq_a.weight": bf16(Q_LORA, HIDDEN),
        f"{attention}.wkv.weight": bf16(head, HIDDEN),
        f"{attention}.q_norm.weight": bf16(Q_LORA),
        f"{attention}.kv_norm.weight": bf16(head),
        f"{attention}.wq_b.weight": bf16(HEADS * head, Q_LORA),
        f"{attention}.wo_a.weight": bf16(O_GROUPS * O_LORA, HEADS * head // O_GROUPS),
        f"{attention}.wo_b.weight": bf16(HIDDEN, O_GROUPS * O_LORA),
        f"{layer}.ffn.gate.weight": bf16(EXPERTS, HIDDEN),
        f"{layer}.ffn.gate.bias": zeros("F32", EXPERTS),
    }
    for expert in (*(f"experts.{n}" for n in range(EXPERTS)), "shared_experts"):
        found |= mistral_mlp(f"{layer}.ffn.{expert}", INNER)
    others = {"embed.weight": (VOCAB, HIDDEN), "head.weight": (VOCAB, HIDDEN), "norm.weight": (HIDDEN,)}
    others |= {"hc_head_fn": (STREAMS, STREAMS * HIDDEN), "layers.0.attn_norm.weight": (HIDDEN,)}
    return {name: bf16(*shape) for name, shape in others.items()} | found


def v4_dspark_config() -> Json:
    """DeepSeek-V4 with a DSpark head: as many layers as it takes states of the target."""
    return deepseek_v4_config() | {
        "dspark_block_size": 4,
        "dspark_markov_rank": MARKOV,
        "dspark_noise_token_id": 5,
        "dspark_target_layer_ids": list(range(STAGES)),
    }


def v4_dspark_weights() -> Weights:
    """The tensors under ``mtp.0.`` and ``mtp.1.``: what takes the states stands in the first, the heads in the last."""
    found = {n: w for n, w in deepseek_v4_weights().items() if not n.startswith("mtp.")}
    layer = {n: w for n, w in deepseek_v4_weights().items() if n.startswith(("mtp.0.attn", "mtp.0.ffn", "mtp.0.hc_"))}
    for stage in range(STAGES):
        found |= {n.replace("mtp.0", f"mtp.{stage}", 1): w for n, w in layer.items() if "hc_head" not in n}
    last = f"mtp.{STAGES - 1}"
    found |= {n.replace("mtp.0", last, 1): w for n, w in layer.items() if "hc_head" in n}
    found |= norms("mtp.0", "main_norm") | norms(last, "norm")
    found["mtp.0.main_proj.weight"] = bf16(HIDDEN, STAGES * HIDDEN)
    found[f"{last}.markov_head.markov_w1.weight"] = bf16(VOCAB, MARKOV)
    found[f"{last}.markov_head.markov_w2.weight"] = bf16(VOCAB, MARKOV)
    found[f"{last}.confidence_head.proj.weight"] = bf16(1, HIDDEN + MARKOV)
    return found


def mistral_mlp(prefix: str, inner: int) -> Weights:
    """The three projections of one MLP as Mistral names them."""
    down, up = bf16(HIDDEN, inner), bf16(inner, HIDDEN)
    return {f"{prefix}.w1.weight": up, f"{prefix}.w2.weight": down, f"{prefix}.w3.weight": up}


def mistral_config() -> Json:
    """Mistral Large 3's EAGLE head, with a dense layer and one of experts."""
    return deepseek_config() | {"architectures": ["MistralLarge3ForCausalLMEagle"]}


def mistral_weights() -> Weights:
    """Two layers, as Mistral names them."""
    found: Weights = {
        "tok_embeddings.weight": bf16(VOCAB, HIDDEN),
        "output.weight": bf16(VOCAB, HIDDEN),
        "eagle_linear.weight": bf16(HIDDEN, 2 * HIDDEN),
        "norm.weight": bf16(HIDDEN),
    }
    names = {"q_a_proj": "wq_a", "q_a_layernorm": "q_a_norm", "q_b_proj": "wq_b", "kv_b_proj": "wkv_b", "o_proj": "wo"}
    names |= {"kv_a_proj_with_mqa": "wkv_a_with_mqa", "kv_a_layernorm": "kv_a_norm"}
    for n in range(LAYERS):
        layer = f"layers.{n}"
        found |= norms(layer, "attention_norm", "ffn_norm")
        for name, tensor in mla("x").items():
            found[f"{layer}.attention.{names[name.split('.')[1]]}.weight"] = tensor
    found |= mistral_mlp("layers.0.feed_forward", DENSE)
    layer = f"layers.{LAYERS - 1}"
    found |= {f"{layer}.gate.weight": bf16(EXPERTS, HIDDEN), f"{layer}.router_biases": zeros("F32", EXPERTS)}
    for expert in (*(f"experts.{n}" for n in range(EXPERTS)), "shared_experts"):
        found |= mistral_mlp(f"{layer}.{expert}", INNER)
    return found


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
DOTS3 = (
    *("other_layer", "elementwise", "other_gate", "few_keys", "no_g", "no_kv_a", "no_joined", "long_g", "padded_g"),
    *("short_g", "wide_g", "no_own_embedding", "one_layer", "two", "no_rope_norm"),
)
DEEPSEEK_V4 = (
    *("other_head", "as_layer", "no_wkv", "long_wkv", "long_wq_a", "no_streams", "long_sinks", "no_expert_bias"),
    *("short_wo_a", "two", "renamed_two", "no_topk_method", "more_keys", "other_head_dim", "long_w1"),
)
V4_DSPARK = (
    *("no_confidence", "no_markov", "renamed_markov", "long_markov", "wide_markov", "one_stage", "three_stages"),
    *("first_gone", "no_main", "no_wkv", "no_streams", "long_wkv", "no_rank"),
)
MISTRAL = (
    *("all_experts", "no_router_biases", "no_w1", "long_w1", "no_gate_weight", "no_shared_experts", "few_experts"),
    *("no_topk_method", "null_q_rank", "all_dense", "third_layer", "no_linear"),
)
LANGUAGE = LAYER.replace("model.", "model.language_model.")

LATEST = {
    family.name: family
    for family in (
        Family("hunyuan4", "0.5.20", "model.mtp_layers.0.", hunyuan4_config, hunyuan4_weights, also=HUNYUAN4),
        Family("gigachat", "0.5.21", LAYER, gigachat_config, gigachat_weights, also=GIGACHAT),
        Family("deepseek_v4", "0.5.12", "mtp.0.", deepseek_v4_config, deepseek_v4_weights, "e_proj", also=DEEPSEEK_V4),
        Family("v4_dspark", "0.5.16", "mtp.1.", v4_dspark_config, v4_dspark_weights, "main_proj", also=V4_DSPARK),
        Family("mistral3", "0.5.7", "layers.1.", mistral_config, mistral_weights, "eagle_linear", also=MISTRAL),
        Family("dots3", "0.5.19", LAYER, dots3_config, dots3_weights, also=DOTS3),
        Family("glm5_next", "0.5.20", LANGUAGE, glm5_next_config, glm5_next_weights, also=GLM5_NEXT),
    )
}
