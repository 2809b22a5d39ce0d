"""The faults whose cost was measured on a real server, rebuilt from the trained drafter: edits of names, maps, config.

Each entry of VARIANTS is named as in the table of measurements and edits a copy of the healthy pair in place.
"""

from __future__ import annotations

import json
import math
import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drafts import dump
from pickles import write_torch
from weights import Weight, Weights, integers, mask, read_safetensors, spread, write_safetensors, zeros

TRAINED = Path(__file__).parent.parent / "fixtures" / "trained"

HIDDEN, VOCAB, DRAFT_VOCAB, HEADS, HEAD_DIM = 256, 2048, 1024, 4, 64


@dataclass
class Pair:
    """A draft beside its target; ``options`` are keyword arguments for lint."""

    config: dict[str, Any]
    weights: Weights
    target: dict[str, Any]
    options: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    as_pickle: bool = False

    def rename(self, change: Callable[[str], str]) -> None:
        self.weights = {change(name): tensor for name, tensor in self.weights.items()}

    def ids(self, *layers: int) -> None:
        self.config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": list(layers)}

    def offsets(self) -> list[int]:
        return list(array("q", self.weights["d2t"].raw))

    def write(self, folder: Path) -> Path:
        folder.mkdir()
        (folder / "config.json").write_bytes(dump(self.config))
        (folder / "target_config.json").write_bytes(dump(self.target))
        if self.as_pickle:
            write_torch(folder / "pytorch_model.bin", self.weights)
        else:
            write_safetensors(folder / "model.safetensors", self.weights, {"format": "pt"})
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder


def healthy() -> Pair:
    """The trained pair as it is."""
    draft, target = TRAINED / "draft", TRAINED / "target"
    weights = read_safetensors(draft / "model.safetensors")
    return Pair(
        json.loads((draft / "config.json").read_text()), weights, json.loads((target / "config.json").read_text())
    )


Edit = Callable[[Pair], object]
VARIANTS: dict[str, Edit] = {}


def variant(name: str) -> Callable[[Edit], Edit]:
    """Declare an edit under its name in the table."""

    def declare(edit: Edit) -> Edit:
        assert name not in VARIANTS
        VARIANTS[name] = edit
        return edit

    return declare


def build(name: str) -> Pair:
    """The healthy pair with the edit ``name``."""
    pair = healthy()
    VARIANTS[name](pair)
    return pair


def configured(name: str, **keys: object) -> None:
    """Declare a variant that sets keys of config.json."""
    VARIANTS[name] = lambda pair: pair.config.update(keys)


def without_key(name: str, *keys: str) -> None:
    """Declare a variant that leaves out keys of config.json."""
    VARIANTS[name] = lambda pair: [pair.config.pop(key) for key in keys]


def without(name: str, *tensors: str) -> None:
    """Declare a variant that leaves out tensors."""
    VARIANTS[name] = lambda pair: [pair.weights.pop(tensor) for tensor in tensors]


def renamed(name: str, old: str, new: str) -> None:
    """Declare a variant that replaces a part of every name."""
    VARIANTS[name] = lambda pair: pair.rename(lambda tensor: tensor.replace(old, new))


def prefixed(name: str, prefix: str, but: tuple[str, ...] = ()) -> None:
    """Declare a variant that puts a prefix before every name but those given."""
    VARIANTS[name] = lambda pair: pair.rename(lambda tensor: tensor if tensor in but else prefix + tensor)


def drawn(tensor: Weight, salt: int) -> Weight:
    """The same float tensor, its values shuffled by bytes: no longer trained, every value finite."""
    words = array("H", tensor.raw)
    state = salt
    for place in range(len(words)):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        words[place] = 0x3C00 | (state >> 8) & 0x80FF
    return Weight(tensor.dtype, tensor.shape, words.tobytes())


def rows(tensor: Weight, order: list[int]) -> Weight:
    """The rows of a matrix in another order."""
    width = len(tensor.raw) // tensor.shape[0]
    parts = [tensor.raw[row * width : (row + 1) * width] for row in order]
    return Weight(tensor.dtype, (len(order), *tensor.shape[1:]), b"".join(parts))


def column_blocks(tensor: Weight, order: list[int]) -> Weight:
    """The columns of a matrix cut into ``len(order)`` blocks, in another order."""
    height = tensor.shape[0]
    width = len(tensor.raw) // height
    block = width // len(order)
    lines = [tensor.raw[row * width : (row + 1) * width] for row in range(height)]
    moved = [b"".join(line[at * block : (at + 1) * block] for at in order) for line in lines]
    return Weight(tensor.dtype, tensor.shape, b"".join(moved))


def cast(tensor: Weight, dtype: str) -> Weight:
    """A bf16 tensor as F16 (half precision), values kept as near as they go."""
    floats = struct.unpack(
        f"<{len(tensor.raw) // 2}f", b"".join(b"\0\0" + tensor.raw[i : i + 2] for i in range(0, len(tensor.raw), 2))
    )
    return Weight(dtype, tensor.shape, struct.pack(f"<{len(floats)}e", *floats))


