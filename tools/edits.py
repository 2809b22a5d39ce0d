"""Edits that turn a healthy draft into a random one: names, shapes, dtypes, config keys, layers, files."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from bases import DRAFT_VOCAB, HIDDEN, VOCAB, layer
from drafts import Draft
from weights import Weight, integers

Edit = Callable[[Draft, Random], None]
DTYPES = ("F32", "F16", "BF16", "F64", "I8", "I32", "I64", "U8", "BOOL")


def _some(draft: Draft, random: Random) -> str | None:
    return random.choice(list(draft.weights)) if draft.weights else None


LAYERS = ("midlayer.", "layers.0.", "layers.1.", "layers.00.", "decoder.layers.0.", "mid_layer.")


def _rename_layer(draft: Draft, random: Random) -> None:
    new = random.choice((*LAYERS, *(f"model.{name}" for name in LAYERS)))
    draft.rename(lambda name: next((new + name[len(old) :] for old in LAYERS if name.startswith(old)), name))


PREFIXES = ("model.", "module.", "draft_model.", "_orig_mod.", "model.model.", "eagle_module.", "base_model.model.")


def _prefix(draft: Draft, random: Random) -> None:
    prefix, spared = random.choice(PREFIXES), random.choice((("lm_head", "d2t", "t2d"), ()))
    draft.rename(lambda name: name if name.startswith(spared or "\0") else prefix + name)


def _prefix_one(draft: Draft, random: Random) -> None:
    chosen, prefix = _some(draft, random), random.choice(PREFIXES)
    draft.rename(lambda name: prefix + name if name == chosen else name)


def _drop(draft: Draft, random: Random) -> None:
    chosen = _some(draft, random)
    if chosen is not None:
        draft.drop(chosen)


ODD_NAMES = (
    "fc.bias", "midlayer.self_attn.q_proj.bias", "midlayer.self_attn.o_proj.bias", "midlayer.mlp.gate_proj.bias",
    "layers.0.self_attn.rotary_emb.inv_freq", "rotary_emb.cos_cached", "embed_tokens.weight",
    "layers.1.mlp.up_proj.weight", "layers.1.hidden_norm.weight",
    "not2d_proj.weight", "extra.weight", "extra.bias", "mask_hidden", "fc_norm.0.weight",
    "fc_norm.3.weight", "aux_norm_low.weight", "input_norm.weight", "model.norm.weight", "lm_head.bias", "module.d2t",
    "x.d2t_foo", "midlayer.self_attn.q_norm.weight", "k_proj.weight", "shared_head.norm.weight", "eh_proj.weight",
    "target.q_proj.weight", "hidden_norm.weight", "draft_id_to_target_id", "norm", "lm_head", "midlayer.mlp.up_proj",
)  # fmt: skip


def _add(draft: Draft, random: Random) -> None:
    name = random.choice(ODD_NAMES)
    shape = random.choice(((HIDDEN,), (HIDDEN, HIDDEN), (DRAFT_VOCAB,), (VOCAB, HIDDEN), (1,), (3 * HIDDEN,)))
    draft.weights[name] = Weight(random.choice(("BF16", "F32", "I64")), shape)


def _misspell(draft: Draft, random: Random) -> None:
    chosen = _some(draft, random)
    changes = ((".weight", ".w"), ("_proj", "proj"), ("self_attn", "attn"), ("mlp", "ffn"), ("norm", "ln"), (".", "_"))
    old, new = random.choice(changes)
    draft.rename(lambda name: name.replace(old, new, 1) if name == chosen else name)


def _twin(draft: Draft, random: Random) -> None:
    chosen = _some(draft, random)
    if chosen is not None:
        new = random.choice((f"model.{chosen}", chosen.replace("midlayer", "layers.0"), f"x.{chosen}"))
        draft.weights[new] = draft.weights[chosen]


def _fuse(draft: Draft, random: Random) -> None:
    fused, parts = random.choice(
        (("qkv_proj", ("q_proj", "k_proj", "v_proj")), ("gate_up_proj", ("gate_proj", "up_proj")))
    )
    found = [[name for name in draft.weights if f".{part}.weight" in name] for part in parts]
    if all(found):
        first = found[0][0]
        shapes = [draft.weights.pop(names[0]).shape for names in found]
        rows = sum(shape[0] if shape else 1 for shape in shapes)
        draft.weights[first.replace(parts[0], fused)] = Weight("BF16", (rows, *shapes[0][1:]))


def _reshape(draft: Draft, random: Random) -> None:
    chosen = _some(draft, random)
    if chosen is None:
        return
    shape = list(draft.weights[chosen].shape)
    if shape:
        at = random.randrange(len(shape))
        shape[at] = random.choice((shape[at] * 2, shape[at] // 2, shape[at] + 1, 1, 0, 2 * HIDDEN, 3 * HIDDEN))
    change = random.choice(("resize", "resize", "resize", "transpose", "squeeze", "unsqueeze"))
    changed = {
        "resize": shape,
        "transpose": list(draft.weights[chosen].shape)[::-1],
        "squeeze": list(draft.weights[chosen].shape)[:1],
        "unsqueeze": [1, *draft.weights[chosen].shape],
    }[change]
    draft.shape(chosen, *changed)


def _retype(draft: Draft, random: Random) -> None:
    chosen = _some(draft, random)
    if chosen is not None:
        draft.weights[chosen] = Weight(random.choice(DTYPES), draft.weights[chosen].shape)


def _remap(draft: Draft, random: Random) -> None:
    length = random.choice((DRAFT_VOCAB, DRAFT_VOCAB, DRAFT_VOCAB // 2, DRAFT_VOCAB + 1, VOCAB))
    kind = random.choice(("offsets", "absolute", "zero", "negative", "huge"))
    values = {
        "offsets": [2 * i for i in range(length)],
        "absolute": [3 * i for i in range(length)],
        "zero": [0] * length,
        "negative": [-i for i in range(length)],
        "huge": [VOCAB * 4] * length,
    }[kind]
    draft.weights["d2t"] = integers(values, random.choice(("I64", "I32")))


def _full_vocabulary(draft: Draft, random: Random) -> None:
    draft.set(draft_vocab_size=random.choice((VOCAB, VOCAB, None)))
    if "lm_head.weight" in draft.weights:
        draft.shape("lm_head.weight", VOCAB, HIDDEN)
    if random.random() < 0.6:
        for name in ("d2t", "t2d"):
            draft.weights.pop(name, None)


SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "draft_vocab_size", "target_hidden_size", "num_aux_hidden_states", "max_position_embeddings",
)  # fmt: skip


def _size(draft: Draft, random: Random) -> None:
    key = random.choice(SIZES)
    now = draft.config.get(key) or HIDDEN
    draft.config[key] = random.choice((now * 2, now, now // 2, now + 1, 0, 1, 2, 3, 4))


FLAGS = (
    "tie_word_embeddings", "bias", "attention_bias", "mlp_bias", "fc_norm", "use_aux_norm", "norm_before_fc",
    "norm_output", "norm_before_residual", "use_aux_hidden_state",
)  # fmt: skip


def _flag(draft: Draft, random: Random) -> None:
    draft.config[random.choice(FLAGS)] = random.choice((True, True, False, None))


def _forget(draft: Draft, random: Random) -> None:
    if draft.config:
        del draft.config[random.choice(list(draft.config))]


def _null(draft: Draft, random: Random) -> None:
    if draft.config:
        draft.config[random.choice(list(draft.config))] = None


IDS: tuple[object, ...] = (
    [1, 3, 5],
    [2, 4, 6],
    [1, 3],
    [1, 2, 3, 4],
    [5, 3, 1],
    [1, 1, 3],
    [],
    [8, 3, 5],
    [0, 3, 7],
    None,
    "1,3",
    3,
)


def _ids(draft: Draft, random: Random) -> None:
    ids = random.choice(IDS)
    extra = random.choice(({}, {}, {"use_aux_hidden_state": random.choice((True, False))}, {"norm_before_fc": True}))
    if random.random() < 0.7:
        draft.set(eagle_config={"eagle_aux_hidden_state_layer_ids": ids, **extra})
    else:
        draft.set(eagle_aux_hidden_state_layer_ids=ids)


def _eagle_config(draft: Draft, random: Random) -> None:
    draft.set(
        eagle_config=random.choice(({}, None, [], "x", {"use_aux_hidden_state": False}, {"norm_before_fc": True}))
    )


def _widen(draft: Draft, random: Random) -> None:
    states = random.choice((1, 2, 4))
    names = [name for name in draft.weights if name.endswith("fc.weight")]
    if names:
        draft.shape(names[0], HIDDEN, states * HIDDEN)
    if random.random() < 0.7:
        draft.set(num_aux_hidden_states=states)


def _second_layer(draft: Draft, random: Random) -> None:
    inputs = random.choice((HIDDEN, HIDDEN, 2 * HIDDEN))
    draft.weights.update(layer(random.choice(("layers.1", "model.layers.1")), inputs))
    draft.set(num_hidden_layers=random.choice((1, 2, 2, 3)))


MODEL_TYPES = ("llama", "qwen2", "qwen3", "mistral", "eagle3", "llama4_text", "", None)
NAMES = (
    "LlamaForCausalLMEagle3",
    "LlamaForCausalLMEagle3",
    "Eagle3LlamaForCausalLM",
    "LlamaForCausalLMEagle",
    "Unheard",
)


def _identity(draft: Draft, random: Random) -> None:
    if random.random() < 0.5:
        draft.set(model_type=random.choice(MODEL_TYPES))
    else:
        draft.set(architectures=[random.choice(NAMES)])


def _split(draft: Draft, random: Random) -> None:
    moved = random.sample(list(draft.weights), k=min(len(draft.weights), 4))
    left = [name for name in draft.weights if name not in moved]
    draft.weight_file = "model-00001-of-00002.safetensors"
    draft.split(*moved, into="model-00002-of-00002.safetensors")
    index = {**dict.fromkeys(left, draft.weight_file), **dict.fromkeys(moved, "model-00002-of-00002.safetensors")}
    fate = random.choice(("right", "right", "none", "short", "absent"))
    if fate == "short":
        index.pop(next(iter(index)), None)
    if fate == "absent":
        index["more.weight"] = "model-00003-of-00003.safetensors"
    if fate != "none":
        draft.index(index)


EDITS: dict[str, Edit] = {
    "rename-layer": _rename_layer,
    "prefix": _prefix,
    "prefix-one": _prefix_one,
    "drop": _drop,
    "add": _add,
    "misspell": _misspell,
    "twin": _twin,
    "fuse": _fuse,
    "reshape": _reshape,
    "retype": _retype,
    "remap": _remap,
    "full-vocabulary": _full_vocabulary,
    "size": _size,
    "flag": _flag,
    "forget-key": _forget,
    "null-key": _null,
    "ids": _ids,
    "eagle-config": _eagle_config,
    "widen-fc": _widen,
    "second-layer": _second_layer,
    "identity": _identity,
    "split": _split,
}
"""What can be done to a draft. An edit that finds nothing to change leaves the draft as it is."""
