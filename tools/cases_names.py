"""DC1xx and DC2xx: names, loading and shapes."""

from __future__ import annotations

from cases import case
from drafts import HEADS, HIDDEN, INTERMEDIATE, KV_HEADS, Draft, layer
from weights import Weight, zeros

ATTENTION = "midlayer.self_attn"


def layers_zero(draft: Draft) -> None:
    draft.rename(lambda name: name.replace("midlayer", "layers.0"))


@case("DC101/renamed-projection")
def renamed_projection(draft: Draft) -> None:
    draft.rename(lambda name: name.replace("self_attn.o_proj", "attn.o_proj"))


@case("DC105/model-before-the-head")
def head_under_model(draft: Draft) -> None:
    draft.rename(lambda name: name.replace("lm_head", "model.lm_head"))


@case("DC102/no-fc")
def no_fc(draft: Draft) -> None:
    draft.drop("fc.weight")


@case("DC102/no-down-proj")
def no_down_proj(draft: Draft) -> None:
    draft.drop("midlayer.mlp.down_proj.weight")


@case("DC103/no-up-proj")
def no_up_proj(draft: Draft) -> None:
    draft.drop("midlayer.mlp.up_proj.weight")


@case("DC103/no-q-proj")
def no_q_proj(draft: Draft) -> None:
    draft.drop(f"{ATTENTION}.q_proj.weight")


@case("DC104/layers-0.4.8", "0.4.8")
def refused_layers(draft: Draft) -> None:
    layers_zero(draft)


@case("DC105/module")
def module(draft: Draft) -> None:
    draft.rename(lambda name: f"module.{name}")


@case("DC105/draft-model")
def draft_model(draft: Draft) -> None:
    draft.rename(lambda name: f"draft_model.{name}")


@case("DC105/compiled")
def compiled(draft: Draft) -> None:
    draft.rename(lambda name: f"_orig_mod.{name}")


@case("DC101/layers-0.5.9", "0.5.9")
def dropped_layers(draft: Draft) -> None:
    layers_zero(draft)


@case("DC105/draft-before-the-layer")
def draft_layers(draft: Draft) -> None:
    draft.rename(lambda name: name.replace("midlayer", "draft.layers.0"))


@case("DC108/speculators-0.1")
def speculators_names(draft: Draft) -> None:
    """As convert/eagle of speculators 0.1 wrote them."""
    parts = {"fc.": "fusion_fc.", "midlayer.input_layernorm.": "embedding_layernorm.", "midlayer.": "transformer."}

    def change(name: str) -> str:
        old = next((old for old in parts if name.startswith(old)), "")
        return parts[old] + name[len(old) :] if old else name

    draft.rename(change)


@case("good/layers-0.5.12", "0.5.12")
def layers_taken(draft: Draft) -> None:
    layers_zero(draft)


@case("good/model-prefix")
def model_prefix(draft: Draft) -> None:
    bare = ("lm_head.weight", "d2t", "t2d")
    draft.rename(lambda name: name if name in bare else f"model.{name}")


@case("good/fused-projections")
def fused_projections(draft: Draft) -> None:
    draft.drop(*(f"{ATTENTION}.{part}_proj.weight" for part in "qkv"))
    draft.drop("midlayer.mlp.gate_proj.weight", "midlayer.mlp.up_proj.weight")
    draft.weights[f"{ATTENTION}.qkv_proj.weight"] = zeros("BF16", (HEADS + 2 * KV_HEADS) * 8, 2 * HIDDEN)
    draft.weights["midlayer.mlp.gate_up_proj.weight"] = zeros("BF16", 2 * INTERMEDIATE, HIDDEN)


@case("good/rotary-buffer")
def rotary_buffer(draft: Draft) -> None:
    draft.weights["midlayer.self_attn.rotary_emb.inv_freq"] = zeros("F32", 4)


@case("good/own-embedding")
def own_embedding(draft: Draft) -> None:
    draft.weights["embed_tokens.weight"] = zeros("BF16", 256, HIDDEN)


