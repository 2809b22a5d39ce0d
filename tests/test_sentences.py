"""Sentences of findings: numbers agree, an error without words is told by its class, and no two findings contradict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from weights import read_safetensors, write_safetensors

from drafcheck import lint
from drafcheck.finding import Finding
from drafcheck.words import count, without_blanks

GOOD = Path(__file__).parent.parent / "fixtures" / "good"


@pytest.mark.parametrize(
    "message, expected",
    (
        ("it refuses: AssertionError: ", "it refuses: AssertionError"),
        ("cannot build from: TypeError: ...", "cannot build from: TypeError"),
        ("stops (KeyError: ...): `x`", "stops (KeyError): `x`"),
        ("AssertionError: ; likewise 1 more tensor", "AssertionError; likewise 1 more tensor"),
        ("ValueError: ... has model type `x`", "ValueError: ... has model type `x`"),
        ("(ValueError: not initialized from checkpoint: ...)", "(ValueError: not initialized from checkpoint: ...)"),
    ),
)
def test_an_error_without_words(message: str, expected: str) -> None:
    assert without_blanks(message) == expected


def test_counts() -> None:
    assert [count(n, "layer") for n in (0, 1, 2, None)] == ["0 layers", "1 layer", "2 layers", "? layers"]


def moved(at: Path, number: int, layers: int, bias: bool) -> list[Finding]:
    """DeepSeek's layer under another number than config.json leads to, with a bias that has no parameter."""
    shutil.copytree(GOOD / "mtp-layer-of-deepseek", at)
    path = at / "config.json"
    config = json.loads(path.read_text())
    own = f"model.layers.{config['num_hidden_layers']}."
    path.write_text(json.dumps({**config, "num_hidden_layers": layers}))
    weights = at / "model.safetensors"
    tensors = read_safetensors(weights)
    tensors = {name.replace(own, f"model.layers.{number}."): tensor for name, tensor in tensors.items() if own in name}
    if bias:
        norm = next(name for name in tensors if name.endswith("enorm.weight"))
        tensors[norm.replace("enorm.weight", "self_attn.o_proj.bias")] = tensors[norm]
    write_safetensors(weights, tensors)
    return list(lint(at, engine="vllm==0.33.0").findings)


def test_a_layer_of_a_draft_of_its_own(tmp_path: Path) -> None:
    (found,) = [f for f in moved(tmp_path / "draft", 0, 1, bias=False) if f.rule == "DC203"]
    assert found.message.endswith("config.json says 1 layer")
    assert found.help == "rename the tensors to `model.layers.1.*`"
    (found,) = [f for f in moved(tmp_path / "other", 4, 3, bias=False) if f.rule == "DC203"]
    assert found.message.endswith("config.json says 3 layers")
    assert str(found.help).startswith("set `num_hidden_layers` to 4 if")


def test_a_layer_that_is_not_found_is_told_once(tmp_path: Path) -> None:
    assert {f.rule for f in moved(tmp_path / "moved", 4, 3, bias=True)} == {"DC203"}
    (found,) = [f for f in moved(tmp_path / "right", 3, 3, bias=True) if f.rule == "DC204"]
    assert found.message.endswith(": served without")
