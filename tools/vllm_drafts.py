"""Tiny healthy drafts of the classes that vLLM has besides those of class_drafts and class_relatives."""

from __future__ import annotations

from class_drafts import RANK, dflash, eagle1, fuse, mla_config, mla_weights, plain_layer
from class_relatives import dflash2, laguna, mistral, mistral_large
from drafts import HEAD_DIM, HIDDEN, INTERMEDIATE, KV_HEADS, TARGET_LAYERS, VOCAB, Draft, target_config
from weights import Weights, zeros


def _named(draft: Draft, architecture: str) -> Draft:
    draft.set(architectures=[architecture])
    return draft


def vllm_mistral() -> Draft:
    """EAGLE-1 for Mistral."""
    return _named(mistral(), "EagleMistralForCausalLM")


def vllm_mistral_large() -> Draft:
    """EAGLE-1 for Mistral Large 3, dense."""
    draft = _named(mistral_large(), "MistralLarge3ForCausalLM")
    draft.target = target_config()
    draft.set(first_k_dense_replace=100)
    return draft


LARGE_HEAD = 32
"""The least size of a head that every release takes on a CPU."""


def _large_heads(draft: Draft) -> Draft:
    """One head of the whole width, for draft and target."""
    assert draft.target is not None
    for config in (draft.config, draft.target):
        config |= {"num_attention_heads": HIDDEN // LARGE_HEAD, "num_key_value_heads": HIDDEN // LARGE_HEAD}
        config["head_dim"] = LARGE_HEAD
    return draft


def minicpm() -> Draft:
    """EAGLE-1 for MiniCPM: layers of its own name with all their norms, two norms before fc, a head."""
    draft = eagle1("EagleMiniCPMForCausalLM")
    draft.drop(*list(draft.weights))
    draft.set(scale_emb=12, scale_depth=1.4, dim_model_base=16, mup_denominator=32)
    draft.weights = {
        "fc.weight": zeros("BF16", HIDDEN, 2 * HIDDEN),
        **plain_layer("eagle_layers.0", norms=False),
        **{f"{name}.weight": zeros("BF16", HIDDEN) for name in ("input_norm1", "input_norm2", "norm")},
        "embed_tokens.weight": zeros("BF16", VOCAB, HIDDEN),
    }
    draft.weights = {f"model.{name}": weight for name, weight in draft.weights.items()}
    draft.weights["lm_head.weight"] = zeros("BF16", VOCAB, HIDDEN)
    for name in ("k_proj", "v_proj"):
        draft.shape(f"model.eagle_layers.0.self_attn.{name}.weight", LARGE_HEAD, HIDDEN)
    return _large_heads(draft)


def llama4() -> Draft:
    """EAGLE-1 for Llama 4: dense layers of the target's kind, a norm, a head."""
    draft = eagle1("EagleLlama4ForCausalLM")
    draft.set(
        model_type="llama4_text",
        num_hidden_layers=1,
        draft_vocab_size=VOCAB,
        intermediate_size_mlp=INTERMEDIATE,
        interleave_moe_layer_step=0,
        moe_layers=[],
        yoco_global_kv_layer=None,
        yoco_local_kv_layer=None,
        no_rope_layers=[1],
        use_qk_norm=False,
        attention_chunk_size=None,
        layer_types=["full_attention"],
        num_local_experts=1,
        num_experts_per_tok=1,
        pad_token_id=0,
    )
    layer = {
        name.replace(".mlp.", ".feed_forward."): weight for name, weight in plain_layer("layers.0", norms=False).items()
    }
    draft.weights = {
        "fc.weight": zeros("BF16", HIDDEN, 2 * HIDDEN),
        **layer,
        "norm.weight": zeros("BF16", HIDDEN),
        "embed_tokens.weight": zeros("BF16", VOCAB, HIDDEN),
        "lm_head.weight": zeros("BF16", VOCAB, HIDDEN),
    }
    return draft


def cohere() -> Draft:
    """EAGLE-1 for Command: attention and MLP side by side, fc with a bias, a norm, nothing of the vocabulary."""
    draft = eagle1("EagleCohereForCausalLM")
    draft.set(
        model_type="cohere2",
        layer_types=["full_attention"],
        tie_word_embeddings=True,
        layer_norm_eps=1e-05,
        logit_scale=0.25,
        use_qk_norm=False,
        pad_token_id=0,
    )
    for key in ("rms_norm_eps", "mlp_bias", "head_dim"):
        del draft.config[key]
    layer = plain_layer("layers.0", norms=False)
    del layer["layers.0.post_attention_layernorm.weight"]
    weights: Weights = {
        "fc.weight": zeros("BF16", HIDDEN, 2 * HIDDEN),
        "fc.bias": zeros("BF16", HIDDEN),
        **layer,
        "norm.weight": zeros("BF16", HIDDEN),
    }
    draft.weights = {f"model.{name}": weight for name, weight in weights.items()}
    kinds = ["full_attention"] * TARGET_LAYERS
    draft.target = {**draft.config, "architectures": ["Cohere2ForCausalLM"], "num_hidden_layers": TARGET_LAYERS}
    draft.target |= {"layer_types": kinds, "head_dim": HEAD_DIM}
    return draft


def deepseek() -> Draft:
    """EAGLE-1 for DeepSeek-V3: latent attention, a norm each for embedding and state."""
    config = {**mla_config(), "architectures": ["DeepseekV3ForCausalLM"]}
    config |= {"n_routed_experts": 1, "n_shared_experts": 0, "first_k_dense_replace": 100, "moe_layer_freq": 1}
    config |= {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 1, "moe_intermediate_size": 1}
    config |= {"routed_scaling_factor": 1.0, "topk_method": "noaux_tc", "scoring_func": "sigmoid"}
    config |= {"num_nextn_predict_layers": 1}
    del config["draft_vocab_size"]
    target = {**config, "num_hidden_layers": TARGET_LAYERS}
    weights = mla_weights("layers.0")
    for name in ("d2t", "t2d", "layers.0.hidden_norm.weight"):
        del weights[name]
    weights |= {
        "layers.0.self_attn.q_a_proj.weight": weights["layers.0.self_attn.q_a_proj.weight"].with_shape(12, HIDDEN),
        "layers.0.self_attn.kv_a_proj_with_mqa.weight": weights[
            "layers.0.self_attn.kv_a_proj_with_mqa.weight"
        ].with_shape(14, HIDDEN),
        "fc.weight": zeros("BF16", HIDDEN, 2 * HIDDEN),
        "lm_head.weight": zeros("BF16", VOCAB, HIDDEN),
        "enorm.weight": zeros("BF16", HIDDEN),
        "hnorm.weight": zeros("BF16", HIDDEN),
    }
    return Draft(config=config, weights=weights, target=target)


def peagle() -> Draft:
    """EAGLE-3 that drafts all tokens at once: a state and a token that stand for those that are not there yet."""
    draft = Draft()
    draft.set(ptd_token_id=3)
    draft.weights["mask_hidden"] = zeros("BF16", 1, 1, 3 * HIDDEN)
    return draft


def medusa() -> Draft:
    """Medusa: heads of a residual block and a projection over the vocabulary."""
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": HIDDEN,
        "vocab_size": VOCAB,
        "num_heads": 3,
        "num_hidden_layers": 1,
        "torch_dtype": "bfloat16",
    }
    weights: Weights = {}
    for n in range(3):
        weights[f"blocks.{n}.layers.0.weight"] = zeros("BF16", HIDDEN, HIDDEN)
        weights[f"lm_heads.{n}.weight"] = zeros("BF16", VOCAB, HIDDEN)
    return Draft(config=config, weights=weights, target=target_config() | {"head_dim": LARGE_HEAD})


