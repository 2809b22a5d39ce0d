"""A draft in Mistral's own form: params.json for config.json, which some releases read and drafcheck does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from drafcheck import lint
from drafcheck.report.model import Report

SMALL = Path(__file__).parent.parent / "fixtures" / "good" / "eagle-1-mistral-large" / "model.safetensors"


def native(folder: Path, weights: str = "consolidated.safetensors") -> Path:
    folder.mkdir()
    shutil.copy(SMALL, folder / weights)
    (folder / "params.json").write_text('{"dim": 32, "n_layers": 2, "eagle": true}')
    return folder


def about(report: Report) -> list[tuple[str, str]]:
    found = [f for f in report.findings if f.rule == "DC002"]
    return [(f.severity.value, f.confidence.value) for f in found]


@pytest.mark.parametrize(
    "folder, engine, expected",
    (
        ("Mistral-Eagle", "vllm==0.9.2", ("note", "certain")),
        ("Mistral-Eagle", "vllm==0.33.0", ("note", "certain")),
        ("draft", "vllm==0.33.0", ("note", "certain")),
        ("Mistral-Eagle", "sglang==0.5.23", ("note", "certain")),
        ("Mistral-Large-3", "sglang==0.5.9", ("note", "certain")),
        ("Mistral-Eagle", "sglang==0.5.9", ("error", "likely")),
        ("Mistral-Eagle", "sglang==0.4.5", ("error", "certain")),
        ("Mistral-Eagle", "lmdeploy", ("error", "certain")),
    ),
)
def test_the_release_decides(tmp_path: Path, folder: str, engine: str, expected: tuple[str, str]) -> None:
    report = lint(native(tmp_path / folder), engine=engine)
    assert about(report) == [expected]
    assert report.checkpoints[0].outcome == ("incomplete" if expected[0] == "note" else "refused")


def test_vllm_wants_the_weights_of_that_form_too(tmp_path: Path) -> None:
    draft = native(tmp_path / "draft", "model.safetensors")
    assert about(lint(draft, engine="vllm==0.33.0")) == [("error", "certain")]
    assert about(lint(draft, engine="vllm==0.11.0")) == [("note", "certain")]


def test_without_params_nothing_is_read(tmp_path: Path) -> None:
    draft = native(tmp_path / "Mistral-Eagle")
    (draft / "params.json").unlink()
    assert about(lint(draft, engine="vllm==0.33.0")) == [("error", "certain")]
