"""Whatever is wrong inside a checkpoint, lint answers with a report: no traceback, no internal error."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft, draft_config, draft_weights, target_config
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weights import Weights, encode_header, write_safetensors

from drafcheck import lint
from drafcheck.errors import UsageError
from drafcheck.report.model import Report

ENGINES = ("sglang==0.4.5", "sglang==0.4.9.post2", "sglang==0.5.9", "sglang==0.5.15", "sglang==0.5.23")

KEYS = (
    *draft_config(),
    "eagle_config",
    "eagle_aux_hidden_state_layer_ids",
    "target_hidden_size",
    "num_aux_hidden_states",
    "norm_before_fc",
    "fc_norm",
    "use_aux_norm",
    "norm_output",
    "bias",
    "dtype",
    "rope_parameters",
    "rope_scaling",
    "text_config",
    "transformer_layer_config",
    "speculators_model_type",
    "speculators_config",
    "auto_map",
    "quantization_config",
    "intermediate_size_mlp",
    "num_nextn_predict_layers",
    "q_lora_rank",
)
"""Every key that drafcheck reads, and more."""

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3000),
    st.sampled_from([2**31, 2**63, 10**40, -(10**40)]),
    st.floats(allow_nan=False),
    st.text(max_size=12),
    st.sampled_from(["bfloat16", "float16", "float32", "auto", "torch.bfloat16", "llama", "LlamaForCausalLMEagle3"]),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=8)), inner, max_size=4),
    ),
    max_leaves=8,
)
eagle = st.fixed_dictionaries(
    {},
    optional={
        "eagle_aux_hidden_state_layer_ids": values,
        "use_aux_hidden_state": values,
        "norm_before_fc": values,
    },
)

NAMES = ("fc.weight", "midlayer.self_attn.q_proj.weight", "lm_head.weight", "norm.weight", "d2t", "t2d", "fc.bias")
names = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(["model.", "module.", "layers.0.", "layers.1.", "layers.99999999999."]).flatmap(
        lambda prefix: st.sampled_from(NAMES).map(lambda name: prefix + name)
    ),
    st.text(max_size=20),
)
entries = st.one_of(
    values,
    st.fixed_dictionaries(
        {
            "dtype": st.one_of(st.sampled_from(["BF16", "F32", "I64", "BOOL", "F8_E4M3", "nonsense"]), values),
            "shape": st.one_of(st.lists(st.integers(-2, 300), max_size=3), values),
            "data_offsets": st.one_of(st.lists(st.integers(-2, 40_000), min_size=2, max_size=2), values),
        }
    ),
)


def check(folder: Path, engine: str) -> Report | None:
    """Lint, and assert that nothing broke; None for a clear refusal, as of a target that is no JSON."""
    try:
        report = lint(folder, engine=engine)
    except UsageError as refusal:
        assert str(refusal)
        return None
    for checkpoint in report.checkpoints:
        codes = [(finding.rule, finding.message) for finding in checkpoint.findings]
        assert not [found for found in codes if found[0] == "DC999"], codes
    json.loads(report.model_dump_json())
    return report


def write(folder: Path, config: object, weights: Weights | None = None, target: object = None) -> None:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "target_config.json").write_text(json.dumps(target_config() if target is None else target))
    if weights is not None:
        write_safetensors(folder / "model.safetensors", weights)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples, with healthy weights; each example overwrites what it changes."""
    folder = tmp_path_factory.mktemp("property")
    Draft().write(folder)
    return folder


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


@examples(900)
@given(
    changes=st.dictionaries(st.sampled_from(KEYS), st.one_of(values, eagle), max_size=3),
    engine=st.sampled_from(ENGINES),
)
def test_any_draft_config(room: Path, changes: dict[str, Any], engine: str) -> None:
    write(room, {**draft_config(), **changes}, draft_weights())
    check(room, engine)


@examples(500)
@given(
    changes=st.dictionaries(st.sampled_from(KEYS), values, max_size=3),
    nest=st.sampled_from([None, "text_config", "llm_config", "thinker_config"]),
    engine=st.sampled_from(ENGINES),
)
def test_any_target_config(room: Path, changes: dict[str, Any], nest: str | None, engine: str) -> None:
    target: dict[str, Any] = {**target_config(), **changes}
    write(room, draft_config(), draft_weights(), {"architectures": ["X"], nest: target} if nest else target)
    check(room, engine)


@examples(500)
@given(
    changes=st.dictionaries(names, entries, max_size=3),
    gone=st.lists(st.sampled_from(sorted(draft_weights())), max_size=3),
    engine=st.sampled_from(ENGINES),
)
def test_any_header(room: Path, changes: dict[str, Any], gone: list[str], engine: str) -> None:
    write(room, draft_config())
    weights = draft_weights()
    encoded = encode_header(weights)
    header = {name: entry for name, entry in json.loads(encoded[8:]).items() if name not in gone} | changes
    text = json.dumps(header).encode()
    body = b"".join(tensor.raw for tensor in weights.values())
    (room / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    check(room, engine)


@examples(300)
@given(document=st.one_of(values, st.binary(max_size=60)), engine=st.sampled_from(ENGINES), place=st.integers(0, 2))
def test_any_document(room: Path, document: object, engine: str, place: int) -> None:
    write(room, draft_config(), draft_weights())
    name = ("config.json", "target_config.json", "model.safetensors.index.json")[place]
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    (room / name).write_bytes(content)
    try:
        check(room, engine)
    finally:
        (room / "model.safetensors.index.json").unlink(missing_ok=True)


@examples(200)
@given(cut=st.integers(0, 4000), flip=st.integers(0, 4000), byte=st.integers(0, 255), engine=st.sampled_from(ENGINES))
def test_damaged_file(room: Path, cut: int, flip: int, byte: int, engine: str) -> None:
    write(room, draft_config(), draft_weights())
    raw = bytearray((room / "model.safetensors").read_bytes())
    raw[flip] = byte
    (room / "model.safetensors").write_bytes(raw[: len(raw) - cut])
    check(room, engine)
