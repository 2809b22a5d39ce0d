"""The load plan of multi-token-prediction heads against what SGLang's own classes answered, tensor by tensor.

fixtures/verdicts/sglang/mtp.jsonl.xz was recorded by tools/record_mtp.py on the corpus of tools/make_mtp_corpus.py.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from recorded import rows, unpack

from drafcheck.plan.model import LoadPlan, Refusal, Write
from drafcheck.runner import Options, inspect_one
from drafcheck.subject import Subject

FOLDER = Path(__file__).parent.parent / "fixtures" / "verdicts" / "sglang"
ROWS = rows(FOLDER / "mtp.jsonl")
HALVES = ("q_a_proj", "kv_a_proj_with_mqa")
STAGES = {"load_weights": "load", "construct": "construct", "class": "class", "config": "config"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(FOLDER / "mtp.tar.xz", tmp_path_factory.mktemp("corpus"))


def subject_of(corpus: Path, row: dict[str, Any], release: str) -> Subject:
    seen = inspect_one(str(corpus / row["checkpoint"]), Options(engine=f"sglang=={release}", algorithm="EAGLE"))
    assert seen.subject is not None
    assert not seen.crashed, seen.crashed
    return seen.subject


@pytest.mark.parametrize("family", sorted({row["checkpoint"].partition("-")[0] for row in ROWS}))
def test_every_row_agrees(corpus: Path, family: str) -> None:
    wrong: dict[str, list[str]] = defaultdict(list)
    asked = [row for row in ROWS if row["checkpoint"].startswith(f"{family}-")]
    for row in asked:
        for release in row["releases"]:
            problems = disagreements(row, subject_of(corpus, row, release))
            if problems:
                wrong[row["checkpoint"]].append(f"{release}: {'; '.join(problems)}")
    assert not wrong, f"{len(wrong)} of {len(asked)}: {json.dumps(wrong, indent=1)[:6000]}"


def disagreements(row: dict[str, Any], s: Subject) -> list[str]:
    """What differs between the recorded row and the plan."""
    assert s.contract is None or row["stage"] == "config" or s.contract.architecture == row["class"]
    refusal = s.refused or (s.load.refused if s.load else None)
    problems = list(refusal_differs(row, refusal))
    if not problems and row["stage"] in ("done", "load_weights"):
        assert s.load is not None
        problems += tensors_differ(row, s.load)
        problems += parameters_differ(row, s.load)
    return problems


def refusal_differs(row: dict[str, Any], refusal: Refusal | None) -> list[str]:
    if (refusal is None) != (row["error"] is None):
        return [f"refused: {refusal}, recorded {row['error']}"]
    if refusal is None:
        return []
    if refusal.stage != STAGES[row["stage"]]:
        return [f"stage {refusal.stage}, recorded {row['stage']}"]
    recorded = re.sub(r"param.dtype=\S+", "param.dtype=...", re.sub(r"loaded_weight.dtype=\S+", "", row["error"]))
    same = refusal.stage != "load" or is_said(refusal.error[:200], recorded[:200])
    return [] if same else [f"error {refusal.error}, recorded {recorded}"]


def is_said(shape: str, recorded: str) -> bool:
    """Whether an error is of that shape; ``...`` stands for whatever is said."""
    if "..." not in shape:
        return shape == recorded
    begin, *rest = (part.strip() for part in shape.split("..."))
    at = [recorded.find(part) for part in rest if part]
    return recorded.startswith(begin) and -1 not in at and at == sorted(at)


def tensors_differ(row: dict[str, Any], plan: LoadPlan) -> list[str]:
    """Halves are kept until both have come: only the later one is seen to be written."""
    joined = {name for name, p in plan.parameters.items() if p.load == "joined"}
    loaded: dict[str, set[str]] = defaultdict(set)
    cached = set()
    for write in plan.writes:
        if write.parameter in joined and write.tensor.name not in row["loaded"]:
            cached.add(write.tensor.name)
        else:
            loaded[write.tensor.name].add(write.parameter)
    recorded = {name: set(parameters) for name, parameters in row["loaded"].items()}
    problems = [] if loaded == recorded else [f"loaded {different(loaded, recorded)}"]
    dropped = {drop.tensor.name for drop in plan.dropped} | cached
    if plan.refused is not None:  # a half that waits when the load stops
        dropped |= {t.name for t in plan.seen if any(half in t.name for half in HALVES)} & set(row["dropped"])
    return problems + ([] if dropped == set(row["dropped"]) else [f"dropped {dropped ^ set(row['dropped'])}"])


def different(ours: dict[str, set[str]], theirs: dict[str, set[str]]) -> dict[str, tuple[object, object]]:
    return {n: (ours.get(n), theirs.get(n)) for n in {*ours, *theirs} if ours.get(n) != theirs.get(n)}


def bare_side(plan: LoadPlan, write: Write) -> float:
    """How many bare rows (or columns) would make up the whole parameter."""
    parameter = plan.parameters[write.parameter]
    experts, rows, columns = parameter.shape
    return experts * (columns if parameter.load == "experts_row" else rows)


def parameters_differ(row: dict[str, Any], plan: LoadPlan) -> list[str]:
    """The recording ends with the loader: what the engine fills from the target later counts as unwritten there."""
    written = {write.parameter for write in plan.writes}
    unwritten = {*plan.unwritten, *(n for n in plan.fills_from_target if n not in written)}
    problems = [] if unwritten == set(row["unwritten"]) else [f"unwritten {unwritten ^ set(row['unwritten'])}"]
    partial = {p.parameter: round(p.fraction, 2) for p in plan.partial}
    for write in plan.writes:
        if write.bare:
            partial[write.parameter] = partial.get(write.parameter, 0) + write.bare / bare_side(plan, write)
    recorded = dict(row["partial"])
    same = partial.keys() == recorded.keys() and all(abs(partial[n] - recorded[n]) < 0.011 for n in partial)
    return problems if same else [*problems, f"partial {partial}, recorded {recorded}"]
