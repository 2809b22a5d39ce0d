"""The load plan against what the real loaders of SGLang answered, tensor by tensor, for every recorded row.

The rows were recorded by running the engine's own classes (fixtures/verdicts). A row is left out only for a reason
that stands in LEFT_OUT.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from agree import disagreements
from recorded import rows, unpack

from drafcheck.runner import Options, inspect_one
from drafcheck.subject import Subject

FIXTURES = Path(__file__).parent.parent / "fixtures"
CORPORA = {
    "synthetic": FIXTURES / "verdicts" / "sglang" / "checkpoints.tar.xz",
    "producers": FIXTURES / "producers" / "producers.tar.xz",
}
ROWS = [row for corpus in CORPORA for row in rows(FIXTURES / "verdicts" / "sglang" / f"{corpus}.jsonl")]
LEFT_OUT = {
    "LlamaForCausalLM": "a target class: built in full, as a target would be; drafcheck says DC501 and plans no load",
}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for corpus, archive in CORPORA.items():
        folders[corpus] = unpack(archive, tmp_path_factory.mktemp(corpus))
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
    assert counted["compared"] + counted["left out"] == len(ROWS) > 1500
    # Each corpus has one such checkpoint, which every release was asked about.
    assert counted["left out"] == len({(row["corpus"], row["version"]) for row in ROWS}), counted


def test_a_changed_row_is_noticed(unpacked: dict[str, Path]) -> None:
    row = next(r for r in ROWS if r["checkpoint"] == "layers0" and r["version"] == "0.5.9")
    s = subject_of(unpacked["synthetic"], row)
    assert not disagreements(row, s)
    assert disagreements({**row, "dropped": row["dropped"][1:]}, s)
    assert disagreements({**row, "unwritten": []}, s)
    assert disagreements({**row, "error": "KeyError: 'x'", "stage": "load_weights"}, s)
    assert disagreements({**row, "loaded": {}}, s)
    assert disagreements({**row, "hot_token_id": [7, *row["hot_token_id"][1:]]}, s)
