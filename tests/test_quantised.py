"""DC507 on quantised drafts: which layers are built so, of which parts, held against SGLang's own classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import record_quantised
import record_rope
import recorded
from cases_quantised import PROJECTIONS
from class_drafts import dflash, dspark, eagle1, mla
from drafts import Draft
from weights import Weight

from drafcheck import lint
from drafcheck.config import DraftConfig
from drafcheck.contract import contract_for, resolve_engine
from drafcheck.contract_tables import contract_table
from drafcheck.finding import Confidence
from drafcheck.jsonpos import Document
from drafcheck.lookup import settled
from drafcheck.plan.model import Layer
from drafcheck.plan.parameters import build_parameters
from drafcheck.plan.quantised import Scheme, may_mean, quantised, scheme_of
from drafcheck.plan.quantised_heads import of_parameters

FIXTURES = Path(__file__).parent.parent / "fixtures"
ROWS = recorded.rows(FIXTURES / "verdicts" / "sglang" / "quantised.jsonl")
BUILT = [row for row in ROWS if "layers" in row]
SCALES_OF_CACHE = ("attn_mha", "attn_mqa")
"""Scales for the KV cache, which no layer of weights has."""


def config_of(table: Any, **keys: Any) -> DraftConfig:
    return DraftConfig(Document("config.json", {**record_rope.BASE, **keys, "quantization_config": table}))


def told_of(row: dict[str, Any]) -> list[Layer]:
    """What drafcheck says of the layers of a class, as if the file held each of them plain."""
    config = DraftConfig(
        Document("config.json", {**record_quantised.CLASSES[row["class"]], "quantization_config": row["config"]})
    )
    book = contract_table("sglang", row["class"])
    contract = contract_for(resolve_engine(f"sglang=={row['release']}"), book["architectures"][0])
    assert contract is not None
    contract = settled(contract, config)
    parameters = build_parameters(contract, config)
    if contract.names.get("loader") == "mtp":
        return of_parameters(contract, config, parameters)
    return quantised(contract, config, parameters, [])[1]


def is_plain(parts: dict[str, str]) -> bool:
    """Whether nothing of a layer is stored in fewer bits."""
    return not any(dtype.startswith(("float8", "int", "uint")) for dtype in parts.values()) and not any(
        "scale" in part for part in parts
    )


@pytest.mark.parametrize("row", BUILT, ids=lambda row: f"{row['release']} {row['class']} {row['case']}")
def test_as_built(row: dict[str, Any]) -> None:
    """What nobody finds in the list is built of the parts told, and what everybody finds is plain."""
    scheme = scheme_named(row)
    layers = {layer.name: layer for layer in told_of(row)}
    assert layers or is_unread(row)
    for name, built in row["layers"].items():
        if name.endswith(SCALES_OF_CACHE) or (name == "lm_head" and name not in layers):
            continue  # the head of such a class is the target's
        if name not in layers or layers[name].state == "left":
            assert is_plain(built), name
        elif layers[name].state == "built":
            parts = {part.removeprefix("w13_").removeprefix("w2_") for part in built}
            assert parts - scheme.spare - {"bias"} >= set(scheme.parts) - scheme.spare, name
            assert not is_plain(built), name
    assert set(layers) <= set(row["layers"])


def is_unread(row: dict[str, Any]) -> bool:
    """Whether the release builds the class without a look at its quantization_config."""
    contract = contract_for(
        resolve_engine(f"sglang=={row['release']}"), contract_table("sglang", row["class"])["architectures"][0]
    )
    return contract is not None and contract.quantised.get("of") == "nobody"


def scheme_named(row: dict[str, Any]) -> Scheme:
    """The scheme that the row's table is read by."""
    contract = contract_for(resolve_engine(f"sglang=={row['release']}"), "LlamaForCausalLMEagle3")
    assert contract is not None
    scheme = scheme_of(contract, config_of(row["config"]))
    assert scheme is not None
    return scheme


def test_the_states_say_something() -> None:
    """Most layers of each class are told for certain, and both ways occur."""
    seen: dict[str, list[str]] = {}
    for row in BUILT:
        seen.setdefault(row["class"], []).extend(layer.state for layer in told_of(row))
    assert set(seen) == set(record_quantised.CLASSES)
    for contract, states in seen.items():
        assert states.count("built") > 0.45 * len(states), contract
        assert "left" in states, contract


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


OTHERS = {
    "eagle-1": (eagle1, "0.5.9"),
    "mla": (mla, "0.5.17"),
    "dflash": (dflash, "0.5.17"),
    "dspark": (dspark, "0.5.17"),
}
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
LATENT = ("q_a_proj", "kv_a_proj_with_mqa", "q_b_proj", "kv_b_proj", "fc")


def stored(draft: Draft, *more: str) -> Draft:
    """The draft as an exporter of fp8 in blocks writes it; ``more``: layers beside the usual projections."""
    for name in [n for n in draft.weights if n.endswith(tuple(f"{p}.weight" for p in (*PROJECTIONS, *more)))]:
        draft.weights[name] = Weight("F8_E4M3", draft.weights[name].shape)
        draft.weights[f"{name}_scale_inv"] = Weight("F32", (1, 1))
    draft.set(quantization_config=BLOCKS)
    return draft


@pytest.mark.parametrize("kind", OTHERS)
def test_the_layers_of_other_classes(tmp_path: Path, kind: str) -> None:
    make, release = OTHERS[kind]
    draft = stored(make(), *(LATENT if kind == "mla" else ()))
    draft.write(tmp_path / "packed")
    report = lint(tmp_path / "packed", engine=f"sglang=={release}").checkpoints[0]
    assert [f.rule for f in report.findings if f.severity.value == "error"] == []
    assert report.outcome in ("clean", "degraded")
    draft = make()
    draft.set(quantization_config=BLOCKS)
    draft.write(tmp_path / "plain")
    (found,) = [f for f in lint(tmp_path / "plain", engine=f"sglang=={release}").findings if f.rule == "DC507"]
    assert found.confidence is Confidence.CERTAIN
    assert "has sglang" in found.message and "build them quantised, and the file holds plain tensors" in found.message
    assert any("down_proj" in name for name in found.about)
    assert any(name.endswith("fc") for name in found.about) == (kind == "mla")


def test_a_projection_of_the_states_that_is_plain_in_one_release(tmp_path: Path) -> None:
    """fc of an MLA draft is one of the engine's layers since 0.5.15."""
    stored(mla(), *LATENT).write(tmp_path)
    for release, about in (("0.5.12", [("model.fc",)]), ("0.5.15", [])):
        found = [f for f in lint(tmp_path, engine=f"sglang=={release}").findings if f.rule == "DC507"]
        assert [f.about for f in found] == about


def test_a_release_that_does_not_look_at_it(tmp_path: Path) -> None:
    """DFlash before 0.5.15: the layers are plain whatever the config says."""
    draft = dflash()
    draft.set(quantization_config=BLOCKS)
    draft.write(tmp_path / "plain")
    assert "DC507" not in [f.rule for f in lint(tmp_path / "plain", engine="sglang==0.5.13").findings]
    stored(dflash()).write(tmp_path / "packed")
    assert "DC507" in [f.rule for f in lint(tmp_path / "packed", engine="sglang==0.5.13").findings]


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
    assert [f.confidence for f in found] == [Confidence.CERTAIN]
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
