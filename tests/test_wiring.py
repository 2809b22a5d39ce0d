"""The wiring plan against the layers that the statements of 39 real releases compute."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from drafcheck.checkpoint import open_target
from drafcheck.config import TargetConfig
from drafcheck.contract import Contract, Engine, contract_for, releases, resolve_engine
from drafcheck.plan.model import WiringPlan
from drafcheck.plan.wiring import default_inputs, inputs_of, plan_wiring
from drafcheck.targets import target_class

RECORDED = Path(__file__).parent.parent / "fixtures" / "verdicts" / "sglang"
SWITCHED_OFF = {"use_aux_hidden_state": False}
DRAFTS: dict[str, dict[str, Any]] = {
    "none": {},
    "ids[1,3,5]": {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5], "use_aux_hidden_state": True}},
    "ids[2,4,6]": {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 4, 6]}},
    "use_aux=false,no ids": {"eagle_config": SWITCHED_OFF},
    "use_aux=false,ids": {"eagle_config": {**SWITCHED_OFF, "eagle_aux_hidden_state_layer_ids": [1, 3, 5]}},
    "top-level ids[1,3,5,7]": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5, 7]},
    "num_aux=4": {"num_aux_hidden_states": 4},
    "ids [] (empty)": {"eagle_config": {"eagle_aux_hidden_state_layer_ids": []}},
}


@cache
def target(name: str) -> TargetConfig:
    return open_target(RECORDED / "aux_targets" / f"{name}.json")


@cache
def engine_and_contract(version: str) -> tuple[Engine, Contract]:
    engine = resolve_engine(f"sglang=={version}")
    contract = contract_for(engine, "LlamaForCausalLMEagle3")
    assert contract is not None
    return engine, contract


def plan(version: str, draft: dict[str, Any], of: str | None = "llama8", algorithm: str = "EAGLE3") -> WiringPlan:
    engine, contract = engine_and_contract(version)
    config: Any = SimpleNamespace(data={"hidden_size": 64, **draft})
    theirs = target(of) if of is not None else None
    known = target_class(engine, theirs) if theirs is not None else None
    return plan_wiring(config, theirs, known, contract, engine, algorithm, None)


def ids(*layers: object) -> dict[str, Any]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(layers)}}


def rows() -> Iterator[dict[str, Any]]:
    for line in (RECORDED / "aux_layers.jsonl").read_text().splitlines():
        row = json.loads(line)
        row["first"], row["last"] = row["releases"].split("..")
        yield row


NEWEST = max(Version(row["last"]) for row in rows())


@pytest.mark.parametrize("version", [str(v) for v in releases("sglang") if v <= NEWEST])
def test_every_recorded_row(version: str) -> None:
    """5 targets x 8 draft configs for each release: the captured layer inputs, or why none are captured."""
    asked = [r for r in rows() if Version(r["first"]) <= Version(version) <= Version(r["last"])]
    assert len(asked) == 40
    for row in asked:
        got = plan(version, DRAFTS[row["draft_config"]], row["target"])
        assert agrees(got, row["captured_layer_inputs"]), (row, got)


def agrees(got: WiringPlan, recorded: list[int] | str) -> bool:
    if isinstance(recorded, list):
        return got.inputs is not None and list(got.inputs) == recorded
    why = got.why_not or ""
    if recorded == "not captured":
        return got.captured is False and "use_aux_hidden_state is false" in why
    reason = "has no class" if recorded.endswith("not registered") else "does not hand them over"
    return got.captured is False and reason in why


def test_outputs_are_one_less_than_inputs() -> None:
    got = plan("0.5.15", ids(1, 3, 4))
    assert (got.inputs, got.layer_outputs) == ((2, 4, 5), (1, 3, 4))
    assert got.source == "eagle_config.eagle_aux_hidden_state_layer_ids"
    assert (got.fed, got.fc_in, got.fc_applied) == (192, 192, True)


def test_the_default_is_named_as_default() -> None:
    got = plan("0.5.15", {})
    assert (got.source, got.ids, got.layer_outputs) == ("default", None, (1, 3, 4))


@pytest.mark.parametrize("given", ([1, 3, 9], [1, 3, 3], [-5, 1, 3], [1, 3, 7]))
def test_layers_that_never_arrive(given: list[int]) -> None:
    got = plan("0.5.15", ids(*given))
    assert got.layer_outputs == (1, 3)
    assert got.fed == 128


def test_states_arrive_in_layer_order() -> None:
    assert plan("0.5.15", ids(4, 1, 3)).layer_outputs == (1, 3, 4)


def test_the_final_state_of_gpt_oss() -> None:
    assert plan("0.5.17", ids(24, 30, 36), "gptoss_36").layer_outputs == (23, 29, 35)
    assert plan("0.5.16", ids(24, 30, 36), "gptoss_36").layer_outputs == (24, 30)


def test_two_states() -> None:
    got = plan("0.5.15", ids(1, 4))
    assert (got.num_aux, got.fc_in, got.fed) == (2, 128, 128)
    assert plan("0.5.11", ids(1, 4)).fc_in == 192


def test_one_state_is_as_wide_as_the_embedding() -> None:
    got = plan("0.5.15", ids(3))
    assert (got.captured, got.fed, got.embed_width, got.fc_applied) == (True, 64, 64, False)


def test_an_algorithm_that_captures_nothing() -> None:
    got = plan("0.5.15", {}, algorithm="EAGLE")
    assert (got.captured, got.fed, got.fc_in, got.fc_applied) == (False, 64, 192, False)
    assert got.why_not == "--speculative-algorithm EAGLE asks for none"


def test_kimi_before_it_captures() -> None:
    got = plan("0.5.9", {}, "kimi25")
    assert (got.captured, got.fed) == (False, 64)
    assert plan("0.5.10", {}, "kimi25").layer_outputs == (1, 29, 57)


def test_without_a_target() -> None:
    got = plan("0.5.15", ids(1, 3), None)
    assert (got.captured, got.layer_outputs, got.fed) == (None, None, None)
    assert (got.ids, got.fc_in) == ((1, 3), 128)
    assert plan("0.5.15", {"eagle_config": SWITCHED_OFF}, None).captured is False


@pytest.mark.parametrize("value", (None, [], "x", 3, True))
def test_an_eagle_config_that_is_none_gives_the_default(value: object) -> None:
    assert plan("0.5.9", {"eagle_config": value}).layer_outputs == (1, 3, 4)


@pytest.mark.parametrize("value", ("1,3,5", 3, {"a": 1}, [1, "3"], [1.5], [None], [[1]]))
def test_ids_of_a_wrong_type(value: object) -> None:
    got = plan("0.5.9", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": value}})
    assert got.bad_ids is not None
    assert (got.captured, got.layer_outputs) == (None, None)


def test_odd_numbers_are_survived() -> None:
    assert plan("0.5.15", ids(10**30, 1, 3)).layer_outputs == (1, 3)
    assert plan("0.5.15", ids(1.0, 3, 4)).layer_outputs == (1, 3, 4)
    assert plan("0.5.15", {"eagle_config": {"use_aux_hidden_state": None}}).captured is False


def test_ids_are_not_read_before_0_4_9() -> None:
    got = plan("0.4.8", ids(2, 4, 6))
    assert (got.source, got.ids, got.layer_outputs) == ("default", None, (1, 3, 4))


def test_graphs_recorded_with_the_default_layers() -> None:
    assert plan("0.5.9", ids(1, 3, 5)).notes
    assert not plan("0.5.11", ids(1, 3, 5)).notes


def test_a_default_of_its_own() -> None:
    assert default_inputs(("3", "n // 2 + 1", "n - 2"), 60) == (3, 31, 58)
    assert default_inputs(("n",), None) is None
    with pytest.raises(ValueError, match="not a layer"):
        default_inputs(("n * 2",), 8)


def test_rules_for_ids() -> None:
    assert inputs_of("plus_one", (1, 2), None) == (2, 3)
    assert inputs_of("plus_one_if_first_is_one", (2, 29), 61) == (2, 29)
    assert inputs_of("plus_one_if_first_is_one", (1, 29), 61) == (2, 30)
    assert inputs_of("as_is_if_max_is_depth", (1, 8), None) is None
    assert inputs_of("unknown", (1, 2), 8) is None


def test_a_wider_target_keeps_the_drafters_embedding() -> None:
    got = plan("0.5.15", {"hidden_size": 32, "target_hidden_size": 64})
    assert (got.fc_in, got.fed, got.embed_width, got.fc_applied) == (192, 192, 32, True)