def vllm_dflash2() -> Draft:
    """DFlash 2."""
    return dflash2()


def vllm_beam() -> Draft:
    """DFlash 2 as Beam's class takes it: windows alone, bare names."""
    draft = dflash2("DFlash2BeamDraftModel")
    draft.set(layer_types=["sliding_attention"] * 2, sliding_window=16, use_sliding_window=True, is_causal=False)
    draft.config["dflash_config"]["final_logit_softcapping"] = 30.0
    return draft


def vllm_laguna() -> Draft:
    """DFlash for Laguna, as this engine takes it: projections in one tensor, the size of the vocabulary."""
    draft = laguna()
    for n in range(2):
        fuse(draft, [f"layers.{n}.self_attn.{x}_proj.weight" for x in "qkv"], f"layers.{n}.self_attn.qkv_proj.weight")
    draft.set(model_type="laguna", gating=True, draft_vocab_size=VOCAB, mlp_layer_types=["dense"] * 2, num_experts=0)
    return draft


def k3() -> Draft:
    """DSpark for Kimi K3: dense layers with latent attention, a projection of the target's states, a Markov head."""
    config = {**mla_config(), "architectures": ["K3DSparkModel"], "model_type": "k3_dspark"}
    del config["rope_scaling"]
    config |= {"target_layer_ids": [1, 5], "num_target_layers": 2, "target_hidden_size": HIDDEN, "markov_rank": RANK}
    config |= {"draft_vocab_size": VOCAB, "enable_confidence_head": True, "confidence_head_with_markov": True}
    weights = {name: w for name, w in mla_weights("layers.0").items() if name.startswith("layers.0.")}
    del weights["layers.0.hidden_norm.weight"]
    for name in ("q_a_proj", "kv_a_proj_with_mqa"):
        whole = f"layers.0.self_attn.{name}.weight"
        weights[whole] = weights[whole].with_shape(weights[whole].shape[0], HIDDEN)
    weights |= {
        "context_proj.weight": zeros("BF16", HIDDEN, 2 * HIDDEN),
        "context_norm.weight": zeros("BF16", HIDDEN),
        "final_norm.weight": zeros("BF16", HIDDEN),
        "markov_head.markov_w1.weight": zeros("BF16", VOCAB, RANK),
        "markov_head.markov_w2.weight": zeros("BF16", VOCAB, RANK),
        "confidence_head.proj.weight": zeros("BF16", 1, HIDDEN + RANK),
        "confidence_head.proj.bias": zeros("BF16", 1),
    }
    return Draft(config=config, weights=weights)


