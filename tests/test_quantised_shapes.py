"""Shapes in a quantised head: of what is stored plain, and of numbers with the plain weight's sides."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtp_heads import FAMILIES, LAYERS
from test_mtp import FP8, INT4, packed, save
from weights import Weights, zeros

import drafcheck

LAYER = f"model.layers.{LAYERS}"
ENGINES = ["sglang==0.5.16", "sglang==0.5.23", "vllm==0.22.1", "vllm==0.33.0"]
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}


def head() -> Weights:
    return packed(FAMILIES["deepseek"].weights(), "weight_scale_inv")


def shapes(folder: Path, table: object, weights: Weights, engine: str) -> list[str]:
    save(folder, {**FAMILIES["deepseek"].config(), "quantization_config": table}, weights)
    return [f.about[0] for f in drafcheck.lint(folder, engine=engine).findings if f.rule == "DC201"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "name", ["eh_proj.weight", "self_attn.q_b_proj.weight", "mlp.experts.1.down_proj.weight", "mlp.gate.weight"]
)
def test_another_shape_is_found_beside_a_quantisation(tmp_path: Path, engine: str, name: str) -> None:
    """fp8 numbers lie as the plain ones do, and what no method quantises is as wide as ever."""
    whole = head()
    assert shapes(tmp_path, FP8, whole, engine) == []
    there = whole[f"{LAYER}.{name}"]
    broken = {**whole, f"{LAYER}.{name}": zeros(there.dtype, there.shape[0] // 2, there.shape[1] * 2)}
    assert shapes(tmp_path, FP8, broken, engine) == [f"{LAYER}.{name}"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("table", "last", "dtype"), [(AWQ, "qweight", "I32"), (INT4, "weight_packed", "I32")])
def test_packed_numbers_have_sides_of_their_own(
    tmp_path: Path, engine: str, table: object, last: str, dtype: str
) -> None:
    whole = FAMILIES["deepseek"].weights()
    there = whole.pop(f"{LAYER}.self_attn.o_proj.weight")
    whole[f"{LAYER}.self_attn.o_proj.{last}"] = zeros(dtype, there.shape[0], there.shape[1] // 8)
    assert shapes(tmp_path, table, whole, engine) == []
    whole[f"{LAYER}.eh_proj.weight"] = zeros("BF16", 64, 64)
    assert shapes(tmp_path, table, whole, engine) == [f"{LAYER}.eh_proj.weight"]


@pytest.mark.parametrize("engine", ENGINES)
def test_bytes_that_may_hold_two_numbers_are_not_measured(tmp_path: Path, engine: str) -> None:
    """nvfp4 of ModelOpt, and fp4 experts beside fp8 layers (DeepSeek-V4), stand under the plain weight's name."""
    whole = FAMILIES["deepseek"].weights()
    there = whole[f"{LAYER}.self_attn.o_proj.weight"]
    whole[f"{LAYER}.self_attn.o_proj.weight"] = zeros("U8", there.shape[0], there.shape[1] // 2)
    assert shapes(tmp_path, {"quant_method": "modelopt", "quant_algo": "NVFP4"}, whole, engine) == []
    assert shapes(tmp_path, FP8, whole, engine) == []


@pytest.mark.parametrize("engine", ["vllm==0.11.0", "vllm==0.22.1", "vllm==0.33.0"])
def test_vllm_builds_the_layer_by_the_targets_quantisation(tmp_path: Path, engine: str) -> None:
    """Asked for by its number in the checkpoint, so that a list that names it leaves it plain."""

    def said(table: object, weights: Weights) -> list[str]:
        save(tmp_path, {**FAMILIES["deepseek"].config(), "quantization_config": table}, weights)
        return [f.message for f in drafcheck.lint(tmp_path, engine=engine).findings if f.rule == "DC507"]

    plain, whole = FAMILIES["deepseek"].weights(), head()
    bare = {name.rpartition(".")[0] for name in plain if name.startswith(LAYER)}
    assert said(FP8, whole) == []
    assert said({**FP8, "modules_to_not_convert": sorted(bare)}, plain) == []
    (found,) = said(FP8, plain)
    assert "build them quantised, and the file holds plain tensors for" in found and "eh_proj" not in found
    (found,) = said(FP8, {name: tensor for name, tensor in whole.items() if not name.endswith("_scale_inv")})
    assert "which lacks their `weight_scale_inv`" in found
