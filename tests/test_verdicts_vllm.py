"""The load plan against what the real loaders of vLLM answered, tensor by tensor, for every recorded row.

The rows were recorded by running the engine's own classes and its own load path (fixtures/verdicts). A row is left out
only for a reason that stands in ``left_out``.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from agree_vllm import disagreements

from drafcheck.runner import Options, inspect_one
from drafcheck.subject import Subject

FIXTURES = Path(__file__).parent.parent / "fixtures"
CORPORA = {
    "synthetic": FIXTURES / "verdicts" / "vllm" / "checkpoints.tar.xz",
    "producers": FIXTURES / "producers" / "producers.tar.xz",
}
ROWS = [
    json.loads(line)
    for corpus in CORPORA
    for line in (FIXTURES / "verdicts" / "vllm" / f"{corpus}.jsonl").read_text().splitlines()
]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for corpus, archive in CORPORA.items():
        folder = tmp_path_factory.mktemp(corpus)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else packed.extractall(folder)
        folders[corpus] = next(p.parent.parent for p in sorted(folder.rglob("config.json")))
    folders["renamed"] = renamed(folders["synthetic"], tmp_path_factory.mktemp("renamed") / "checkpoints")
    return folders


def renamed(folder: Path, copy: Path) -> Path:
    """The corpus as 0.9.2 was asked about it: under the class name from which that release makes its own."""
    shutil.copytree(folder, copy)
    for file in copy.glob("*/config.json"):
        file.write_text(file.read_text().replace('"LlamaForCausalLMEagle3"', '"LlamaForCausalLM"'))
    return copy


def folder_of(row: dict[str, Any], folders: dict[str, Path]) -> Path:
    return folders["renamed" if (row["corpus"], row["version"]) == ("synthetic", "0.9.2") else row["corpus"]]


def left_out(row: dict[str, Any], folder: Path) -> str | None:
    config = json.loads((folder / row["checkpoint"] / "config.json").read_text())
    if "speculators_model_type" in config:
        return "the speculators format, which vLLM turns into another config first"
    if "quantization_config" in config:
        return "quantised: built from other parameters, which no contract describes"
    if "PagedAttention" in (row["error"] or {}).get("message", ""):
        return "the recording ran on the CPU, whose attention has no head size of 16; a GPU has FlexAttention for it"
    return None


def subject_of(folder: Path, row: dict[str, Any]) -> Subject:
    target = (
        folder / "target.json" if row["corpus"] == "synthetic" else folder / row["checkpoint"] / "target_config.json"
    )
    options = Options(engine=f"vllm=={row['version']}", algorithm="eagle3", target=str(target))
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
    assert counted.total() == len(ROWS) == 555
    assert counted["compared"] == 458, counted


def test_a_changed_row_is_noticed(unpacked: dict[str, Path]) -> None:
    row = next(r for r in ROWS if r["checkpoint"] == "02_layers0" and r["version"] == "0.33.0")
    s = subject_of(unpacked["synthetic"], row)
    assert not disagreements(row, s)
    assert disagreements({**row, "dropped": []}, s)
    assert disagreements({**row, "unwritten": []}, s)
    assert disagreements({**row, "error": {"stage": "load_weights", "type": "KeyError", "message": "'x'"}}, s)
    assert disagreements({**row, "loaded": row["loaded"][1:]}, s)
    assert disagreements({**row, "shared": {**row["shared"], "lm_head_shared": True}}, s)
