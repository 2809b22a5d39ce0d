"""Checkpoints with several multi-token-prediction layers: one is read, or each as a draft of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mtp_families import FAMILIES
from mtp_heads import Json
from weights import Weights, write_safetensors, zeros

import drafcheck


def layers(name: str, *numbers: int) -> Weights:
    """The head of a family, once under each of these numbers, counted from its own; the target's tensors beside it."""
    family = FAMILIES[name]
    before, number, _ = family.prefix.rpartition(".")[0].rpartition(".")
    first = int(family.prefix.split(".")[-2])
    found = {}
    for tensor, weight in family.weights().items():
        if not tensor.startswith(family.prefix):
            found[tensor] = weight
        for n in numbers if tensor.startswith(family.prefix) else ():
            found[f"{before}{number}{first + n}.{tensor[len(family.prefix) :]}"] = weight
    return found


def checked(folder: Path, engine: str, config: Json, weights: Weights) -> drafcheck.Report:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", weights)
    return drafcheck.lint(folder, engine=engine)


def rules(report: drafcheck.Report) -> list[str]:
    return [finding.rule for finding in report.findings if finding.severity.value != "note"]


MIMO_V2 = ["sglang==0.5.7", "sglang==0.5.12", "sglang==0.5.23", "vllm==0.22.1", "vllm==0.33.0"]


@pytest.mark.parametrize("engine", MIMO_V2)
def test_the_three_layers_of_mimo_v2_are_no_two_names_for_one_and_no_loss(tmp_path: Path, engine: str) -> None:
    """SGLang gives each layer a runner of its own, vLLM builds the first; neither takes one for the other."""
    config = FAMILIES["mimo_v2"].config()
    assert rules(checked(tmp_path, engine, config, layers("mimo_v2", 0, 1, 2))) == []


@pytest.mark.parametrize("engine", MIMO_V2)
def test_without_the_first_layer_the_others_do_not_stand_for_it(tmp_path: Path, engine: str) -> None:
    report = checked(tmp_path, engine, FAMILIES["mimo_v2"].config(), layers("mimo_v2", 1, 2))
    assert "DC102" in rules(report)
    whole = layers("mimo_v2", 0, 1, 2)
    del whole["model.mtp.layers.0.eh_proj.weight"]
    assert "DC102" in rules(checked(tmp_path, engine, FAMILIES["mimo_v2"].config(), whole))


@pytest.mark.parametrize("family", ["deepseek", "glm4_moe", "deepseek_v32", "glm4_moe_lite", "bailing", "step3p5"])
def test_layers_after_the_one_that_is_read_are_no_loss(tmp_path: Path, family: str) -> None:
    config = {**FAMILIES[family].config(), "num_nextn_predict_layers": 1}
    assert rules(checked(tmp_path, "sglang==0.5.23", config, layers(family, 0, 1, 2))) == []


@pytest.mark.parametrize("family", ["deepseek", "glm4_moe", "glm4_moe_lite"])
def test_a_layer_in_the_place_of_another_is_found(tmp_path: Path, family: str) -> None:
    """One layer too many of the target's own lies where the head is read."""
    config = {**FAMILIES[family].config(), "num_nextn_predict_layers": 1}
    weights = layers(family, 1)
    weights[f"{FAMILIES[family].prefix}input_layernorm.weight"] = weights[
        f"{FAMILIES[family].prefix.replace('2', '3')}input_layernorm.weight"
    ]
    assert "DC101" in rules(checked(tmp_path, "sglang==0.5.23", config, weights))


def step(window: bool, length: int = 48, **keys: object) -> Json:
    """The config of Step-3.5-Flash, with twice the heads outside the window; layer 45 counts."""
    config = FAMILIES["step3p5"].config()
    types = ["sliding_attention" if n == 45 and window else "full_attention" for n in range(length)]
    return {**config, "layer_types": types, "num_attention_heads": 2 * config["num_attention_heads"], **keys}


@pytest.mark.parametrize("release", ["0.5.9", "0.5.12", "0.5.23"])
def test_the_heads_of_step_are_those_of_its_kind_of_layer(tmp_path: Path, release: str) -> None:
    engine, weights = f"sglang=={release}", layers("step3p5", 0, 1, 2)
    assert rules(checked(tmp_path, engine, step(window=True), weights)) == []
    report = checked(tmp_path, engine, step(window=False), weights)
    assert "DC201" in rules(report)
    assert "`num_attention_heads` to 4" in str(report.findings[0].help)


@pytest.mark.parametrize("release", ["0.5.9", "0.5.23"])
def test_a_config_of_step_without_that_layer_stops_the_server(tmp_path: Path, release: str) -> None:
    engine, weights = f"sglang=={release}", layers("step3p5", 0)
    short = checked(tmp_path, engine, step(window=True, length=45), weights)
    assert any("IndexError: list index out of range" in finding.message for finding in short.findings)
    bare = step(window=True)
    del bare["attention_other_setting"]
    report = checked(tmp_path, engine, bare, weights)
    assert any(f.rule == "DC509" and "`attention_other_setting`" in f.message for f in report.findings)


@pytest.mark.parametrize("engine", ["vllm==0.11.0", "vllm==0.22.1", "vllm==0.33.0", "sglang==0.5.23"])
@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"mistral3"}))  # which is a draft alone
def test_the_targets_own_layers_are_no_loss(tmp_path: Path, family: str, engine: str) -> None:
    head = FAMILIES[family]
    own = {
        "model.layers.0.self_attn.q_proj.weight": zeros("BF16", 64, 64),
        "model.layers.0.mlp.down_proj.weight": zeros("BF16", 64, 96),
    }
    alone, beside = (
        [f.message for f in checked(tmp_path, engine, head.config(), weights).findings]
        for weights in (head.weights(), {**own, **head.weights()})
    )
    assert alone == beside


