"""DC505 and DC508: context length and dtype, as each release reads them."""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recorded
from drafts import Draft
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mtp_heads import FAMILIES
from mtp_heads_later import LATER
from weights import write_safetensors, zeros

from drafcheck import lint
from drafcheck.checks.config import dtype_shared
from drafcheck.contract import resolve_engine
from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.modelconfig import built_dtype, context_length, too_short
from drafcheck.runner import Options, inspect_one

FIXTURES = Path(__file__).parent.parent / "fixtures"
VERDICTS = FIXTURES / "verdicts" / "sglang"
ARCHIVES = {"synthetic": VERDICTS / "checkpoints.tar.xz", "producers": FIXTURES / "producers" / "producers.tar.xz"}


@cache
def configs(corpus: str) -> dict[str, dict[str, Any]]:
    """The config.json of each recorded checkpoint, by its name."""
    found = {}
    with tarfile.open(ARCHIVES[corpus]) as archive:
        for member in archive:
            parts = Path(member.name).parts
            stream = archive.extractfile(member) if parts[-1] == "config.json" else None
            if stream is not None:
                found[parts[-2]] = json.load(stream)
    return found


@pytest.mark.parametrize("corpus", ARCHIVES)
def test_dtype_and_length_are_those_of_the_real_engine(corpus: str) -> None:
    """Every recorded answer: 16 releases, 95 checkpoints."""
    rows = recorded.rows(VERDICTS / f"{corpus}.jsonl")
    asked = [row for row in rows if row["dtype"] is not None]
    assert len(asked) > 250
    for row in asked:
        data = configs(corpus)[row["checkpoint"]]
        engine = resolve_engine(f"sglang=={row['version']}")
        dtype, length = built_dtype(engine, data), context_length(engine, data)
        assert dtype is not None and f"torch.{dtype.value}" == row["dtype"], (row["checkpoint"], row["version"])
        assert length is not None and length.value == row["context_len"], (row["checkpoint"], row["version"])


def found(tmp_path: Path, draft: Draft, version: str, *codes: str, **options: str) -> list[Finding]:
    """The findings of DC505 and DC508."""
    draft.write(tmp_path / "draft")
    report = lint(tmp_path / "draft", engine=f"sglang=={version}", select=codes or ("DC505", "DC508"), **options)
    return list(report.checkpoints[0].findings)


RELEASES = ("0.4.5", "0.4.9.post2", "0.5.1", "0.5.9", "0.5.15", "0.5.23")


@pytest.mark.parametrize("version", RELEASES)
def test_healthy(tmp_path: Path, version: str) -> None:
    assert found(tmp_path, Draft(), version) == []


@pytest.mark.parametrize(
    ("version", "severity"),
    (("0.4.10.post2", Severity.WARNING), ("0.5.1", Severity.ERROR), ("0.5.15", Severity.ERROR)),
)
def test_short_context(tmp_path: Path, version: str, severity: Severity) -> None:
    draft = Draft()
    draft.set(max_position_embeddings=128)
    (hit,) = found(tmp_path, draft, version)
    assert (hit.rule, hit.severity, hit.confidence) == ("DC505", severity, Confidence.CERTAIN)
    assert "128" in hit.message and "512" in hit.message
    assert hit.locations[0].key == "max_position_embeddings" and hit.locations[1].file == "target_config.json"


def test_an_earlier_key_wins(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(max_position_embeddings=128, max_seq_len=512)
    assert found(tmp_path, draft, "0.5.15") == []


@pytest.mark.parametrize(
    ("rope", "version", "fine"),
    (
        ({"rope_type": "linear", "factor": 4.0}, "0.5.9", True),
        ({"rope_type": "linear", "factor": 2.0}, "0.5.9", False),
        ({"rope_type": "yarn", "factor": 4.0}, "0.5.9", True),
        ({"rope_type": "yarn", "factor": 4.0}, "0.5.15", False),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}, "0.5.9", False),
        ({"rope_type": "llama3", "factor": 8.0}, "0.5.9", False),
    ),
)
def test_rope_scaling_counts_as_the_release_counts_it(
    tmp_path: Path, rope: dict[str, object], version: str, fine: bool
) -> None:
    draft = Draft()
    draft.set(max_position_embeddings=128, rope_scaling=rope)
    assert (found(tmp_path, draft, version, "DC505") == []) is fine


