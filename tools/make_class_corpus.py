"""Write the checkpoints whose verdicts fixtures/verdicts/sglang/classes.jsonl.xz holds: each class, healthy and broken.

    python tools/make_class_corpus.py FOLDER
    python tools/make_class_corpus.py --configs     # fixtures/verdicts/sglang/classes.tar.xz, the configs alone

Deterministic, no torch. A name such as ``mla-only-q_a`` is the class and what was done to it.
"""

from __future__ import annotations

import argparse
import io
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from class_drafts import dflash, domino, dspark, eagle1, fuse, mla, mla_weights
from class_edits import (
    Edit,
    added,
    both,
    config,
    dflash_key,
    dropped,
    fused,
    fused_latent,
    no_dflash_key,
    prefixed,
    second_layer,
    shaped,
    swapped,
    without,
)
from class_relatives import RELATIVES
from drafts import DRAFT_VOCAB, HEAD_DIM, HEADS, HIDDEN, INTERMEDIATE, KV_HEADS, VOCAB, Draft
from weights import integers

ARCHIVE = Path(__file__).parent.parent / "fixtures" / "verdicts" / "sglang" / "classes.tar.xz"


ATTENTION, MLP = "layers.0.self_attn", "layers.0.mlp"

EAGLE1: dict[str, Edit] = {
    "plain": lambda _: None,
    "no-bias": dropped("fc.bias"),
    "no-embed": dropped("embed_tokens.weight"),
    "no-fc": dropped("fc.weight"),
    "head": added("lm_head.weight", VOCAB, HIDDEN),
    "head-rows": added("lm_head.weight", 7, HIDDEN),
    "norm": added("norm.weight", HIDDEN),
    "input-norm": added("layers.0.input_layernorm.weight", HIDDEN),
    "model-prefix": prefixed("model."),
    "module-prefix": prefixed("module."),
    "midlayer": swapped("layers.0", "midlayer"),
    "two-layers": second_layer,
    "layer-too-many": both(second_layer, config(num_hidden_layers=1)),
    "layer-missing": config(num_hidden_layers=2),
    "no-up": dropped(f"{MLP}.up_proj.weight"),
    "no-v": dropped(f"{ATTENTION}.v_proj.weight"),
    "no-o": dropped(f"{ATTENTION}.o_proj.weight"),
    "wide-fc": shaped("fc.weight", HIDDEN, 3 * HIDDEN),
    "wide-q": shaped(f"{ATTENTION}.q_proj.weight", HEADS * HEAD_DIM, 2 * HIDDEN),
    "long-k": shaped(f"{ATTENTION}.k_proj.weight", 2 * KV_HEADS * HEAD_DIM, HIDDEN),
    "short-k": shaped(f"{ATTENTION}.k_proj.weight", KV_HEADS * HEAD_DIM // 2, HIDDEN),
    "short-down": shaped(f"{MLP}.down_proj.weight", HIDDEN, INTERMEDIATE // 2),
    "short-gate": shaped(f"{MLP}.gate_proj.weight", INTERMEDIATE // 2, HIDDEN),
    "embed-rows": shaped("embed_tokens.weight", VOCAB // 2, HIDDEN),
    "embed-width": shaped("embed_tokens.weight", VOCAB, 2 * HIDDEN),
    "fused": fused("layers.0"),
    "extra": both(added("extra.weight", 3), added(f"{ATTENTION}.rotary_emb.inv_freq", 4)),
    "extra-projection": added("extra.q_proj.weight", 3),
    "extra-bias": both(added("extra.bias", 3), added("extra.q_proj.bias", 3)),
    "qkv-bias": both(
        added(f"{ATTENTION}.q_proj.bias", HEADS * HEAD_DIM),
        added(f"{ATTENTION}.k_proj.bias", KV_HEADS * HEAD_DIM),
        added(f"{ATTENTION}.v_proj.bias", KV_HEADS * HEAD_DIM),
    ),
    "attention-bias": config(attention_bias=True),
    "bias": config(bias=True),
    "tied": config(tie_word_embeddings=True),
    "tied-head": both(config(tie_word_embeddings=True), added("lm_head.weight", VOCAB, HIDDEN)),
    "hot-vocab": config(hot_vocab_size=DRAFT_VOCAB),
    "d2t": lambda draft: draft.weights.update({"d2t": integers(range(DRAFT_VOCAB))}),
    "scale": added(f"{ATTENTION}.k_scale", 1),
    "gelu": config(hidden_act="gelu"),
    "no-kv-heads": without("num_key_value_heads"),
    "null-kv-heads": config(num_key_value_heads=None),
    "null-head-dim": config(head_dim=None),
    "no-head-dim": both(config(head_dim=1), without("head_dim")),
    "no-layers": config(num_hidden_layers=0),
    "logit-head": prefixed("lm_head."),
}

MLA: dict[str, Edit] = {
    "plain": lambda _: None,
    "midlayer": swapped("layers.0", "midlayer"),
    "model-prefix": prefixed("model."),
    "model-layers": lambda draft: draft.rename(lambda n: "model." + n if "layers" in n else n),
    "module-prefix": prefixed("module."),
    "layers-1": swapped("layers.0", "layers.1"),
    "only-q_a": dropped(f"{ATTENTION}.kv_a_proj_with_mqa.weight"),
    "only-kv_a": dropped(f"{ATTENTION}.q_a_proj.weight"),
    "fused-a": fused_latent,
    "q_a-width": shaped(f"{ATTENTION}.q_a_proj.weight", 12, HIDDEN),
    "a-width": both(
        shaped(f"{ATTENTION}.q_a_proj.weight", 12, HIDDEN), shaped(f"{ATTENTION}.kv_a_proj_with_mqa.weight", 14, HIDDEN)
    ),
    "q_a-rows": shaped(f"{ATTENTION}.q_a_proj.weight", 16, 2 * HIDDEN),
    "a-rows-traded": both(
        shaped(f"{ATTENTION}.q_a_proj.weight", 14, 2 * HIDDEN),
        shaped(f"{ATTENTION}.kv_a_proj_with_mqa.weight", 12, 2 * HIDDEN),
    ),
    "a-rank": shaped(f"{ATTENTION}.q_a_proj.weight", 12),
    "q_b-rows": shaped(f"{ATTENTION}.q_b_proj.weight", 64, 12),
    "q_b-short": shaped(f"{ATTENTION}.q_b_proj.weight", 24, 12),
    "kv_b-width": shaped(f"{ATTENTION}.kv_b_proj.weight", 64, 12),
    "o-width": shaped(f"{ATTENTION}.o_proj.weight", HIDDEN, 64),
    "o-short": shaped(f"{ATTENTION}.o_proj.weight", HIDDEN, 16),
    "no-kv_b": dropped(f"{ATTENTION}.kv_b_proj.weight"),
    "no-q_a_norm": dropped(f"{ATTENTION}.q_a_layernorm.weight"),
    "no-up": dropped(f"{MLP}.up_proj.weight"),
    "fused-mlp": lambda draft: fuse(
        draft, [f"{MLP}.gate_proj.weight", f"{MLP}.up_proj.weight"], f"{MLP}.gate_up_proj.weight"
    ),
    "short-gate": shaped(f"{MLP}.gate_proj.weight", INTERMEDIATE // 2, HIDDEN),
    "long-down": shaped(f"{MLP}.down_proj.weight", HIDDEN, 2 * INTERMEDIATE),
    "no-head": dropped("lm_head.weight"),
    "no-embed": dropped("embed_tokens.weight"),
    "no-d2t": dropped("d2t", "t2d"),
    "head-rows": shaped("lm_head.weight", VOCAB, HIDDEN),
    "no-draft-vocab": both(without("draft_vocab_size"), shaped("lm_head.weight", VOCAB, HIDDEN)),
    "null-draft-vocab": both(config(draft_vocab_size=None), dropped("lm_head.weight", "d2t", "t2d")),
    "odd-maps": lambda draft: draft.rename(lambda n: {"d2t": "x_d2t", "t2d": "module.t2d"}.get(n, n)),
    "nested-maps": lambda draft: draft.rename(lambda n: {"d2t": "module.d2t", "t2d": "t2d.x"}.get(n, n)),
    "four-states": both(
        shaped("fc.weight", HIDDEN, 4 * HIDDEN), config(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 2, 3, 4]})
    ),
    "four-top-states": both(
        shaped("fc.weight", HIDDEN, 4 * HIDDEN), config(eagle_aux_hidden_state_layer_ids=[1, 2, 3, 4])
    ),
    "four-named-states": both(shaped("fc.weight", HIDDEN, 4 * HIDDEN), config(num_aux_hidden_states=4)),
    "no-states": config(eagle_config={"eagle_aux_hidden_state_layer_ids": []}),
    "states-number": config(eagle_config={"eagle_aux_hidden_state_layer_ids": 3}),
    "eagle-config-list": config(eagle_config=[3]),
    "fc-norm": both(config(fc_norm=True), *(added(f"fc_norm.{n}.weight", HIDDEN) for n in range(3))),
    "fc-norm-unset": both(*(added(f"fc_norm.{n}.weight", HIDDEN) for n in range(3))),
    "fc-norm-legacy": both(config(use_aux_norm=True), *(added(f"fc_norm.{n}.weight", HIDDEN) for n in range(3))),
    "aux-norm-names": both(config(fc_norm=True), *(added(f"aux_norm_{n}.weight", HIDDEN) for n in ("low", "mid"))),
    "two-layers": both(
        config(num_hidden_layers=2),
        lambda draft: draft.weights.update({k: v for k, v in mla_weights("layers.1").items() if "layers" in k}),
    ),
    "no-q-rank": config(q_lora_rank=None),
    "no-rope": config(rope_scaling=None),
    "tied": config(tie_word_embeddings=True),
    "target-width": both(config(target_hidden_size=2 * HIDDEN), shaped("fc.weight", HIDDEN, 6 * HIDDEN)),
    "null-target-width": config(target_hidden_size=None),
    "bias": both(config(bias=True), added("fc.bias", HIDDEN)),
    "bias-missing": config(bias=True),
    "attention-bias": config(attention_bias=True),
    "kimi_k2": config(model_type="kimi_k2"),
    "deepseek_v2": config(model_type="deepseek_v2"),
    "llama": config(model_type="llama"),
    "wide-fc": shaped("fc.weight", HIDDEN, 4 * HIDDEN),
    "long-fc": shaped("fc.weight", 2 * HIDDEN, 3 * HIDDEN),
    "norm-one": shaped("norm.weight", 1),
    "extra": both(added("extra.weight", 3), added("extra.up_proj.weight", 3), added("extra.q_a_proj.weight", 3, 3)),
}

DFLASH: dict[str, Edit] = {
    "plain": lambda _: None,
    "model-prefix": prefixed("model."),
    "module-prefix": prefixed("module."),
    "midlayer": swapped("layers.0", "midlayer"),
    "encoder-names": lambda draft: draft.rename(
        lambda n: {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}.get(n, n)
    ),
    "wide-fc": shaped("fc.weight", HIDDEN, 3 * HIDDEN),
    "rank-fc": shaped("fc.weight", HIDDEN),
    "no-fc": dropped("fc.weight"),
    "no-hidden-norm": dropped("hidden_norm.weight"),
    "no-q-norm": dropped(f"{ATTENTION}.q_norm.weight"),
    "no-up": dropped(f"{MLP}.up_proj.weight"),
    "layer-missing": both(config(num_hidden_layers=3, layer_types=["full_attention"] * 3)),
    "layer-too-many": config(num_hidden_layers=1),
    "embed-and-head": both(added("embed_tokens.weight", VOCAB, HIDDEN), added("lm_head.weight", VOCAB, HIDDEN)),
    "d2t": lambda draft: draft.weights.update({"d2t": integers(range(DRAFT_VOCAB))}),
    "attention-bias": config(attention_bias=True),
    "attention-biases": both(
        config(attention_bias=True, num_hidden_layers=1),
        added(f"{ATTENTION}.q_proj.bias", HEADS * HEAD_DIM),
        added(f"{ATTENTION}.k_proj.bias", KV_HEADS * HEAD_DIM),
        added(f"{ATTENTION}.v_proj.bias", KV_HEADS * HEAD_DIM),
        added(f"{ATTENTION}.o_proj.bias", HIDDEN),
    ),
    "bias-without-slot": added(f"{ATTENTION}.q_proj.bias", HEADS * HEAD_DIM),
    "no-target-layers": without("num_target_layers"),
    "nested-target-layers": both(without("num_target_layers"), dflash_key(num_target_layers=8)),
    "no-ids": no_dflash_key("target_layer_ids"),
    "no-ids-at-all": both(no_dflash_key("target_layer_ids"), without("num_target_layers")),
    "no-dflash-config": both(without("dflash_config"), config(target_layer_ids=[1, 5])),
    "three-ids": dflash_key(target_layer_ids=[1, 2, 5]),
    "ids-empty": dflash_key(target_layer_ids=[]),
    "ids-text": dflash_key(target_layer_ids="1,5"),
    "ids-out": dflash_key(target_layer_ids=[1, 8]),
    "ids-negative": dflash_key(target_layer_ids=[-1, 5]),
    "ids-null": both(dflash_key(target_layer_ids=None), config(target_layer_ids=[1, 5])),
    "mask-negative": dflash_key(mask_token_id=-1),
    "mask-text": dflash_key(mask_token_id="3"),
    "mask-missing": no_dflash_key("mask_token_id"),
    "mask-token-empty": dflash_key(mask_token=""),
    "block-zero": config(block_size=0),
    "block-nested": both(without("block_size"), dflash_key(block_size=4)),
    "no-block": without("block_size"),
    "layers-zero": config(num_hidden_layers=0, layer_types=[]),
    "no-layer-types": without("layer_types"),
    "sliding": config(layer_types=["sliding_attention", "full_attention"], sliding_window=8, use_sliding_window=True),
    "strange-layer-type": config(layer_types=["chunked_attention", "full_attention"]),
    "gelu": config(hidden_act="gelu"),
    "no-intermediate": config(intermediate_size=0),
    "no-kv-heads": without("num_key_value_heads"),
    "no-head-dim": without("head_dim"),
    "llama": config(model_type="llama"),
    "fused": fused("layers.0"),
    "long-k": shaped(f"{ATTENTION}.k_proj.weight", 2 * KV_HEADS * HEAD_DIM, HIDDEN),
    "short-k": shaped(f"{ATTENTION}.k_proj.weight", KV_HEADS * HEAD_DIM // 2, HIDDEN),
    "wide-q": shaped(f"{ATTENTION}.q_proj.weight", HEADS * HEAD_DIM, 2 * HIDDEN),
    "short-down": shaped(f"{MLP}.down_proj.weight", HIDDEN, INTERMEDIATE // 2),
    "q-norm-width": shaped(f"{ATTENTION}.q_norm.weight", HIDDEN),
    "domino-weights": lambda draft: draft.weights.update(domino().weights),
    "model-domino-weights": added("model.prefix_gru.weight_ih_l0", 48, HIDDEN),
    "extra": both(added("extra.weight", 3), added("extra.q_proj.weight", 3)),
    "projector-strange": dflash_key(projector_type="other"),
    "modelopt-dspark": both(
        dflash_key(projector_type="dspark", markov_rank=8),
        added("markov_w1.weight", VOCAB, 8),
        added("confidence_proj.weight", 1, HIDDEN + 8),
    ),
}

DOMINO: dict[str, Edit] = {
    "plain": lambda _: None,
    "model-prefix": prefixed("model."),
    "no-gru": dropped("prefix_gru.weight_ih_l0", "prefix_gru.weight_hh_l0"),
    "no-output": dropped("embed_proj.2.weight"),
    "gru-width": shaped("prefix_gru.weight_hh_l0", 48, HIDDEN),
    "vocab": shaped("embed_proj.2.weight", DRAFT_VOCAB, 12),
    "no-emb-dim": no_dflash_key("emb_dim"),
    "top-emb-dim": both(no_dflash_key("emb_dim"), config(emb_dim=12)),
    "emb-dims-differ": config(emb_dim=13),
    "no-gru-dim": no_dflash_key("gru_hidden_dim"),
    "prefix-two": dflash_key(pure_draft_prefix_len=2),
    "no-shift": no_dflash_key("shift_label"),
    "block-one": config(block_size=1),
    "top-type": both(no_dflash_key("projector_type"), config(projector_type="domino")),
    "gru-dim-zero": dflash_key(gru_hidden_dim=0),
}

DSPARK: dict[str, Edit] = {
    "plain": lambda _: None,
    "model-prefix": prefixed("model."),
    "logit-head": lambda d: d.rename(lambda n: "logit_head." + n if n.startswith(("markov", "confidence")) else n),
    "no-rank": without("markov_rank"),
    "rank-zero": config(markov_rank=0),
    "rank-null": config(markov_rank=None),
    "rank-negative": config(markov_rank=-1),
    "no-type": without("markov_head_type"),
    "type-strange": config(markov_head_type="transformer"),
    "type-upper": config(markov_head_type="Vanilla"),
    "rank-nested": both(
        without("markov_rank", "markov_head_type"),
        config(dspark_config={"markov_rank": 8, "markov_head_type": "vanilla"}),
    ),
    "rank-in-dflash": both(
        without("markov_rank", "markov_head_type"), dflash_key(markov_rank=8, markov_head_type="vanilla")
    ),
    "no-confidence": dropped("confidence_head.proj.weight", "confidence_head.proj.bias"),
    "confidence-off": both(
        dropped("confidence_head.proj.weight", "confidence_head.proj.bias"), config(enable_confidence_head=False)
    ),
    "confidence-strange": added("confidence_head.more.weight", 3),
    "markov-strange": added("markov_head.gate_proj.weight", 3),
    "no-markov": dropped("markov_head.markov_w1.weight", "markov_head.markov_w2.weight"),
    "markov-bare": swapped("markov_head.", ""),
    "markov-rank-differs": config(markov_rank=4),
    "embed-and-head": both(
        added("embed_tokens.weight", VOCAB, HIDDEN),
        added("lm_head.weight", VOCAB, HIDDEN),
        added("rotary_emb.inv_freq", 4),
    ),
    "model-embed": added("model.embed_tokens.weight", VOCAB, HIDDEN),
    "wide-fc": shaped("fc.weight", HIDDEN, 3 * HIDDEN),
    "wide-fc-and-strange": both(shaped("fc.weight", HIDDEN, 3 * HIDDEN), added("markov_head.x", 3)),
    "no-fc": dropped("fc.weight"),
    "domino-weights": added("prefix_gru.weight_ih_l0", 48, HIDDEN),
    "ids-empty": dflash_key(target_layer_ids=[]),
    "layer-missing": config(num_hidden_layers=3, layer_types=["full_attention"] * 3),
}

FAMILIES: dict[str, tuple[Callable[[], Draft], dict[str, Edit]]] = {
    "eagle1": (eagle1, EAGLE1),
    "qwen2": (lambda: eagle1("Qwen2ForCausalLMEagle"), EAGLE1),
    "mla": (mla, MLA),
    "dflash": (dflash, DFLASH),
    "domino": (domino, DOMINO),
    "dspark": (dspark, DSPARK),
    "dspark-gated": (lambda: dspark(kind="gated"), {"plain": lambda _: None}),
    "dspark-rnn": (lambda: dspark(kind="rnn"), {"plain": lambda _: None}),
    "dspark-draft": (lambda: dspark("DSparkDraftModel"), {"plain": lambda _: None}),
    "dspark-ling": (lambda: dspark("LingDSparkModel"), {"plain": lambda _: None}),
    **RELATIVES,
}


def write_corpus(folder: Path) -> int:
    """Write every checkpoint below ``folder``; how many there are."""
    count = 0
    for family, (make, edits) in FAMILIES.items():
        for name, edit in edits.items():
            draft = make()
            try:
                edit(draft)
            except KeyError:
                continue  # the class has no such tensor or key to begin with
            draft.write(folder / f"{family}-{name}")
            count += 1
    return count


def pack_configs(folder: Path, archive: Path) -> None:
    """Pack the configs of the checkpoints below ``folder``, the same bytes whenever and wherever it is done."""
    with tarfile.open(archive, "w:xz") as packed:
        for file in sorted(folder.glob("*/config.json")):
            entry = tarfile.TarInfo(f"classes/{file.parent.name}/config.json")
            entry.size = file.stat().st_size
            packed.addfile(entry, io.BytesIO(file.read_bytes()))


def main() -> None:
    """Write the corpus to the folder given, or pack its configs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--configs", action="store_true")
    given = parser.parse_args()
    if given.folder is not None:
        print(write_corpus(given.folder), "checkpoints")
    if given.configs:
        with tempfile.TemporaryDirectory() as room:
            write_corpus(Path(room))
            pack_configs(Path(room), ARCHIVE)


if __name__ == "__main__":
    main()
