"""The load plan of later releases' draft classes against what SGLang's own classes answered, tensor by tensor.

fixtures/verdicts/sglang/newer.jsonl.xz was recorded by tools/record_mtp.py on the corpus of tools/make_newer_corpus.py.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from assistant_drafts import assistant
from make_newer_corpus import ALL, drafts
from recorded import rows, unpack
from test_mtp_verdicts import FOLDER, disagreements

from drafcheck import lint
from drafcheck.runner import Options, inspect_one
from drafcheck.subject import Subject

ROWS = rows(FOLDER / "newer.jsonl")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(FOLDER / "newer.tar.xz", tmp_path_factory.mktemp("newer"))


def subject_of(corpus: Path, row: dict[str, Any], release: str) -> Subject:
    seen = inspect_one(str(corpus / row["checkpoint"]), Options(engine=f"sglang=={release}"))
    assert seen.subject is not None
    assert not seen.crashed, seen.crashed
    return seen.subject


def is_described(s: Subject) -> bool:
    """Whether the contract is about the config: what it does not describe is said to be incomplete."""
    return s.contract is not None or s.refused is not None


@pytest.mark.parametrize("family", ALL)
def test_every_row_agrees(corpus: Path, family: str) -> None:
    wrong: dict[str, list[str]] = defaultdict(list)
    asked = [row for row in ROWS if row["checkpoint"].startswith(f"{family}-")]
    described = 0
    for row in asked:
        for release in row["releases"]:
            s = subject_of(corpus, row, release)
            problems = disagreements(row, s) if is_described(s) else []
            described += is_described(s)
            if problems:
                wrong[row["checkpoint"]].append(f"{release}: {'; '.join(problems)}")
    assert not wrong, f"{len(wrong)} of {len(asked)}: {json.dumps(wrong, indent=1)[:6000]}"
    assert described > len(asked) // 2


def test_every_checkpoint_was_asked_about() -> None:
    """The corpus as it would be written is the one of the recording."""
    assert {name for family in ALL for name, _ in drafts(family)} == {row["checkpoint"] for row in ROWS}


FOUND = {
    "gemma4-no-pre": ("0.5.23", {"DC102"}),
    "gemma4-short-q": ("0.5.23", {"DC201"}),
    "gemma4-no-q": ("0.5.13", {"DC102"}),
    "gemma4-no-gate": ("0.5.23", {"DC103"}),
    "gemma4-module-prefix": ("0.5.23", {"DC105"}),
    "gemma4_centroids-no-ordering": ("0.5.23", {"DC102"}),
    "gemma4_unified-no-pre": ("0.5.13", {"DC102"}),
    "lilicorr-no-slots": ("0.5.23", {"DC102"}),
    "lilicorr-extra": ("0.5.23", {"DC104"}),
    "lilicorr-ratio-other": ("0.5.23", {"DC201"}),
    "lilicorr-convolutions-unsaid": ("0.5.23", {"DC104"}),
    "lilicorr_old-healthy": ("0.5.23", {"DC102"}),  # the names of the release before
    "minimax-extra": ("0.5.23", {"DC104"}),
    "minimax-no-fc": ("0.5.23", {"DC102"}),
    "minimax-no-prefix": ("0.5.23", {"DC102"}),
    "glm_ocr-no_projection": ("0.5.11", {"DC102"}),
    "glm_ocr-no_layer": ("0.5.23", {"DC102"}),
    "qwen4-no_projection": ("0.5.23", {"DC102"}),
    "qwen4_indexed-no_layer": ("0.5.23", {"DC102"}),
    "inkling-no_projection": ("0.5.16", {"DC102"}),
    "inkling-no_layer": ("0.5.23", {"DC102"}),
    "iquest-no-sink": ("0.5.21", {"DC102"}),
    "iquest-extra": ("0.5.23", {"DC104"}),
}
"""Broken checkpoints, each with a release that loads or refuses it so, and what it has to be told for."""


@pytest.mark.parametrize("name", FOUND)
def test_a_fault_is_found(corpus: Path, name: str) -> None:
    release, codes = FOUND[name]
    report = lint(corpus / name, engine=f"sglang=={release}")
    assert codes <= {finding.rule for finding in report.findings}


@pytest.mark.parametrize("name", sorted({row["checkpoint"] for row in ROWS if row["checkpoint"].endswith("-healthy")}))
def test_a_healthy_one_passes(corpus: Path, name: str) -> None:
    releases = [
        release for row in ROWS if row["checkpoint"] == name and row["stage"] == "done" for release in row["releases"]
    ]
    assert releases
    for release in releases:
        report = lint(corpus / name, engine=f"sglang=={release}")
        assert not report.findings, (release, report.findings)
        assert report.checkpoints[0].outcome.value == "clean"


def test_an_assistant_is_as_wide_as_its_backbone_says(tmp_path: Path) -> None:
    draft = assistant()
    draft.write(tmp_path / "fits")
    assert not lint(tmp_path / "fits", engine="sglang==0.5.23").findings
    assert draft.target is not None
    draft.target["hidden_size"] = 64
    draft.write(tmp_path / "wide")
    (found,) = lint(tmp_path / "wide", engine="sglang==0.5.23").findings
    assert (found.rule, "backbone_hidden_size is 48" in found.message) == ("DC409", True)


def test_a_model_type_that_a_later_release_knows(corpus: Path) -> None:
    (found,) = lint(corpus / "gemma4-healthy", engine="sglang==0.5.12").findings
    assert (found.rule, found.help) == ("DC502", "serve with sglang >= 0.5.15, which knows it")


def test_an_assistant_is_no_eagle3_head(corpus: Path) -> None:
    report = lint(corpus / "gemma4-healthy", engine="sglang==0.5.23", algorithm="EAGLE3")
    assert [finding.rule for finding in report.findings] == ["DC504"]
