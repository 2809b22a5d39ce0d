"""Multi-token-prediction heads: the layer that is read, what is passed over, and contracts that were only read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases_quantised import compressed
from mtp_heads import FAMILIES, LAYERS
from mtp_heads_later import LATER
from scaling import QUADRATIC, growth
from weights import Weights, write_safetensors, zeros

import drafcheck
from drafcheck.contract import Contract, contract_files, contract_for, resolve_engine
from drafcheck.contract_tables import contract_table
from drafcheck.finding import Confidence
from drafcheck.registry import load_rules
from drafcheck.runner import Options, inspect_one

LAYER = f"model.layers.{LAYERS}"


def write(folder: Path, family: str = "deepseek", **keys: object) -> Path:
    head = {**FAMILIES, **LATER}[family]
    save(folder, {**head.config(), **keys}, head.weights())
    return folder


def save(folder: Path, config: object, weights: Weights) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", weights)


def codes(report: drafcheck.Report) -> list[str]:
    return [finding.rule for finding in report.findings]


@pytest.mark.parametrize("family", ["nemotron_h", "hunyuan3", "mimo_v2", "exaone", "qwen3_5"])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_name_of_a_target_makes_the_number_of_heads_one(tmp_path: Path, family: str, heads: int) -> None:
    """Draft mode writes 1 into the config of these families; the number that the files give is the target's."""
    folder = write(tmp_path, family, num_nextn_predict_layers=heads)
    assert [
        f.rule for f in drafcheck.lint(folder, engine="sglang==0.5.23").findings if f.severity.value != "note"
    ] == []


def test_under_its_own_name_a_head_has_to_be_one(tmp_path: Path) -> None:
    keys = {"architectures": ["NemotronHForCausalLMMTP"]}
    found = {
        heads: codes(
            drafcheck.lint(
                write(tmp_path / str(heads), "nemotron_h", **keys, num_nextn_predict_layers=heads),
                engine="sglang==0.5.23",
            )
        )
        for heads in (1, 2)
    }
    assert found == {1: [], 2: ["DC509"]}


@pytest.mark.parametrize("target", [None, "self"])
def test_a_whole_checkpoint_is_a_healthy_head(tmp_path: Path, target: str | None) -> None:
    folder = write(tmp_path)
    report = drafcheck.lint(folder, engine="sglang==0.5.9", target=folder if target else None)
    assert codes(report) == []
    assert report.checkpoints[0].algorithm == "EAGLE"
    assert report.checkpoints[0].outcome.value == "clean"


def test_what_is_the_targets_is_no_finding_and_no_parameter_is_left(tmp_path: Path) -> None:
    subject = inspect_one(str(write(tmp_path)), Options(engine="sglang==0.5.16")).subject
    assert subject is not None
    assert subject.load is not None
    assert (subject.load.unwritten, subject.load.partial, subject.load.nameless) == ([], [], [])
    why = {drop.tensor.name: drop.why for drop in subject.load.dropped}
    assert why["model.norm.weight"] == why["lm_head.weight"] == "target"
    assert why[f"{LAYER}.embed_tokens.weight"] == why[f"{LAYER}.shared_head.head.weight"] == "design"
    assert subject.wiring is not None
    assert subject.wiring.captured is None


def test_an_algorithm_that_captures_states_is_refused(tmp_path: Path) -> None:
    report = drafcheck.lint(write(tmp_path), engine="sglang==0.5.9", algorithm="EAGLE3")
    assert codes(report) == ["DC504"]


def test_before_draft_mode_renamed_it_a_target_is_no_draft(tmp_path: Path) -> None:
    assert codes(drafcheck.lint(write(tmp_path), engine="sglang==0.4.6")) == ["DC501"]