@pytest.mark.parametrize("engine", ["vllm==0.22.1", "vllm==0.33.0"])
@pytest.mark.parametrize("said", [("num_layers",), ("num_hidden_layers",), ("num_layers", "num_hidden_layers"), ()])
def test_longcat_says_its_layers_under_either_name(tmp_path: Path, engine: str, said: tuple[str, ...]) -> None:
    """Loader and constructor take the number of the layer from the same key, whatever it is then."""
    head = FAMILIES["longcat"]
    config = {k: v for k, v in head.config().items() if k in said or k not in ("num_layers", "num_hidden_layers")}
    assert rules(checked(tmp_path, engine, config, head.weights())) == []
    lacking = {k: v for k, v in head.weights().items() if not k.endswith("eh_proj.weight")}
    report = checked(tmp_path, engine, config, lacking)
    assert rules(report) == ["DC102"]
    assert "{" not in report.findings[0].message


@pytest.mark.parametrize("value", [None, "3", float("nan"), "absent"])
@pytest.mark.parametrize("engine", ["sglang==0.5.9", "sglang==0.5.23", "vllm==0.22.1", "vllm==0.33.0"])
@pytest.mark.parametrize("family", ["glm4_moe", "ernie", "hy_v3", "hunyuan3", "glm_ocr", "step3p5", "bailing"])
def test_no_name_has_a_placeholder_for_a_layer(tmp_path: Path, family: str, engine: str, value: object) -> None:
    """Where nothing says which layer the head is, nothing is said of names; else the number stands there."""
    config = FAMILIES[family].config()
    for table in (config, config.get("text_config", {})):
        if "num_hidden_layers" in table and value == "absent":
            del table["num_hidden_layers"]
        elif "num_hidden_layers" in table:
            table["num_hidden_layers"] = value
    report = checked(tmp_path, engine, config, FAMILIES[family].weights())
    assert not any("{" in f"{finding.message}{finding.help}" for finding in report.findings)
    assert report.checkpoints[0].outcome.value != "clean" or value == "absent" or family == "ernie"  # has no number


def test_a_number_that_the_config_class_supplies_is_told_as_such(tmp_path: Path) -> None:
    config = FAMILIES["hy_v3"].config()
    del config["num_hidden_layers"]
    report = checked(tmp_path, "vllm==0.33.0", config, FAMILIES["hy_v3"].weights())
    assert any("reads `model.layers.80.*`: the config class says 80 layers" in f.message for f in report.findings)
    assert rules(checked(tmp_path, "vllm==0.33.0", FAMILIES["hy_v3"].config(), FAMILIES["hy_v3"].weights())) == []


def exported() -> tuple[Json, Weights]:
    """DeepSeek's head in a folder of its own, as it was exported for the first releases."""
    head = FAMILIES["deepseek"]
    config = head.config() | {"num_hidden_layers": 1, "architectures": ["DeepseekV3ForCausalLMNextN"]}
    own = {k: v for k, v in head.weights().items() if k.startswith(head.prefix)}
    return config, {k.replace(head.prefix, "model.layers.0."): v for k, v in own.items()}


@pytest.mark.parametrize("release", ["0.4.5", "0.4.6", "0.4.6.post5", "0.4.8", "0.5.23"])
def test_an_exported_head_of_deepseek_is_taken_by_every_release(tmp_path: Path, release: str) -> None:
    config, weights = exported()
    assert rules(checked(tmp_path, f"sglang=={release}", config, weights)) == []
    del weights["model.layers.0.self_attn.kv_a_proj_with_mqa.weight"]
    report = checked(tmp_path, f"sglang=={release}", config, weights)
    assert rules(report) == ["DC102"]
    wanted = "self_attn.kv_a_proj_with_mqa" if release == "0.4.5" else "fused_qkv_a_proj_with_mqa"
    assert wanted in report.findings[0].message


@pytest.mark.parametrize(
    ("family", "engine", "place", "rule"),
    [
        ("hunyuan3", "sglang==0.5.23", ("model.", "module.model."), "DC105"),
        ("nemotron_h", "vllm==0.33.0", ("mtp.", "module.mtp."), "DC105"),
        ("hunyuan3", "sglang==0.5.23", ("model.layers.2.", "model.layers.3."), "DC203"),
        ("mimo_v2", "vllm==0.33.0", ("model.mtp.layers.0.", "model.mtp.layers.1."), "DC101"),
        ("ernie", "sglang==0.5.23", ("model.mtp_block.0.", "model.mtp_block.1."), "DC101"),
    ],
)
def test_a_layer_in_another_place_is_not_called_missing(
    tmp_path: Path, family: str, engine: str, place: tuple[str, str], rule: str
) -> None:
    old, new = place
    config, weights = FAMILIES[family].config(), FAMILIES[family].weights()
    moved = {new + k[len(old) :] if k.startswith(old) else k: v for k, v in weights.items()}
    report = checked(tmp_path, engine, config, moved)
    assert rule in rules(report)
    assert not any("layer is missing" in finding.message for finding in report.findings)
    gone = {k: v for k, v in weights.items() if not k.startswith(FAMILIES[family].prefix)}
    report = checked(tmp_path, engine, config, gone)
    assert any("missing" in finding.message or "not found" in finding.message for finding in report.findings)
