"""What ``--target-weights`` asked for and was not done is said, and is told apart from what is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from variants import TRAINED, build
from weights import Weights, read_safetensors, write_safetensors

from drafcheck import lint
from drafcheck.report.full import verdict
from drafcheck.report.matrix import render
from drafcheck.report.model import CheckpointReport, Outcome, Report
from drafcheck.report.style import Style

HEAD = TRAINED / "target-head"
ENGINES = ["sglang==0.5.15", "vllm==0.33.0", "llama.cpp"]


def checked(folder: Path, **options: Any) -> CheckpointReport:
    options = {"engine": "sglang==0.5.15", "target_weights": HEAD, **options}
    return lint(folder, **options).checkpoints[0]


def why(report: CheckpointReport, rule: str) -> list[str]:
    return [skipped.why for skipped in report.skipped if skipped.rule == rule and skipped.asked]


def edited(folder: Path, edit: Any) -> Path:
    """The trained draft with other tensors."""
    build("01_healthy").write(folder)
    weights: Weights = read_safetensors(folder / "model.safetensors")
    edit(weights)
    write_safetensors(folder / "model.safetensors", weights)
    return folder


def test_a_head_without_a_d2t(tmp_path: Path) -> None:
    report = checked(edited(tmp_path / "draft", lambda w: w.pop("d2t")))
    rows = read_safetensors(tmp_path / "draft" / "model.safetensors")["lm_head.weight"].shape[0]
    assert why(report, "DC805") == [f"needs a d2t: nothing else says which tokens the {rows} rows of lm_head stand for"]


def test_a_d2t_of_another_shape(tmp_path: Path) -> None:
    report = checked(edited(tmp_path / "draft", lambda w: w.update(d2t=w["d2t"].with_shape(1, *w["d2t"].shape))))
    [said] = why(report, "DC805")
    assert said.startswith("needs values of d2t that can be read: its shape is [1, ")


def test_a_healthy_draft_is_compared(tmp_path: Path) -> None:
    report = checked(edited(tmp_path / "draft", lambda w: None))
    assert not why(report, "DC805")
    assert report.head is not None


def test_without_a_head_there_is_nothing_to_compare(tmp_path: Path) -> None:
    """The target's own is served: that it was not compared keeps nobody from anything."""
    report = checked(edited(tmp_path / "draft", lambda w: (w.pop("d2t"), w.pop("lm_head.weight"))))
    assert not why(report, "DC805")


@pytest.fixture(scope="module")
def several() -> Report:
    """DC804 alone is not done, for the engines that load an embedding of the draft's own."""
    return lint(TRAINED / "draft", engine=ENGINES, target_weights=HEAD)


def test_the_matrix_tells_what_was_not_done_from_what_is_not_known(several: Report) -> None:
    [row] = several.matrix
    assert [(v.outcome, v.partly) for v in row.engines] == [
        (Outcome.CLEAN, False),
        (Outcome.INCOMPLETE, True),
        (Outcome.INCOMPLETE, True),
    ]
    table = render(several, Style())
    assert "not known" not in table and table.count("no fault found, not all checked") == 2
    lines = [verdict(checkpoint, Style()) for checkpoint in several.checkpoints]
    assert ["no fault found, but not everything was checked" in line for line in lines] == [False, True, True]


def test_the_matrix_says_so_of_a_class_without_a_contract() -> None:
    """llama.cpp has none for the DFlash family."""
    draft = Path(__file__).parent.parent / "fixtures" / "good" / "dflash"
    report = lint(draft, engine=["sglang==0.5.15", "llama.cpp"])
    [_, seen] = report.matrix[0].engines
    assert (seen.outcome, seen.partly) == (Outcome.INCOMPLETE, False)
    assert "not known" in render(report, Style())
