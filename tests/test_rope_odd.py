"""DC506: rope tables with values that no engine calculates with, against what the releases really did with them."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recorded
from drafts import Draft
from rope_oddities import YARN, odd_cases

import drafcheck
from drafcheck.contract import resolve_engine
from drafcheck.finding import Finding, Severity
from drafcheck.rope import rope_of

VERDICTS = Path(__file__).parent.parent / "fixtures" / "verdicts"
ENGINES = ("sglang", "vllm")

CONFLICT = "beside rope_type"
"""vLLM since 0.22.1 refuses a `type` that contradicts the `rope_type` beside it, which no trainer writes."""


@cache
def rows(engine: str) -> list[dict[str, Any]]:
    base = importlib.import_module("record_rope").BASE
    found = recorded.rows(VERDICTS / engine / "rope_odd.jsonl")
    return [{**row, "config": {**base, **row["config"]}} for row in found]


def releases() -> list[tuple[str, str]]:
    return sorted({(engine, row["version"]) for engine in ENGINES for row in rows(engine)})


@pytest.mark.parametrize(("engine", "version"), releases())
def test_every_recorded_oddity(engine: str, version: str) -> None:
    """Whether the release stops, and with which error."""
    asked = [row for row in rows(engine) if row["version"] == version]
    base = importlib.import_module("record_rope").BASE
    assert {row["case"]: row["config"] for row in asked} == odd_cases(base)
    other = set()
    for row in asked:
        rope = rope_of(resolve_engine(f"{engine}=={version}"), row["config"])
        assert rope is not None
        if (rope.error is not None) != ("error" in row):
            other.add(row["case"])
    assert not {case for case in other if CONFLICT not in case}


def test_most_errors_are_those_of_the_releases() -> None:
    """Their classes; a text where a list is wanted ends in another one here and there."""
    right = wrong = 0
    for engine in ENGINES:
        for row in rows(engine):
            rope = rope_of(resolve_engine(f"{engine}=={row['version']}"), row["config"])
            if rope is not None and rope.error is not None and "error" in row:
                same = rope.error.partition(":")[0] == row["error"].partition(":")[0]
                right, wrong = right + same, wrong + (not same)
    assert right > 10 * wrong, (right, wrong)


def said(folder: Path, engine: str, **keys: Any) -> list[Finding]:
    draft = Draft()
    draft.set(**keys)
    if engine.startswith("vllm"):
        draft.set(model_type="llama")
    draft.write(folder)
    return [found for found in drafcheck.lint(folder, engine=engine).findings if found.rule == "DC506"]


@pytest.mark.parametrize("engine", ["sglang==0.4.5", "sglang==0.5.9", "sglang==0.5.23", "vllm==0.16.0", "vllm==0.33.0"])
@pytest.mark.parametrize(
    ("factor", "shown"),
    [("x", '"x", not a number'), ("2.0", '"2.0", not a number'), ([1], "[1], not a number"), (None, "null, not a")],
)
def test_a_factor_that_is_no_number(factor: object, shown: str, engine: str, tmp_path: Path) -> None:
    table = {**YARN, "factor": factor}
    [found] = said(tmp_path, engine, rope_scaling=table)
    assert found.severity is Severity.ERROR
    assert found.message.startswith(f"`rope_scaling.factor` is {shown}")
    assert re.search(r"stops at start \((Type|Validation)Error\)$", found.message)
    assert found.locations[0].key == "rope_scaling.factor" and found.locations[0].line is not None
    assert found.help == "write a number there"


@pytest.mark.parametrize("engine", ["sglang==0.4.5", "sglang==0.5.9", "sglang==0.5.23", "vllm==0.16.0", "vllm==0.33.0"])
@pytest.mark.parametrize("factor", [2, 2.5, True])
def test_a_factor_that_is_one(factor: object, engine: str, tmp_path: Path) -> None:
    assert not said(tmp_path, engine, rope_scaling={**YARN, "factor": factor})


@pytest.mark.parametrize(
    ("engine", "factor", "stops"),
    [
        ("sglang==0.5.23", 2, True),  # 'int' object is not iterable
        ("sglang==0.5.23", 2.0, False),
        ("sglang==0.5.23", [2.0], False),  # one for each length
        ("vllm==0.33.0", 2, True),
        ("vllm==0.33.0", 2.0, False),
        ("vllm==0.33.0", [2.0], True),
    ],
)
def test_a_linear_factor_has_a_point(engine: str, factor: object, stops: bool, tmp_path: Path) -> None:
    found = said(tmp_path, engine, rope_scaling={"rope_type": "linear", "factor": factor})
    assert [f.severity for f in found] == [Severity.ERROR] * stops
    if engine.startswith("sglang") and stops:
        assert found[0].message.startswith("`rope_scaling.factor` is 2, not a number with a point: ")


def test_other_keys_of_a_table(tmp_path: Path) -> None:
    for number, (key, table) in enumerate(
        {
            "rope_scaling.original_max_position_embeddings": {**YARN, "original_max_position_embeddings": "128"},
            "rope_scaling.mrope_section": {"rope_type": "default", "mrope_section": "x"},
            "rope_scaling.long_factor": {
                "rope_type": "longrope",
                "short_factor": [1.0],
                "long_factor": "2",
                "original_max_position_embeddings": 128,
            },
        }.items()
    ):
        [found] = said(tmp_path / str(number), "sglang==0.5.23", rope_scaling=table)
        assert found.locations[0].key == key


@pytest.mark.parametrize("version", ["0.5.9", "0.5.15"])
@pytest.mark.parametrize("kind", [None, 7, ["yarn"]])
def test_a_kind_that_is_no_text(kind: object, version: str, tmp_path: Path) -> None:
    [found] = said(tmp_path, f"sglang=={version}", rope_scaling={**YARN, "rope_type": kind})
    assert found.severity is Severity.ERROR
    error = (
        "unhashable type: 'list'" if kind == ["yarn"] and version == "0.5.9" else f"Unknown RoPE scaling type {kind}"
    )
    assert error in found.message


def test_a_table_that_is_not_read_may_hold_anything(tmp_path: Path) -> None:
    """Releases before 0.5.10 know no rope_parameters."""
    odd = {**YARN, "factor": "x", "rope_theta": 10000.0}
    assert not [f for f in said(tmp_path / "a", "sglang==0.5.9", rope_parameters=odd) if f.severity is Severity.ERROR]
    [found] = said(tmp_path / "b", "sglang==0.5.15", rope_parameters=odd)
    assert found.severity is Severity.ERROR and "`rope_parameters.factor` is" in found.message
