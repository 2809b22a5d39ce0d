"""No engine of the book lacks a table that is asked for: every release, and what can be wrong with a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from drafts import Draft, draft_config, draft_weights, target_config
from weightfiles import POINTER, Storage, archive, state, tensor

from drafcheck import lint
from drafcheck.contract import engines, releases
from drafcheck.finding import Finding, Severity

INDEX = "model.safetensors.index.json"
EVERY = [f"{name}=={release}" for name in engines() for release in releases(name)]
SOME = [f"{name}=={release}" for name in engines() for release in {*releases(name)[::10], releases(name)[-1]}]

UNUSABLE = {
    "empty": b"",
    "no JSON": b"x",
    "list": b"[]",
    "null": b"null",
    "no map": b"{}",
    "map is a list": b'{"weight_map": []}',
    "map is null": b'{"weight_map": null}',
    "no name": b'{"weight_map": {"fc.weight": 0}}',
    "outside": b'{"weight_map": {"fc.weight": "../model.safetensors"}}',
    "pointer": POINTER,
}

Edit = Callable[[Draft], object]


def _key(key: str, value: object) -> Edit:
    return lambda draft: draft.set(**{key: value})


def _of_target(key: str, value: object) -> Edit:
    return lambda draft: (draft.target or {}).update({key: value})


def _nested(draft: Draft) -> None:
    draft.config = {"transformer_layer_config": draft.config, "speculators_model_type": "eagle3"}


def _without(name: str) -> Edit:
    return lambda draft: draft.drop(name)


TROUBLES: dict[str, Edit] = {
    **{f"draft {key} {value!r}": _key(key, value) for key in draft_config() for value in (None, [], "x")},
    **{f"target {key}": _of_target(key, ["x"]) for key in target_config()},
    **{f"no {name}": _without(name) for name in draft_weights()},
    **{
        f"as {name}": _key("architectures", [name])
        for name in ("LlamaForCausalLM", "LlamaForCausalLMEagle", "Eagle3Speculator", "DFlashDraftModel", "Unknown")
    },
    "nested": _nested,
    "code": lambda draft: draft.set(auto_map={"AutoConfig": "x.Y"}, model_type="unknown"),
    "quantised": lambda draft: draft.set(quantization_config={"quant_method": "fp8"}),
    "no weights": lambda draft: setattr(draft, "weight_file", None),
    "no target": lambda draft: setattr(draft, "target", None),
    "wrapped": lambda draft: draft.rename(lambda name: "module." + name),
    "damaged": lambda draft: draft.files.update({"model.safetensors": bytes(100)}),
    "not there": lambda draft: draft.files.update({INDEX: b'{"weight_map": {"fc.weight": "other.safetensors"}}'}),
}


def findings(folder: Path, engine: str) -> list[Finding]:
    found = lint(folder, engine=engine, tp=2).findings
    assert not [f.message for f in found if f.rule == "DC999"], engine
    return found


@pytest.mark.parametrize("trouble", TROUBLES)
def test_whatever_is_wrong_for_some_releases_of_every_engine(tmp_path: Path, trouble: str) -> None:
    draft = Draft()
    TROUBLES[trouble](draft)
    draft.write(tmp_path)
    for engine in SOME:
        findings(tmp_path, engine)


@pytest.mark.parametrize("trouble", UNUSABLE)
def test_an_unusable_index_for_every_release(tmp_path: Path, trouble: str) -> None:
    """All but TensorRT-LLM, which reads no index, stop at most of them."""
    draft = Draft(files={INDEX: UNUSABLE[trouble]})
    draft.write(tmp_path)
    for engine in EVERY:
        found = [f for f in findings(tmp_path, engine) if any(place.file == INDEX for place in f.locations)]
        unread = engine.startswith("tensorrt-llm")
        assert found, engine
        assert {f.severity for f in found} == {Severity.WARNING if unread else Severity.ERROR}, engine


def test_without_an_index_all_is_well(tmp_path: Path) -> None:
    Draft().write(tmp_path)
    for engine in EVERY:
        assert not [f for f in findings(tmp_path, engine) if f.rule in ("DC003", "DC006")]


def test_an_engine_without_an_index_loads_what_it_leaves_out(tmp_path: Path) -> None:
    """TensorRT-LLM reads every file that fits its pattern; SGLang reads those that the index names."""
    draft = Draft()
    fc = draft.weights.pop("fc.weight")
    draft.write(tmp_path)
    left_out = Draft(weights={"fc.weight": fc})
    left_out.write(other := tmp_path / "other")
    (other / "model.safetensors").rename(tmp_path / "fc.safetensors")
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(draft.weights, "model.safetensors")}))
    for engine, lost in (("tensorrt-llm", False), ("sglang", True)):
        found = {f.rule for f in findings(tmp_path, engine) if f.severity is Severity.ERROR}
        assert found == ({"DC006", "DC102"} if lost else set()), engine


def test_an_unusable_index_of_pickles_stops_nobody_who_does_not_read_it(tmp_path: Path) -> None:
    whole = archive(state({"a": tensor(Storage("ByteStorage", "0", 4), (4,), (1,))}), {"0": bytes(4)})
    (tmp_path / "pytorch_model.bin").write_bytes(whole)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin.index.json").write_bytes(b"[]")
    for engine in ("sglang", "vllm", "tensorrt-llm"):
        (found,) = [f for f in findings(tmp_path, engine) if f.rule == "DC006"]
        assert found.severity is Severity.WARNING
        assert "does not read pytorch_model.bin.index.json" in found.message
