"""What may be wrong with the drafts of tools/vllm_drafts.py and class_relatives: edits by class, each with its name."""

from __future__ import annotations

from class_edits import (
    Edit,
    added,
    both,
    config,
    dflash_key,
    dropped,
    no_dflash_key,
    prefixed,
    shaped,
    swapped,
    without,
)
from class_relatives import DFLASH2, MISTRAL_LARGE, laguna, with_convolutions
from drafts import DRAFT_VOCAB, HEAD_DIM, HIDDEN, INTERMEDIATE, VOCAB, Draft
from weights import zeros


def layered(layer: str, mlp: str = "mlp", width: int = HIDDEN) -> dict[str, Edit]:
    """What may be wrong with the first decoder layer, and with the names of all."""
    attention, feed = f"{layer}.self_attn", f"{layer}.{mlp}"
    return {
        "plain": lambda _: None,
        "model-prefix": prefixed("model."),
        "no-prefix": lambda draft: draft.rename(lambda name: name.removeprefix("model.")),
        "module-prefix": prefixed("module."),
        "no-k": dropped(f"{attention}.k_proj.weight"),
        "no-o": dropped(f"{attention}.o_proj.weight"),
        "no-up": dropped(f"{feed}.up_proj.weight"),
        "no-input-norm": dropped(f"{layer}.input_layernorm.weight"),
        "long-k": shaped(f"{attention}.k_proj.weight", 2 * HIDDEN, width),
        "short-k": shaped(f"{attention}.k_proj.weight", HEAD_DIM // 2, width),
        "wide-q": shaped(f"{attention}.q_proj.weight", HIDDEN, 2 * width),
        "short-down": shaped(f"{feed}.down_proj.weight", HIDDEN, INTERMEDIATE // 2),
        "long-norm": shaped(f"{layer}.input_layernorm.weight", 2 * HIDDEN),
        "bias": added(f"{attention}.q_proj.bias", HIDDEN),
        "inv-freq": added(f"{attention}.rotary_emb.inv_freq", 4),
        "renamed": swapped("o_proj", "out_proj"),
        "no-kv-heads": without("num_key_value_heads"),
    }


def top(prefix: str = "") -> dict[str, Edit]:
    """What may be wrong beside the layers of an EAGLE-1 draft."""
    return {
        "no-fc": dropped(f"{prefix}fc.weight"),
        "wide-fc": shaped(f"{prefix}fc.weight", HIDDEN, 3 * HIDDEN),
        "short-fc": shaped(f"{prefix}fc.weight", HIDDEN // 2, 2 * HIDDEN),
        "fc-bias": added(f"{prefix}fc.bias", HIDDEN),
        "no-norm": dropped(f"{prefix}norm.weight"),
        "no-embed": dropped(f"{prefix}embed_tokens.weight"),
        "no-head": dropped("lm_head.weight"),
        "neither": dropped(f"{prefix}embed_tokens.weight", "lm_head.weight"),
        "embed": added(f"{prefix}embed_tokens.weight", VOCAB, HIDDEN),
        "embed-rows": added(f"{prefix}embed_tokens.weight", VOCAB // 2, HIDDEN),
        "head": added("lm_head.weight", VOCAB, HIDDEN),
        "head-rows": added("lm_head.weight", 7, HIDDEN),
        "tied": config(tie_word_embeddings=True),
        "tied-no-head": both(config(tie_word_embeddings=True), dropped("lm_head.weight")),
        "untied": config(tie_word_embeddings=False),
        "layer-missing": config(num_hidden_layers=2),
        "extra": added("extra.weight", 3),
        "extra-in-model": added(f"{prefix}extra.weight", 3),
        "extra-bias": added(f"{prefix}extra.bias", 3),
        "extra-last": added(f"{prefix}zextra.weight", 3),
        "gelu": config(hidden_act="gelu"),
        "llama": config(model_type="llama"),
        "bare-class": lambda draft: draft.set(architectures=[draft.config["architectures"][0].removeprefix("Eagle")]),
    }


def medusa_map(draft: Draft) -> None:
    """A reduced vocabulary."""
    draft.set(truncated_vocab_size=DRAFT_VOCAB)
    draft.weights["token_map"] = zeros("I64", DRAFT_VOCAB)


MINICPM = {
    **layered("model.eagle_layers.0"),
    **top("model."),
    "layers-name": swapped("eagle_layers", "layers"),
    "no-input-norm1": dropped("model.input_norm1.weight"),
    "no-scale": without("scale_emb", "dim_model_base"),
    "no-depth": without("scale_depth"),
    "experts": config(num_experts=2, num_experts_per_tok=1),
}
LLAMA4 = {
    **layered("layers.0", "feed_forward"),
    **top(),
    "mlp-name": swapped("feed_forward", "mlp"),
    "no-draft-vocab": without("draft_vocab_size"),
    "reduced": both(config(draft_vocab_size=DRAFT_VOCAB), shaped("lm_head.weight", DRAFT_VOCAB, HIDDEN)),
    "no-yoco": without("yoco_global_kv_layer", "yoco_local_kv_layer"),
    "experts": config(moe_layers=[0], interleave_moe_layer_step=1),
    "no-moe-layers": without("moe_layers"),
    "no-mlp-width": without("intermediate_size_mlp"),
    "served": dropped("lm_head.weight"),
    "head-missing-norm": dropped("lm_head.weight", "norm.weight"),
}
COHERE = {
    **layered("model.layers.0"),
    **top("model."),
    "no-fc-bias": dropped("model.fc.bias"),
    "post-norm": added("model.layers.0.post_attention_layernorm.weight", HIDDEN),
    "qk-norm": config(use_qk_norm=True),
    "head-dim": config(head_dim=16),
    "rms": config(rms_norm_eps=1e-6),
    "cohere-1": both(config(model_type="cohere"), without("layer_types")),
}
DEEPSEEK = {
    **{name: edit for name, edit in layered("layers.0").items() if name not in ("no-kv-heads",)},
    **top(),
    "no-enorm": dropped("enorm.weight"),
    "no-kv-a": dropped("layers.0.self_attn.kv_a_proj_with_mqa.weight"),
    "long-kv-b": shaped("layers.0.self_attn.kv_b_proj.weight", 100, 10),
    "plain-q": both(
        config(q_lora_rank=None),
        added("layers.0.self_attn.q_proj.weight", 48, HIDDEN),
        dropped("layers.0.self_attn.q_a_proj.weight", "layers.0.self_attn.q_b_proj.weight"),
        dropped("layers.0.self_attn.q_a_layernorm.weight"),
    ),
    "experts": config(first_k_dense_replace=0),
    "eagle-name": config(architectures=["EagleDeepSeekMTPModel"]),
}
LARGE: dict[str, Edit] = {
    **{name: edit for name, edit in MISTRAL_LARGE.items() if name != "layer-missing"},
    "layer-missing": config(num_hidden_layers=3),
    "experts-wanted": config(first_k_dense_replace=2),
}
MEDUSA: dict[str, Edit] = {
    "plain": lambda _: None,
    "medusa-heads": prefixed("medusa_heads."),
    "model-prefix": prefixed("model."),
    "original-names": swapped("blocks.", ""),
    "no-head": dropped("lm_heads.1.weight"),
    "no-block": dropped("blocks.2.layers.0.weight"),
    "bias": added("blocks.0.layers.0.bias", HIDDEN),
    "bias-wanted": config(medusa_fc_bias=True),
    "fewer-heads": config(num_heads=2),
    "more-heads": config(num_heads=4),
    "two-layers": config(num_hidden_layers=2),
    "wide": shaped("blocks.0.layers.0.weight", HIDDEN, 2 * HIDDEN),
    "head-rows": shaped("lm_heads.0.weight", VOCAB // 2, HIDDEN),
    "original-head": config(original_lm_head=True),
    "original-head-alone": both(config(original_lm_head=True), dropped("lm_heads.1.weight", "lm_heads.2.weight")),
    "original-named": both(
        config(original_lm_head=True),
        dropped("lm_heads.0.weight", "lm_heads.1.weight", "lm_heads.2.weight"),
        added("lm_head.weight", VOCAB, HIDDEN),
    ),
    "truncated": medusa_map,
    "truncated-no-map": config(truncated_vocab_size=DRAFT_VOCAB),
    "map-alone": lambda draft: draft.weights.update({"token_map": zeros("I64", DRAFT_VOCAB)}),
    "truncated-null": config(truncated_vocab_size=None),
    "no-vocab": without("vocab_size"),
    "no-sizes": without("num_heads", "num_hidden_layers"),
    "other-vocab": config(vocab_size=2 * VOCAB),
    "extra": added("extra.weight", 3),
}
BEAM: dict[str, Edit] = {
    **{name: edit for name, edit in DFLASH2.items() if name not in ("domino-weights", "embed-and-head", "no-v")},
    "no-k": dropped("layers.0.self_attn.k_proj.weight"),
    "no-norm": dropped("norm.weight"),
    "no-q-norm": dropped("layers.1.self_attn.q_norm.weight"),
    "embed": added("embed_tokens.weight", VOCAB, HIDDEN),
    "head": added("lm_head.weight", VOCAB, HIDDEN),
    "full": config(layer_types=["full_attention"] * 2),
    "causal": config(is_causal=True),
    "no-causal": without("is_causal"),
    "no-softcap": no_dflash_key("final_logit_softcapping"),
    "bias": added("layers.0.self_attn.q_proj.bias", HIDDEN),
    "layer-missing": config(num_hidden_layers=3, layer_types=["sliding_attention"] * 3),
}
LAGUNA: dict[str, Edit] = {
    "plain": lambda _: None,
    "model-prefix": prefixed("model."),
    "module-prefix": prefixed("module."),
    "apart": lambda draft: draft.weights.update(laguna().weights),
    "per-head": config(gating="per-head"),
    "per-element": config(gating="per-element"),
    "off": config(gating=False),
    "no-gate": dropped("layers.0.self_attn.g_proj.weight"),
    "long-gate": shaped("layers.0.self_attn.g_proj.weight", HIDDEN, HIDDEN),
    "no-norms": dropped("aux_hidden_norms.0.weight", "aux_hidden_norms.1.weight"),
    "three-ids": dflash_key(target_layer_ids=[1, 2, 5]),
    "ids-empty": dflash_key(target_layer_ids=[]),
    "no-ids": no_dflash_key("target_layer_ids"),
    "wide-fc": shaped("fc.weight", HIDDEN, 3 * HIDDEN),
    "no-fc": dropped("fc.weight"),
    "no-up": dropped("layers.1.mlp.up_proj.weight"),
    "long-up": shaped("layers.1.mlp.up_proj.weight", 2 * INTERMEDIATE, HIDDEN),
    "short-qkv": shaped("layers.1.self_attn.qkv_proj.weight", HIDDEN, HIDDEN),
    "no-draft-vocab": without("draft_vocab_size"),
    "other-vocab": config(draft_vocab_size=DRAFT_VOCAB),
    "no-layer-types": without("layer_types"),
    "mixed": config(layer_types=["full_attention", "sliding_attention"], sliding_window=8),
    "layer-missing": config(num_hidden_layers=3, layer_types=["full_attention"] * 3, mlp_layer_types=["dense"] * 3),
    "head": both(added("lm_head.weight", VOCAB, HIDDEN), added("embed_tokens.weight", VOCAB, HIDDEN)),
    "extra": added("extra.weight", 3),
    "extra-bias": added("extra.bias", 3),
    "biases": config(attention_bias=True),
}
LILICORR: dict[str, Edit] = {
    "plain": lambda _: None,
    "model-prefix": prefixed("model."),
    "module-prefix": prefixed("module."),
    "no-head": lambda draft: draft.drop(*(name for name in list(draft.weights) if name.startswith("lilicorr"))),
    "no-slot": dropped("lilicorr.slot_embedding"),
    "no-out-head": dropped("lilicorr.out_head.bias"),
    "no-token-proj": dropped("lilicorr.token_proj.weight", "lilicorr.token_proj.bias"),
    "same-width": dflash_key(lilicorr_hidden_size=HIDDEN),
    "width-null": dflash_key(lilicorr_hidden_size=None),
    "two-layers": dflash_key(lilicorr_num_layers=2),
    "block-eight": dflash_key(block_size=8),
    "block-two": dflash_key(block_size=2),
    "disabled": dflash_key(lilicorr_enabled=False),
    "top-k-three": dflash_key(lilicorr_candidate_topk=3),
    "heads-three": dflash_key(lilicorr_num_heads=5),
    "no-factor": no_dflash_key("lilicorr_factor_dim"),
    "factor": dflash_key(lilicorr_factor_dim=8),
    "ratio": dflash_key(lilicorr_mlp_ratio=1.5),
    "taps-alone": dflash_key(conv_kernel_size=3),
    "convolutions": with_convolutions,
    "convolutions-unsaid": both(with_convolutions, no_dflash_key("conv_kernel_size", "conv_group_size")),
    "no-kernel": both(with_convolutions, dropped("layers.0.mlp_conv.base_kernel")),
    "extra": added("lilicorr.extra", 3),
    "extra-beside": added("extra.weight", 3),
    "no-fc": dropped("fc.weight"),
    "no-v": dropped("layers.0.self_attn.v_proj.weight"),
    "embed-and-head": both(added("embed_tokens.weight", VOCAB, HIDDEN), added("lm_head.weight", VOCAB, HIDDEN)),
    "own-head-said": config(has_own_lm_head=True),
    "reduced": both(config(draft_vocab_size=DRAFT_VOCAB), added("lm_head.weight", DRAFT_VOCAB, HIDDEN)),
}
GEMMA4: dict[str, Edit] = {
    "plain": lambda _: None,
    "model-prefix": prefixed("model."),
    "module-prefix": prefixed("module."),
    "no-k": dropped("layers.0.self_attn.k_proj.weight"),
    "no-up": dropped("layers.0.mlp.up_proj.weight"),
    "no-fc": dropped("fc.weight"),
    "wide-fc": shaped("fc.weight", HIDDEN, 3 * HIDDEN),
    "no-embed": dropped("embed_tokens.weight"),
    "no-head": dropped("lm_head.weight"),
    "no-scalar": dropped("layers.0.layer_scalar"),
    "no-markov": dropped("markov_head.markov_w1.weight"),
    "no-confidence": dropped("confidence_head.proj.weight", "confidence_head.proj.bias"),
    "confidence-off": config(enable_confidence_head=False),
    "no-pre-norm": dropped("layers.1.pre_feedforward_layernorm.weight"),
    "values": added("layers.0.self_attn.v_proj.weight", 16, HIDDEN),
    "values-apart": config(attention_k_eq_v=False),
    "long-q": shaped("layers.0.self_attn.q_proj.weight", 2 * HIDDEN, HIDDEN),
    "wide-k": shaped("layers.0.self_attn.k_proj.weight", 16, 2 * HIDDEN),
    "extra": added("extra.weight", 3),
    "no-rank": without("markov_rank"),
    "no-ids": without("target_layer_ids"),
    "dspark-ids": both(without("target_layer_ids"), config(dspark_target_layer_ids=[1, 5])),
    "global-width": config(global_head_dim=16),
    "layer-missing": config(num_hidden_layers=3, layer_types=["full_attention"] * 3),
}


K3: dict[str, Edit] = {
    "plain": lambda _: None,
    "model-prefix": prefixed("model."),
    "module-prefix": prefixed("module."),
    "no-context": dropped("context_proj.weight"),
    "wide-context": shaped("context_proj.weight", HIDDEN, 3 * HIDDEN),
    "no-norm": dropped("final_norm.weight"),
    "no-kv-a": dropped("layers.0.self_attn.kv_a_proj_with_mqa.weight"),
    "no-q-b": dropped("layers.0.self_attn.q_b_proj.weight"),
    "no-q-a-norm": dropped("layers.0.self_attn.q_a_layernorm.weight"),
    "no-up": dropped("layers.0.mlp.up_proj.weight"),
    "long-kv-b": shaped("layers.0.self_attn.kv_b_proj.weight", 100, 10),
    "wide-q-a": shaped("layers.0.self_attn.q_a_proj.weight", 12, 2 * HIDDEN),
    "no-markov": dropped("markov_head.markov_w1.weight"),
    "confidence-off": config(enable_confidence_head=False),
    "no-confidence": dropped("confidence_head.proj.weight", "confidence_head.proj.bias"),
    "confidence-of-states": config(confidence_head_with_markov=False),
    "embed-and-head": both(added("embed_tokens.weight", VOCAB, HIDDEN), added("lm_head.weight", VOCAB, HIDDEN)),
    "reduced": config(draft_vocab_size=DRAFT_VOCAB),
    "no-ids": without("target_layer_ids"),
    "ids-empty": config(target_layer_ids=[]),
    "three-ids": config(target_layer_ids=[1, 2, 5]),
    "no-rank": config(q_lora_rank=None),
    "nope": config(mla_use_nope=True),
    "layer-missing": config(num_hidden_layers=2),
    "extra": added("extra.weight", 3),
    "extra-bias": added("extra.bias", 3),
    "fc-name": swapped("context_proj", "fc"),
}


def one_state(draft: Draft) -> None:
    """The last hidden state alone."""
    draft.set(eagle_config={"use_aux_hidden_state": False})
    draft.drop("fc.weight")
    draft.shape("mask_hidden", 1, 1, HIDDEN)


PEAGLE: dict[str, Edit] = {
    "plain": lambda _: None,
    "no-mask": dropped("mask_hidden"),
    "short-mask": shaped("mask_hidden", 1, 1, HIDDEN),
    "flat-mask": shaped("mask_hidden", 3 * HIDDEN),
    "rows-of-mask": shaped("mask_hidden", 3, HIDDEN),
    "mask-behind-model": swapped("mask_hidden", "model.mask_hidden"),
    "no-token": without("ptd_token_id"),
    "pard-token": both(without("ptd_token_id"), config(pard_token=3)),
    "mask-token": both(without("ptd_token_id"), config(mask_token_id=3)),
    "one-state": one_state,
    "no-fc": dropped("fc.weight"),
    "extra": added("extra.weight", 3),
}
