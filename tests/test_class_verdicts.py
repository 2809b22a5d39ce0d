"""The load plan against the real loaders of SGLang's other draft classes: EAGLE-1, EAGLE-3 with MLA, DFlash, DSpark.

The checkpoints are written anew by tools/make_class_corpus.py; the answers were recorded by running the engine's own
classes.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from agree import disagreements
from make_class_corpus import ARCHIVE, write_corpus
from recorded import rows
from test_verdicts import FIXTURES, subject_of

ROWS = rows(FIXTURES / "verdicts" / "sglang" / "classes.jsonl")
LEFT_OUT = {"mla-no-rope": "only the CPU path, on which the rows were recorded, insists on a rope scaling"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("classes")
    write_corpus(room)
    return room


def test_every_row_agrees(corpus: Path) -> None:
    wrong: dict[str, list[str]] = defaultdict(list)
    compared: Counter[str] = Counter()
    for row in ROWS:
        if row["checkpoint"] in LEFT_OUT:
            continue
        compared[row["version"]] += 1
        problems = disagreements(row, subject_of(corpus, row))
        if problems:
            wrong[row["checkpoint"]].append(f"{row['version']}: {'; '.join(problems)}")
    assert not wrong, json.dumps(wrong, indent=1)[:4000]
    assert len(compared) >= 8
    assert compared.total() > 1000


def test_every_checkpoint_was_asked_about(corpus: Path) -> None:
    assert {folder.name for folder in corpus.iterdir()} == {row["checkpoint"] for row in ROWS}


def test_the_archive_holds_their_configs(corpus: Path) -> None:
    """It is what tools/count_proofs.py counts by."""
    with tarfile.open(ARCHIVE) as packed:
        held = {member.name: packed.extractfile(member) for member in packed.getmembers()}
        found = {Path(name).parent.name: file.read() for name, file in held.items() if file is not None}
    assert found == {file.parent.name: file.read_bytes() for file in corpus.glob("*/config.json")}


@pytest.mark.parametrize("checkpoint", ["eagle1-plain", "mla-plain", "dflash-plain", "dspark-plain"])
def test_a_changed_row_is_noticed(corpus: Path, checkpoint: str) -> None:
    row: dict[str, Any] = next(r for r in ROWS if r["checkpoint"] == checkpoint and r["stage"] == "done")
    s = subject_of(corpus, row)
    assert not disagreements(row, s)
    for change in ({"dropped": ["x"]}, {"unwritten": ["x"]}, {"loaded": {}}, {"stage": "construct", "error": "x"}):
        assert disagreements({**row, **change}, s), change