def float_names(pair: Pair) -> list[str]:
    return [name for name, tensor in pair.weights.items() if tensor.dtype == "BF16"]


@variant("00_random_weights")
def random_weights(pair: Pair) -> None:
    for salt, name in enumerate(float_names(pair)):
        pair.weights[name] = drawn(pair.weights[name], salt)


@variant("01_healthy")
def as_it_is(pair: Pair) -> None:
    pass


renamed("02_layers0", "midlayer", "layers.0")
prefixed("03a_model_midlayer", "model.", but=("lm_head.weight", "d2t", "t2d"))
prefixed("03b_model_everything", "model.")
renamed("04a_module_midlayer", "midlayer", "module.midlayer")
prefixed("04b_module_everything", "module.")
renamed("04c_draft_layers0", "midlayer", "draft.layers.0")
prefixed("04d_draft_model_everything", "draft_model.")
without("05_no_d2t", "d2t")


@variant("06_d2t_absolute")
def absolute(pair: Pair) -> None:
    pair.weights["d2t"] = integers(place + offset for place, offset in enumerate(pair.offsets()))


@variant("07a_lm_head_permuted")
def head_permuted(pair: Pair) -> None:
    pair.weights["lm_head.weight"] = rows(pair.weights["lm_head.weight"], [*range(1, DRAFT_VOCAB), 0])


@variant("07b_d2t_other_corpus")
def other_corpus(pair: Pair) -> None:
    kept = spread(DRAFT_VOCAB, VOCAB, salt=11)
    pair.weights["d2t"] = integers(token - place for place, token in enumerate(kept))
    pair.weights["t2d"] = mask(VOCAB, kept)


@variant("08_fc_1x_hidden")
def one_state(pair: Pair) -> None:
    pair.weights["fc.weight"] = zeros("BF16", HIDDEN, HIDDEN)


@variant("09a_aux_reversed")
def aux_reversed(pair: Pair) -> None:
    pair.weights["fc.weight"] = column_blocks(pair.weights["fc.weight"], [2, 1, 0])


@variant("10_algo_EAGLE")
def algorithm_eagle(pair: Pair) -> None:
    pair.options["algorithm"] = "EAGLE"


@variant("11a_no_embed")
def no_embed(pair: Pair) -> None:
    pair.weights.pop("embed_tokens.weight", None)


@variant("11b_random_embed")
def random_embed(pair: Pair) -> None:
    pair.weights["embed_tokens.weight"] = drawn(zeros("BF16", VOCAB, HIDDEN), 3)


without("12_no_hidden_norm", "midlayer.hidden_norm.weight")
without_key("13a_no_draft_vocab_size", "draft_vocab_size")
configured("13b_draft_vocab_512", draft_vocab_size=512)
configured("13c_draft_vocab_2048", draft_vocab_size=2048)
configured("13d_draft_vocab_null", draft_vocab_size=None)
configured("14a_maxpos128", max_position_embeddings=128)
configured("14b_maxpos128_allow", max_position_embeddings=128)
configured("15a_theta_1e4", rope_theta=1e4)
without_key("15b_no_theta", "rope_theta")


def half(pair: Pair) -> None:
    for name in float_names(pair):
        pair.weights[name] = cast(pair.weights[name], "F16")
    pair.config["torch_dtype"] = "float16"


@variant("16a_fp16")
def half_given(pair: Pair) -> None:
    half(pair)
    pair.options["dtype"] = "bfloat16"


VARIANTS["16c_fp16_dtype_auto"] = half
without("17_no_lm_head", "lm_head.weight")


def poison(tensor: Weight, count: int) -> Weight:
    """The first ``count`` values of a bf16 tensor as NaN."""
    return Weight(tensor.dtype, tensor.shape, b"\xc0\x7f" * count + tensor.raw[2 * count :])


@variant("18a_nan_tensor")
def nan_tensor(pair: Pair) -> None:
    down = pair.weights["midlayer.mlp.down_proj.weight"]
    pair.weights["midlayer.mlp.down_proj.weight"] = poison(down, math.prod(down.shape))


@variant("18b_nan_element")
def nan_element(pair: Pair) -> None:
    pair.weights["fc.weight"] = poison(pair.weights["fc.weight"], 1)


