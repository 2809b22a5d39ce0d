"""Edits that break a draft of tools/class_drafts.py, each a function of what it changes."""

from __future__ import annotations

from collections.abc import Callable

from class_drafts import fuse, plain_layer
from drafts import Draft
from weights import zeros

Edit = Callable[[Draft], None]


def prefixed(prefix: str) -> Edit:
    """Put a prefix before every name."""
    return lambda draft: draft.rename(lambda name: prefix + name)


def swapped(old: str, new: str) -> Edit:
    """Replace a part of every name."""
    return lambda draft: draft.rename(lambda name: name.replace(old, new))


def added(name: str, *shape: int) -> Edit:
    """Add a tensor."""
    return lambda draft: draft.weights.update({name: zeros("BF16", *shape)})


def dropped(*names: str) -> Edit:
    """Leave tensors out."""
    return lambda draft: draft.drop(*names)


def shaped(name: str, *shape: int) -> Edit:
    """Give a tensor another shape."""
    return lambda draft: draft.shape(name, *shape)


def config(**keys: object) -> Edit:
    """Set keys of config.json."""
    return lambda draft: draft.set(**keys)


def without(*keys: str) -> Edit:
    """Take keys out of config.json."""

    def edit(draft: Draft) -> None:
        for key in keys:
            del draft.config[key]

    return edit


def dflash_key(**keys: object) -> Edit:
    """Set keys of dflash_config."""
    return lambda draft: draft.config["dflash_config"].update(keys)


def no_dflash_key(*keys: str) -> Edit:
    """Take keys out of dflash_config."""

    def edit(draft: Draft) -> None:
        for key in keys:
            del draft.config["dflash_config"][key]

    return edit


def both(*edits: Edit) -> Edit:
    """One edit after the other."""

    def edit(draft: Draft) -> None:
        for each in edits:
            each(draft)

    return edit


def second_layer(draft: Draft) -> None:
    """A second EAGLE-1 layer, which has its input_layernorm."""
    draft.weights |= plain_layer("layers.1", norms=False)
    draft.set(num_hidden_layers=2)


def fused(prefix: str) -> Edit:
    """q, k, v and gate, up in one tensor each."""

    def edit(draft: Draft) -> None:
        fuse(draft, [f"{prefix}.self_attn.{x}_proj.weight" for x in "qkv"], f"{prefix}.self_attn.qkv_proj.weight")
        fuse(draft, [f"{prefix}.mlp.{x}_proj.weight" for x in ("gate", "up")], f"{prefix}.mlp.gate_up_proj.weight")

    return edit


def fused_latent(draft: Draft) -> None:
    """The two down projections of MLA in one tensor."""
    place = "layers.0.self_attn"
    parts = [f"{place}.q_a_proj.weight", f"{place}.kv_a_proj_with_mqa.weight"]
    fuse(draft, parts, f"{place}.fused_qkv_a_proj_with_mqa.weight")
