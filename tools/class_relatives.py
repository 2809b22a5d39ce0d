"""Tiny drafts of the classes after those of class_drafts: EAGLE-1 for Mistral, DFlash's relatives."""

from __future__ import annotations

from collections.abc import Callable

from class_drafts import KV_RANK, NOPE, Q_RANK, RANK, ROPE, V_DIM, dflash, mla_config
from class_edits import (
    Edit,
    added,
    both,
    config,
    dflash_key,
    dropped,
    fused,
    no_dflash_key,
    prefixed,
    shaped,
    swapped,
    without,
)
from drafts import (
    DRAFT_VOCAB,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    VOCAB,
    Draft,
    draft_config,
    target_config,
)
from weights import Weights, zeros

GROUP, TAPS = 8, 3
ATTENTION, FEED = "layers.0.attention", "layers.0.feed_forward"


def mistral_layer(n: int) -> Weights:
    """One decoder layer as Mistral names it."""
    layer = f"layers.{n}"
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        f"{layer}.attention_norm.weight": zeros("BF16", HIDDEN),
        f"{layer}.attention.wq.weight": zeros("BF16", queries, HIDDEN),
        f"{layer}.attention.wk.weight": zeros("BF16", keys, HIDDEN),
        f"{layer}.attention.wv.weight": zeros("BF16", keys, HIDDEN),
        f"{layer}.attention.wo.weight": zeros("BF16", HIDDEN, queries),
        f"{layer}.ffn_norm.weight": zeros("BF16", HIDDEN),
        f"{layer}.feed_forward.w1.weight": zeros("BF16", INTERMEDIATE, HIDDEN),
        f"{layer}.feed_forward.w2.weight": zeros("BF16", HIDDEN, INTERMEDIATE),
        f"{layer}.feed_forward.w3.weight": zeros("BF16", INTERMEDIATE, HIDDEN),
    }