without("19_no_t2d", "t2d")
configured("20_eps_1e-2", rms_norm_eps=1e-2)
configured("21_arch_LlamaForCausalLM", architectures=["LlamaForCausalLM"])
configured("22_two_layers", num_hidden_layers=2)
configured("23_tie_true", tie_word_embeddings=True)
VARIANTS["24a_aux_ids_right"] = lambda pair: pair.ids(1, 3, 4)
VARIANTS["24b_aux_ids_plus1"] = lambda pair: pair.ids(2, 4, 5)
VARIANTS["24c_aux_ids_two"] = lambda pair: pair.ids(1, 3)
VARIANTS["24d_aux_ids_out_of_range"] = lambda pair: pair.ids(1, 3, 9)
configured("24e_use_aux_false", eagle_config={"use_aux_hidden_state": False})
configured("24f_aux_ids_toplevel", eagle_aux_hidden_state_layer_ids=[2, 4, 5])
without("25a_no_fc", "fc.weight")
without("25b_no_norm", "norm.weight")
without("25c_no_input_layernorm", "midlayer.input_layernorm.weight")
without("25d_no_qproj", "midlayer.self_attn.q_proj.weight")


@variant("26_qkv_halves_swapped")
def halves_swapped(pair: Pair) -> None:
    for part in "qkv":
        name = f"midlayer.self_attn.{part}_proj.weight"
        pair.weights[name] = column_blocks(pair.weights[name], [1, 0])


configured("27a_heads_8x32", num_attention_heads=8, num_key_value_heads=8, head_dim=32)
configured("27b_kv_heads_2", num_key_value_heads=2)


@variant("28_qk_interleaved")
def interleaved(pair: Pair) -> None:
    for part in "qk":
        name = f"midlayer.self_attn.{part}_proj.weight"
        half_dim = HEAD_DIM // 2
        order = [head * HEAD_DIM + i // 2 + i % 2 * half_dim for head in range(HEADS) for i in range(HEAD_DIM)]
        pair.weights[name] = rows(pair.weights[name], order)


def vocabulary_without_embedding(name: str, size: int) -> None:
    """Declare a variant of another vocab_size and no embedding."""

    def edit(pair: Pair) -> None:
        no_embed(pair)
        pair.config["vocab_size"] = size

    VARIANTS[name] = edit


vocabulary_without_embedding("29a_vocab_1024_noembed", 1024)
vocabulary_without_embedding("29b_vocab_4096_noembed", 4096)
configured("30a_norm_output_true", norm_output=True)
configured("30b_fc_norm_true", fc_norm=True)
renamed("31_o_proj_renamed", "self_attn.o_proj", "attn.o_proj")


@variant("32_d2t_int32")
def d2t_int32(pair: Pair) -> None:
    pair.weights["d2t"] = integers(pair.offsets(), "I32")


@variant("33_d2t_float")
def d2t_float(pair: Pair) -> None:
    halves = b"".join(struct.pack("<f", offset)[2:] for offset in pair.offsets())
    pair.weights["d2t"] = Weight("BF16", (DRAFT_VOCAB,), halves)


configured("34_model_type_unknown", model_type="eagle3")


@variant("35_bin")
def pickled(pair: Pair) -> None:
    pair.as_pickle = True


configured("36_target_hidden_size_512", target_hidden_size=512)
configured("37_arch_eagle1", architectures=["LlamaForCausalLMEagle"])


@variant("38_d2t_zero")
def d2t_zero(pair: Pair) -> None:
    pair.weights["d2t"] = zeros("I64", DRAFT_VOCAB)


@variant("39_d2t_512")
def d2t_short(pair: Pair) -> None:
    pair.weights["d2t"] = integers(pair.offsets()[:512])


@variant("40_half_trained")
def half_trained(pair: Pair) -> None:
    for salt, name in enumerate(float_names(pair)):
        if name.startswith("midlayer.mlp"):
            pair.weights[name] = drawn(pair.weights[name], salt)


without_key("41_no_architectures", "architectures")
configured("42_intermediate_1024", intermediate_size=1024)
configured("43_bias_true", bias=True)


@variant("44_extra_layer_weights")
def extra_layer(pair: Pair) -> None:
    layer = {n.replace("midlayer", "layers.1"): t for n, t in pair.weights.items() if n.startswith("midlayer.")}
    pair.weights |= layer


@variant("45_lm_head_2048_rows")
def head_of_all_rows(pair: Pair) -> None:
    pair.weights["lm_head.weight"] = zeros("BF16", VOCAB, HIDDEN)


@variant("46_theta_rope_parameters")
def theta_moved(pair: Pair) -> None:
    pair.config["rope_parameters"] = {"rope_theta": pair.config.pop("rope_theta"), "rope_type": "default"}


configured("47_theta_conflict", rope_parameters={"rope_theta": 1e4, "rope_type": "default"})


@variant("48_index_stale")
def index_stale(pair: Pair) -> None:
    place = {n: "model-00002.safetensors" if "midlayer" in n else "model.safetensors" for n in pair.weights}
    pair.files["model.safetensors.index.json"] = dump({"metadata": {}, "weight_map": place})


@variant("49_tied_no_lm_head")
def tied_without_head(pair: Pair) -> None:
    pair.config["tie_word_embeddings"] = True
    pair.weights.pop("lm_head.weight")


without_key("50_tie_key_absent", "tie_word_embeddings")
