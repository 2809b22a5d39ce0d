"""Write a drafter of the size and shape of Kimi-K2.5's, 2.4 GB that cost no disk: the float weights are a hole.

    python tools/make_kimi.py FOLDER [--names layers.0] [--states 1]

The maps d2t and t2d hold real values, and target_config.json lies beside the draft.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from weights import Weights, mask, offsets, spread, write_safetensors, zeros

HIDDEN, HEADS, HEAD_DIM, INTERMEDIATE = 7168, 64, 128, 18432
TARGET_VOCAB, DRAFT_VOCAB, TARGET_LAYERS = 163840, 32000, 61

YARN = {"rope_type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}


def draft_config() -> dict[str, Any]:
    """config.json of the draft, as SpecForge-like trainers write it."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-05,
        "rope_theta": 50000.0,
        "rope_scaling": YARN,
        "max_position_embeddings": 262144,
        "vocab_size": TARGET_VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


def target_config() -> dict[str, Any]:
    """config.json of the target: the language model's numbers are nested, vision has others of the same names."""
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "torch_dtype": "bfloat16",
        "text_config": {
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE,
            "num_hidden_layers": TARGET_LAYERS,
            "num_attention_heads": HEADS,
            "vocab_size": TARGET_VOCAB,
            "max_position_embeddings": 262144,
            "rope_theta": 50000.0,
            "torch_dtype": "bfloat16",
        },
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304},
    }


def layer(prefix: str) -> Weights:
    """The one decoder layer: attention reads the embedding and the hidden state side by side."""
    inner = HEADS * HEAD_DIM
    attention = {name: zeros("BF16", inner, 2 * HIDDEN) for name in ("q_proj", "k_proj", "v_proj")}
    attention["o_proj"] = zeros("BF16", HIDDEN, inner)
    mlp = {name: zeros("BF16", INTERMEDIATE, HIDDEN) for name in ("gate_proj", "up_proj")}
    mlp["down_proj"] = zeros("BF16", HIDDEN, INTERMEDIATE)
    norms = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
    return {
        **{f"{prefix}.self_attn.{name}.weight": tensor for name, tensor in attention.items()},
        **{f"{prefix}.mlp.{name}.weight": tensor for name, tensor in mlp.items()},
        **{f"{prefix}.{name}.weight": zeros("BF16", HIDDEN) for name in norms},
    }


def draft_weights(prefix: str = "midlayer", states: int = 3, salt: int = 0) -> Weights:
    """Every tensor. ``prefix`` names the layer, ``states`` is how many hidden states fc takes, ``salt`` the map."""
    kept = spread(DRAFT_VOCAB, TARGET_VOCAB, salt)
    return {
        "d2t": offsets(kept),
        "t2d": mask(TARGET_VOCAB, kept),
        "fc.weight": zeros("BF16", HIDDEN, states * HIDDEN),
        **layer(prefix),
        "norm.weight": zeros("BF16", HIDDEN),
        "lm_head.weight": zeros("BF16", DRAFT_VOCAB, HIDDEN),
    }


def write_pair(folder: Path, weights: Weights, config: dict[str, Any] | None = None) -> Path:
    """Write the draft and target_config.json into ``folder``; answers the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or draft_config(), indent=2) + "\n")
    (folder / "target_config.json").write_text(json.dumps(target_config(), indent=2) + "\n")
    write_safetensors(folder / "model.safetensors", weights, {"format": "pt"})
    return folder


def main() -> None:
    """Parse the command line and write."""
    parser = argparse.ArgumentParser(description="write a Kimi-K2.5-shaped drafter, sparse")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--names", default="midlayer", help="how the decoder layer is named, such as layers.0")
    parser.add_argument("--states", type=int, default=3, help="how many hidden states fc takes")
    options = parser.parse_args()
    print(write_pair(options.folder, draft_weights(options.names, options.states)))


if __name__ == "__main__":
    main()