def test_length_of_a_nested_target(tmp_path: Path) -> None:
    draft = Draft()
    assert draft.target is not None
    draft.target = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": draft.target}
    draft.set(max_position_embeddings=128)
    (hit,) = found(tmp_path, draft, "0.5.15", "DC505")
    assert hit.locations[1].key == "text_config.max_position_embeddings"


@pytest.mark.parametrize("version", RELEASES)
def test_float16_beside_bfloat16(tmp_path: Path, version: str) -> None:
    draft = Draft()
    draft.set(torch_dtype="float16")
    (hit,) = found(tmp_path, draft, version)
    assert (hit.rule, hit.severity, hit.confidence) == ("DC508", Severity.ERROR, Confidence.CERTAIN)
    assert "float16" in hit.message and "bfloat16" in hit.message


@pytest.mark.parametrize("value", (None, "float32"))
def test_absent_and_float32_become_float16(tmp_path: Path, value: str | None) -> None:
    draft = Draft()
    draft.set(torch_dtype=value)
    (hit,) = found(tmp_path, draft, "0.5.15")
    assert "draft in float16" in hit.message


def test_new_key_is_not_read_by_early_releases(tmp_path: Path) -> None:
    """A draft saved with transformers 5 says `dtype` only; 0.5.1 and before read `torch_dtype`."""
    draft = Draft()
    draft.config["dtype"] = draft.config.pop("torch_dtype")
    (hit,) = found(tmp_path, draft, "0.5.1")
    assert "does not read `dtype`" in hit.message and "torch_dtype" in str(hit.help)
    assert found(tmp_path, draft, "0.5.2") == []


@pytest.mark.parametrize("keys", ({}, {"dtype": "bfloat16"}))
def test_target_whose_dtype_goes_unread_is_a_note(tmp_path: Path, keys: dict[str, str]) -> None:
    """The draft is as it should be; the target is built in float16, which --dtype mends."""
    draft = Draft()
    assert draft.target is not None
    del draft.target["torch_dtype"]
    draft.target |= keys
    (hit,) = found(tmp_path, draft, "0.5.1")
    assert (hit.rule, hit.severity, hit.help) == ("DC508", Severity.NOTE, "serve with --dtype bfloat16")


