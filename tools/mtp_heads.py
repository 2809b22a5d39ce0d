"""Tiny whole checkpoints with a multi-token-prediction layer, one of each family: a config and the tensors that matter.

All tensors are zeros. Of the target's own layers one tensor each is there, as a loader of the head passes over them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weights import Weight, Weights, zeros

Json = dict[str, Any]

HIDDEN, EXPERTS, INNER, DENSE, HEADS, KV_HEADS, HEAD_DIM, LAYERS, VOCAB = 64, 4, 32, 96, 4, 2, 16, 2, 128
Q_LORA, KV_LORA, NOPE, ROPE, VALUE = 24, 32, 16, 8, 16


@dataclass(frozen=True)
class Family:
    """One kind of head. ``prefix`` stands before the tensors that the head is made of, ``since`` the first release."""

    name: str
    since: str
    prefix: str
    config: Callable[[], Json]
    weights: Callable[[], Weights]
    own: str = ".eh_proj.weight"  # ends the name of the projection of embedding and state
    few: bool = True  # ask about the faults that are its own alone
    also: tuple[str, ...] = ()  # faults that concern this family only


def bf16(*shape: int) -> Weight:
    """A tensor of zeros."""
    return zeros("BF16", *shape)


def common(architecture: str, model_type: str, **keys: object) -> Json:
    """What every config says."""
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": HIDDEN,
        "intermediate_size": DENSE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-06,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **keys,
    }


def target() -> Weights:
    """Some of the target's own tensors."""
    return {
        "lm_head.weight": bf16(VOCAB, HIDDEN),
        "model.embed_tokens.weight": bf16(VOCAB, HIDDEN),
        "model.layers.0.input_layernorm.weight": bf16(HIDDEN),
        "model.layers.1.self_attn.o_proj.weight": bf16(HIDDEN, HIDDEN),
        "model.norm.weight": bf16(HIDDEN),
    }


def dense(prefix: str, inner: int = DENSE) -> Weights:
    """gate, up and down projection of one MLP."""
    return {
        f"{prefix}.gate_proj.weight": bf16(inner, HIDDEN),
        f"{prefix}.up_proj.weight": bf16(inner, HIDDEN),
        f"{prefix}.down_proj.weight": bf16(HIDDEN, inner),
    }


def experts(prefix: str, number: int = EXPERTS) -> Weights:
    """The projections of ``number`` experts, each on its own."""
    found: Weights = {}
    for n in range(number):
        found |= dense(f"{prefix}.experts.{n}", INNER)
    return found


def norms(prefix: str, *names: str) -> Weights:
    """RMS norms of the hidden size."""
    return {f"{prefix}.{name}.weight": bf16(HIDDEN) for name in names}


def mla(prefix: str) -> Weights:
    """Latent attention: low-rank queries, keys and values."""
    return {
        f"{prefix}.q_a_proj.weight": bf16(Q_LORA, HIDDEN),
        f"{prefix}.q_a_layernorm.weight": bf16(Q_LORA),
        f"{prefix}.q_b_proj.weight": bf16(HEADS * (NOPE + ROPE), Q_LORA),
        f"{prefix}.kv_a_proj_with_mqa.weight": bf16(KV_LORA + ROPE, HIDDEN),
        f"{prefix}.kv_a_layernorm.weight": bf16(KV_LORA),
        f"{prefix}.kv_b_proj.weight": bf16(HEADS * (NOPE + VALUE), KV_LORA),
        f"{prefix}.o_proj.weight": bf16(HIDDEN, HEADS * VALUE),
    }


