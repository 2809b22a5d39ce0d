"""Write tiny checkpoints with a multi-token-prediction layer, healthy and broken, for the engine's own loader to read.

    python tools/make_mtp_corpus.py FOLDER [--family deepseek ...] [--seed 7] [--random 6]

Each is a folder ``<family>-<fault>`` with config.json and model.safetensors. The same seed gives the same bytes. What
the engine's classes answered is recorded by tools/record_mtp.py.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from mtp_families import FAMILIES
from mtp_heads import HEADS, LAYERS, Family, Json, bf16
from mtp_heads_later import STEPS
from weights import Weights, write_safetensors

Edit = Callable[[Family, Json, Weights], None]


def of_the_head(family: Family, weights: Weights) -> list[str]:
    """The names that make up the head."""
    return [name for name in weights if name.startswith(family.prefix)]


def move(old: str, new: str) -> Edit:
    """Replace the beginning of names, where ``{prefix}`` is that of the head."""

    def edit(family: Family, _: Json, weights: Weights) -> None:
        before, after = (text.replace("{prefix}", family.prefix) for text in (old, new))
        renamed = {after + n[len(before) :] if n.startswith(before) else n: w for n, w in weights.items()}
        weights.clear()
        weights.update(renamed)

    return edit


def without(part: str) -> Edit:
    """Leave out what has ``part`` in its name and belongs to the head."""

    def edit(family: Family, _: Json, weights: Weights) -> None:
        for name in [n for n in of_the_head(family, weights) if part in n]:
            del weights[name]

    return edit


def keys(**changes: object) -> Edit:
    """Change keys of the config; None takes one out."""

    def edit(_: Family, config: Json, __: Weights) -> None:
        config.update(changes)
        for key in [k for k, v in changes.items() if v is None]:
            del config[key]

    return edit


def of_text(**changes: object) -> Edit:
    """Change keys of text_config; None takes one out."""
    return lambda f, c, w: keys(**changes)(f, c["text_config"], w)


def renamed(_: Family, config: Json, __: Weights) -> None:
    """Name the draft's own class."""
    config["architectures"] = [config["architectures"][0] + "NextN"]


def together(*edits: Edit) -> Edit:
    """Several edits, one after the other."""

    def edit(family: Family, config: Json, weights: Weights) -> None:
        for each in edits:
            each(family, config, weights)

    return edit


def grown(part: str, axis: int, by: int) -> Edit:
    """Give the tensors of the head with ``part`` in their names more (or fewer) rows or columns."""

    def edit(family: Family, _: Json, weights: Weights) -> None:
        for name in [n for n in of_the_head(family, weights) if part in n]:
            shape = list(weights[name].shape)
            if axis < len(shape):
                shape[axis] += by
                weights[name] = bf16(*shape)

    return edit


def added(name: str, *shape: int) -> Edit:
    """Add a tensor, where ``{prefix}`` is that of the head."""

    def edit(family: Family, _: Json, weights: Weights) -> None:
        weights[name.replace("{prefix}", family.prefix)] = bf16(*shape)

    return edit


def alone(family: Family, config: Json, weights: Weights) -> None:
    """The head exported on its own, as layer 0 of one."""
    head = {n.replace(family.prefix, "model.layers.0."): w for n, w in weights.items() if n.startswith(family.prefix)}
    weights.clear()
    weights.update(head)
    config["num_hidden_layers"] = 1