def test_dtype_of_the_launch_counts_for_both(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(torch_dtype="float16")
    assert found(tmp_path, draft, "0.5.15", dtype="bfloat16") == []
    assert len(found(tmp_path, draft, "0.5.15", dtype="auto")) == 1


def test_without_a_target_nothing_is_said(tmp_path: Path) -> None:
    draft = Draft(target=None)
    draft.set(torch_dtype="float16", max_position_embeddings=8)
    assert found(tmp_path, draft, "0.5.15") == []


@pytest.mark.parametrize(("version", "certain"), (("0.5.9", False), ("0.5.15", True)))
def test_nested_target_takes_the_outer_dtype_where_it_is_handed_down(
    tmp_path: Path, version: str, certain: bool
) -> None:
    draft = Draft()
    assert draft.target is not None
    inner = {key: value for key, value in draft.target.items() if key != "torch_dtype"}
    draft.target = {"architectures": ["Llama4ForConditionalGeneration"], "dtype": "bfloat16", "text_config": inner}
    draft.set(torch_dtype="float16")
    assert bool(found(tmp_path, draft, version, "DC508")) is certain


def test_server_forces_a_dtype(tmp_path: Path) -> None:
    draft = Draft()
    assert draft.target is not None
    draft.target |= {"architectures": ["GptOssForCausalLM"], "quantization_config": {"quant_method": "mxfp4"}}
    draft.set(torch_dtype="float16")
    assert found(tmp_path, draft, "0.5.15", "DC508") == []


def test_unknown_dtype_is_refused(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(torch_dtype="bf16")
    (hit,) = found(tmp_path, draft, "0.5.15", "DC508")
    assert "no dtype of torch" in hit.message


def test_float32_tensors_are_a_note(tmp_path: Path) -> None:
    draft = Draft()
    for name, tensor in draft.weights.items():
        if tensor.dtype == "BF16":
            draft.weights[name] = zeros("F32", *tensor.shape)
    (hit,) = found(tmp_path, draft, "0.5.15")
    assert hit.severity is Severity.NOTE


ANY = st.one_of(
    st.none(), st.booleans(), st.integers(), st.just(10**5000), st.floats(), st.text(max_size=3), st.just([1]),
    st.dictionaries(st.sampled_from(["factor", "rope_type", "type"]), st.one_of(st.none(), st.floats(), st.just([]))),
)  # fmt: skip


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(
            ["max_position_embeddings", "seq_length", "rope_scaling", "dtype", "torch_dtype", "model_type"]
        ),
        ANY,
    ),
    st.sampled_from(RELEASES),
)
def test_no_config_makes_them_crash(data: dict[str, object], version: str) -> None:
    for engine in (resolve_engine(f"sglang=={version}"), resolve_engine("vllm==0.16.0"), resolve_engine("vllm")):
        built_dtype(engine, data)
        built_dtype(engine, {}, data)
        length = context_length(engine, data)
        assert length is None or str(length.value)
        too_short(engine, data, "v2")


@pytest.mark.parametrize(("dtype", "rules"), [("bfloat08", ["DC508"]), ("bfloat16", [])])
def test_a_dtype_of_a_nested_language_model_crashes_nothing(tmp_path: Path, dtype: str, rules: list[str]) -> None:
    head = {**FAMILIES, **LATER}["qwen3_5_moe"]
    config = head.config()
    config = {**config, "text_config": {**config.get("text_config", {}), "torch_dtype": dtype}}
    config.pop("torch_dtype", None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_safetensors(tmp_path / "model.safetensors", head.weights())
    report = lint(tmp_path, engine="sglang==0.5.23", target=tmp_path)
    assert "DC999" not in [f.rule for f in report.findings]
    assert report.checkpoints[0].outcome.value != "internal-error"
    assert [f.rule for f in report.findings if f.rule == "DC508"] == rules


@pytest.mark.parametrize(("dtype", "mended"), [("bf16", True), ("torch.bfloat16", True), ("bfloat08", False)])
def test_a_misspelt_dtype_is_mended_where_it_stands(tmp_path: Path, dtype: str, mended: bool) -> None:
    """Inside the language model's table, whatever the same key says at the top level."""
    head = {**FAMILIES, **LATER}["qwen3_5_moe"]
    config = head.config()
    config |= {"text_config": {**config.get("text_config", {}), "torch_dtype": dtype}, "torch_dtype": "float16"}
    room = tmp_path / "draft"
    room.mkdir()
    (room / "config.json").write_text(json.dumps(config))
    write_safetensors(room / "model.safetensors", head.weights())
    (hit,) = [f for f in lint(room, engine="sglang==0.5.23", target=room).findings if f.rule == "DC508"]
    assert hit.fixable is mended
    assert [place.key for place in hit.locations] == ["text_config.torch_dtype"]
    seen = inspect_one(str(room), Options(engine="sglang==0.5.23", target=str(room))).subject
    assert seen is not None
    assert dtype_shared(seen) == ({("text_config", "torch_dtype"): "bfloat16"} if mended else None)
