"""Repairs of names: what is renamed, what is left, and that no byte of a tensor changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import DRAFT_VOCAB, HIDDEN, VOCAB, Draft
from make_fixtures import FIXTURES
from repairing import checked, contents, edits_for, hashed, mended, mended_draft, options_of
from weights import Weight, zeros

from drafcheck.fix.edits import Drop, Rename
from drafcheck.session import Options

RULES = ("DC101", "DC104", "DC105", "DC108")

RENAMED = {
    "DC101/layers-0.5.9": [("layers.0.", "midlayer.")],
    "DC101/trtllm-layers-1.2": [("layers.0.", "midlayer.")],
    "DC101/renamed-projection": [("midlayer.attn.o_proj", "midlayer.self_attn.o_proj")],
    "DC104/layers-0.4.8": [("layers.0.", "midlayer.")],
    "DC104/lmdeploy-layers": [("layers.0.", "midlayer.")],
    "DC105/compiled": [("_orig_mod.", "")],
    "DC105/draft-before-the-layer": [("draft.", "")],
    "DC105/draft-model": [("draft_model.", "")],
    "DC105/eagle-1-model-prefix": [("model.", "")],
    "DC105/eagle-1-model-prefix-0.4.8": [("model.", "")],
    "DC105/mla-model-prefix": [("model.", "")],
    "DC105/model-before-the-head": [("model.lm_head", "lm_head")],
    "DC105/module": [("module.", "")],
    "DC105/mtp-behind-a-prefix": [("language_model.", "")],
    "DC105/trtllm-module-prefix": [("module.", "")],
    "DC105/vllm-model-before-d2t": [("model.d2t", "d2t")],
    "DC105/vllm-model-prefix": [("model.", "")],
    "DC105/vllm-module-0.16.0": [("module.", "")],
    "DC108/speculators-0.1": [
        ("fusion_fc.", "fc."),
        ("embedding_layernorm.", "midlayer.input_layernorm."),
        ("transformer.", "midlayer."),
    ],
}
"""The beginnings of names before and after: all tensors that begin so, and no others."""


def spelt(name: str, changes: list[tuple[str, str]]) -> str:
    return next((new + name.removeprefix(old) for old, new in changes if name.startswith(old)), name)


@pytest.mark.parametrize("case", RENAMED)
def test_names_become_those_that_the_release_takes(case: str) -> None:
    """The finding is gone, no other tensor has another name, and the bytes under the new names are the old ones."""
    done = mended(FIXTURES / case, options_of(case))
    before = hashed(done.first)
    assert contents(done) == {spelt(name, RENAMED[case]): tensor for name, tensor in before.items()}
    assert not {f.rule for f in done.last.findings} & {*RULES, "DC102"}


LEFT = ["DC101/domino-before-it-was-read", "DC104/domino-weights-in-dflash", "DC104/vllm-extra-tensor"]


@pytest.mark.parametrize("case", LEFT)
def test_tensors_that_lead_nowhere_are_left(case: str) -> None:
    seen = checked(FIXTURES / case, options_of(case))
    told = [f for f in seen.findings if f.rule in RULES]
    assert told and not any(edits_for(seen, finding) or finding.fixable for finding in told)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("DC104/llamacpp-bias", "midlayer.self_attn.o_proj.bias"),
        ("DC104/vllm-bias-0.22.1", "midlayer.self_attn.q_proj.bias"),
        ("DC104/vllm-map-at-full-vocabulary", "d2t"),
    ],
)
def test_a_refused_tensor_of_zeros_is_left_out(case: str, name: str) -> None:
    seen = checked(FIXTURES / case, options_of(case))
    [finding] = [f for f in seen.findings if f.rule == "DC104"]
    [edit] = edits_for(seen, finding)
    assert finding.fixable and isinstance(edit, Drop) and edit.tensor.name == name
    done = mended(FIXTURES / case, options_of(case))
    assert set(hashed(done.first)) - set(contents(done)) == {name}
    assert not [f for f in done.last.findings if f.rule == "DC104"]


def test_a_map_that_changes_draft_ids_is_not_left_out(tmp_path: Path) -> None:
    """At full vocabulary a map may still be a permutation."""
    draft = Draft()
    draft.full_vocabulary()
    draft.weights["d2t"] = Weight("I64", (VOCAB,), b"\1" + bytes(8 * VOCAB - 1))
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="vllm==0.33.0"))
    told = [f for f in seen.findings if f.rule == "DC104"]
    assert told and not any(edits_for(seen, f) or f.fixable for f in told)


def test_a_bias_that_is_not_zero_is_not_left_out(tmp_path: Path) -> None:
    draft = Draft()
    draft.weights["midlayer.self_attn.q_proj.bias"] = Weight("BF16", (HIDDEN,), b"\0\x3f" * HIDDEN)
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="vllm==0.22.1"))
    told = [f for f in seen.findings if f.rule == "DC104"]
    assert told and not any(edits_for(seen, f) or f.fixable for f in told)


def test_of_two_tensors_for_one_name_an_equal_one_is_dropped(tmp_path: Path) -> None:
    draft = Draft()
    draft.weights["module.norm.weight"] = draft.weights["norm.weight"]
    draft.weights["module.lm_head.weight"] = draft.weights.pop("lm_head.weight")
    draft.write(tmp_path)
    done = mended_draft(tmp_path)
    edits = {edit.tensor.name: edit for edit in done.rounds[0].edits if isinstance(edit, (Drop, Rename))}
    assert isinstance(edits["module.norm.weight"], Drop) and "norm.weight" in edits["module.norm.weight"].why
    assert edits["module.lm_head.weight"][1] == "lm_head.weight"
    assert "norm.weight" in contents(done) and "module.norm.weight" not in contents(done)


def test_of_two_tensors_for_one_name_that_differ_neither_is_touched(tmp_path: Path) -> None:
    draft = Draft()
    draft.weights["module.norm.weight"] = Weight("BF16", (HIDDEN,), b"\x80\x3f" * HIDDEN)
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15"))
    [finding] = [f for f in seen.findings if f.rule == "DC105"]
    assert not finding.fixable and not edits_for(seen, finding)


@pytest.mark.parametrize("same", [True, False])
def test_of_two_wrapped_tensors_for_one_place_none_is_chosen(same: bool, tmp_path: Path) -> None:
    """Each is a finding of its own, as the wrappers differ."""
    draft = Draft()
    norm = draft.weights.pop("norm.weight")
    other = norm if same else Weight("BF16", (HIDDEN,), b"\x80\x3f" * HIDDEN)
    draft.weights |= {"module.norm.weight": norm, "draft_model.norm.weight": other}
    draft.write(tmp_path)
    done = mended_draft(tmp_path)
    assert ("norm.weight" in contents(done)) == same
    assert len(contents(done)) == len(draft.weights) - same


def test_a_place_that_another_name_fills_is_not_filled_twice(tmp_path: Path) -> None:
    """``layers.0.*`` is this release's own name for the layer: what is behind the wrapper would replace it."""
    draft = Draft()
    other = Weight("BF16", (HIDDEN, HIDDEN), b"\x80\x3f" * HIDDEN * HIDDEN)
    draft.weights["module.layers.0.self_attn.o_proj.weight"] = other
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15"))
    told = [f for f in seen.findings if f.rule in RULES]
    assert told and not any(edits_for(seen, f) or f.fixable for f in told)