FAULTS: dict[str, Edit] = {
    "healthy": lambda *_: None,
    "no_layer": without(""),
    "no_projection": lambda f, c, w: without(f.own)(f, c, w),
    "no_expert": without("experts.1."),
    "no_gate_of_expert": without("experts.2.gate_proj"),
    "no_experts": without("mlp.experts."),
    "no_norms": without("norm"),
    "no_q_a": without("q_a_proj"),
    "no_k": without("k_proj"),
    "no_router": without("mlp.gate."),
    "no_o": without("o_proj"),
    "prefix": move("", "language_model."),
    "wrapped": move("{prefix}", "module.{prefix}"),
    "extra": added("{prefix}self_attn.rotary_emb.inv_freq", 8),
    "extra_unknown": added("{prefix}mlp.memory.weight", 8, 8),
    "extra_projection": added("{prefix}other.gate_proj.weight", 8, 8),
    "extra_expert": added("{prefix}mlp.experts.4.gate_proj.weight", 32, 64),
    "extra_bias": added("{prefix}mlp.gate.bias", 4),
    "wide_projection": lambda f, c, w: grown(f.own, 1, 64)(f, c, w),
    "long_expert": grown("experts.1.gate_proj", 0, 8),
    "short_expert": grown("experts.1.gate_proj", 0, -8),
    "wide_expert": grown("experts.1.up_proj", 1, 8),
    "short_down": grown("experts.0.down_proj", 1, -8),
    "long_down": grown("experts.0.down_proj", 1, 8),
    "wide_down": grown("experts.0.down_proj", 0, 8),
    "long_o": grown("o_proj", 1, 8),
    "short_o": grown("o_proj", 1, -8),
    "long_q_b": grown("q_b_proj", 0, 8),
    "short_q_b": grown("q_b_proj", 0, -8),
    "long_q_a": grown("q_a_proj", 0, 8),
    "wide_q_a": grown("q_a_proj", 1, 8),
    "long_k": grown("k_proj", 0, 16),
    "short_k": grown("k_proj", 0, -16),
    "long_norm": grown("hnorm", 0, 8),
    "long_router": grown("mlp.gate.weight", 0, 1),
    "no_count": keys(num_nextn_predict_layers=None),
    "two": keys(num_nextn_predict_layers=2),
    "none": keys(num_nextn_predict_layers=0),
    "layers_less": keys(num_hidden_layers=LAYERS - 1),
    "layers_more": keys(num_hidden_layers=LAYERS + 1),
    "more_experts": keys(n_routed_experts=6),
    "no_shared": keys(n_shared_experts=None),
    "alone": alone,
    "named": lambda _, c, __: c.update(architectures=[c["architectures"][0] + "NextN"]),
}
"""The faults by name. One that changes nothing in a family is left out there."""

SPECIAL: dict[str, Edit] = {
    "no_rope": keys(rope_scaling=None),
    "with_freq": keys(moe_layer_freq=1),
    "narrow_expert": grown("experts.1.up_proj", 1, -8),
    "narrow_down": grown("experts.0.down_proj", 0, -8),
    "second_only": without(f".{STEPS}."),
    "other_layer": move("{prefix}", f"model.layers.{LAYERS + 1}."),
    "as_layer": move("{prefix}", f"model.layers.{LAYERS}."),
    "long_wq_b": grown("indexer.wq_b", 0, 8),
    "wide_wq_b": grown("indexer.wq_b", 1, 8),
    "long_wk": grown("indexer.wk", 0, 8),
    "long_k_norm": grown("indexer.k_norm", 0, 8),
    "no_indexer": without("indexer"),
    "with_rope": of_text(qk_rope_head_dim=8),
    "no_tail": of_text(index_kpool_always_select_tail=None),
    "no_compress": of_text(index_kpool_compress=False),
    "no_pool": of_text(index_kpool=1),
    "no_ape": without("index_kpool_compress_ape"),
    "short_ape": grown("index_kpool_compress_ape", 0, -1),
    "long_pool_gate": grown("index_kpool_compress_gate", 0, 8),
    "two_of_text": of_text(num_nextn_predict_layers=2),
    "renamed_two_of_text": together(of_text(num_nextn_predict_layers=2), renamed),
    "gate_in_expert": added("{prefix}mlp.experts.9.gate_proj.weight", 32, 64),
    "elementwise": keys(swa_attention_gate_type="elementwise"),
    "other_gate": keys(swa_attention_gate_type="none"),
    "few_keys": keys(swa_num_key_value_heads=2),
    "no_g": without("g_proj"),
    "no_kv_a": without("kv_a_proj_with_mqa"),
    "no_joined": together(without("g_proj"), without("kv_a_proj_with_mqa"), without("q_a_proj")),
    "long_g": grown("g_proj", 0, 8),
    "padded_g": grown("g_proj", 0, 2),
    "short_g": grown("g_proj", 0, -1),
    "wide_g": grown("g_proj", 1, 8),
    "no_own_embedding": lambda f, c, w: without("embed_tokens")(replace(f, prefix="model.mtp."), c, w),
    "no_rope_norm": without("k_rope_only_layernorm"),
    "other_head": move("mtp.0.", "mtp.1."),
    "no_wkv": without("attn.wkv."),
    "long_wkv": grown("attn.wkv.", 0, 8),
    "long_wq_a": grown("attn.wq_a.", 0, 8),
    "no_streams": without("hc_attn"),
    "long_sinks": grown("attn_sink", 0, 2),
    "no_expert_bias": without("ffn.gate.bias"),
    "short_wo_a": grown("wo_a.", 0, -8),
    "no_topk_method": keys(topk_method=None),
    "more_keys": keys(num_key_value_heads=2),
    "other_head_dim": keys(head_dim=32),
    "long_w1": grown("experts.1.w1", 0, 8),
    "all_experts": keys(first_k_dense_replace=0),
    "no_router_biases": without("router_biases"),
    "no_w1": without("experts.2.w1"),
    "no_gate_weight": without("1.gate.weight"),
    "no_shared_experts": without("shared_experts"),
    "few_experts": keys(n_routed_experts=2),
    "all_dense": keys(first_k_dense_replace=2),
    "third_layer": keys(num_hidden_layers=LAYERS + 1),
    "no_linear": lambda f, c, w: without("eagle_linear")(replace(f, prefix=""), c, w),
    "no_confidence": without("confidence_head"),
    "no_markov": without("markov_head"),
    "renamed_markov": move("{prefix}markov_head.markov_w1.", "{prefix}markov_head.embed."),
    "long_markov": grown("markov_w1", 0, 8),
    "wide_markov": grown("markov_w2", 1, 8),
    "one_stage": keys(dspark_target_layer_ids=[0]),
    "three_stages": keys(dspark_target_layer_ids=[0, 1, 1]),
    "first_gone": lambda f, c, w: without("")(replace(f, prefix="mtp.0."), c, w),
    "no_main": lambda f, c, w: without("main_proj")(replace(f, prefix="mtp.0."), c, w),
    "no_rank": keys(dspark_markov_rank=None),
    "long_sink": grown("learnable_sink_param", 0, 1),
    "one_sink": grown("learnable_sink_param", 0, 1 - HEADS),
    "no_gate": without("linear_gate"),
    "long_gate": grown("linear_gate", 0, 8),
    "wrong_layer_types": keys(layer_types=["full_attention"]),
    "strange_layer_types": keys(layer_types=["full_attention"] * LAYERS),
    "indexed": keys(layer_types=["indexed_attention"] * LAYERS),
    "renamed_two": together(keys(num_nextn_predict_layers=2), renamed),
    "two": keys(num_nextn_predict_layers=2),
    "one_layer": keys(num_hidden_layers=1),
    "short_gate_down": grown("gate_down_projection", 1, -8),
    "no_gate_up": without("gate_up_projection"),
    "no_attention_gate": without("self_attn.gate_proj"),
    "long_attention_gate": grown("self_attn.gate_proj", 0, 8),
    "ungated": keys(gated_attention=False),
    "sparse": keys(nextn_is_sparse=True),
    "plain_norms": keys(norm_type="LlamaRMSNorm"),
    "gated_norms": keys(norm_type="GatedNorm"),
    "centred_norms": keys(norm_type="ZeroCenteredRMSNorm"),
    "strange_norms": keys(norm_type="LayerNorm"),
    "pre_norms": keys(layernorm_type="pre"),
    "null_q_rank": lambda _, c, __: c.update(q_lora_rank=None),
}
"""Faults of the families that name them."""

