"""Tiny Gemma 4 assistants: layers of two kinds that look at the keys and values of the target, and have none."""

from __future__ import annotations

from class_edits import Edit, added, both, config, dropped, prefixed, shaped, swapped
from drafts import Draft, Json, draft_config
from weights import Weights, integers, zeros

HIDDEN, TARGET_HIDDEN, INTERMEDIATE, VOCAB, HEADS = 32, 48, 40, 128, 2
HEAD_DIM, FULL_HEAD_DIM, CENTROIDS = 8, 16, 8
KINDS = ["sliding_attention", "sliding_attention", "full_attention"]


def text_config() -> Json:
    """The config of the layers, as published assistants have it."""
    return {
        "model_type": "gemma4_text",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": len(KINDS),
        "num_kv_shared_layers": len(KINDS),
        "num_attention_heads": HEADS,
        "num_key_value_heads": 1,
        "head_dim": HEAD_DIM,
        "global_head_dim": FULL_HEAD_DIM,
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
        "layer_types": list(KINDS),
        "sliding_window": 64,
        "max_position_embeddings": 512,
        "vocab_size": VOCAB,
        "tie_word_embeddings": True,
    }


def layer(n: int, kind: str) -> Weights:
    """One layer: queries alone, a norm on either side of attention and MLP, and a factor of its own."""
    place, size = f"model.layers.{n}", HEADS * (FULL_HEAD_DIM if kind == "full_attention" else HEAD_DIM)
    norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    return {
        **{f"{place}.{norm}_layernorm.weight": zeros("BF16", HIDDEN) for norm in norms},
        f"{place}.layer_scalar": zeros("BF16", 1),
        f"{place}.self_attn.q_proj.weight": zeros("BF16", size, HIDDEN),
        f"{place}.self_attn.q_norm.weight": zeros("BF16", size // HEADS),
        f"{place}.self_attn.o_proj.weight": zeros("BF16", HIDDEN, size),
        f"{place}.mlp.gate_proj.weight": zeros("BF16", INTERMEDIATE, HIDDEN),
        f"{place}.mlp.up_proj.weight": zeros("BF16", INTERMEDIATE, HIDDEN),
        f"{place}.mlp.down_proj.weight": zeros("BF16", HIDDEN, INTERMEDIATE),
    }


def assistant(architecture: str = "Gemma4AssistantForCausalLM", *, centroids: bool = False) -> Draft:
    """An assistant; ``centroids``: with a head that looks at a few groups of tokens only."""
    unified = "Unified" in architecture
    made: Json = {
        "architectures": [architecture],
        "model_type": "gemma4_unified_assistant" if unified else "gemma4_assistant",
        "backbone_hidden_size": TARGET_HIDDEN,
        "use_ordered_embeddings": centroids,
        "num_centroids": CENTROIDS,
        "centroid_intermediate_top_k": 2,
        "tie_word_embeddings": True,
        "text_config": text_config(),
        "dtype": "bfloat16",
    }
    if unified:
        made["text_config"]["model_type"] = "gemma4_unified_text"
    weights = {
        "model.embed_tokens.weight": zeros("BF16", VOCAB, HIDDEN),
        "model.norm.weight": zeros("BF16", HIDDEN),
        "pre_projection.weight": zeros("BF16", HIDDEN, 2 * TARGET_HIDDEN),
        "post_projection.weight": zeros("BF16", TARGET_HIDDEN, HIDDEN),
    }
    for n, kind in enumerate(KINDS):
        weights |= layer(n, kind)
    if centroids:
        weights |= {
            "masked_embedding.centroids.weight": zeros("BF16", CENTROIDS, HIDDEN),
            "masked_embedding.token_ordering": integers(reversed(range(VOCAB))),
        }
    target = {**draft_config(), "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text"}
    target |= {"hidden_size": TARGET_HIDDEN, "vocab_size": VOCAB, "num_hidden_layers": 8}
    return Draft(config=made, weights=weights, target=target)


def text(**keys: object) -> Edit:
    """Set keys of text_config; None takes one out."""

    def edit(draft: Draft) -> None:
        table = draft.config["text_config"]
        table.update(keys)
        for key in [key for key, value in keys.items() if value is None]:
            del table[key]

    return edit


def with_keys(draft: Draft) -> None:
    """Projections of keys and values, which the engine builds and never uses."""
    for n, kind in enumerate(KINDS):
        size = FULL_HEAD_DIM if kind == "full_attention" else HEAD_DIM
        place = f"model.layers.{n}.self_attn"
        draft.weights |= {f"{place}.{x}_proj.weight": zeros("BF16", size, HIDDEN) for x in "kv"}
        draft.weights[f"{place}.k_norm.weight"] = zeros("BF16", size)


FIRST, LAST, ORDERING = "model.layers.0", "model.layers.2", "masked_embedding.token_ordering"

ASSISTANT: dict[str, Edit] = {
    "healthy": lambda _: None,
    "with-keys": with_keys,
    "language-model": swapped("model.layers", "model.language_model.layers"),
    "module-prefix": prefixed("module."),
    "bare": lambda draft: draft.rename(lambda name: name.removeprefix("model.")),
    "no-pre": dropped("pre_projection.weight"),
    "no-post": dropped("post_projection.weight"),
    "pre-width": shaped("pre_projection.weight", HIDDEN, TARGET_HIDDEN),
    "post-width": shaped("post_projection.weight", HIDDEN, HIDDEN),
    "backbone-differs": config(backbone_hidden_size=40),
    "no-embed": dropped("model.embed_tokens.weight"),
    "embed-rows": shaped("model.embed_tokens.weight", VOCAB // 2, HIDDEN),
    "head": added("lm_head.weight", VOCAB, HIDDEN),
    "untied": both(text(tie_word_embeddings=False), added("lm_head.weight", VOCAB, HIDDEN)),
    "untied-headless": text(tie_word_embeddings=False),
    "no-norm": dropped("model.norm.weight"),
    "no-scalar": dropped(f"{FIRST}.layer_scalar"),
    "scalar-shape": shaped(f"{FIRST}.layer_scalar", 2),
    "no-q": dropped(f"{FIRST}.self_attn.q_proj.weight"),
    "no-o": dropped(f"{LAST}.self_attn.o_proj.weight"),
    "no-gate": dropped(f"{FIRST}.mlp.gate_proj.weight"),
    "no-q-norm": dropped(f"{LAST}.self_attn.q_norm.weight"),
    "long-q": shaped(f"{FIRST}.self_attn.q_proj.weight", HEADS * FULL_HEAD_DIM, HIDDEN),
    "short-q": shaped(f"{LAST}.self_attn.q_proj.weight", HEADS * HEAD_DIM, HIDDEN),
    "short-o": shaped(f"{LAST}.self_attn.o_proj.weight", HIDDEN, HEADS * HEAD_DIM),
    "q-norm-width": shaped(f"{LAST}.self_attn.q_norm.weight", HEAD_DIM),
    "short-up": shaped(f"{FIRST}.mlp.up_proj.weight", INTERMEDIATE // 2, HIDDEN),
    "extra": added("model.layers.3.mlp.up_proj.weight", INTERMEDIATE, HIDDEN),
    "extra-bias": added(f"{FIRST}.self_attn.q_proj.bias", HEADS * HEAD_DIM),
    "layer-missing": text(num_hidden_layers=4, num_kv_shared_layers=4, layer_types=[*KINDS, KINDS[-1]]),
    "kinds-too-few": text(num_hidden_layers=4, num_kv_shared_layers=4),
    "last-sliding": text(layer_types=[KINDS[0]] * 3),
    "all-full": text(layer_types=[KINDS[-1]] * 3),
    "no-global-dim": text(global_head_dim=None),
    "same-dims": text(global_head_dim=HEAD_DIM),
    "global-keys": both(text(num_global_key_value_heads=2, attention_k_eq_v=True), with_keys),
    "global-keys-apart": both(text(num_global_key_value_heads=2), with_keys),
    "per-layer-input": text(hidden_size_per_layer_input=16),
    "no-per-layer-input": text(hidden_size_per_layer_input=None),
    "per-layer-vocabulary": text(vocab_size_per_layer_input=VOCAB),
    "experts": text(enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=8),
    "wide-mlp": text(use_double_wide_mlp=True),
    "silu": text(hidden_activation="silu"),
    "own-keys": text(num_kv_shared_layers=1),
    "no-text": lambda draft: draft.config.pop("text_config"),
    "no-backbone": lambda draft: draft.config.pop("backbone_hidden_size"),
}

CENTROID: dict[str, Edit] = {
    "healthy": lambda _: None,
    "bare-names": swapped("masked_embedding.", ""),
    "no-centroids": dropped("masked_embedding.centroids.weight"),
    "no-ordering": dropped(ORDERING),
    "ordering-short": lambda draft: draft.weights.update(
        {"masked_embedding.token_ordering": integers(range(VOCAB - 8))}
    ),
    "off": config(use_ordered_embeddings=False),
    "centroids-differ": config(num_centroids=16),
    "centroids-odd": config(num_centroids=12),
    "no-number": lambda draft: draft.config.pop("num_centroids"),
}

UNIFIED = ("healthy", "no-pre", "short-q", "experts", "per-layer-input", "wide-mlp", "no-backbone", "no-global-dim")