@case("good/second-layer-without-input-layernorm")
def second_layer(draft: Draft) -> None:
    draft.rename(lambda name: name.replace("midlayer", "layers.0"))
    draft.weights |= layer("layers.1", HIDDEN)
    draft.set(num_hidden_layers=2)
    draft.drop("layers.1.input_layernorm.weight")


@case("DC201/fc-rows")
def fc_rows(draft: Draft) -> None:
    draft.shape("fc.weight", 2 * HIDDEN, 3 * HIDDEN)


@case("DC201/q-takes-one-half")
def q_takes_one_half(draft: Draft) -> None:
    draft.shape(f"{ATTENTION}.q_proj.weight", HIDDEN, HIDDEN)


@case("DC201/norm-of-one")
def norm_of_one(draft: Draft) -> None:
    draft.shape("norm.weight", 1)


@case("DC201/mlp-too-wide")
def mlp_too_wide(draft: Draft) -> None:
    draft.weights |= layer("midlayer", intermediate=2 * INTERMEDIATE)


@case("DC202/heads-split-otherwise")
def heads_split_otherwise(draft: Draft) -> None:
    """Fewer heads than the file has rows for: the surplus rows of k and v would be cut without a word."""
    draft.set(num_attention_heads=2, num_key_value_heads=1)


@case("DC201/fewer-kv-heads")
def fewer_kv_heads(draft: Draft) -> None:
    draft.set(num_key_value_heads=1)


@case("DC202/head-dim-absent")
def head_dim_absent(draft: Draft) -> None:
    draft.config.pop("head_dim")
    for part, heads in {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS}.items():
        draft.shape(f"{ATTENTION}.{part}_proj.weight", heads * 16, 2 * HIDDEN)
    draft.shape(f"{ATTENTION}.o_proj.weight", HIDDEN, HEADS * 16)


@case("good/heads-wider-than-hidden")
def heads_wider(draft: Draft) -> None:
    head_dim_absent(draft)
    draft.set(head_dim=16)


@case("DC203/two-layers-one-in-the-file")
def two_layers(draft: Draft) -> None:
    draft.set(num_hidden_layers=2)


@case("DC203/two-layers-0.5.9", "0.5.9")
def two_layers_refused(draft: Draft) -> None:
    draft.set(num_hidden_layers=2)


@case("good/spare-layer-in-the-file")
def spare_layer(draft: Draft) -> None:
    draft.weights |= layer("layers.1", HIDDEN)


def bias(size: int, value: int) -> Weight:
    """A bf16 vector of one value, given by the byte of its exponent."""
    return Weight("BF16", (size,), bytes((0, value)) * size)


@case("DC204/fc-bias")
def fc_bias(draft: Draft) -> None:
    draft.weights["fc.bias"] = bias(HIDDEN, 0x3F)


@case("DC204/qkv-bias")
def qkv_bias(draft: Draft) -> None:
    draft.set(attention_bias=True)
    for part, heads in {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS}.items():
        draft.weights[f"{ATTENTION}.{part}_proj.bias"] = bias(heads * 8, 0x3F)


@case("DC204/zero-bias")
def zero_bias(draft: Draft) -> None:
    draft.weights["fc.bias"] = bias(HIDDEN, 0)


@case("good/fc-bias-with-a-slot")
def fc_bias_with_a_slot(draft: Draft) -> None:
    draft.set(bias=True)
    draft.weights["fc.bias"] = bias(HIDDEN, 0x3F)
    draft.weights["midlayer.self_attn.o_proj.bias"] = bias(HIDDEN, 0x3F)


@case("DC106/tables-of-the-rope")
def tables_of_the_rope(draft: Draft) -> None:
    """Buffers that were saved with the weights: the engine computes its own."""
    for name in ("cos_cached", "sin_cached"):
        draft.weights[f"midlayer.self_attn.rotary_emb.{name}"] = zeros("F32", 128, 8)


@case("DC107/embedding")
def embedding(draft: Draft) -> None:
    draft.weights["embed_tokens.weight"] = zeros("BF16", 256, HIDDEN)


@case("DC107/head")
def head_replaced(draft: Draft) -> None:
    """Null where the number of rows should stand: the target's head is taken, and its embedding."""
    draft.full_vocabulary()
    draft.set(draft_vocab_size=None)
