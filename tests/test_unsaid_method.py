"""vLLM with no method named: the kind of head decides which class a config of plain Llama is held against."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from weights import read_safetensors, write_safetensors

from drafcheck import lint
from drafcheck.report.model import Report

GOOD = Path(__file__).parent.parent / "fixtures" / "good"


def placed(at: Path, fixture: str, architecture: str, model_type: str | None = None) -> Path:
    shutil.copytree(GOOD / fixture, at)
    weights = at / "model.safetensors"
    tensors = read_safetensors(weights)
    tensors.pop("fc.bias", None)  # not in heads without a bias, and some classes have no place for one
    write_safetensors(weights, tensors)
    path = at / "config.json"
    config = json.loads(path.read_text())
    config["architectures"] = [architecture]
    config["model_type"] = model_type or config["model_type"]
    path.write_text(json.dumps(config))
    return at


def served(draft: Path, engine: str = "vllm==0.33.0") -> Report:
    launch = draft.parent / "serve.sh"
    launch.write_text(
        f'vllm serve /m/target --speculative-config \'{{"model": "{draft}", "num_speculative_tokens": 2}}\''
    )
    return lint(draft, engine=engine, launch=launch)


def errors(report: Report) -> list[str]:
    return [f.rule for f in report.checkpoints[0].findings if f.severity.value == "error"]


@pytest.mark.parametrize("version", ("0.9.2", "0.11.0", "0.16.0", "0.22.1", "0.33.0"))
@pytest.mark.parametrize("folder", ("EAGLE-LLaMA3-Instruct-8B", "draft"))
def test_an_eagle_1_head_is_held_against_its_own_class(tmp_path: Path, folder: str, version: str) -> None:
    draft = placed(tmp_path / folder, "eagle-1", "LlamaForCausalLM")
    report = lint(draft, engine=f"vllm=={version}")
    assert (report.checkpoints[0].algorithm, errors(report)) == ("eagle", [])


def test_a_config_that_names_the_class_for_eagle_3_is_still_wrong(tmp_path: Path) -> None:
    draft = placed(tmp_path / "eagle-x", "eagle-1", "Eagle3LlamaForCausalLM")
    assert errors(lint(draft, engine="vllm==0.33.0")) == ["DC504"]


@pytest.mark.parametrize(
    "architecture, model_type, version, expected",
    (
        ("MistralForCausalLM", "mistral", "0.33.0", ["DC104"]),  # a class that takes Mistral's own names
        ("MistralForCausalLM", "mistral", "0.16.0", ["DC501"]),
        ("Qwen2ForCausalLM", "qwen2", "0.33.0", ["DC501"]),
    ),
)
def test_other_language_models(
    tmp_path: Path, architecture: str, model_type: str, version: str, expected: list[str]
) -> None:
    draft = placed(tmp_path / "draft", "eagle-1", architecture, model_type)
    report = lint(draft, engine=f"vllm=={version}")
    assert errors(report) == expected
    said = [f.message for f in report.checkpoints[0].findings if f.rule == "DC501"]
    assert all(f"as which eagle looks for {architecture}" in message for message in said)


def test_a_launch_without_a_method_and_its_twins(tmp_path: Path) -> None:
    right = placed(tmp_path / "EAGLE-LLaMA3", "eagle-1", "LlamaForCausalLM")
    assert errors(served(right)) == []
    wrong = placed(tmp_path / "eagle3-x", "eagle-1", "LlamaForCausalLM")
    assert errors(served(wrong)) == ["DC701"]
    other = placed(tmp_path / "my-eagle-3", "vllm-healthy-0.33.0", "LlamaForCausalLM")
    assert errors(served(other)) == ["DC701"]
    assert errors(lint(other, engine="vllm==0.33.0")) == []


def test_without_weights_the_path_decides(tmp_path: Path) -> None:
    for name, algorithm in (("EAGLE-LLaMA3", "eagle"), ("draft", "eagle3"), ("x-eagle3", "eagle3")):
        draft = placed(tmp_path / name, "eagle-1", "LlamaForCausalLM")
        (draft / "model.safetensors").unlink()
        assert lint(draft, engine="vllm==0.33.0").checkpoints[0].algorithm == algorithm