def sharded(folder: Path, shards: int) -> Path:
    """A whole checkpoint in so many files of 300 tensors, the head in the last one."""
    head = FAMILIES["deepseek"]
    save(folder, head.config(), {})
    layer = {name: t for name, t in head.weights().items() if name.startswith(LAYER)}
    names: dict[str, str] = {}
    for n in range(shards):
        file = f"model-{n:05d}-of-{shards:05d}.safetensors"
        more = {f"model.layers.{n % 2}.mlp.experts.{n * 100 + e}.up_proj.weight": zeros("BF16", 1) for e in range(300)}
        write_safetensors(folder / file, more | (layer if n == shards - 1 else {}))
        names |= dict.fromkeys(more | (layer if n == shards - 1 else {}), file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return folder


def test_hundreds_of_shards_are_quick(tmp_path: Path) -> None:
    """48,000 tensors, and no pair of them is compared."""
    folders = {shards: sharded(tmp_path / str(shards), shards) for shards in (40, 160)}

    def linted(shards: int) -> None:
        assert codes(drafcheck.lint(folders[shards], engine="sglang==0.5.9")) == []

    assert growth(linted, 40) < QUADRATIC / 2


def test_the_prefix_is_compared_as_the_loader_does(tmp_path: Path) -> None:
    """``model.layers.2`` begins ``model.layers.20`` as well: such a name is read, and its parameter is none."""
    head = FAMILIES["deepseek"]
    weights = {**head.weights(), "model.layers.20.mlp.up_proj.weight": zeros("BF16", 8, 8)}
    save(tmp_path, head.config(), weights)
    report = drafcheck.lint(tmp_path, engine="sglang==0.5.9")
    assert codes(report) == ["DC104"]
    assert "model.decoder0.mlp.gate_up_proj.weight" in report.findings[0].message


@pytest.mark.parametrize("value", ["two", None, -1, 1.5, True, [1], {}])
def test_values_of_the_wrong_type_are_findings(tmp_path: Path, value: object) -> None:
    for key in ("num_hidden_layers", "n_routed_experts", "num_nextn_predict_layers", "q_lora_rank"):
        report = drafcheck.lint(write(tmp_path, **{key: value}), engine="sglang==0.5.9")
        assert "DC999" not in codes(report), (key, value)


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
INT4 = compressed("pack-quantized", {"num_bits": 4, "type": "int", "strategy": "group", "symmetric": True}, None)
PROJECTIONS = ("_proj", "_with_mqa")


def packed(weights: Weights, scale: str, packed_as: str = "weight") -> Weights:
    """Every projection of the head in 8 bits or packed, with its scale; norms, router and eh_proj stay as they are."""
    found: Weights = {}
    for name, tensor in weights.items():
        stem, _, last = name.rpartition(".")
        plain = last != "weight" or len(tensor.shape) < 2 or not stem.endswith(PROJECTIONS) or "eh_proj" in stem
        if not name.startswith(LAYER) or plain:
            found[name] = tensor
        else:
            found |= {f"{stem}.{packed_as}": zeros("F8_E4M3", *tensor.shape), f"{stem}.{scale}": zeros("F32", 1, 1)}
    return found


@pytest.mark.parametrize(
    ("scale", "numbers", "table"), [("weight_scale_inv", "weight", FP8), ("weight_scale", "weight_packed", INT4)]
)
def test_a_quantised_head_is_compared_by_its_names(tmp_path: Path, scale: str, numbers: str, table: object) -> None:
    head = FAMILIES["deepseek"]
    whole = packed(head.weights(), scale, numbers)
    save(tmp_path, {**head.config(), "quantization_config": table}, whole)
    report = drafcheck.lint(tmp_path, engine="sglang==0.5.16")
    assert (codes(report), report.checkpoints[0].outcome.value) == ([], "clean")
    broken = {n: t for n, t in whole.items() if "experts.2." not in n and "o_proj" not in n}
    save(tmp_path, {**head.config(), "quantization_config": table}, broken)
    found = drafcheck.lint(tmp_path, engine="sglang==0.5.16").findings
    assert [(f.rule, f.confidence) for f in found] == [
        ("DC102", Confidence.LIKELY),
        ("DC103", Confidence.LIKELY),
        ("DC103", Confidence.LIKELY),
    ]
    assert "25.0 % of its rows" in found[1].message


@pytest.mark.parametrize("family", ["deepseek", "glm4_moe"])
def test_a_layer_that_was_left_plain_beside_a_quantised_target(tmp_path: Path, family: str) -> None:
    """The list names it as the checkpoint does, and the engine asks for it by another name."""
    head = {**FAMILIES, **LATER}[family]
    table = {**FP8, "modules_to_not_convert": [f"{LAYER}.self_attn", f"{LAYER}.mlp", f"{LAYER}.eh_proj"]}
    save(tmp_path, {**head.config(), "quantization_config": table}, head.weights())
    found = [f for f in drafcheck.lint(tmp_path, engine="sglang==0.5.16").findings if f.rule == "DC507"]
    assert [f.confidence for f in found] == [Confidence.LIKELY]
    assert "build them quantised, and the file holds plain tensors for" in found[0].message
    assert {"model.decoder.self_attn.o_proj", "model.decoder.mlp.experts"} <= set(found[0].about)
    assert not any("eh_proj" in name or "gate.weight" in name for name in found[0].about)


def test_under_modelopts_fp4_the_layer_is_built_plain(tmp_path: Path) -> None:
    head, table = FAMILIES["deepseek"], {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    save(tmp_path, {**head.config(), "quantization_config": table}, head.weights())
    assert codes(drafcheck.lint(tmp_path, engine="sglang==0.5.16")) == []
    save(tmp_path, {**head.config(), "quantization_config": table}, packed(head.weights(), "weight_scale"))
    found = [f for f in drafcheck.lint(tmp_path, engine="sglang==0.5.16").findings if f.rule == "DC507"]
    assert ["are quantised in the file, and plain ones are built" in f.message for f in found] == [True]


def test_a_scale_of_one_expert_is_missing(tmp_path: Path) -> None:
    head = FAMILIES["deepseek"]
    whole = packed(head.weights(), "weight_scale_inv")
    lost = next(n for n in whole if "experts.1.up_proj.weight_scale_inv" in n)
    save(tmp_path, {**head.config(), "quantization_config": FP8}, {n: t for n, t in whole.items() if n != lost})
    (found,) = [f for f in drafcheck.lint(tmp_path, engine="sglang==0.5.16").findings if f.rule == "DC507"]
    assert "model.decoder.mlp.experts" in found.message and "lacks their `weight_scale_inv`" in found.message


def test_of_a_method_that_is_not_described_nothing_is_said(tmp_path: Path) -> None:
    head = FAMILIES["deepseek"]
    save(tmp_path, {**head.config(), "quantization_config": {"quant_method": "bitsandbytes"}}, head.weights())
    report = drafcheck.lint(tmp_path, engine="sglang==0.5.16")
    assert (codes(report), report.checkpoints[0].outcome.value) == ([], "clean")


def test_a_quantised_upload_that_left_the_layer_out(tmp_path: Path) -> None:
    head = FAMILIES["glm4_moe"]
    left = {n: t for n, t in head.weights().items() if not n.startswith(LAYER)}
    save(tmp_path, {**head.config(), "quantization_config": {"quant_method": "awq"}}, left)
    (found,) = drafcheck.lint(tmp_path, engine="sglang==0.5.16").findings
    assert found.rule == "DC102"
    assert "the multi-token-prediction layer is missing" in found.message
    assert "original checkpoint" in (found.help or "")


def unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(engine: object, architecture: str | None) -> Contract | None:
        contract = contract_for(engine, architecture)  # type: ignore[arg-type]
        return contract._replace(proven=False) if contract is not None else None

    monkeypatch.setattr("drafcheck.runner.contract_for", read_only)


def test_nothing_is_certain_on_a_contract_that_was_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = FAMILIES["deepseek"]
    save(tmp_path, head.config(), {n: t for n, t in head.weights().items() if "eh_proj" not in n})
    sure = drafcheck.lint(tmp_path, engine="sglang==0.5.9").findings
    unproven(monkeypatch)
    unsure = drafcheck.lint(tmp_path, engine="sglang==0.5.9").findings
    assert [(f.rule, f.confidence) for f in sure] == [("DC102", Confidence.CERTAIN)]
    assert [(f.rule, f.confidence) for f in unsure] == [("DC102", Confidence.LIKELY)]


def test_what_does_not_rest_on_the_contract_stays_certain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, model_type="never_heard_of")
    unproven(monkeypatch)
    found = drafcheck.lint(tmp_path, engine="sglang==0.5.9").findings
    assert [(f.rule, f.confidence) for f in found] == [("DC502", Confidence.CERTAIN)]
    assert not {"contract", "load"} & set(load_rules()["DC502"].needs)


def test_every_contract_says_how_it_is_known_and_eras_without_a_run_are_unproven() -> None:
    books = [contract_table("sglang", stem) for stem in contract_files("sglang")]
    heads = [book for book in books if book["kind"] == "mtp"]
    assert heads
    assert [book["architectures"] for book in heads if not book.get("proof")] == []
    known = {v: contract_for(resolve_engine(f"sglang=={v}"), "DeepseekV3ForCausalLMNextN") for v in ("0.4.5", "0.5.15")}
    assert {v: c.proven for v, c in known.items() if c is not None} == {"0.4.5": False, "0.5.15": True}
