"""Tiny LiLiCorr drafts: DFlash with a head over the lattice of its candidates, as the releases name its parts."""

from __future__ import annotations

from class_drafts import dflash
from class_edits import Edit, added, both, config, dflash_key, dropped, no_dflash_key, prefixed, shaped, swapped
from class_relatives import with_convolutions
from drafts import HIDDEN, VOCAB, Draft
from weights import Weights, zeros

WIDTH, TOPK, BLOCK, LATTICE_HEADS, FACTORS, LAYERS = 24, 4, 4, 2, 6, 2
RATIO, INNER, FEATURES = 1.3, 31, 5  # int(24 * 1.3)


def linear(name: str, rows: int, columns: int) -> Weights:
    """A weight and a bias."""
    return {f"{name}.weight": zeros("BF16", rows, columns), f"{name}.bias": zeros("BF16", rows)}


def lattice(width: int, *, old: bool) -> Weights:
    """The head; ``old``: with the names of the first release, the places in a sequence of layers."""
    features = "lilicorr.feature_mlp"
    norm, first, second = (f"{features}.{n}" for n in (0, 1, 3)) if old else ("lilicorr.feature_norm", "", "")
    first, second = first or f"{features}.up_proj", second or f"{features}.down_proj"
    made = {
        **linear("lilicorr.pass_hidden_proj", width, HIDDEN),
        **linear("lilicorr.context_proj", width, HIDDEN),
        **linear("lilicorr.factor_input_proj", width, 3 * width),
        **{
            n: w
            for part in ("out_head", "in_head", "anchor_out_head")
            for n, w in linear(f"lilicorr.{part}", FACTORS, width).items()
        },
        f"{norm}.weight": zeros("BF16", FEATURES),
        f"{norm}.bias": zeros("BF16", FEATURES),
        **linear(first, width, FEATURES),
        **linear(second, width, width),
        "lilicorr.slot_embedding": zeros("BF16", 1, 1, BLOCK - 1, 1, width),
        "lilicorr.rank_embedding": zeros("BF16", 1, 1, 1, TOPK, width),
        "lilicorr.relative_slot_bias": zeros("BF16", LATTICE_HEADS, 2 * BLOCK - 1),
        "lilicorr.same_slot_bias": zeros("BF16", LATTICE_HEADS),
        "lilicorr.output_norm.weight": zeros("BF16", width),
        "lilicorr.anchor_norm.weight": zeros("BF16", width),
    }
    if width != HIDDEN:
        made |= linear("lilicorr.token_proj", width, HIDDEN)
    for n in range(LAYERS):
        made |= layer(f"lilicorr.layers.{n}", width, old=old)
    return made


def layer(place: str, width: int, *, old: bool) -> Weights:
    """One layer of the head."""
    up, down = ("0", "2") if old else ("up_proj", "down_proj")
    inner = int(width * RATIO)
    return {
        f"{place}.attn_norm.weight": zeros("BF16", width),
        f"{place}.mlp_norm.weight": zeros("BF16", width),
        f"{place}.attn.in_proj_weight": zeros("BF16", 3 * width, width),
        f"{place}.attn.in_proj_bias": zeros("BF16", 3 * width),
        **linear(f"{place}.attn.out_proj", width, width),
        **linear(f"{place}.mlp.{up}", inner, width),
        **linear(f"{place}.mlp.{down}", width, inner),
    }


def lilicorr(width: int = WIDTH, *, old: bool = False) -> Draft:
    """A draft whose head is ``width`` wide."""
    draft = dflash("LiLiCorrDraftModel")
    draft.config["dflash_config"] |= {
        "lilicorr_candidate_topk": TOPK,
        "lilicorr_hidden_size": width,
        "lilicorr_num_layers": LAYERS,
        "lilicorr_num_heads": LATTICE_HEADS,
        "lilicorr_mlp_ratio": RATIO,
        "lilicorr_factor_dim": FACTORS,
        "lilicorr_vector_eps": 1e-6,
        "lilicorr_logit_scale": 8.0,
    }
    draft.weights |= lattice(width, old=old)
    return draft


PLACE = "lilicorr.layers.1"

LATTICE: dict[str, Edit] = {
    "healthy": lambda _: None,
    "model-prefix": prefixed("model."),
    "module-prefix": prefixed("module."),
    "no-head": lambda draft: draft.drop(*[name for name in draft.weights if name.startswith("lilicorr.")]),
    "no-slots": dropped("lilicorr.slot_embedding"),
    "no-norm": dropped("lilicorr.output_norm.weight"),
    "no-fc": dropped("fc.weight"),
    "no-v": dropped("layers.0.self_attn.v_proj.weight"),
    "no-token-proj": dropped("lilicorr.token_proj.weight", "lilicorr.token_proj.bias"),
    "one-layer": dflash_key(lilicorr_num_layers=1),
    "three-layers": dflash_key(lilicorr_num_layers=3),
    "extra": added("lilicorr.extra.weight", 3),
    "extra-and-missing": both(added("lilicorr.extra.weight", 3), dropped("lilicorr.slot_embedding")),
    "ratio": dflash_key(lilicorr_mlp_ratio=2),
    "ratio-other": dflash_key(lilicorr_mlp_ratio=1.34),
    "ratio-same": dflash_key(lilicorr_mlp_ratio=1.32),
    "ratio-zero": dflash_key(lilicorr_mlp_ratio=0),
    "no-ratio": no_dflash_key("lilicorr_mlp_ratio"),
    "no-topk": no_dflash_key("lilicorr_candidate_topk"),
    "null-topk": dflash_key(lilicorr_candidate_topk=None),
    "topk-three": dflash_key(lilicorr_candidate_topk=3),
    "topk-wide": dflash_key(lilicorr_candidate_topk=32),
    "topk-differs": dflash_key(lilicorr_candidate_topk=8),
    "no-scale": no_dflash_key("lilicorr_logit_scale"),
    "no-width": no_dflash_key("lilicorr_hidden_size"),
    "width-zero": dflash_key(lilicorr_hidden_size=0),
    "heads-odd": dflash_key(lilicorr_num_heads=5),
    "off": dflash_key(lilicorr_enabled=False),
    "unsaid": lambda draft: draft.config.update(
        dflash_config={k: v for k, v in draft.config["dflash_config"].items() if not k.startswith("lilicorr_")}
    ),
    "block-differs": config(block_size=8),
    "wide-pass": shaped("lilicorr.pass_hidden_proj.weight", WIDTH, 2 * HIDDEN),
    "long-bias": shaped("lilicorr.context_proj.bias", WIDTH + 1),
    "in-proj-width": shaped(f"{PLACE}.attn.in_proj_weight", 3 * WIDTH, WIDTH + 1),
    "renamed": swapped("lilicorr.layers", "lilicorr.blocks"),
    "convolutions": with_convolutions,
    "convolutions-unsaid": both(with_convolutions, no_dflash_key("conv_kernel_size", "conv_group_size")),
    "convolutions-missing": both(with_convolutions, dropped("layers.1.mlp_conv.base_kernel")),
    "embed": added("embed_tokens.weight", VOCAB, HIDDEN),
}

FEW = (
    "healthy",
    "model-prefix",
    "no-slots",
    "extra",
    "ratio-other",
    "topk-three",
    "block-differs",
    "long-bias",
)
