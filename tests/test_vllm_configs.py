"""Configs and names that vLLM's draft classes refuse, each beside one that they take; found by random drafts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bases import BASES, FINISH, METHODS
from drafts import Draft
from weights import write_safetensors, zeros

from drafcheck.plan.model import LoadPlan
from drafcheck.runner import inspect_one, lint
from drafcheck.session import Options
from drafcheck.subject import Subject

ALL = ("0.9.2", "0.11.0", "0.16.0", "0.22.1", "0.33.0")
WINDOW = {"layer_types": ["sliding_attention"], "sliding_window": 128}
TABLE = {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}


def subject(folder: Path, base: str, release: str, draft: Draft) -> Subject:
    draft.target = None
    draft.write(folder)
    seen = inspect_one(str(folder), Options(engine=f"vllm=={release}", algorithm=METHODS.get(base, "eagle3")))
    assert seen.subject is not None
    assert not seen.crashed
    return seen.subject


def plan_of(folder: Path, base: str, release: str, draft: Draft) -> LoadPlan:
    plan = subject(folder, base, release, draft).load
    assert plan is not None
    return plan


def error(folder: Path, base: str, release: str, **keys: Any) -> str | None:
    draft = BASES[base]()
    draft.set(**keys)
    plan = plan_of(folder, base, release, draft)
    return plan.refused.error if plan.refused is not None else None


REFUSED = [
    *(
        ("eagle3-plain", v, {"num_key_value_heads": 4}, "num_heads (2) is not divisible by num_kv_heads (4)")
        for v in ALL
    ),
    *(("eagle1-plain", v, {"model_type": "qwen2"}, "effective_layer_idx") for v in ALL[1:]),
    ("eagle1-plain", "0.22.1", {"model_type": "gpt_oss"}, "effective_layer_idx"),
    ("eagle3-plain", "0.33.0", {"max_position_embeddings": 0}, "max_model_len must be a positive integer"),
    ("eagle3-plain", "0.22.1", {"max_position_embeddings": None}, "arange() received an invalid combination"),
    ("eagle3-plain", "0.16.0", {"max_position_embeddings": "512"}, "'<' not supported between instances"),
    ("eagle3-plain", "0.11.0", {"rope_theta": None}, "'NoneType' and 'Tensor'"),
    ("eagle1-plain", "0.33.0", {"rope_theta": None}, "'NoneType' and 'Tensor'"),
    ("eagle3-plain", "0.33.0", {"layer_types": ["full_attention"] * 2}, "number of `layer_types`"),
    ("eagle3-plain", "0.11.0", {"layer_types": ["sliding_attention"]}, "no attribute 'sliding_window'"),
    ("eagle3-plain", "0.11.0", {"head_dim": 0}, "ZeroDivisionError"),
    (
        "eagle3-plain",
        "0.11.0",
        {"model_type": "qwen3", "num_hidden_layers": None},
        "cannot be interpreted as an integer",
    ),
    *(("dflash", v, {"eagle_config": None}, "'NoneType' object has no attribute 'update'") for v in ALL[3:]),
    *(("dflash", v, {"dflash_config": None}, "'NoneType' object is not iterable") for v in ALL[3:]),
]
TAKEN = [
    *(("eagle3-plain", v, {"num_key_value_heads": 1}) for v in ALL),
    ("eagle1-plain", "0.9.2", {"model_type": "qwen2"}),
    ("eagle3-plain", "0.11.0", {"num_hidden_layers": None}),  # one layer, whatever the config says
    ("eagle1-plain", "0.33.0", {"model_type": "mistral"}),
    ("eagle3-plain", "0.33.0", {"model_type": "qwen2"}),  # its layers are counted from the draft's first
    ("eagle3-plain", "0.22.1", {"max_position_embeddings": 0}),
    ("eagle3-plain", "0.16.0", {"rope_theta": None}),
    ("eagle3-plain", "0.33.0", TABLE),
    ("eagle3-plain", "0.33.0", {"layer_types": ["full_attention"]}),
    ("eagle3-plain", "0.22.1", {"layer_types": ["full_attention"] * 2}),
    ("eagle3-plain", "0.33.0", WINDOW),
    ("eagle3-plain", "0.16.0", {"head_dim": 0}),
    ("dflash", "0.33.0", {"eagle_config": {}}),
]


@pytest.mark.parametrize(("base", "release", "keys", "says"), REFUSED)
def test_a_config_is_refused(tmp_path: Path, base: str, release: str, keys: dict[str, Any], says: str) -> None:
    assert says in (error(tmp_path, base, release, **keys) or "")
    found = lint(tmp_path, engine=f"vllm=={release}", algorithm=METHODS.get(base, "eagle3")).checkpoints[0].findings
    assert sum(f.rule == "DC509" and says in f.message for f in found) == 1


@pytest.mark.parametrize(("base", "release", "keys"), TAKEN)
def test_a_config_is_taken(tmp_path: Path, base: str, release: str, keys: dict[str, Any]) -> None:
    assert error(tmp_path, base, release, **keys) is None


def nested_error(folder: Path, release: str, change: Callable[[dict[str, Any]], object]) -> str | None:
    draft = BASES["speculators"]()
    change(draft.config)
    FINISH["speculators"](draft)
    s = subject(folder, "speculators", release, draft)
    assert s.load is not None
    return s.load.refused.error if s.load.refused is not None else None


NEEDED = (
    "hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "rms_norm_eps",
)  # fmt: skip


@pytest.mark.parametrize("release", ALL[1:])
@pytest.mark.parametrize("key", NEEDED)
def test_a_converted_config_has_no_defaults(tmp_path: Path, release: str, key: str) -> None:
    missing = nested_error(tmp_path / "missing", release, lambda config: config.pop(key))
    if (release, key) == ("0.11.0", "num_hidden_layers"):
        assert missing is None  # one layer, whatever the config says
    else:
        assert missing == f"AttributeError: 'SpeculatorsConfig' object has no attribute '{key}'"
    assert nested_error(tmp_path / "healthy", release, lambda _: None) is None


@pytest.mark.parametrize(
    ("release", "key", "says"),
    [
        ("0.11.0", "num_key_value_heads", "TypeError: '>=' not supported"),
        ("0.33.0", "num_key_value_heads", "ValidationError: 1 validation error"),
        ("0.33.0", "max_position_embeddings", "TypeError: arange()"),
        ("0.33.0", "rope_theta", None),
        ("0.33.0", "head_dim", None),
        ("0.33.0", "mlp_bias", None),
    ],
)
def test_a_null_in_a_converted_config(tmp_path: Path, release: str, key: str, says: str | None) -> None:
    error = nested_error(tmp_path, release, lambda config: config.update({key: None}))
    assert (error or "").startswith(says or "")
    assert (error is None) == (says is None)


@pytest.mark.parametrize(("release", "refused"), [("0.11.0", False), ("0.16.0", True), ("0.22.1", False)])
def test_a_nested_model_type_of_null(tmp_path: Path, release: str, refused: bool) -> None:
    draft = BASES["speculators"]()
    draft.set(model_type=None)
    FINISH["speculators"](draft)
    assert (subject(tmp_path, "speculators", release, draft).refused is not None) == refused


@pytest.mark.parametrize(
    ("ids", "states"), [([1, 3, 5, 7], 4), ([], 3), (None, 3), ("1,3", 2), (3, 2)]
)  # 3: dflash_config names them; 2: as many as the draft has layers
def test_ids_that_are_no_list_hide_those_of_other_keys(tmp_path: Path, ids: object, states: int) -> None:
    draft = BASES["dflash"]()
    draft.set(eagle_aux_hidden_state_layer_ids=ids)
    s = subject(tmp_path, "dflash", "0.33.0", draft)
    assert s.contract is not None
    assert s.config is not None
    assert s.contract.value("num_aux", s.config) == states


@pytest.mark.parametrize(("model_type", "rows"), [("llama", 11008), ("llama4_text", 8192), ("mistral", 14336)])
def test_a_size_left_out_is_that_of_the_config_class(tmp_path: Path, model_type: str, rows: int) -> None:
    draft = BASES["eagle3-plain"]()
    draft.set(model_type=model_type)
    del draft.config["intermediate_size"]
    plan = plan_of(tmp_path, "eagle3-plain", "0.22.1", draft)
    assert plan.parameters["model.layers.0.mlp.gate_up_proj.weight"].shape == (2 * rows, 64)


@pytest.mark.parametrize("release", ALL)
def test_the_mapping_under_the_name_of_its_parameter_is_passed_over_where_no_d2t_is(
    tmp_path: Path, release: str
) -> None:
    draft = BASES["eagle3-plain"]()
    draft.weights["draft_id_to_target_id"] = draft.weights["d2t"]
    refused = plan_of(tmp_path / "both", "eagle3-plain", release, draft).refused
    assert refused is not None
    assert "draft_id_to_target_id" in refused.error
    draft.drop("d2t")
    plan = plan_of(tmp_path / "alone", "eagle3-plain", release, draft)
    assert plan.refused is None
    assert {drop.tensor.name: drop.why for drop in plan.dropped}["draft_id_to_target_id"] == "design"
    assert plan.mappings == []


def test_a_name_is_renamed_once_since_0_33(tmp_path: Path) -> None:
    draft = BASES["eagle3-plain"]()
    draft.weights["midlayer.midlayer.x"] = zeros("BF16", 1)
    last = plan_of(tmp_path / "a", "eagle3-plain", "0.33.0", draft).refused
    before = plan_of(tmp_path / "b", "eagle3-plain", "0.22.1", draft).refused
    assert last is not None
    assert before is not None
    assert "'layers.0.midlayer'" in last.error
    assert before.error == "KeyError: 'layers.0.layers.0.x'"


def test_a_quotation_mark_in_a_name_is_quoted_as_python_does(tmp_path: Path) -> None:
    draft = BASES["eagle3-plain"]()
    draft.weights["a'b.weight"] = zeros("BF16", 1)
    refused = plan_of(tmp_path, "eagle3-plain", "0.22.1", draft).refused
    assert refused is not None
    assert refused.error == 'KeyError: "a\'b.weight"'


def test_what_a_fused_tensor_has_rows_for_is_written_before_the_refusal(tmp_path: Path) -> None:
    draft = BASES["eagle3-plain"]()
    for part in ("q_proj", "k_proj", "v_proj"):
        draft.drop(f"midlayer.self_attn.{part}.weight")
    draft.weights["midlayer.self_attn.qkv_proj.weight"] = zeros("BF16", 100, 128)
    plan = plan_of(tmp_path, "eagle3-plain", "0.33.0", draft)
    assert plan.refused is not None
    assert "exceeds dimension size (100)" in plan.refused.error
    (partial,) = plan.partial
    assert partial.missing == ("v",)


@pytest.mark.parametrize(
    ("keys", "bias"),
    [
        ({"bias": True}, True),  # beside "attention_bias": false
        ({"attention_bias": True}, True),
        ({"qkv_bias": True}, True),
        ({"qkv_bias": False, "bias": True}, False),
        ({}, False),
    ],
)
@pytest.mark.parametrize("release", ["0.9.2", "0.33.0"])
def test_which_keys_give_the_queries_of_eagle1_a_bias(
    tmp_path: Path, release: str, keys: dict[str, Any], bias: bool
) -> None:
    draft = BASES["eagle1-plain"]()
    draft.set(**keys)
    plan = plan_of(tmp_path, "eagle1-plain", release, draft)
    assert ("model.layers.0.self_attn.qkv_proj.bias" in plan.parameters) == bias


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("midlayer.self_attn.q_proj.w", "AttributeError: 'QKVParallelLinear' object has no attribute 'data'"),
        ("midlayer.self_attn.q_proj", "AttributeError: 'QKVParallelLinear' object has no attribute 'data'"),
        ("midlayer.mlp.up_proj.w", "AttributeError: 'MergedColumnParallelLinear' object has no attribute 'data'"),
        ("midlayer.self_attn.q_proj.x.weight", "AttributeError: QKVParallelLinear has no attribute `x`"),
        ("midlayer.self_attn.q_proj.bias", None),
        (
            "midlayer.self_attn.o_proj.w",
            "ValueError: There is no module or parameter named 'layers.0.self_attn.o_proj.w'",
        ),
        ("layers.7.self_attn.q_proj.w", "ValueError: There is no module or parameter named 'layers.7'"),
        ("midlayer.self_attn.q_proj_w", "ValueError: There is no module or parameter named"),
    ],
)
def test_a_fused_layer_has_words_of_its_own_since_0_33(tmp_path: Path, name: str, says: str | None) -> None:
    draft = BASES["eagle3-plain"]()
    draft.weights[name] = zeros("BF16", 1)
    refused = plan_of(tmp_path, "eagle3-plain", "0.33.0", draft).refused
    assert (refused is None) == (says is None)
    assert (refused.error if refused is not None else "").startswith(says or "")


@pytest.mark.parametrize("name", ["mask_hidden", "model.mask_hidden"])
@pytest.mark.parametrize("release", ["0.22.1", "0.33.0"])
def test_names_are_looked_at_before_anything_is_loaded(tmp_path: Path, release: str, name: str) -> None:
    draft = BASES["dflash"]()
    draft.weights[name] = zeros("BF16", 64)
    plan = plan_of(tmp_path, "dflash", release, draft)
    assert plan.refused is not None
    assert plan.refused.error.startswith("AssertionError: DFlash")
    assert plan.writes == []
    assert [lost.error for lost in plan.lost] == [plan.refused.error]


@pytest.mark.parametrize(
    ("base", "release", "last"), [("eagle3-plain", "0.33.0", True), ("eagle1-plain", "0.33.0", False)]
)
def test_of_two_tensors_of_one_name_the_last_counts_where_all_are_gathered(
    tmp_path: Path, base: str, release: str, last: bool
) -> None:
    draft = BASES[base]()
    draft.weight_file = "model-1.safetensors"
    good = draft.weights["fc.weight"]
    draft.writers.append(lambda folder: write_safetensors(folder / "model-2.safetensors", {"fc.weight": good}))
    draft.shape("fc.weight", 3, 3)
    assert (plan_of(tmp_path, base, release, draft).refused is None) == last


@pytest.mark.parametrize(
    ("keys", "taken"),
    [
        ({}, True),
        ({"num_key_value_heads": None}, False),
        ({"model_type": "llama"}, False),
        ({"num_attention_heads": -1}, False),
    ],
)
def test_qwen3_without_heads(tmp_path: Path, keys: dict[str, Any], taken: bool) -> None:
    """Built where nothing divides by the number of heads."""
    says = error(tmp_path, "eagle3-qwen3", "0.33.0", **{"num_attention_heads": 0, **keys})
    assert (says is None) is taken