FEW = {
    *("healthy", "no_layer", "no_projection", "no_expert", "no_experts", "no_norms", "no_k", "no_router", "prefix"),
    *("extra", "extra_unknown", "extra_projection", "extra_bias", "wide_projection", "long_o", "long_k", "no_count"),
}
"""The faults of the families whose bodies are made of what the first ones have been asked about."""


def drafts(family: Family, seed: int, number: int) -> Iterator[tuple[str, Json, Weights]]:
    """The checkpoints of one family: the named faults, then ``number`` mixtures of small ones."""
    healthy = (family.config(), family.weights())
    asked = {n: e for n, e in FAULTS.items() if n in FEW or not family.few}
    for name, edit in (asked | {n: SPECIAL[n] for n in family.also}).items():
        config, weights = family.config(), family.weights()
        edit(family, config, weights)
        if name == "healthy" or (config, weights) != healthy:
            yield f"{family.name}-{name}", config, weights
    for n in range(2 if family.few else number):
        chance = random.Random(f"{family.name} {seed} {n}")
        yield f"{family.name}-mixed{n}", *mixed(family, chance)


def mixed(family: Family, chance: random.Random) -> tuple[Json, Weights]:
    """Some tensors left out, renamed or reshaped."""
    config, weights = family.config(), family.weights()
    for name in chance.sample(sorted(of_the_head(family, weights)), 3):
        tensor = weights.pop(name)
        what = chance.choice(("gone", "renamed", "elsewhere"))
        if what == "renamed":
            weights[name.replace("proj", "projection")] = tensor
        elif what == "elsewhere":
            weights["mtp_" + name] = tensor
    if chance.random() < 0.3:
        name = chance.choice(sorted(of_the_head(family, weights)))
        shape = list(weights[name].shape)
        shape[chance.randrange(len(shape))] += 8
        weights[name] = bf16(*shape)
    return config, weights


def main() -> None:
    """Write the corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--random", type=int, default=6)
    given = parser.parse_args()
    for name in given.family or FAMILIES:
        for draft, config, weights in drafts(FAMILIES[name], given.seed, given.random):
            folder = given.folder / draft
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
            write_safetensors(folder / "model.safetensors", weights, {"format": "pt"})


if __name__ == "__main__":
    main()