def test_biases_go_along_with_the_weights(tmp_path: Path) -> None:
    """A bias that leads nowhere is no finding by itself: it would stay behind."""
    draft = Draft()
    draft.set(bias=True)
    draft.weights["fc.bias"] = Weight("BF16", (HIDDEN,), b"\0\x3f" * HIDDEN)
    draft.weights["midlayer.self_attn.o_proj.bias"] = Weight("BF16", (HIDDEN,), b"\0\x3f" * HIDDEN)
    before = set(draft.weights)
    draft.rename(lambda name: f"module.{name}" if name not in ("d2t", "t2d") else name)
    draft.write(tmp_path)
    assert set(contents(mended_draft(tmp_path))) == before


def test_a_projection_renamed_by_hand_needs_one_empty_place(tmp_path: Path) -> None:
    """Two tensors that could fill the same place: nobody knows which."""
    draft = Draft()
    draft.weights["midlayer.attn.o_proj.weight"] = draft.weights.pop("midlayer.self_attn.o_proj.weight")
    draft.weights["midlayer.old.o_proj.weight"] = zeros("BF16", HIDDEN, HIDDEN)
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15"))
    [finding] = [f for f in seen.findings if f.rule == "DC101"]
    assert not finding.fixable and not edits_for(seen, finding)


def test_a_projection_of_another_shape_is_no_renamed_one(tmp_path: Path) -> None:
    draft = Draft()
    draft.drop("midlayer.self_attn.o_proj.weight")
    draft.weights["midlayer.attn.o_proj.weight"] = zeros("BF16", HIDDEN, 2 * HIDDEN)
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="sglang==0.5.15"))
    [finding] = [f for f in seen.findings if f.rule == "DC101"]
    assert not finding.fixable and not edits_for(seen, finding)


def test_names_in_shards_change_in_the_index_too(tmp_path: Path) -> None:
    draft = Draft()
    draft.rename(lambda name: f"module.{name}")
    layer = [name for name in draft.weights if "midlayer" in name]
    places = {name: "b.safetensors" if name in layer else "a.safetensors" for name in draft.weights}
    draft.weight_file = "a.safetensors"
    draft.split(*layer, into="b.safetensors")
    draft.index(places)
    draft.write(tmp_path)
    done = mended_draft(tmp_path)
    subject = done.last.subject
    assert subject is not None and subject.checkpoint.index is not None
    assert subject.checkpoint.index.weight_map == {n.removeprefix("module."): f for n, f in places.items()}
    assert not [f for f in done.last.findings if f.rule in (*RULES, "DC006")]


def test_head_rows_are_those_of_the_draft_vocabulary(tmp_path: Path) -> None:
    """A head under a wrapper is not looked at twice: what DC309 says of a head-less draft is DC105's here."""
    draft = Draft()
    draft.weights["module.lm_head.weight"] = draft.weights.pop("lm_head.weight")
    draft.write(tmp_path)
    done = mended_draft(tmp_path)
    assert contents(done)["lm_head.weight"][1] == (DRAFT_VOCAB, HIDDEN)
    assert "module.lm_head.weight" not in contents(done)
