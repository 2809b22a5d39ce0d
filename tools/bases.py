"""Healthy tiny drafts of each kind, from which tools/mutants.py makes random ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from class_drafts import YARN
from drafts import Draft, draft_config
from mtp_heads import FAMILIES
from weights import Weights, mask, offsets, spread, zeros

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 64, 2, 1, 32, 96
VOCAB, DRAFT_VOCAB, TARGET_LAYERS = 512, 128, 8


def layer(prefix: str, inputs: int) -> Weights:
    """One decoder layer of a Llama-shaped draft; ``inputs`` is the width that attention takes."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes = {
        "self_attn.q_proj": (queries, inputs),
        "self_attn.k_proj": (keys, inputs),
        "self_attn.v_proj": (keys, inputs),
        "self_attn.o_proj": (HIDDEN, queries),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
        "hidden_norm": (HIDDEN,),
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
    }
    return {f"{prefix}.{name}.weight": zeros("BF16", *shape) for name, shape in shapes.items()}


def _config(**keys: Any) -> dict[str, Any]:
    """The config of the fixtures' draft in the sizes of this module."""
    sizes = {
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
    }
    return {**draft_config(), **sizes, **keys}


TARGETS: dict[str, dict[str, Any]] = {
    "usual": {},
    "small": {"vocab_size": DRAFT_VOCAB},
    "large": {"vocab_size": 2 * VOCAB},
    "wide": {"hidden_size": 2 * HIDDEN, "num_attention_heads": 2 * HEADS},
}
"""Targets by what they have else than the one that every made-up draft was made for."""


def target_config(name: str = "usual") -> dict[str, Any]:
    """The config of a target of TARGETS."""
    config = _config(architectures=["LlamaForCausalLM"], num_hidden_layers=TARGET_LAYERS, **TARGETS[name])
    del config["draft_vocab_size"]
    return config


def _eagle3() -> Draft:
    kept = spread(DRAFT_VOCAB, VOCAB)
    weights = {
        "d2t": offsets(kept),
        "t2d": mask(VOCAB, kept),
        "fc.weight": zeros("BF16", HIDDEN, 3 * HIDDEN),
        **layer("midlayer", 2 * HIDDEN),
        "norm.weight": zeros("BF16", HIDDEN),
        "lm_head.weight": zeros("BF16", DRAFT_VOCAB, HIDDEN),
    }
    return Draft(_config(), weights)


def _eagle1() -> Draft:
    only = layer("layers.0", HIDDEN)
    for name in ("hidden_norm", "input_layernorm"):
        del only[f"layers.0.{name}.weight"]
    config = _config(architectures=["LlamaForCausalLMEagle"])
    del config["draft_vocab_size"]
    weights = {
        "embed_tokens.weight": zeros("BF16", VOCAB, HIDDEN),
        "fc.weight": zeros("BF16", HIDDEN, 2 * HIDDEN),
        "fc.bias": zeros("BF16", HIDDEN),
        **only,
    }
    return Draft(config, weights)


def _dflash() -> Draft:
    layers = {**layer("layers.0", HIDDEN), **layer("layers.1", HIDDEN)}
    for n in (0, 1):
        del layers[f"layers.{n}.hidden_norm.weight"]
        layers[f"layers.{n}.self_attn.q_norm.weight"] = zeros("BF16", HEAD_DIM)
        layers[f"layers.{n}.self_attn.k_norm.weight"] = zeros("BF16", HEAD_DIM)
    config = _config(
        architectures=["DFlashDraftModel"],
        model_type="qwen3",
        num_hidden_layers=2,
        block_size=8,
        num_target_layers=TARGET_LAYERS,
        dflash_config={"mask_token_id": 7, "target_layer_ids": [1, 3, 5]},
    )
    del config["draft_vocab_size"]
    weights = {
        "fc.weight": zeros("BF16", HIDDEN, 3 * HIDDEN),
        "hidden_norm.weight": zeros("BF16", HIDDEN),
        **layers,
        "norm.weight": zeros("BF16", HIDDEN),
    }
    return Draft(config, weights)


def _plain(make: Callable[[], Draft]) -> Callable[[], Draft]:
    """The same head under the class name of its target, of which an engine makes that of its draft class."""

    def made() -> Draft:
        draft = make()
        draft.set(architectures=["LlamaForCausalLM"])
        return draft

    return made


def _eagle1_without_bias() -> Draft:
    draft = _eagle1()
    draft.drop("fc.bias")
    return draft


def _qwen3() -> Draft:
    draft = _eagle3()
    draft.set(architectures=["Eagle3Qwen3ForCausalLM"], model_type="qwen3")
    for name in ("q_norm", "k_norm"):
        draft.weights[f"midlayer.self_attn.{name}.weight"] = zeros("BF16", HEAD_DIM)
    return draft