def gqa(prefix: str, *, bias: bool = False, norm: bool = False, gate: int = 1) -> Weights:
    """Attention with fewer keys than queries; ``gate`` 2: the queries bring a gate of their own size."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    found = {
        f"{prefix}.q_proj.weight": bf16(gate * queries, HIDDEN),
        f"{prefix}.k_proj.weight": bf16(keys, HIDDEN),
        f"{prefix}.v_proj.weight": bf16(keys, HIDDEN),
        f"{prefix}.o_proj.weight": bf16(HIDDEN, queries),
    }
    if bias:
        found |= {f"{prefix}.{p}_proj.bias": bf16(n) for p, n in (("q", gate * queries), ("k", keys), ("v", keys))}
    if norm:
        found |= {f"{prefix}.q_norm.weight": bf16(HEAD_DIM), f"{prefix}.k_norm.weight": bf16(HEAD_DIM)}
    return found


def nextn(prefix: str) -> Weights:
    """What makes a layer a head: two norms, the projection of both inputs, and copies of embedding and head."""
    return {
        f"{prefix}.embed_tokens.weight": bf16(VOCAB, HIDDEN),
        f"{prefix}.eh_proj.weight": bf16(HIDDEN, 2 * HIDDEN),
        f"{prefix}.shared_head.head.weight": bf16(VOCAB, HIDDEN),
        **norms(prefix, "enorm", "hnorm", "shared_head.norm", "input_layernorm", "post_attention_layernorm"),
    }


def routed(prefix: str) -> Weights:
    """A router with a correction bias, experts, and one that every token takes."""
    return {
        f"{prefix}.gate.weight": bf16(EXPERTS, HIDDEN),
        f"{prefix}.gate.e_score_correction_bias": zeros("F32", EXPERTS),
        **experts(prefix),
        **dense(f"{prefix}.shared_experts", INNER),
    }


def deepseek_config() -> Json:
    """DeepSeek-V3: latent attention, routed experts."""
    return common(
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        moe_intermediate_size=INNER,
        num_nextn_predict_layers=1,
        n_routed_experts=EXPERTS,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        moe_layer_freq=1,
        q_lora_rank=Q_LORA,
        kv_lora_rank=KV_LORA,
        qk_nope_head_dim=NOPE,
        qk_rope_head_dim=ROPE,
        v_head_dim=VALUE,
        attention_bias=False,
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        scoring_func="sigmoid",
        topk_method="noaux_tc",
        rope_theta=10000.0,
        rope_scaling={
            "type": "yarn",
            "factor": 40,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    )


def deepseek_weights() -> Weights:
    """The layer after the last one."""
    layer = f"model.layers.{LAYERS}"
    return target() | nextn(layer) | mla(f"{layer}.self_attn") | routed(f"{layer}.mlp")


def glm_config() -> Json:
    """GLM-4.5: grouped queries with biases and norms, routed experts."""
    return common(
        "Glm4MoeForCausalLM",
        "glm4_moe",
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        attention_bias=True,
        use_qk_norm=True,
        partial_rotary_factor=0.5,
        moe_intermediate_size=INNER,
        num_nextn_predict_layers=1,
        n_routed_experts=EXPERTS,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
        rope_theta=10000.0,
    )


def glm_weights() -> Weights:
    """The layer after the last one."""
    layer = f"model.layers.{LAYERS}"
    attention = gqa(f"{layer}.self_attn", bias=True, norm=True)
    return target() | nextn(layer) | attention | routed(f"{layer}.mlp")


def qwen(prefix: str, *, gate: int = 1, shared: bool = False, routed_: bool = True) -> Weights:
    """Qwen's head: a projection with a norm for each input, one decoder layer, a final norm."""
    layer = f"{prefix}.layers.0"
    found = {
        f"{prefix}.fc.weight": bf16(HIDDEN, 2 * HIDDEN),
        **norms(prefix, "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"),
        **norms(layer, "input_layernorm", "post_attention_layernorm"),
        **gqa(f"{layer}.self_attn", norm=True, gate=gate),
    }
    if not routed_:
        return found | dense(f"{layer}.mlp")
    found |= {f"{layer}.mlp.gate.weight": bf16(EXPERTS, HIDDEN), **experts(f"{layer}.mlp")}
    if shared:
        found |= {f"{layer}.mlp.shared_expert_gate.weight": bf16(1, HIDDEN)}
        found |= dense(f"{layer}.mlp.shared_expert", INNER)
    return found


def routed_keys() -> Json:
    """What Qwen's configs say about experts."""
    return {
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": INNER,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "rope_theta": 10000.0,
    }


def qwen3_next_config() -> Json:
    """Qwen3-Next: gated attention, routed experts and a shared one."""
    return common(
        "Qwen3NextForCausalLM",
        "qwen3_next",
        **routed_keys(),
        shared_expert_intermediate_size=INNER,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_conv_kernel_dim=4,
        full_attention_interval=4,
        partial_rotary_factor=0.25,
    )


def qwen3_next_weights() -> Weights:
    """The tensors under ``mtp.``."""
    return target() | qwen("mtp", gate=2, shared=True)


def qwen3_moe_config() -> Json:
    """Qwen3-MoE with a head."""
    return common("Qwen3MoeForCausalLM", "qwen3_moe", **routed_keys(), attention_bias=False, shared_expert=None)


def qwen3_moe_weights() -> Weights:
    """The tensors under ``mtp.``."""
    return target() | qwen("mtp")


