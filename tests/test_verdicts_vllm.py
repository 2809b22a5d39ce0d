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

from drafcheck.plan.model import LoadPlan, Refusal
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
STAGES = {
    "speculative_config": ("config", "class"),
    "model_init": ("construct", "class"),
    "load_weights": ("load", "files"),
}
SERVED = ("compute_logits", "combine_hidden_states")  # it loaded, and the recording went on to use it
MAPPING = "draft_id_to_target_id"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


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


def disagreements(row: dict[str, Any], s: Subject) -> list[str]:
    """What differs between the recorded row and the plan."""
    refusal = s.refused or (s.load.refused if s.load else None) or (s.selection.refused if s.selection else None)
    error = row["error"] if row["error"] and row["error"]["stage"] not in SERVED else None
    problems = list(refusal_differs(error, refusal))
    if not problems and (error is None or error["stage"] == "load_weights"):
        assert s.load is not None
        problems += tensors_differ(row, s.load, error)
        problems += parameters_differ(row, s.load)
        problems += sharing_differs(row, s.load)
    return problems


def refusal_differs(error: dict[str, Any] | None, refusal: Refusal | None) -> list[str]:
    if (refusal is None) != (error is None):
        return [f"refused: {refusal}, recorded {error}"]
    if refusal is None or error is None:
        return []
    problems = [] if refusal.stage in STAGES[error["stage"]] else [f"stage {refusal.stage}, recorded {error['stage']}"]
    if refusal.stage in ("construct", "load") and not says(refusal.error, f"{error['type']}: {error['message']}"):
        problems.append(f"error {refusal.error}, recorded {error}")
    return problems


def says(told: str, recorded: str) -> bool:
    """Whether the message is the recorded one; the list of available parameters behind it is in no fixed order."""
    return told == recorded or recorded.startswith(f"{told}. The available parameters")


def tensors_differ(row: dict[str, Any], plan: LoadPlan, error: dict[str, Any] | None) -> list[str]:
    loaded = {write.tensor.name for write in plan.writes} | {tensor.name for tensor in plan.mappings}
    problems = [] if loaded == set(row["loaded"]) else [f"loaded {loaded ^ set(row['loaded'])}"]
    if error is not None:
        return problems
    # The recording listed the names of .safetensors files alone.
    dropped = {drop.tensor.name for drop in plan.dropped if drop.tensor.file.endswith(".safetensors")}
    return problems + ([] if dropped == set(row["dropped"]) else [f"dropped {dropped ^ set(row['dropped'])}"])


def parameters_differ(row: dict[str, Any], plan: LoadPlan) -> list[str]:
    # The recording ends with the loader: what the engine fills from the target later counts as unwritten there.
    written = {write.parameter for write in plan.writes}
    unwritten = {*plan.unwritten, *(name for name in plan.fills_from_target if name not in written)}
    unwritten |= {MAPPING} & set(plan.parameters) if not plan.mappings else set()
    problems = [] if unwritten == set(row["unwritten"]) else [f"unwritten {unwritten ^ set(row['unwritten'])}"]
    partial = {p.parameter: round(p.fraction, 2) for p in plan.partial}
    recorded = {name: round(share, 2) for name, share in row["partial"]}
    return problems + ([] if partial == recorded else [f"partial {partial}, recorded {recorded}"])


def sharing_differs(row: dict[str, Any], plan: LoadPlan) -> list[str]:
    """What the real proposer took from the target; of releases that have no such method nothing was recorded."""
    if not isinstance(row["shared"], dict):
        return []
    ours = (EMBEDDING in plan.fills_from_target, HEAD in plan.fills_from_target)
    recorded = (row["shared"]["embed_shared"], row["shared"]["lm_head_shared"])
    return [] if ours == recorded else [f"embedding and head shared {ours}, recorded {recorded}"]


def test_a_changed_row_is_noticed(unpacked: dict[str, Path]) -> None:
    row = next(r for r in ROWS if r["checkpoint"] == "02_layers0" and r["version"] == "0.33.0")
    s = subject_of(unpacked["synthetic"], row)
    assert not disagreements(row, s)
    assert disagreements({**row, "dropped": []}, s)
    assert disagreements({**row, "unwritten": []}, s)
    assert disagreements({**row, "error": {"stage": "load_weights", "type": "KeyError", "message": "'x'"}}, s)
    assert disagreements({**row, "loaded": row["loaded"][1:]}, s)
    assert disagreements({**row, "shared": {**row["shared"], "lm_head_shared": True}}, s)
