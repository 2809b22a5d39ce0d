"""The load plan against what the real loaders of SGLang answered, tensor by tensor, for every recorded row.

The rows were recorded by running the engine's own classes (fixtures/verdicts). A row is left out only for a reason
that stands in LEFT_OUT.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from drafcheck.plan.model import LoadPlan, Refusal
from drafcheck.plan.wiring import is_fc
from drafcheck.runner import Options, inspect_one
from drafcheck.subject import Subject

FIXTURES = Path(__file__).parent.parent / "fixtures"
CORPORA = {
    "synthetic": FIXTURES / "verdicts" / "sglang" / "checkpoints.tar.xz",
    "producers": FIXTURES / "producers" / "producers.tar.xz",
}
ROWS = [
    json.loads(line)
    for corpus in CORPORA
    for line in (FIXTURES / "verdicts" / "sglang" / f"{corpus}.jsonl").read_text().splitlines()
]
LEFT_OUT = {
    "LlamaForCausalLM": "a target class: built in full, as a target would be; drafcheck says DC501 and plans no load",
    "DFlashDraftModel": "DFlash's class, which has no contract yet",
}
STAGES = {"load_weights": "load", "files": "files", "construct": "construct", "class": "class", "config": "config"}
MAPPING = "<hot_token_id>"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for corpus, archive in CORPORA.items():
        folder = tmp_path_factory.mktemp(corpus)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else packed.extractall(folder)
        folders[corpus] = next(p.parent.parent for p in sorted(folder.rglob("config.json")))
    return folders


def left_out(row: dict[str, Any], folder: Path) -> str | None:
    if row["stage"] in ("config", "class"):
        return None  # a refusal before any class is built
    config = json.loads((folder / row["checkpoint"] / "config.json").read_text())
    return LEFT_OUT.get(config["architectures"][0])


def subject_of(folder: Path, row: dict[str, Any]) -> Subject:
    seen = inspect_one(str(folder / row["checkpoint"]), Options(engine=f"sglang=={row['version']}"))
    assert seen.subject is not None
    assert not seen.crashed
    return seen.subject


def test_every_row_agrees_or_is_left_out_for_a_reason(unpacked: dict[str, Path]) -> None:
    wrong: dict[str, list[str]] = defaultdict(list)
    counted: Counter[str] = Counter()
    for row in ROWS:
        folder = unpacked[row["corpus"]]
        if left_out(row, folder) is not None:
            counted["left out"] += 1
            continue
        counted["compared"] += 1
        problems = disagreements(row, subject_of(folder, row))
        if problems:
            wrong[row["checkpoint"]].append(f"{row['version']}: {'; '.join(problems)}")
    assert not wrong, json.dumps(wrong, indent=1)[:4000]
    assert counted["compared"] + counted["left out"] == len(ROWS) == 1486
    assert counted["left out"] == 16 + 15 * 1 + 7 * 3, counted


def disagreements(row: dict[str, Any], s: Subject) -> list[str]:
    """What differs between the recorded row and the plan."""
    refusal = s.refused or (s.load.refused if s.load else None) or (s.selection.refused if s.selection else None)
    problems = list(refusal_differs(row, refusal))
    if not problems and row["stage"] in ("done", "load_weights"):
        assert s.load is not None
        problems += tensors_differ(row, s.load)
        problems += parameters_differ(row, s.load)
        problems += mapping_differs(row, s)
    return problems


def mapping_differs(row: dict[str, Any], s: Subject) -> list[str]:
    """The first eight target tokens that the engine computed from d2t."""
    assert s.vocabulary is not None
    if row["hot_token_id"] is None or s.load is None or s.load.mapping is None:
        return []
    computed = (s.vocabulary.targets or [])[:8]
    return [] if computed == row["hot_token_id"] else [f"tokens {computed}, recorded {row['hot_token_id']}"]


def refusal_differs(row: dict[str, Any], refusal: Refusal | None) -> list[str]:
    if (refusal is None) != (row["error"] is None):
        return [f"refused: {refusal}, recorded {row['error']}"]
    if refusal is None:
        return []
    problems = [f"stage {refusal.stage}, recorded {row['stage']}"] if refusal.stage != STAGES[row["stage"]] else []
    exact = refusal.stage in ("construct", "load")
    if exact and refusal.error[:200] != row["error"][:200]:
        problems.append(f"error {refusal.error}, recorded {row['error']}")
    return problems


def tensors_differ(row: dict[str, Any], plan: LoadPlan) -> list[str]:
    loaded: dict[str, set[str]] = defaultdict(set)
    for write in plan.writes:
        loaded[write.tensor.name].add(write.parameter)
    for tensor in plan.mappings:
        loaded[tensor.name].add(MAPPING)
    recorded = {name: set(parameters) for name, parameters in row["loaded"].items()}
    problems = [] if loaded == recorded else [f"loaded {dict(loaded)}, recorded {recorded}"]
    dropped = {drop.tensor.name for drop in plan.dropped}
    return problems + ([] if dropped == set(row["dropped"]) else [f"dropped {dropped ^ set(row['dropped'])}"])


def parameters_differ(row: dict[str, Any], plan: LoadPlan) -> list[str]:
    # The recording ends with the loader: what the engine fills from the target later counts as unwritten there.
    written = {write.parameter for write in plan.writes}
    from_target = [name for name in plan.fills_from_target if name not in written]
    unwritten = {*plan.unwritten, *from_target}
    problems = [] if unwritten == set(row["unwritten"]) else [f"unwritten {unwritten ^ set(row['unwritten'])}"]
    partial = {p.parameter: round(p.fraction, 2) for p in plan.partial}
    recorded = {name: round(share, 2) for name, share in row["partial"]}
    if partial != recorded:
        problems.append(f"partial {partial}, recorded {recorded}")
    fc = next((p.shape[1] for p in plan.parameters.values() if is_fc(p.name)), None)
    if fc != row["fc_in"]:
        problems.append(f"fc in {fc}, recorded {row['fc_in']}")
    return problems


def test_a_changed_row_is_noticed(unpacked: dict[str, Path]) -> None:
    row = next(r for r in ROWS if r["checkpoint"] == "layers0" and r["version"] == "0.5.9")
    s = subject_of(unpacked["synthetic"], row)
    assert not disagreements(row, s)
    assert disagreements({**row, "dropped": row["dropped"][1:]}, s)
    assert disagreements({**row, "unwritten": []}, s)
    assert disagreements({**row, "error": "KeyError: 'x'", "stage": "load_weights"}, s)
    assert disagreements({**row, "loaded": {}}, s)
    assert disagreements({**row, "hot_token_id": [7, *row["hot_token_id"][1:]]}, s)
