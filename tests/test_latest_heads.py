"""The load plan of the latest multi-token-prediction heads against SGLang's own classes, tensor by tensor.

fixtures/verdicts/sglang/latest.jsonl.xz was recorded by tools/record_mtp.py on families of tools/mtp_heads_latest.py.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from mtp_heads_latest import deepseek_v4_config, deepseek_v4_weights
from recorded import rows, unpack
from test_mtp_verdicts import FOLDER, disagreements
from weights import write_safetensors, zeros

from drafcheck import lint
from drafcheck.config import DraftConfig
from drafcheck.contract import resolve_engine
from drafcheck.jsonpos import Document
from drafcheck.plan.admission import chosen_class
from drafcheck.runner import Options, inspect_one
from drafcheck.subject import Subject

ROWS = rows(FOLDER / "latest.jsonl")
FAMILIES = sorted({row["checkpoint"].partition("-")[0] for row in ROWS})
WITH = {
    "hunyuan4-no_gate": {"DC102"},
    "hunyuan4-long_wq_b": {"DC201"},
    "glm5_next-no_ape": {"DC102"},
    "glm5_next-no_tail": {"DC509"},
    "dots3-no_g": {"DC102"},
    "dots3-long_g": {"DC201"},
    "mistral3-no_w1": {"DC103"},
    "deepseek_v4-no_streams": {"DC102"},
    "deepseek_v4-no_wkv": {"DC102"},
    "v4_dspark-no_main": {"DC102"},
    "v4_dspark-long_markov": {"DC201"},
    "gigachat-no_gate_up": {"DC102"},
    "gigachat-short_gate_down": {"DC201"},
}
"""A checkpoint of each family with a fault, and the errors that it has."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(FOLDER / "latest.tar.xz", tmp_path_factory.mktemp("latest"))


def algorithm_of(checkpoint: str) -> str:
    return "DSPARK" if checkpoint.startswith("v4_dspark-") else "EAGLE"


def subject_of(corpus: Path, checkpoint: str, release: str) -> Subject:
    asked = Options(engine=f"sglang=={release}", algorithm=algorithm_of(checkpoint))
    seen = inspect_one(str(corpus / checkpoint), asked)
    assert seen.subject is not None
    assert not seen.crashed, seen.crashed
    return seen.subject


@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_agrees(corpus: Path, family: str) -> None:
    wrong: dict[str, list[str]] = defaultdict(list)
    asked = [row for row in ROWS if row["checkpoint"].startswith(f"{family}-")]
    for row in asked:
        for release in row["releases"]:
            problems = disagreements(row, subject_of(corpus, row["checkpoint"], release))
            if problems:
                wrong[row["checkpoint"]].append(f"{release}: {'; '.join(problems)}")
    assert not wrong, f"{len(wrong)} of {len(asked)}: {json.dumps(wrong, indent=1)[:6000]}"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("place", [0, -1])
def test_a_healthy_head_is_clean_in_the_first_release_and_in_the_newest(corpus: Path, family: str, place: int) -> None:
    release = [row["releases"] for row in ROWS if row["checkpoint"] == f"{family}-healthy"][-1][place]
    report = lint(corpus / f"{family}-healthy", engine=f"sglang=={release}", algorithm=algorithm_of(f"{family}-"))
    assert {finding.rule for finding in report.findings} <= {"DC107"}


def test_a_quantised_head_of_deepseek_v4_is_compared_by_name(tmp_path: Path) -> None:
    """As it is published: each weight with a scale beside it; a layer whose weight is missing is still told."""
    weights = deepseek_v4_weights()
    scaled = [n for n in weights if n.startswith("mtp.") and (".w" in n or "_proj" in n) and n.endswith(".weight")]
    weights |= {name.removesuffix("weight") + "scale": zeros("U8", 1, 1) for name in scaled}
    quantised = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}
    config = deepseek_v4_config() | {"quantization_config": quantised}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_safetensors(tmp_path / "model.safetensors", weights, {"format": "pt"})
    assert not lint(tmp_path, engine="sglang==0.5.12", algorithm="EAGLE").findings
    del weights["mtp.0.attn.wo_b.weight"]
    write_safetensors(tmp_path / "model.safetensors", weights, {"format": "pt"})
    report = lint(tmp_path, engine="sglang==0.5.12", algorithm="EAGLE")
    assert "DC102" in {finding.rule for finding in report.findings}


@pytest.mark.parametrize(
    ("algorithm", "key", "release", "named"),
    [
        ("DSPARK", "dspark_block_size", "0.5.16", "DeepseekV4ForCausalLMDSpark"),
        ("dspark", "dspark_target_layer_ids", "0.5.23", "DeepseekV4ForCausalLMDSpark"),
        ("DSPARK", "block_size", "0.5.16", "DeepseekV4ForCausalLMNextN"),
        ("EAGLE", "dspark_block_size", "0.5.16", "DeepseekV4ForCausalLMNextN"),
        ("DSPARK", "dspark_block_size", "0.5.15", "DeepseekV4ForCausalLMNextN"),
    ],
)
def test_the_algorithm_says_which_head_of_deepseek_v4_is_the_draft(
    algorithm: str, key: str, release: str, named: str
) -> None:
    config = DraftConfig(Document("config.json", deepseek_v4_config() | {key: [1]}))
    engine = resolve_engine(f"sglang=={release}")
    assert chosen_class(engine, config, algorithm) == named


@pytest.mark.parametrize("checkpoint", sorted(WITH))
def test_a_fault_is_told(corpus: Path, checkpoint: str) -> None:
    report = lint(corpus / checkpoint, engine="sglang==0.5.23", algorithm=algorithm_of(checkpoint))
    assert {str(finding.rule) for finding in report.findings if finding.severity == "error"} == WITH[checkpoint]
