"""The load plan against what the real loaders of vLLM answered, tensor by tensor, for every recorded row.

The rows were recorded by running the engine's own classes and its own load path (fixtures/verdicts). A row is left out
only for a reason that stands in ``left_out``.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from agree_vllm import disagreements, says_nothing
from recorded import rows, unpack

from drafcheck.runner import Options, inspect_one
from drafcheck.subject import Subject

FIXTURES = Path(__file__).parent.parent / "fixtures"
CORPORA = {
    "synthetic": FIXTURES / "verdicts" / "vllm" / "checkpoints.tar.xz",
    "producers": FIXTURES / "producers" / "producers.tar.xz",
    "variants": FIXTURES / "verdicts" / "vllm" / "variants.tar.xz",
    "mla": FIXTURES / "verdicts" / "vllm" / "mla.tar.xz",
    "eagle1": FIXTURES / "verdicts" / "vllm" / "eagle1.tar.xz",
    "dflash": FIXTURES / "verdicts" / "vllm" / "dflash.tar.xz",
    "dspark": FIXTURES / "verdicts" / "vllm" / "dspark.tar.xz",
}
PASSED_OVER = {
    ("eagle1", "arch_llamaeagle"): "LlamaForCausalLMEagle: in 0.9.2 and 0.11.0 renamed to a class that there is not",
    ("dspark", "dspark-ling-plain"): "LingDSparkModel: refused, but not where names decide",
    ("dspark", "dspark-no-confidence"): "a confidence head without any tensor is left out, which a contract cannot say",
}
RENAMED = ("synthetic", "variants")
LEFT_OUT = {
    "n_layers-0-self_attn-q_proj-k_proj-weight": "a name stacked twice: refused, if with another message",
}
ROWS = [row for corpus in CORPORA for row in rows(FIXTURES / "verdicts" / "vllm" / f"{corpus}.jsonl")]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for corpus, archive in CORPORA.items():
        folders[corpus] = unpack(archive, tmp_path_factory.mktemp(corpus))
    for corpus in RENAMED:
        folders[f"{corpus} renamed"] = renamed(folders[corpus], tmp_path_factory.mktemp("renamed") / "checkpoints")
    return folders


def renamed(folder: Path, copy: Path) -> Path:
    """The corpus as 0.9.2 was asked about it: under the class name from which that release makes its own."""
    shutil.copytree(folder, copy)
    for file in copy.glob("*/config.json"):
        file.write_text(file.read_text().replace('"LlamaForCausalLMEagle3"', '"LlamaForCausalLM"'))
    return copy


def folder_of(row: dict[str, Any], folders: dict[str, Path]) -> Path:
    is_renamed = row["version"] == "0.9.2" and row["corpus"] in RENAMED
    return folders[row["corpus"] + " renamed" if is_renamed else row["corpus"]]


def left_out(row: dict[str, Any], folder: Path) -> str | None:
    config = json.loads((folder / row["checkpoint"] / "config.json").read_text())
    if named := LEFT_OUT.get(row["checkpoint"]) or PASSED_OVER.get((row["corpus"], row["checkpoint"])):
        return named
    if row["version"] == "0.9.2" and row["checkpoint"] in ("87_speculators_qwen3", "88_speculators_gemma3"):
        return "no model_type: transformers 4 took it from the path of the recording, which a report cannot know"
    if "quantization_config" in config:
        return "quantised: built from other parameters, which no contract describes"
    return says_nothing(row)


def subject_of(folder: Path, row: dict[str, Any]) -> Subject:
    beside = row["corpus"] == "producers"
    target = folder / row["checkpoint"] / "target_config.json" if beside else folder / "target.json"
    options = Options(engine=f"vllm=={row['version']}", algorithm=row["method"] or "eagle3", target=str(target))
    seen = inspect_one(str(folder / row["checkpoint"]), options)
    assert seen.subject is not None
    assert not seen.crashed
    return seen.subject


def test_every_row_agrees_or_is_left_out_for_a_reason(unpacked: dict[str, Path]) -> None:
    wrong: dict[str, list[str]] = defaultdict(list)
    counted: Counter[str] = Counter()
    for row in ROWS:
        folder = folder_of(row, unpacked)
        reason = left_out(row, folder)
        counted[reason or "compared"] += 1
        problems = disagreements(row, subject_of(folder, row)) if reason is None else []
        if problems:
            wrong[row["checkpoint"]].append(f"{row['version']}: {'; '.join(problems)}")
    assert not wrong, json.dumps(wrong, indent=1)[:6000]
    assert counted.total() == len(ROWS) == 2454
    assert counted["compared"] == 2419, counted


def test_a_changed_row_is_noticed(unpacked: dict[str, Path]) -> None:
    row = next(r for r in ROWS if r["checkpoint"] == "02_layers0" and r["version"] == "0.33.0")
    s = subject_of(unpacked["synthetic"], row)
    assert not disagreements(row, s)
    assert disagreements({**row, "dropped": []}, s)
    assert disagreements({**row, "unwritten": []}, s)
    assert disagreements({**row, "error": {"stage": "load_weights", "type": "KeyError", "message": "'x'"}}, s)
    assert disagreements({**row, "loaded": row["loaded"][1:]}, s)
    assert disagreements({**row, "shared": {**row["shared"], "lm_head_shared": True}}, s)
