"""Trainers' checkpoints in vLLM: no error where the real loader takes them whole, and one wherever it stops.

What it takes in part is held against the load plan by tests/test_verdicts_vllm.py.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from drafcheck import lint
from drafcheck.finding import Severity

FIXTURES = Path(__file__).parent.parent / "fixtures"
ROWS = [json.loads(line) for line in (FIXTURES / "verdicts" / "vllm" / "producers.jsonl").read_text().splitlines()]
SERVED = ("compute_logits", "combine_hidden_states")
FILLED = {"model.embed_tokens.weight", "lm_head.weight"}
"""What the engine takes from the target after the recording ended."""


@pytest.fixture(scope="module")
def producers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("producers")
    with tarfile.open(FIXTURES / "producers" / "producers.tar.xz") as archive:
        archive.extractall(room, filter="data")
    return room


def outcome(row: dict[str, Any]) -> str:
    """``whole``, ``stops``, or ``in part``: what the real loader did."""
    error = row["error"]
    if error is not None and error["stage"] not in SERVED:
        return "not asked" if "PagedAttention" in error["message"] else "stops"
    dropped = [name for name in row["dropped"] if "t2d" not in name]
    lost = set(row["unwritten"]) - FILLED or row["partial"] or dropped
    return "in part" if lost else "whole"


def test_every_row(producers: Path) -> None:
    counted: Counter[str] = Counter()
    for row in ROWS:
        what = outcome(row)
        counted[what] += 1
        report = lint(producers / row["checkpoint"], engine=f"vllm=={row['version']}").checkpoints[0]
        errors = [f.rule for f in report.findings if f.severity is Severity.ERROR]
        said = (row["checkpoint"], row["version"], what, [(f.rule, f.message) for f in report.findings])
        if what == "stops":
            assert errors, said
        elif what == "whole":
            assert not errors, said
    assert counted == {"whole": 69, "stops": 47, "in part": 12, "not asked": 2}
