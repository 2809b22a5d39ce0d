"""More tiny whole checkpoints with a multi-token-prediction layer: the families that came after those of mtp_heads.

All tensors are zeros, as there.
"""

from __future__ import annotations

from mtp_heads import (
    DENSE,
    EXPERTS,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYER,
    LAYERS,
    Q_LORA,
    VOCAB,
    Family,
    Json,
    bf16,
    common,
    deepseek_config,
    deepseek_weights,
    dense,
    experts,
    gqa,
    mla,
    norms,
    qwen,
    qwen3_next_config,
    target,
)
from weights import Weights, zeros

INDEX_HEADS, INDEX_DIM = 2, 16
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}}


def nested(architecture: str, model_type: str, text: Json, **keys: object) -> Json:
    """A config whose language model stands in text_config."""
    outer = {"architectures": [architecture], "model_type": model_type, "tie_word_embeddings": False, **keys}
    return {**outer, "text_config": {k: v for k, v in text.items() if k != "architectures"}}


def qwen3_5_config() -> Json:
    """Qwen3.5, dense: gated attention, and everything but the class in text_config."""
    text = qwen3_next_config()
    routed_only = ("num_experts", "num_experts_per_tok", "decoder_sparse_step", "mlp_only_layers", "norm_topk_prob")
    for key in (*routed_only, "moe_intermediate_size", "shared_expert_intermediate_size"):
        del text[key]
    text |= {"model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1, "attn_output_gate": True, **ROPE}
    return nested("Qwen3_5ForConditionalGeneration", "qwen3_5", text)


def qwen3_5_weights() -> Weights:
    """The tensors under ``mtp.``, beside a language model under its own prefix."""
    return _language(target()) | qwen("mtp", gate=2, routed_=False)


def qwen3_5_moe_config() -> Json:
    """Qwen3.5, with experts."""
    text = qwen3_next_config() | {"model_type": "qwen3_5_moe_text", "mtp_num_hidden_layers": 1, **ROPE}
    return nested("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", text)


def qwen3_5_moe_weights() -> Weights:
    """The tensors under ``mtp.``: all experts in two tensors, as the published checkpoints hold them."""
    found = {n: w for n, w in qwen("mtp", gate=2, shared=True).items() if ".experts." not in n}
    experts = "mtp.layers.0.mlp.experts"
    found[f"{experts}.gate_up_proj"] = bf16(EXPERTS, 2 * INNER, HIDDEN)
    found[f"{experts}.down_proj"] = bf16(EXPERTS, HIDDEN, INNER)
    return _language(target()) | found


def _language(weights: Weights) -> Weights:
    return {n.replace("model.", "model.language_model.", 1): w for n, w in weights.items()}


def glm_lite_config() -> Json:
    """GLM-4.7-Flash: DeepSeek's layer under another name."""
    config = deepseek_config() | {"architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite"}
    del config["rope_scaling"], config["scoring_func"], config["first_k_dense_replace"], config["moe_layer_freq"]
    return config | {"first_k_dense_replace": 1, "rope_scaling": None}


def indexer(prefix: str) -> Weights:
    """What chooses the keys that sparse attention looks at."""
    return {
        f"{prefix}.indexer.wq_b.weight": bf16(INDEX_HEADS * INDEX_DIM, Q_LORA),
        f"{prefix}.indexer.wk.weight": bf16(INDEX_DIM, HIDDEN),
        f"{prefix}.indexer.k_norm.weight": bf16(INDEX_DIM),
        f"{prefix}.indexer.k_norm.bias": bf16(INDEX_DIM),
        f"{prefix}.indexer.weights_proj.weight": bf16(INDEX_HEADS, HIDDEN),
    }


def deepseek_v32_config() -> Json:
    """DeepSeek-V3.2: latent attention that looks at chosen keys."""
    config = deepseek_config() | {"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32"}
    return config | {"index_topk": 64, "index_n_heads": INDEX_HEADS, "index_head_dim": INDEX_DIM}


def glm_dsa_config() -> Json:
    """GLM-5: the same layer under another name."""
    return deepseek_v32_config() | {"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa"}


def dsa_weights() -> Weights:
    """The layer after the last one."""
    return deepseek_weights() | indexer(f"{LAYER}self_attn")


def mimo_v2_config() -> Json:
    """MiMo-V2-Flash: a dense layer with a sliding window, values wider than keys; another's config class."""
    return common(
        "MiMoV2FlashForCausalLM",
        "qwen2",
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        v_head_dim=HEAD_DIM,
        swa_num_attention_heads=HEADS,
        swa_num_key_value_heads=KV_HEADS,
        swa_head_dim=HEAD_DIM,
        swa_v_head_dim=24,
        sliding_window_size=64,
        attention_bias=False,
        add_swa_attention_sink_bias=True,
        layernorm_epsilon=1e-5,
        partial_rotary_factor=1.0,
        rope_theta=1e4,
        swa_rope_theta=1e4,
        num_nextn_predict_layers=1,
    )


def mimo_v2_weights() -> Weights:
    """The tensors under ``model.mtp.layers.0.``."""
    layer = "model.mtp.layers.0"
    found = norms(layer, "enorm", "hnorm", "final_layernorm", "input_layernorm", "pre_mlp_layernorm")
    found |= {f"{layer}.eh_proj.weight": bf16(HIDDEN, 2 * HIDDEN)} | gqa(f"{layer}.self_attn")
    found[f"{layer}.self_attn.v_proj.weight"] = bf16(KV_HEADS * 24, HIDDEN)
    found[f"{layer}.self_attn.o_proj.weight"] = bf16(HIDDEN, HEADS * 24)
    found[f"{layer}.self_attn.attention_sink_bias"] = bf16(HEADS)
    return target() | found | dense(f"{layer}.mlp")


def exaone_config() -> Json:
    """K-EXAONE: a dense layer; another's config class."""
    return common(
        "ExaoneMoEForCausalLM",
        "qwen2",
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        num_experts=EXPERTS,
        num_experts_per_tok=2,
        num_shared_experts=1,
        moe_intermediate_size=INNER,
        routed_scaling_factor=2.5,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        is_moe_layer=[False, True],
        layer_types=["full_attention", "full_attention"],
        first_last_k_dense=1,
        num_nextn_predict_layers=1,
        rope_theta=1e4,
        rope_scaling=None,
        sliding_window=None,
    )


def exaone_weights() -> Weights:
    """The tensors under ``mtp.``."""
    return target() | qwen("mtp", routed_=False)


def hunyuan_config() -> Json:
    """Hunyuan 3: grouped queries, routed experts behind a router of another name; another's config class."""
    return common(
        "HYV3ForCausalLM",
        "qwen2",
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        num_experts=EXPERTS,
        num_experts_per_tok=2,
        num_shared_experts=1,
        moe_intermediate_size=INNER,
        expert_hidden_dim=INNER,
        first_k_dense_replace=1,
        route_norm=True,
        router_scaling_factor=2.5,
        qk_norm=True,
        num_nextn_predict_layers=1,
        rope_theta=1e4,
    )


def hunyuan_weights() -> Weights:
    """The layer after the last one."""
    layer = f"model.layers.{LAYERS}"
    found = norms(layer, "enorm", "hnorm", "final_layernorm", "input_layernorm", "post_attention_layernorm")
    found |= {f"{layer}.eh_proj.weight": bf16(HIDDEN, 2 * HIDDEN)} | gqa(f"{layer}.self_attn", norm=True)
    found |= {
        f"{layer}.mlp.router.gate.weight": bf16(EXPERTS, HIDDEN),
        f"{layer}.mlp.expert_bias": zeros("F32", EXPERTS),
    }
    return target() | found | experts(f"{layer}.mlp") | dense(f"{layer}.mlp.shared_mlp", INNER)


def longcat_config() -> Json:
    """LongCat-Flash: latent attention and a dense MLP."""
    config = deepseek_config() | {"architectures": ["LongcatFlashForCausalLM"], "model_type": "longcat_flash"}
    config["rope_scaling"] = {**config["rope_scaling"], "rope_theta": 1e4}
    more = {"num_layers": LAYERS, "ffn_hidden_size": DENSE, "expert_ffn_hidden_size": INNER, "moe_topk": 2}
    return (
        config
        | more
        | {"zero_expert_num": 2, "zero_expert_type": "identity", "mla_scale_q_lora": False, "mla_scale_kv_lora": False}
    )


def longcat_weights() -> Weights:
    """The tensors under ``model.mtp.``."""
    layer = "model.mtp.layers.0"
    found = norms(layer, "enorm.m", "hnorm.m", "input_layernorm", "post_attention_layernorm") | norms(
        "model.mtp", "norm"
    )
    found |= {"model.mtp.embed_tokens.weight": bf16(VOCAB, HIDDEN), f"{layer}.eh_proj.weight": bf16(HIDDEN, 2 * HIDDEN)}
    return target() | found | mla(f"{layer}.self_attn") | dense(f"{layer}.transformer_layer.mlp")


STEPS = 50  # the class takes the 46th entry of lists that hold one for each layer


def step_config() -> Json:
    """Step-3.5-Flash: as many heads of keys as attention groups, a gate for each head of queries."""
    return common(
        "Step3p5ForCausalLM",
        "step3p5",
        num_hidden_layers=STEPS,
        num_attention_groups=KV_HEADS,
        head_dim=HEAD_DIM,
        layer_types=["full_attention"] * STEPS,
        yarn_only_types=["full_attention"],
        moe_layers_enum="1",
        moe_num_experts=EXPERTS,
        moe_top_k=2,
        moe_intermediate_size=INNER,
        share_expert_dim=INNER,
        use_head_wise_attn_gate=True,
        use_moe_router_bias=True,
        need_fp32_gate=True,
        moe_router_activation="sigmoid",
        moe_router_scaling_factor=3.0,
        sliding_window=64,
        partial_rotary_factors=[1.0] * STEPS,
        rope_theta=[1e4] * STEPS,
        num_nextn_predict_layers=3,
        swiglu_limits=[0.0] * STEPS,
        swiglu_limits_shared=[0.0] * STEPS,
        attention_other_setting={
            "attention_type": "sliding_attention",
            "num_attention_heads": HEADS,
            "num_attention_groups": KV_HEADS,
            "head_dim": HEAD_DIM,
        },
    )


def step_weights() -> Weights:
    """The layer after the last one, and another one after it."""
    found = target()
    for layer in (f"model.layers.{STEPS}", f"model.layers.{STEPS + 1}"):
        found |= norms(layer, "enorm", "hnorm", "transformer.shared_head.norm")
        body = f"{layer}.transformer"
        found |= norms(layer, "input_layernorm", "post_attention_layernorm")
        found |= {
            f"{layer}.eh_proj.weight": bf16(HIDDEN, 2 * HIDDEN),
            f"{body}.shared_head.output.weight": bf16(VOCAB, HIDDEN),
            f"{layer}.self_attn.g_proj.weight": bf16(HEADS, HIDDEN),
            **gqa(f"{layer}.self_attn", norm=True),
            **dense(f"{layer}.mlp"),
        }
    return found


def nemotron_config() -> Json:
    """Nemotron 3: an attention layer and one of experts without gates."""
    config = common(
        "NemotronHForCausalLM",
        "nemotron_h",
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        attention_head_dim=HEAD_DIM,
        hybrid_override_pattern="ME",
        mtp_hybrid_override_pattern="*E",
        layer_norm_epsilon=1e-5,
        mamba_num_heads=4,
        mamba_head_dim=16,
        ssm_state_size=16,
        n_groups=1,
        conv_kernel=4,
        chunk_size=64,
        mlp_hidden_act="relu2",
        n_routed_experts=EXPERTS,
        n_shared_experts=1,
        moe_intermediate_size=INNER,
        moe_shared_expert_intermediate_size=48,
        moe_latent_size=32,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        num_nextn_predict_layers=1,
    )
    del config["hidden_act"]
    return config


def nemotron_weights() -> Weights:
    """The tensors under ``mtp.layers.``."""
    attention, routed_ = "mtp.layers.0", "mtp.layers.1"
    mixer = f"{routed_}.mixer"
    found = norms(attention, "enorm", "hnorm", "norm") | norms(routed_, "norm", "final_layernorm")
    found |= {f"{attention}.eh_proj.weight": bf16(HIDDEN, 2 * HIDDEN)} | gqa(f"{attention}.mixer")
    for n in range(EXPERTS):
        found[f"{mixer}.experts.{n}.up_proj.weight"] = bf16(INNER, 32)
        found[f"{mixer}.experts.{n}.down_proj.weight"] = bf16(32, INNER)
    found |= {
        f"{mixer}.gate.weight": bf16(EXPERTS, HIDDEN),
        f"{mixer}.gate.e_score_correction_bias": zeros("F32", EXPERTS),
        f"{mixer}.shared_experts.up_proj.weight": bf16(48, HIDDEN),
        f"{mixer}.shared_experts.down_proj.weight": bf16(HIDDEN, 48),
        f"{mixer}.fc1_latent_proj.weight": bf16(32, HIDDEN),
        f"{mixer}.fc2_latent_proj.weight": bf16(HIDDEN, 32),
    }
    return target() | found


LATER = {
    family.name: family
    for family in (
        Family("qwen3_5", "0.5.9", "mtp.", qwen3_5_config, qwen3_5_weights, "fc.weight"),
        Family("qwen3_5_moe", "0.5.9", "mtp.", qwen3_5_moe_config, qwen3_5_moe_weights, "fc.weight"),
        Family("glm4_moe_lite", "0.5.13", LAYER, glm_lite_config, deepseek_weights, also=("with_freq",)),
        Family("deepseek_v32", "0.5.3", LAYER, deepseek_v32_config, dsa_weights),
        Family("glm_dsa", "0.5.16", LAYER, glm_dsa_config, dsa_weights),
        Family("mimo_v2", "0.5.7", "model.mtp.layers.0.", mimo_v2_config, mimo_v2_weights),
        Family("exaone", "0.5.9", "mtp.", exaone_config, exaone_weights, "fc.weight"),
        Family("hunyuan3", "0.5.11", LAYER, hunyuan_config, hunyuan_weights),
        Family("longcat", "0.5.2", "model.mtp.", longcat_config, longcat_weights, also=("no_rope",)),
        Family("step3p5", "0.5.9", f"model.layers.{STEPS}.", step_config, step_weights),
        Family("nemotron_h", "0.5.8", "mtp.", nemotron_config, nemotron_weights),
    )
}
