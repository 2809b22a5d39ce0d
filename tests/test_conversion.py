"""Configs that vLLM turns into flat ones: what the draft class gets to see, where it comes from, why it stops."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drafcheck.config import DraftConfig
from drafcheck.contract import resolve_engine
from drafcheck.conversion import AsRead, as_read
from drafcheck.jsonpos import Document

BODY: dict[str, Any] = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 256}
VERIFIER = {"proposal_methods": [{"speculative_tokens": 3}], "verifier": {"name_or_path": "org/target"}}


def nested(body: object = None, **keys: object) -> dict[str, Any]:
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": VERIFIER,
        "transformer_layer_config": BODY if body is None else body,
        "draft_vocab_size": 128,
        **keys,
    }


def read(data: dict[str, Any], version: str = "0.33.0") -> AsRead:
    text = json.dumps(data, indent=1)
    return as_read(resolve_engine(f"vllm=={version}"), DraftConfig(Document("config.json", data, text=text)))


def test_the_flat_config() -> None:
    got = read(nested(eagle_aux_hidden_state_layer_ids=[1, 3, 4], target_hidden_size=None))
    assert got.refused is None and got.algorithm == "eagle3"
    assert got.config.data == {
        **BODY,
        "model_type": "speculators",
        "architectures": ["Eagle3LlamaForCausalLM"],
        "draft_vocab_size": 128,
        "norm_before_residual": True,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_output": False,
        "eagle_aux_hidden_state_layer_ids": [1, 3, 4],
    }


def test_the_original_stays_as_it_is() -> None:
    data = nested(norm_before_residual=False)
    before = json.dumps(data)
    assert read(data).config.data["norm_before_residual"] is False
    assert json.dumps(data) == before


def test_keys_point_to_where_they_stand() -> None:
    config = read(nested()).config
    assert config.at("hidden_size").key == "transformer_layer_config.hidden_size"
    assert config.at("draft_vocab_size").key == "draft_vocab_size"


@pytest.mark.parametrize(
    "version, ids, norms",
    (
        ("0.11.0", False, {"norm_before_residual"}),
        ("0.16.0", True, {"norm_before_residual"}),
        ("0.22.1", True, {"norm_before_residual", "norm_before_fc"}),
        ("0.33.0", True, {"norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"}),
    ),
)
def test_what_each_release_takes(version: str, ids: bool, norms: set[str]) -> None:
    data = nested(eagle_aux_hidden_state_layer_ids=[1, 3, 4], norm_before_fc=True, fc_norm=True, norm_output=True)
    got = read(data, version).config.data
    assert ("eagle_aux_hidden_state_layer_ids" in got) is ids
    assert {key for key in got if "norm" in key} == norms


@pytest.mark.parametrize("version", ("0.11.0", "0.16.0", "0.22.1"))
def test_before_0_33_the_class_is_llamas_whatever_the_layer_is(version: str) -> None:
    got = read(nested({**BODY, "model_type": "qwen3"}), version).config
    assert got.architectures == ("Eagle3LlamaForCausalLM",)
    assert read(nested({**BODY, "model_type": "qwen3"})).config.architectures == ("Eagle3Qwen3ForCausalLM",)


@pytest.mark.parametrize(
    "version, data, error",
    (
        ("0.33.0", nested({**BODY, "model_type": "gemma3_text"}), "Unsupported model_type gemma3_text for Eagle3"),
        ("0.33.0", nested(speculators_model_type="mtp"), "Expected one of"),
        ("0.16.0", nested(speculators_model_type="peagle"), "Expected one of"),
        ("0.33.0", nested(speculators_model_type="peagle"), "KeyError: 'mask_token_id'"),
        ("0.33.0", nested(speculators_model_type="dflash"), "KeyError: 'aux_hidden_state_layer_ids'"),
        ("0.33.0", nested([]), "TypeError"),
        ("0.11.0", nested(speculators_config={"verifier": {}}), "Invalid speculators config structure"),
        ("0.11.0", nested([1]), "must be a dictionary"),
    ),
)
def test_why_it_stops(version: str, data: dict[str, Any], error: str) -> None:
    got = read(data, version)
    assert got.refused is not None and got.refused.cause == "conversion"
    assert error in got.refused.error


def test_a_draft_for_parallel_drafting() -> None:
    got = read(nested(speculators_model_type="peagle", mask_token_id=7))
    assert got.config.architectures == ("PeagleLlamaForCausalLM",)
    assert (got.config.data["pard_token"], got.config.data["norm_before_residual"]) == (7, False)


def test_dflash_counts_from_the_other_side() -> None:
    got = read(nested(speculators_model_type="dflash", mask_token_id=7, aux_hidden_state_layer_ids=[1, 4]))
    assert got.algorithm == "dflash"
    assert got.config.data["eagle_aux_hidden_state_layer_ids"] == [1, 4]
    assert got.config.data["dflash_config"] == {"mask_token_id": 7, "target_layer_ids": [0, 3]}


@pytest.mark.parametrize(
    "data, version",
    (
        (nested(), "0.9.2"),
        (nested(model_type="llama"), "0.33.0"),
        ({**nested(), "speculators_config": None}, "0.33.0"),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "0.33.0"),
    ),
)
def test_what_is_read_as_it_is(data: dict[str, Any], version: str) -> None:
    got = read(data, version)
    assert got.config.data is data and got.refused is None


def test_sglang_converts_nothing() -> None:
    config = DraftConfig(Document("config.json", nested()))
    assert as_read(resolve_engine("sglang==0.5.15"), config).config is config


ANY = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just([]), st.just({}), st.just([[]]))
KEYS = st.sampled_from(
    [
        "model_type",
        "speculators_config",
        "speculators_model_type",
        "transformer_layer_config",
        "architectures",
        "aux_hidden_state_layer_ids",
        "mask_token_id",
        "draft_vocab_size",
    ]
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(KEYS, ANY),
    st.sampled_from(["eagle3", "peagle", "dflash", "dspark"]),
    st.sampled_from(["0.11.0", "0.16.0", "0.22.1", "0.33.0"]),
    st.booleans(),
)
def test_no_config_makes_it_crash(keys: dict[str, Any], kind: str, version: str, body: bool) -> None:
    data = {**nested(speculators_model_type=kind), **keys}
    if body:
        data["transformer_layer_config"] = {"model_type": keys.get("model_type")}
    got = read(data, version)
    assert got.refused is not None or isinstance(got.config.data, dict)