LILICORR = {
    "lilicorr_hidden_size": 24,
    "lilicorr_candidate_topk": 4,
    "lilicorr_num_heads": 2,
    "lilicorr_mlp_ratio": 2.0,
    "lilicorr_factor_dim": 6,
    "lilicorr_vector_eps": 1e-6,
    "lilicorr_logit_scale": 1.0,
    "lilicorr_num_layers": 1,
    "block_size": 4,
}


def lilicorr() -> Draft:
    """DFlash with a correlator of candidates."""
    draft = dflash("LiLiCorrDraftModel")
    draft.config["dflash_config"] |= LILICORR
    width, feed = 24, 48
    shapes: dict[str, tuple[int, ...]] = {
        "token_proj.weight": (width, HIDDEN),
        "token_proj.bias": (width,),
        "pass_hidden_proj.weight": (width, HIDDEN),
        "pass_hidden_proj.bias": (width,),
        "feature_norm.weight": (5,),
        "feature_norm.bias": (5,),
        "feature_mlp.up_proj.weight": (width, 5),
        "feature_mlp.up_proj.bias": (width,),
        "feature_mlp.down_proj.weight": (width, width),
        "feature_mlp.down_proj.bias": (width,),
        "slot_embedding": (1, 1, 3, 1, width),
        "rank_embedding": (1, 1, 1, 4, width),
        "relative_slot_bias": (2, 7),
        "same_slot_bias": (2,),
        "context_proj.weight": (width, HIDDEN),
        "context_proj.bias": (width,),
        "layers.0.attn_norm.weight": (width,),
        "layers.0.attn.in_proj_weight": (3 * width, width),
        "layers.0.attn.in_proj_bias": (3 * width,),
        "layers.0.attn.out_proj.weight": (width, width),
        "layers.0.attn.out_proj.bias": (width,),
        "layers.0.mlp_norm.weight": (width,),
        "layers.0.mlp.up_proj.weight": (feed, width),
        "layers.0.mlp.up_proj.bias": (feed,),
        "layers.0.mlp.down_proj.weight": (width, feed),
        "layers.0.mlp.down_proj.bias": (width,),
        "output_norm.weight": (width,),
        "anchor_norm.weight": (width,),
        "factor_input_proj.weight": (width, 3 * width),
        "factor_input_proj.bias": (width,),
        "out_head.weight": (6, width),
        "out_head.bias": (6,),
        "in_head.weight": (6, width),
        "in_head.bias": (6,),
        "anchor_out_head.weight": (6, width),
        "anchor_out_head.bias": (6,),
    }
    draft.weights |= {f"lilicorr.{name}": zeros("BF16", *shape) for name, shape in shapes.items()}
    return draft


def gemma4() -> Draft:
    """DSpark for Gemma 4: layers of its own kind, embedding and head of its own."""
    draft = dflash("Gemma4DSparkModel")
    draft.set(
        model_type="gemma4_text",
        hidden_activation="gelu_pytorch_tanh",
        attention_k_eq_v=True,
        global_head_dim=HEAD_DIM,
        num_global_key_value_heads=KV_HEADS,
        hidden_size_per_layer_input=0,
        target_layer_ids=[1, 5],
        markov_rank=RANK,
        enable_confidence_head=True,
        confidence_head_with_markov=True,
        pad_token_id=0,
    )
    del draft.config["dflash_config"]
    for n in range(2):
        draft.drop(f"layers.{n}.self_attn.v_proj.weight")
        for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
            draft.weights[f"layers.{n}.{name}.weight"] = zeros("BF16", HIDDEN)
        draft.weights[f"layers.{n}.layer_scalar"] = zeros("BF16", 1)
    draft.weights |= {
        "markov_head.markov_w1.weight": zeros("BF16", VOCAB, RANK),
        "markov_head.markov_w2.weight": zeros("BF16", VOCAB, RANK),
        "confidence_head.proj.weight": zeros("BF16", 1, HIDDEN + RANK),
        "confidence_head.proj.bias": zeros("BF16", 1),
        "embed_tokens.weight": zeros("BF16", VOCAB, HIDDEN),
        "lm_head.weight": zeros("BF16", VOCAB, HIDDEN),
    }
    return draft
