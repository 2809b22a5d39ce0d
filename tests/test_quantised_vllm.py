"""DC507 on quantised drafts of vLLM: which layers are built so, held against its own class (EAGLE-3 on Llama)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import record_quantised_vllm as recorder
import recorded

from drafcheck.config import DraftConfig, TargetConfig
from drafcheck.contract import contract_for, resolve_engine
from drafcheck.jsonpos import Document
from drafcheck.plan.model import Layer
from drafcheck.plan.parameters import build_parameters
from drafcheck.plan.quantised import quantised, scheme_of

ROWS = recorded.rows(Path(__file__).parent.parent / "fixtures" / "verdicts" / "vllm" / "quantised.jsonl")
CPU_ALONE = {("0.22.1", "gptq"): "built plain on a CPU, for which another method takes over"}
BUILT = [row for row in ROWS if "layers" in row and (row["release"], row["case"]) not in CPU_ALONE]
RELEASES = ("0.9.2", "0.11.0", "0.16.0", "0.22.1", "0.33.0")


def told_of(row: dict[str, Any]) -> tuple[list[Layer], tuple[str, ...], frozenset[str]]:
    """What drafcheck says of the layers, and of which parts the quantised ones are."""
    draft, target = recorder.questions()[row["case"]]
    config = DraftConfig(Document("config.json", draft))
    config.target = TargetConfig(Document("target.json", target))
    contract = contract_for(resolve_engine(f"vllm=={row['release']}"), "Eagle3LlamaForCausalLM")
    assert contract is not None
    scheme = scheme_of(contract, config)
    layers = quantised(contract, config, build_parameters(contract, config), [])[1]
    return layers, *((scheme.parts, scheme.spare) if scheme is not None else ((), frozenset()))


@pytest.mark.parametrize("row", BUILT, ids=lambda row: f"{row['release']} {row['case']}")
def test_as_built(row: dict[str, Any]) -> None:
    """What nobody finds in the list is built of the parts told, and what everybody finds is plain."""
    layers, parts, spare = told_of(row)
    states = {layer.name: layer.state for layer in layers}
    for name, built in row["layers"].items():
        if name and states.get(name, "left") == "left":
            assert set(built) == {"weight"}, name
        elif name and states[name] == "built":
            assert set(built) - spare == set(parts) - spare, name
    assert set(states) <= set(row["layers"])


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_was_asked_and_both_ways_occur(release: str) -> None:
    mine = [row for row in BUILT if row["release"] == release]
    states = [layer.state for row in mine for layer in told_of(row)[0]]
    assert mine
    assert bool(states) == (release != "0.9.2")  # which builds plain layers whatever a config says
    assert not states or ("built" in states and (release == "0.11.0" or "left" in states))


def test_a_draft_is_built_by_the_targets_table_in_one_release_alone() -> None:
    beside = [row for row in BUILT if row["case"] == "target's fp8"]
    packed = {row["release"] for row in beside if len(row["layers"]["model.layers.0.mlp.down_proj"]) > 1}
    assert packed == {"0.11.0"}
