"""``--values``: shards that were lost, packed weights of zeros, heads trained very little, and strided tensors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from test_values import check, spoken, zero_rows
from variants import healthy
from weights import Weight, read_safetensors, write_safetensors

QUERY = "midlayer.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("name", "first", "said"),
    [
        (QUERY, 128, "128 rows of 256 of"),  # the last of two shards
        (QUERY, 255, None),
        ("lm_head.weight", 500, "524 rows of 1,024 of"),
        ("lm_head.weight", 1000, None),
    ],
)
def test_a_last_shard_that_was_lost_is_no_padding(tmp_path: Path, name: str, first: int, said: str | None) -> None:
    pair = healthy()
    zero_rows(name, first, pair.weights[name].shape[0])(pair.weights)
    found = spoken(check(pair.write(tmp_path / "ckpt")))
    assert [f.message.startswith(str(said)) for f in found] == ([True] if said else [])


def test_rows_past_the_vocabulary_are_padding_however_many(tmp_path: Path) -> None:
    """A head of a third more rows than d2t names."""
    pair = healthy()
    head = pair.weights["lm_head.weight"]
    pair.weights["lm_head.weight"] = Weight("BF16", (1400, 256), head.raw + bytes(376 * 512))
    assert "DC802" not in {f.rule for f in spoken(check(pair.write(tmp_path / "ckpt")))}


FORMS = {"modelopt-nvfp4": "sglang==0.5.23", "compressed-tensors-int4": "sglang==0.5.15", "awq": "sglang==0.5.15"}
FORMS["fp8"] = "sglang==0.5.15"


def quantised(form: str, folder: Path) -> dict[str, Weight]:
    """A quantised draft of the fixtures with numbers in place of its zeros."""
    source = Path(__file__).parents[1] / "fixtures" / "good" / form
    for file in source.glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    random, made = np.random.default_rng(4), dict[str, Weight]()
    for name, weight in read_safetensors(source / "model.safetensors").items():
        count = math.prod(weight.shape)
        numbers = np.abs(random.normal(0.5, 0.1, count)).astype(np.float32)
        raw = random.integers(1, 0x70, len(weight.raw)).astype(np.uint8).tobytes()
        if weight.dtype == "BF16":
            raw = (numbers.view(np.uint32) >> 16).astype("<u2").tobytes()
        elif weight.dtype in ("F16", "F32"):
            raw = numbers.astype("<f2" if weight.dtype == "F16" else "<f4").tobytes()
        keep = weight.dtype in ("I64", "BOOL") or "shape" in name
        made[name] = weight if keep else Weight(weight.dtype, weight.shape, raw)
    return made


@pytest.mark.parametrize("form", sorted(FORMS))
def test_packed_weights_and_scales_of_zeros_are_told(tmp_path: Path, form: str) -> None:
    made = quantised(form, tmp_path)

    def rules(edited: dict[str, Weight]) -> list[tuple[str, str]]:
        write_safetensors(tmp_path / "model.safetensors", edited)
        return [(f.rule, f.severity.value) for f in spoken(check(tmp_path, engine=FORMS[form]))]

    assert not rules(made)
    parts = ("weight", "qweight", "weight_packed", "weight_scale", "weight_scale_2", "scales")
    for part in (p for p in parts if f"midlayer.self_attn.q_proj.{p}" in made):
        name = f"midlayer.self_attn.q_proj.{part}"
        zeros = Weight(made[name].dtype, made[name].shape, bytes(len(made[name].raw)))
        assert rules({**made, name: zeros}) == [("DC802", "error")], name
    copies = {n: made[n.replace(".v_proj.", ".k_proj.")] for n in made if ".v_proj." in n}
    assert {rule for rule, _ in rules({**made, **copies})} == {"DC803"}


def test_a_strided_tensor_of_a_pickle_is_read_where_it_lies(tmp_path: Path) -> None:
    """As torch saves the transpose of a transpose: its values fill their storage in another order."""
    torch = pytest.importorskip("torch", reason="writes the pickle")
    safetensors = pytest.importorskip("safetensors.torch", reason="reads the tensors")
    folder = healthy().write(tmp_path / "ckpt")
    [file] = folder.glob("*.safetensors")
    tensors = safetensors.load_file(file)
    file.unlink()
    for bad in (False, True):
        fc = tensors["fc.weight"].clone()
        fc[3, 5] = math.nan if bad else 0.1
        torch.save({**tensors, "fc.weight": fc.T.contiguous().T}, folder / "pytorch_model.bin")
        report = check(folder)
        assert report.values == 1 and not [s for s in report.skipped if s.asked]
        said = ["`fc.weight` holds 1 value that is Inf or NaN"] if bad else []
        assert [f.message for f in spoken(report)] == said