def _mla() -> Draft:
    # Compressed widths; what of a head is rotated, and as much that is not.
    q_rank, kv_rank, part = 24, 32, 16
    config = _config(
        architectures=["Eagle3DeepseekV2ForCausalLM"],
        model_type="deepseek_v2",
        q_lora_rank=q_rank,
        kv_lora_rank=kv_rank,
        qk_nope_head_dim=part,
        qk_rope_head_dim=part,
        v_head_dim=HEAD_DIM,
    )
    del config["head_dim"]
    draft = _eagle3()
    draft.config = config
    draft.drop(*(f"midlayer.self_attn.{name}_proj.weight" for name in "qkv"))
    shapes = {
        "q_a_proj": (q_rank, 2 * HIDDEN),
        "q_a_layernorm": (q_rank,),
        "q_b_proj": (HEADS * 2 * part, q_rank),
        "kv_a_proj_with_mqa": (kv_rank + part, 2 * HIDDEN),
        "kv_a_layernorm": (kv_rank,),
        "kv_b_proj": (HEADS * (part + HEAD_DIM), kv_rank),
    }
    draft.weights |= {f"midlayer.self_attn.{name}.weight": zeros("BF16", *shape) for name, shape in shapes.items()}
    return draft


def _qwen2() -> Draft:
    draft = _eagle1()
    draft.set(architectures=["Qwen2ForCausalLMEagle"], model_type="qwen2")
    for key in ("attention_bias", "mlp_bias", "head_dim"):
        del draft.config[key]
    for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
        draft.weights[f"layers.0.self_attn.{name}_proj.bias"] = zeros("BF16", heads * HEAD_DIM)
    return draft


def _mla_yarn() -> Draft:
    draft = _mla()
    # Without a GPU, SGLang builds MLA with a rope scaling only.
    draft.set(model_type="deepseek_v3", num_key_value_heads=HEADS, rope_scaling=YARN)
    del draft.config["mlp_bias"]
    return draft


def _speculators() -> Draft:
    draft = _eagle3()
    draft.rename(lambda name: name.replace("midlayer", "layers.0"))
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)
    return draft


def _dspark() -> Draft:
    rank = 16  # of the Markov head
    draft = _dflash()
    draft.set(architectures=["Qwen3DSparkModel"], markov_head_type="vanilla", markov_rank=rank)
    draft.set(enable_confidence_head=True, confidence_head_with_markov=True)
    draft.weights |= {
        "markov_head.markov_w1.weight": zeros("BF16", VOCAB, rank),
        "markov_head.markov_w2.weight": zeros("BF16", VOCAB, rank),
        "confidence_head.proj.weight": zeros("BF16", 1, HIDDEN + rank),
        "confidence_head.proj.bias": zeros("BF16", 1),
    }
    return draft


def _mtp(family: str) -> Callable[[], Draft]:
    """A head in the checkpoint of its target."""
    head = FAMILIES[family]
    return lambda: Draft(head.config(), head.weights())


AT_THE_TOP = (
    "draft_vocab_size", "target_hidden_size", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output",
    "eagle_aux_hidden_state_layer_ids",
)  # fmt: skip


def _nested(draft: Draft) -> None:
    """The config as speculators writes it: the keys of the decoder layer in a table of their own."""
    top = {key: draft.config[key] for key in AT_THE_TOP if key in draft.config}
    body = {key: value for key, value in draft.config.items() if key not in (*AT_THE_TOP, "architectures")}
    verifier = {"name_or_path": "org/target", "architectures": ["LlamaForCausalLM"]}
    proposal = {"proposal_type": "greedy", "speculative_tokens": 3}
    draft.config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0",
        "speculators_config": {"algorithm": "eagle3", "proposal_methods": [proposal], "verifier": verifier},
        "transformer_layer_config": body,
        **top,
    }


FINISH: dict[str, Callable[[Draft], None]] = {"speculators": _nested}
"""What is done to a draft of a kind after all edits."""

BASES: dict[str, Callable[[], Draft]] = {
    "eagle3": _eagle3,
    "eagle3-plain": _plain(_eagle3),
    "eagle3-qwen3": _qwen3,
    "eagle1": _eagle1,
    "eagle1-plain": _plain(_eagle1_without_bias),
    "eagle1-qwen2": _qwen2,
    "dflash": _dflash,
    "mla": _mla,
    "mla-yarn": _mla_yarn,
    "speculators": _speculators,
    "dspark": _dspark,
    "mtp-deepseek": _mtp("deepseek"),
    "mtp-glm": _mtp("glm4_moe"),
}
"""The healthy checkpoints by kind of head."""

METHODS = {"eagle1": "eagle", "eagle1-plain": "eagle", "dflash": "dflash"}
"""What vLLM calls the method with which a head is served, where it is not eagle3."""
