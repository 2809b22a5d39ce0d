"""DC507 on quantised drafts: which layers are built so, of which parts, held against SGLang's own classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import record_rope
from drafts import Draft
from weights import Weight

from drafcheck import lint
from drafcheck.config import DraftConfig
from drafcheck.contract import contract_for, resolve_engine
from drafcheck.finding import Confidence
from drafcheck.jsonpos import Document
from drafcheck.plan.parameters import build_parameters
from drafcheck.plan.quantised import may_mean, quantised, scheme_of

FIXTURES = Path(__file__).parent.parent / "fixtures"
ROWS = [json.loads(line) for line in (FIXTURES / "verdicts" / "sglang" / "quantised.jsonl").read_text().splitlines()]
BUILT = [row for row in ROWS if "layers" in row]


def config_of(table: Any, **keys: Any) -> DraftConfig:
    return DraftConfig(Document("config.json", {**record_rope.BASE, **keys, "quantization_config": table}))


@pytest.mark.parametrize("row", BUILT, ids=lambda row: f"{row['release']} {row['case']}")
def test_as_built(row: dict[str, Any]) -> None:
    """What nobody finds in the list is built of the parts told, and what everybody finds is plain."""
    engine = resolve_engine(f"sglang=={row['release']}")
    contract = contract_for(engine, "LlamaForCausalLMEagle3")
    config = config_of(row["config"])
    assert contract is not None
    scheme = scheme_of(contract, config)
    assert scheme is not None
    _, layers = quantised(contract, config, build_parameters(contract, config), [])
    assert {layer.name for layer in layers} == set(row["layers"])
    for layer in layers:
        parts = set(row["layers"][layer.name]) - scheme.spare
        if layer.state == "built":
            assert parts == set(scheme.parts) - scheme.spare
        if layer.state == "left":
            assert parts == {"weight"}


def test_the_states_say_something() -> None:
    """Most layers are told for certain, and both ways occur."""
    seen = []
    for row in BUILT:
        contract = contract_for(resolve_engine(f"sglang=={row['release']}"), "LlamaForCausalLMEagle3")
        assert contract is not None
        config = config_of(row["config"])
        seen += [layer.state for layer in quantised(contract, config, build_parameters(contract, config), [])[1]]
    assert seen.count("built") > len(seen) / 2
    assert seen.count("left") > len(BUILT)


@pytest.mark.parametrize(
    ("entry", "name", "may"),
    [
        ("lm_head", "model.qkv_proj", False),
        ("model.layers.0.self_attn.q_proj", "model.q_proj", False),
        ("qkv_proj", "model.qkv_proj", True),
        ("self_attn", "model.self_attn.o_proj", True),
        ("re:.*o_proj", "model.self_attn.o_proj", True),
        ("re:.*lm_head$", "model.self_attn.o_proj", False),
        ("re:^(a|b)$", "model.self_attn.o_proj", True),
        ("layers.0.self_attn*", "model.self_attn.o_proj", False),
        ("*self_attn*", "model.self_attn.o_proj", True),
        ("o_proj*model", "model.self_attn.o_proj", False),
        ("", "model.qkv_proj", True),
    ],
)
def test_what_an_entrymay_mean(entry: str, name: str, *, may: bool) -> None:
    assert may_mean(entry, name) is may


def test_a_hostile_expression_costs_nothing(tmp_path: Path) -> None:
    """No regular expression of a checkpoint is ever run."""
    draft = Draft()
    draft.set(
        quantization_config={"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ["re:(a+)+$"]}
    )
    draft.write(tmp_path)
    assert "DC999" not in [f.rule for f in lint(tmp_path, engine="sglang==0.5.15").findings]


@pytest.mark.parametrize(
    "table", [[], "fp8", 3, {"quant_method": 3}, {"quant_method": "gptq", "dynamic": {"a": 1}}, {}]
)
def test_what_is_not_described_is_said(tmp_path: Path, table: Any) -> None:
    draft = Draft()
    draft.set(quantization_config=table)
    draft.write(tmp_path)
    report = lint(tmp_path, engine="sglang==0.5.15").checkpoints[0]
    whys = {s.why for s in report.skipped if s.rule == "DC507"}
    if not table:
        assert report.outcome == "clean"
        assert not whys
        return
    assert report.outcome == "incomplete"
    assert all("quantization_config (" in why for why in whys)
    assert whys


def test_the_method_is_named(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(quantization_config={"quant_method": "bitsandbytes"})
    draft.write(tmp_path)
    skipped = lint(tmp_path, engine="sglang==0.5.15").checkpoints[0].skipped
    assert any("quantization_config (method bitsandbytes)" in s.why for s in skipped)


def test_the_same_draft_is_found_by_its_layer_in_one_engine_alone() -> None:
    """What vLLM asks for lies behind the target's layers; the list of this draft names it so."""
    folder = FIXTURES / "good" / "vllm-listed-behind-the-target"
    assert [f.rule for f in lint(folder, engine="vllm==0.33.0").findings if f.severity.value == "error"] == []
    found = [f for f in lint(folder, engine="sglang==0.5.23").findings if f.rule == "DC507"]
    assert "model.layers.0.self_attn.qkv_proj" in found[0].about
    assert found[0].confidence is Confidence.CERTAIN


def test_a_draft_beside_a_quantised_target_is_built_by_it_in_0_11() -> None:
    folder = FIXTURES / "DC507" / "vllm-quantised-as-the-target"
    found = [f for f in lint(folder, engine="vllm==0.11.0").findings if f.rule == "DC507"]
    assert [f.confidence for f in found] == [Confidence.LIKELY]
    for release in ("0.16.0", "0.22.1", "0.33.0"):
        assert "DC507" not in [f.rule for f in lint(folder, engine=f"vllm=={release}").findings]


def test_sizes_of_plain_tensors_are_still_compared(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(quantization_config={"quant_method": "fp8", "activation_scheme": "dynamic"})
    draft.weights["norm.weight"] = Weight("BF16", (7,))
    draft.write(tmp_path)
    assert "DC201" in [f.rule for f in lint(tmp_path, engine="sglang==0.5.15").findings]


def test_a_quantisation_in_a_file_of_its_own_is_not_described(tmp_path: Path) -> None:
    draft = Draft()
    draft.files["hf_quant_config.json"] = b'{"quantization": {"quant_algo": "FP8"}}'
    draft.weights["midlayer.mlp.down_proj.weight_scale"] = Weight("F32", (1,))
    draft.write(tmp_path)
    report = lint(tmp_path, engine="sglang==0.5.15").checkpoints[0]
    assert report.outcome == "incomplete"
    assert any("hf_quant_config.json" in s.why for s in report.skipped)