def mistral() -> Draft:
    """EAGLE-1 for Mistral: two layers with all their norms, fc without a bias, no embedding and no head."""
    made = {
        **draft_config(),
        "architectures": ["MistralForCausalLMEagle"],
        "model_type": "mistral",
        "num_hidden_layers": 2,
    }
    for key in ("draft_vocab_size", "attention_bias", "mlp_bias"):
        del made[key]
    weights = {
        "eagle_linear.weight": zeros("BF16", HIDDEN, 2 * HIDDEN),
        **mistral_layer(0),
        **mistral_layer(1),
        "norm.weight": zeros("BF16", HIDDEN),
    }
    target = target_config() | {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    return Draft(config=made, weights=weights, target=target)


def mistral_large() -> Draft:
    """EAGLE-1 for Mistral Large 3, dense: latent attention, in the form that the engine gives its config."""
    made = {**mla_config(), "architectures": ["MistralLarge3ForCausalLMEagle"], "num_hidden_layers": 2}
    made |= {"n_routed_experts": 1, "n_shared_experts": 0, "first_k_dense_replace": 2, "moe_layer_freq": 1}
    made |= {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 1, "moe_intermediate_size": 1}
    made |= {"routed_scaling_factor": 1.0, "topk_method": None, "scoring_func": "softmax"}
    del made["draft_vocab_size"]
    weights = {"eagle_linear.weight": zeros("BF16", HIDDEN, 2 * HIDDEN), "norm.weight": zeros("BF16", HIDDEN)}
    for n in range(2):
        place = f"layers.{n}.attention"
        weights |= {name: w for name, w in mistral_layer(n).items() if ".attention." not in name}
        weights |= {
            f"{place}.wq_a.weight": zeros("BF16", Q_RANK, HIDDEN),
            f"{place}.q_a_norm.weight": zeros("BF16", Q_RANK),
            f"{place}.wq_b.weight": zeros("BF16", HEADS * (NOPE + ROPE), Q_RANK),
            f"{place}.wkv_a_with_mqa.weight": zeros("BF16", KV_RANK + ROPE, HIDDEN),
            f"{place}.kv_a_norm.weight": zeros("BF16", KV_RANK),
            f"{place}.wkv_b.weight": zeros("BF16", HEADS * (NOPE + V_DIM), KV_RANK),
            f"{place}.wo.weight": zeros("BF16", HIDDEN, HEADS * V_DIM),
        }
    target = {**target_config(), "architectures": ["MistralLarge3ForCausalLM"], "model_type": "deepseek_v3"}
    return Draft(config=made, weights=weights, target=target)


def laguna() -> Draft:
    """DFlash for Laguna: a gate for each head of queries, a norm for each state."""
    draft = dflash("DFlashLagunaForCausalLM")
    draft.weights |= {f"layers.{n}.self_attn.g_proj.weight": zeros("BF16", HEADS, HIDDEN) for n in range(2)}
    draft.weights |= {f"aux_hidden_norms.{n}.weight": zeros("BF16", HIDDEN) for n in range(2)}
    return draft


def with_convolutions(draft: Draft) -> None:
    """Convolutions over the block around attention and MLP."""
    draft.config["dflash_config"] |= {"conv_kernel_size": TAPS, "conv_group_size": GROUP}
    for n in range(2):
        for place in ("attention_conv", "mlp_conv"):
            draft.weights |= {
                f"layers.{n}.{place}.base_kernel": zeros("BF16", 2, TAPS, HIDDEN),
                f"layers.{n}.{place}.kernel_projection.weight": zeros("BF16", 2 * TAPS * HIDDEN // GROUP, HIDDEN),
            }


def dflash2(architecture: str = "DFlash2DraftModel") -> Draft:
    """DFlash 2: convolutions, and a selector of candidates."""
    draft = dflash(architecture)
    with_convolutions(draft)
    draft.config["dflash_config"] |= {"selector_rank": RANK, "selector_top_k": 4}
    draft.weights |= {
        "candidate_selector.predecessor_codebook": zeros("BF16", VOCAB, RANK),
        "candidate_selector.successor_codebook": zeros("BF16", VOCAB, RANK),
        "candidate_selector.hidden_projection.weight": zeros("BF16", RANK, HIDDEN),
    }
    return draft


def as_the_engine_names_them(prefix: str) -> Edit:
    """The names of transformers in place of Mistral's."""
    words = {
        "attention_norm": "input_layernorm",
        "attention.w": "self_attn.",
        "ffn_norm": "post_attention_layernorm",
        "feed_forward.w1": "mlp.gate_proj",
        "feed_forward.w2": "mlp.down_proj",
        "feed_forward.w3": "mlp.up_proj",
        "eagle_linear": "fc",
        "self_attn.q.": "self_attn.q_proj.",
        "self_attn.k.": "self_attn.k_proj.",
        "self_attn.v.": "self_attn.v_proj.",
        "self_attn.o.": "self_attn.o_proj.",
    }

    def respelled(name: str) -> str:
        for old, new in words.items():
            name = name.replace(old, new)
        return prefix + name

    return lambda draft: draft.rename(respelled)


MISTRAL: dict[str, Edit] = {
    "plain": lambda _: None,
    "engine-names": as_the_engine_names_them("model."),
    "bare-names": as_the_engine_names_them(""),
    "fused": both(as_the_engine_names_them("model."), fused("model.layers.0")),
    "model-prefix": prefixed("model."),
    "module-prefix": prefixed("module."),
    "fc-name": swapped("eagle_linear", "fc"),
    "no-fc": dropped("eagle_linear.weight"),
    "fc-bias": added("model.fc.bias", HIDDEN),
    "wide-fc": shaped("eagle_linear.weight", HIDDEN, 3 * HIDDEN),
    "short-fc": shaped("eagle_linear.weight", HIDDEN, HIDDEN),
    "no-norm": dropped("norm.weight"),
    "no-input-norm": dropped("layers.0.attention_norm.weight"),
    "no-w3": dropped(f"{FEED}.w3.weight"),
    "no-wk": dropped(f"{ATTENTION}.wk.weight"),
    "long-wk": shaped(f"{ATTENTION}.wk.weight", 2 * KV_HEADS * HEAD_DIM, HIDDEN),
    "short-wk": shaped(f"{ATTENTION}.wk.weight", KV_HEADS * HEAD_DIM // 2, HIDDEN),
    "short-w2": shaped(f"{FEED}.w2.weight", HIDDEN, INTERMEDIATE // 2),
    "wide-wq": shaped(f"{ATTENTION}.wq.weight", HEADS * HEAD_DIM, 2 * HIDDEN),
    "one-layer": config(num_hidden_layers=1),
    "layer-missing": config(num_hidden_layers=3),
    "target-names": both(added("tok_embeddings.weight", VOCAB, HIDDEN), added("output.weight", VOCAB, HIDDEN)),
    "embed": added("model.embed_tokens.weight", VOCAB, HIDDEN),
    "embed-rows": added("model.embed_tokens.weight", VOCAB // 2, HIDDEN),
    "head": added("lm_head.weight", VOCAB, HIDDEN),
    "head-rows": added("lm_head.weight", 7, HIDDEN),
    "tied": config(tie_word_embeddings=True),
    "tied-head": both(config(tie_word_embeddings=True), added("lm_head.weight", VOCAB, HIDDEN)),
    "hot-vocab": config(hot_vocab_size=DRAFT_VOCAB),
    "scales": both(added("eagle_linear.qscale_weight", 1), added(f"{ATTENTION}.wq.qscale_act", 1)),
    "biases": both(
        config(attention_bias=True),
        *(
            added(f"layers.{n}.attention.w{x}.bias", HEADS * HEAD_DIM if x == "q" else KV_HEADS * HEAD_DIM)
            for n in range(2)
            for x in "qkv"
        ),
    ),
    "extra": both(
        added("extra.weight", 3), added("model.extra.q_proj.weight", 3), added("layers.0.attention.w.q.x", 3)
    ),
    "gelu": config(hidden_act="gelu"),
    "llama": config(model_type="llama"),
    "no-kv-heads": without("num_key_value_heads"),
    "no-head-dim": without("head_dim"),
}

MISTRAL_LARGE: dict[str, Edit] = {
    "plain": lambda _: None,
    "model-prefix": prefixed("model."),
    "module-prefix": prefixed("module."),
    "fc-name": swapped("eagle_linear", "fc"),
    "no-fc": dropped("eagle_linear.weight"),
    "wide-fc": shaped("eagle_linear.weight", HIDDEN, 3 * HIDDEN),
    "no-norm": dropped("norm.weight"),
    "no-w3": dropped(f"{FEED}.w3.weight"),
    "no-wq_a": dropped(f"{ATTENTION}.wq_a.weight"),
    "no-wkv_b": dropped(f"{ATTENTION}.wkv_b.weight"),
    "no-kv_a_norm": dropped(f"{ATTENTION}.kv_a_norm.weight"),
    "long-w2": shaped(f"{FEED}.w2.weight", HIDDEN, 2 * INTERMEDIATE),
    "wide-wo": shaped(f"{ATTENTION}.wo.weight", HIDDEN, 2 * HEADS * V_DIM),
    "plain-q": both(config(q_lora_rank=None), added(f"{ATTENTION}.wq.weight", HEADS * (NOPE + ROPE), HIDDEN)),
    "one-layer": config(num_hidden_layers=1),
    "layer-missing": config(num_hidden_layers=3, first_k_dense_replace=3),
    "target-names": both(added("tok_embeddings.weight", VOCAB, HIDDEN), added("output.weight", VOCAB, HIDDEN)),
    "embed-rows": added("tok_embeddings.weight", VOCAB // 2, HIDDEN),
    "scales": both(added("eagle_linear.qscale_weight", 1), added(f"{ATTENTION}.k_fake_quantizer.qscale_act", 1)),
    "scale-of-w1": added(f"{FEED}.w1.qscale_weight", 1),
    "experts": both(added("layers.0.gate.weight", 2, HIDDEN), added("layers.0.experts.0.w1.weight", 8, HIDDEN)),
    "shared-expert": added("layers.0.shared_experts.w1.weight", 8, HIDDEN),
    "extra": both(added("extra.weight", 3), added("layers.0.attention.wq_c.weight", 3)),
}

LAGUNA: dict[str, Edit] = {
    "plain": lambda _: None,
    "model-prefix": prefixed("model."),
    "module-prefix": prefixed("module."),
    "encoder-names": swapped("hidden_norm.weight", "output_norm_enc.weight"),
    "per-head": config(gating="per-head"),
    "per-element": config(gating="per-element"),
    "per-element-weights": both(
        config(gating="per-element"),
        *(added(f"layers.{n}.self_attn.g_proj.weight", HEADS * HEAD_DIM, HIDDEN) for n in range(2)),
    ),
    "disabled": config(gating="disabled"),
    "off": config(gating=False),
    "null": config(gating=None),
    "strange": config(gating="per-token"),
    "no-gate": dropped("layers.0.self_attn.g_proj.weight"),
    "long-gate": shaped("layers.0.self_attn.g_proj.weight", HEADS * HEAD_DIM, HIDDEN),
    "no-norms": dropped("aux_hidden_norms.0.weight", "aux_hidden_norms.1.weight"),
    "three-ids": dflash_key(target_layer_ids=[1, 2, 5]),
    "wide-fc": shaped("fc.weight", HIDDEN, 3 * HIDDEN),
    "no-up": dropped("layers.1.mlp.up_proj.weight"),
    "layer-missing": both(config(num_hidden_layers=3, layer_types=["full_attention"] * 3)),
    "ids-empty": dflash_key(target_layer_ids=[]),
    "convolutions": with_convolutions,
    "extra": both(added("extra.weight", 3), added("extra.g_proj.weight", 3)),
}

DFLASH2: dict[str, Edit] = {
    "plain": lambda _: None,
    "model-prefix": prefixed("model."),
    "module-prefix": prefixed("module."),
    "no-rank": no_dflash_key("selector_rank"),
    "no-selector-keys": no_dflash_key("selector_rank", "selector_top_k"),
    "no-top-k": no_dflash_key("selector_top_k"),
    "rank-zero": dflash_key(selector_rank=0, selector_top_k=0),
    "rank-differs": dflash_key(selector_rank=RANK // 2),
    "rank-null": dflash_key(selector_rank=None),
    "no-taps": no_dflash_key("conv_kernel_size"),
    "no-group": no_dflash_key("conv_group_size"),
    "no-convolutions": no_dflash_key("conv_kernel_size", "conv_group_size"),
    "group-odd": dflash_key(conv_group_size=7),
    "taps-differ": dflash_key(conv_kernel_size=2),
    "group-differs": dflash_key(conv_group_size=16),
    "no-selector": lambda draft: draft.drop(*(n for n in list(draft.weights) if n.startswith("candidate"))),
    "no-codebook": dropped("candidate_selector.successor_codebook"),
    "vocab": shaped("candidate_selector.predecessor_codebook", DRAFT_VOCAB, RANK),
    "no-kernel": dropped("layers.0.attention_conv.base_kernel"),
    "no-kernel-projection": dropped("layers.1.mlp_conv.kernel_projection.weight"),
    "kernel-flat": shaped("layers.0.attention_conv.base_kernel", TAPS, HIDDEN),
    "bare-selector": swapped("candidate_selector.", "selector."),
    "wide-fc": shaped("fc.weight", HIDDEN, 3 * HIDDEN),
    "no-fc": dropped("fc.weight"),
    "no-v": dropped("layers.0.self_attn.v_proj.weight"),
    "ids-out": dflash_key(target_layer_ids=[1, 8]),
    "domino-weights": added("prefix_gru.weight_ih_l0", 48, HIDDEN),
    "embed-and-head": both(added("embed_tokens.weight", VOCAB, HIDDEN), added("lm_head.weight", VOCAB, HIDDEN)),
}

CONVOLUTIONS: dict[str, Edit] = {
    "convolutions": with_convolutions,
    "convolutions-unsaid": both(with_convolutions, no_dflash_key("conv_kernel_size", "conv_group_size")),
    "selector-unsaid": lambda draft: draft.weights.update(dflash2().weights),
    "top-k-alone": dflash_key(selector_top_k=4),
}

RELATIVES: dict[str, tuple[Callable[[], Draft], dict[str, Edit]]] = {
    "mistral": (mistral, MISTRAL),
    "large": (mistral_large, MISTRAL_LARGE),
    "laguna": (laguna, LAGUNA),
    "dflash2": (dflash2, DFLASH2),
    "dflash2-beam": (lambda: dflash2("DFlash2BeamDraftModel"), {"plain": lambda _: None}),
    "dflash2-minimax": (lambda: dflash2("MiniMaxDFlash2DraftModel"), {"plain": lambda _: None}),
    "dflash-with": (dflash, CONVOLUTIONS),
}
