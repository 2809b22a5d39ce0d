"""``--values`` on tensors that the engine replaces with the target's: what is wrong with their values is not served."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from test_values import check, spoken
from variants import TRAINED, healthy
from weights import Weight

EMBED, HEAD = "embed_tokens.weight", "lm_head.weight"
REPLACED, KEPT = ("sglang==0.5.15", "tensorrt-llm"), "vllm==0.33.0"
NAN, LARGE = b"\xc0\x7f", struct.pack("<f", 70144.0)[2:]


def findings(folder: Path, engine: str, name: str, raw: bytes, dtype: str | None = None) -> list[tuple[str, str]]:
    """Rule and severity of what is said with ``raw`` at the begin of a tensor."""
    pair = healthy()
    old = pair.weights[name]
    pair.weights[name] = Weight("BF16", old.shape, raw + old.raw[len(raw) :])
    report = check(pair.write(folder), engine=engine, target=TRAINED / "target", dtype=dtype)
    return [(f.rule, f.severity.value) for f in spoken(report)]


@pytest.mark.parametrize("engine", REPLACED)
def test_a_value_that_is_none_in_a_replaced_tensor_is_a_note(tmp_path: Path, engine: str) -> None:
    assert findings(tmp_path / "a", engine, EMBED, NAN) == [("DC801", "note")]
    assert findings(tmp_path / "b", engine, HEAD, NAN) == [("DC801", "error")]
    assert findings(tmp_path / "c", KEPT, EMBED, NAN) == [("DC801", "error")]


def test_the_note_says_that_the_engine_replaces_it(tmp_path: Path) -> None:
    pair = healthy()
    pair.weights[EMBED] = Weight("BF16", (2048, 256), NAN + pair.weights[EMBED].raw[2:])
    report = check(pair.write(tmp_path / "x"), target=TRAINED / "target")
    assert [f.message.endswith("; sglang 0.5.15 replaces it with the target's") for f in spoken(report)] == [True]
    assert report.outcome.value == "clean"


@pytest.mark.parametrize("engine", REPLACED)
def test_zeros_and_overflows_of_a_replaced_tensor_are_silent(tmp_path: Path, engine: str) -> None:
    zeros = bytes(2048 * 512)
    assert findings(tmp_path / "a", engine, EMBED, zeros) == []
    assert findings(tmp_path / "b", engine, HEAD, zeros[: 1024 * 512]) == [("DC802", "error")]
    assert findings(tmp_path / "c", engine, EMBED, LARGE, "float16") == []
    assert findings(tmp_path / "d", engine, HEAD, LARGE, "float16") == [("DC806", "error")]


def test_the_same_of_a_tensor_that_stays_are_errors(tmp_path: Path) -> None:
    assert findings(tmp_path / "a", KEPT, EMBED, bytes(2048 * 512)) == [("DC802", "error")]
    assert findings(tmp_path / "b", KEPT, EMBED, LARGE, "float16") == [("DC806", "error")]


def test_beside_a_target_whose_tensor_does_not_fit_it_stays_an_error(tmp_path: Path) -> None:
    """DC409's: nobody knows that it is not used."""
    pair = healthy()
    pair.target["hidden_size"] = 512
    pair.weights[EMBED] = Weight("BF16", (2048, 256), NAN + pair.weights[EMBED].raw[2:])
    found = spoken(check(pair.write(tmp_path / "x")))
    assert [(f.rule, f.severity.value) for f in found] == [("DC801", "error")]
