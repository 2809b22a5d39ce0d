"""A tiny healthy EAGLE-3 draft as data, the edits that break it, and how it is written to a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weights import Weights, mask, offsets, spread, write_safetensors, zeros

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 32, 4, 2, 8, 48
VOCAB, DRAFT_VOCAB, TARGET_LAYERS = 256, 128, 8

Json = dict[str, Any]


def draft_config() -> Json:
    """A flat config, with both spellings of nothing: every key that an engine reads is there once."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


def target_config() -> Json:
    """A plain Llama of the same width, eight layers deep."""
    config = draft_config()
    del config["draft_vocab_size"]
    return {**config, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": TARGET_LAYERS}


def layer(prefix: str, inputs: int = 2 * HIDDEN, intermediate: int = INTERMEDIATE) -> Weights:
    """One decoder layer; the first takes embedding and hidden state side by side."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        f"{prefix}.self_attn.q_proj.weight": zeros("BF16", queries, inputs),
        f"{prefix}.self_attn.k_proj.weight": zeros("BF16", keys, inputs),
        f"{prefix}.self_attn.v_proj.weight": zeros("BF16", keys, inputs),
        f"{prefix}.self_attn.o_proj.weight": zeros("BF16", HIDDEN, queries),
        f"{prefix}.mlp.gate_proj.weight": zeros("BF16", intermediate, HIDDEN),
        f"{prefix}.mlp.up_proj.weight": zeros("BF16", intermediate, HIDDEN),
        f"{prefix}.mlp.down_proj.weight": zeros("BF16", HIDDEN, intermediate),
        f"{prefix}.hidden_norm.weight": zeros("BF16", HIDDEN),
        f"{prefix}.input_layernorm.weight": zeros("BF16", HIDDEN),
        f"{prefix}.post_attention_layernorm.weight": zeros("BF16", HIDDEN),
    }


def draft_weights() -> Weights:
    """Every tensor of a healthy draft with a reduced vocabulary, under the names that every release takes."""
    kept = spread(DRAFT_VOCAB, VOCAB)
    return {
        "d2t": offsets(kept),
        "t2d": mask(VOCAB, kept),
        "fc.weight": zeros("BF16", HIDDEN, 3 * HIDDEN),
        **layer("midlayer"),
        "norm.weight": zeros("BF16", HIDDEN),
        "lm_head.weight": zeros("BF16", DRAFT_VOCAB, HIDDEN),
    }


Writer = Callable[[Path], None]


@dataclass
class Draft:
    """One checkpoint to write. An edit changes it in place.

    ``files`` are written after the weights and may overwrite them; ``args`` are further options of the
    command line, with ``{case}`` for the folder.
    """

    config: Json = field(default_factory=draft_config)
    weights: Weights = field(default_factory=draft_weights)
    target: Json | None = field(default_factory=target_config)
    files: dict[str, bytes] = field(default_factory=dict)
    writers: list[Writer] = field(default_factory=list)
    weight_file: str | None = "model.safetensors"
    engine: str = "sglang==0.5.15"
    args: str = ""

    def set(self, **keys: object) -> None:
        """Change keys of config.json."""
        self.config.update(keys)

    def drop(self, *names: str) -> None:
        """Leave out tensors."""
        for name in names:
            del self.weights[name]

    def rename(self, change: Callable[[str], str]) -> None:
        """Rename every tensor."""
        self.weights = {change(name): tensor for name, tensor in self.weights.items()}

    def shape(self, name: str, *shape: int) -> None:
        """Give a tensor another shape."""
        self.weights[name] = self.weights[name].with_shape(*shape)

    def full_vocabulary(self) -> None:
        """A head over the whole vocabulary and no map."""
        self.drop("d2t", "t2d")
        self.set(draft_vocab_size=VOCAB)
        self.shape("lm_head.weight", VOCAB, HIDDEN)

    def split(self, *names: str, into: str) -> None:
        """Move tensors to another safetensors file."""
        moved = {name: self.weights.pop(name) for name in names}
        self.writers.append(lambda folder: write_safetensors(folder / into, moved, {"format": "pt"}))

    def index(self, weight_map: dict[str, str]) -> None:
        """Add model.safetensors.index.json with this map."""
        document = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        self.files["model.safetensors.index.json"] = dump(document)

    def write(self, folder: Path) -> None:
        """Write everything but the expectation."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_bytes(dump(self.config))
        if self.target is not None:
            (folder / "target_config.json").write_bytes(dump(self.target))
        if self.weight_file is not None:
            write_safetensors(folder / self.weight_file, self.weights, {"format": "pt"})
        for writer in self.writers:
            writer(folder)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        (folder / "args.txt").write_text(f"--engine {self.engine} {self.args}".strip() + "\n")


def dump(document: object) -> bytes:
    """JSON as people read it."""
    return (json.dumps(document, indent=2) + "\n").encode()