def mimo_config() -> Json:
    """MiMo-7B: Qwen2's layer, and its config class under another name."""
    return common("MiMoForCausalLM", "qwen2", num_key_value_heads=KV_HEADS, num_nextn_predict_layers=1, rope_theta=1e4)


def mimo_weights() -> Weights:
    """The tensors under ``model.mtp_layers.0.``."""
    layer = "model.mtp_layers.0"
    found = norms(layer, "token_layernorm", "hidden_layernorm", "final_layernorm")
    found |= norms(layer, "input_layernorm", "post_attention_layernorm")
    found |= {f"{layer}.input_proj.weight": bf16(HIDDEN, 2 * HIDDEN)}
    return target() | found | gqa(f"{layer}.self_attn", bias=True) | dense(f"{layer}.mlp")


def ernie_config() -> Json:
    """ERNIE 4.5: a dense layer."""
    return common(
        "Ernie4_5_MoeForCausalLM",
        "ernie4_5_moe",
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        moe_num_experts=EXPERTS,
        moe_intermediate_size=INNER,
        moe_k=2,
        moe_num_shared_experts=1,
        moe_layer_start_index=1,
        moe_layer_end_index=1,
        moe_layer_interval=1,
        use_bias=False,
        num_nextn_predict_layers=1,
        rope_theta=1e4,
    )


def ernie_weights() -> Weights:
    """The tensors under ``model.mtp_*.0.``."""
    layer = "model.mtp_block.0"
    found = {
        "model.mtp_linear_proj.0.weight": bf16(HIDDEN, 2 * HIDDEN),
        "model.mtp_emb_norm.0.weight": bf16(HIDDEN),
        "model.mtp_hidden_norm.0.weight": bf16(HIDDEN),
        **norms(layer, "input_layernorm", "post_attention_layernorm"),
    }
    return target() | found | gqa(f"{layer}.self_attn") | dense(f"{layer}.mlp")


def bailing_config() -> Json:
    """Ling 2.0: attention in one projection, routed experts; another's config class."""
    return common(
        "BailingMoeV2ForCausalLM",
        "qwen2",
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        num_experts=EXPERTS,
        num_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=INNER,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        norm_topk_prob=True,
        use_qk_norm=True,
        use_qkv_bias=False,
        use_bias=False,
        rotary_dim=8,
        partial_rotary_factor=0.5,
        moe_router_enable_expert_bias=True,
        score_function="sigmoid",
        router_dtype="fp32",
        routed_scaling_factor=2.5,
        num_nextn_predict_layers=1,
        rope_theta=1e4,
        rope_scaling=None,
        embedding_dropout=0.0,
    )


def bailing_weights() -> Weights:
    """The layer after the last one."""
    layer = f"model.layers.{LAYERS}"
    width = HEADS * HEAD_DIM
    found = {
        f"{layer}.attention.query_key_value.weight": bf16(width + 2 * KV_HEADS * HEAD_DIM, HIDDEN),
        f"{layer}.attention.dense.weight": bf16(HIDDEN, width),
        f"{layer}.attention.query_layernorm.weight": bf16(HEAD_DIM),
        f"{layer}.attention.key_layernorm.weight": bf16(HEAD_DIM),
        f"{layer}.eh_proj.weight": bf16(HIDDEN, 2 * HIDDEN),
        **norms(layer, "enorm", "hnorm", "final_layernorm", "input_layernorm", "post_attention_layernorm"),
        f"{layer}.mlp.gate.weight": bf16(EXPERTS, HIDDEN),
        f"{layer}.mlp.gate.expert_bias": zeros("F32", EXPERTS),
        **experts(f"{layer}.mlp"),
        **dense(f"{layer}.mlp.shared_experts", INNER),
    }
    return target() | found


LAYER = f"model.layers.{LAYERS}."

FAMILIES = {
    family.name: family
    for family in (
        Family("deepseek", "0.4.5", LAYER, deepseek_config, deepseek_weights, few=False),
        Family("glm4_moe", "0.4.10", LAYER, glm_config, glm_weights),
        Family("qwen3_next", "0.5.2", "mtp.", qwen3_next_config, qwen3_next_weights, "fc.weight"),
        Family("qwen3_moe", "0.5.13", "mtp.", qwen3_moe_config, qwen3_moe_weights, "fc.weight"),
        Family("mimo", "0.4.6.post5", "model.mtp_layers.0.", mimo_config, mimo_weights, "input_proj.weight"),
        Family("ernie", "0.5.1", "model.mtp_", ernie_config, ernie_weights, "mtp_linear_proj.0.weight"),
        Family("bailing", "0.5.3", LAYER, bailing_config, bailing_weights),
    )
}
