"""Checkpoints that trainers wrote, in every release whose real loader was asked: clean where it takes them whole."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recorded
from packaging.specifiers import SpecifierSet

from drafcheck import lint
from drafcheck.finding import Severity
from drafcheck.report.model import CheckpointReport

FIXTURES = Path(__file__).parent.parent / "fixtures"

CLEAN = "clean"
NO_CONTRACT = "no contract"

ALWAYS = ">=0.4.5"
EARLY, MIDDLE, LATE = "<0.4.9", ">=0.4.9,<0.5.12", ">=0.5.12"
WITHOUT_DFLASH, WITH_DFLASH = "<0.5.11", ">=0.5.11"

LAYERS_ZERO = {EARLY: "DC104", MIDDLE: "DC101", LATE: CLEAN}
"""layers.0.*: refused, then dropped without a word, then read."""

DFLASH = {WITHOUT_DFLASH: "DC501", WITH_DFLASH: CLEAN}
"""A class of its own since 0.5.11."""

DSPARK = {WITHOUT_DFLASH: "DC501", WITH_DFLASH: "DC504"}
"""ModelOpt names DFlash's class for a DSpark head: its Markov head is dropped without a word."""

SPECULATORS = {ALWAYS: "DC503"}
"""A nested config without model_type, which SGLang's config loader refuses."""

EXPECTED: dict[str, dict[str, str]] = {
    "angelslim-eagle3": {ALWAYS: "DC501"},
    "automodel-eagle3": {ALWAYS: "DC501"},
    "eagle-traineagle3": {ALWAYS: "DC501"},
    "modelopt-dflash": DFLASH,
    "modelopt-dspark": DSPARK,
    "modelopt-eagle1": {ALWAYS: "DC504"},
    "modelopt-eagle3": LAYERS_ZERO,
    "modelopt-eagle3-fullvocab": LAYERS_ZERO,
    "modelopt-eagle3-qwen3": LAYERS_ZERO,
    "specforge-dflash-hf": DFLASH,
    "specforge-domino-hf": {ALWAYS: "DC501"},
    "specforge-eagle3-auxids-sglang": {ALWAYS: CLEAN},
    "specforge-eagle3-fullvocab-sglang": {ALWAYS: CLEAN},
    "specforge-eagle3-hf": {ALWAYS: CLEAN},
    "specforge-eagle3-sglang": {ALWAYS: CLEAN},
    "specforge-peagle-hf": {ALWAYS: "DC501"},
    "speculators-0.3.0-eagle3": SPECULATORS,
    "speculators-0.3.0-eagle3-converted": SPECULATORS,
    "speculators-0.4.0-eagle3": SPECULATORS,
    "speculators-0.5.0-eagle3-converted": SPECULATORS,
    "speculators-0.6.0-eagle3-converted": SPECULATORS,
    "speculators-dflash": SPECULATORS,
    "speculators-dflash-fullvocab": SPECULATORS,
    "speculators-dspark": SPECULATORS,
    "speculators-eagle3": SPECULATORS,
    "speculators-eagle3-5aux-2layer": SPECULATORS,
    "speculators-eagle3-converted": SPECULATORS,
    "speculators-eagle3-fullvocab": SPECULATORS,
    "speculators-eagle3-norm_before_fc": SPECULATORS,
    "speculators-eagle3.1": SPECULATORS,
    "speculators-mtp-converted": SPECULATORS,
    "speculators-peagle": SPECULATORS,
    "torchspec-eagle3-fullvocab": {EARLY: "DC301", ">=0.4.9": CLEAN},
    "torchspec-eagle3-pruned-vllm": LAYERS_ZERO,
}
"""What lint must say of each checkpoint by release: ``clean``, or the rule whose error names the cause."""

WHY: dict[str, str] = {
    "DC101": "the decoder layer is called layers.0 and this release reads midlayer: dropped without a word",
    "DC104": "a name without a parameter stops the loader of these releases",
    "DC301": "no d2t: the worker of these releases uses the map whatever the vocabulary is",
    "DC501": "architectures names no draft class of this engine: it is left to be edited, or meant for others",
    "DC503": "the sizes are nested in transformer_layer_config, without a model_type: the config loader stops",
    "DC504": "made for the last hidden state alone; the EAGLE-3 class takes twice the hidden size",
    CLEAN: "every tensor is read as its trainer meant it, and the layers are those trained on",
    NO_CONTRACT: "a draft class of its own, whose loader is not written down yet",
}
"""The reason for each outcome of the table."""

NOT_READ_AS_TRAINED = {
    ("torchspec-eagle3-fullvocab", EARLY): "loads, then the worker calls .to() on the map that is None "
    "(speculative/eagle_worker.py:143 of 0.4.8; guarded since 0.4.9)",
}
"""Rows that the loader takes whole and that break afterwards."""


@cache
def rows() -> list[dict[str, Any]]:
    """The recorded verdicts."""
    return recorded.rows(FIXTURES / "verdicts" / "sglang" / "producers.jsonl")


def expected(checkpoint: str, version: str) -> str:
    """The one entry of the table for this checkpoint and release."""
    [outcome] = [what for versions, what in EXPECTED[checkpoint].items() if version in SpecifierSet(versions)]
    return outcome


def taken_whole(row: dict[str, Any]) -> bool:
    """Whether the real loader took every tensor but t2d and filled every parameter.

    The embedding is the target's. fc.bias exists before 0.4.9 only, and no trainer writes it: it keeps the small
    random values of its construction in every draft that those releases ever served.
    """
    dropped = [name for name in row["dropped"] if "t2d" not in name]
    unwritten = set(row["unwritten"]) - {"model.embed_tokens.weight", "model.fc.bias"}
    return row["stage"] == "done" and not dropped and not unwritten and not row["partial"]


def breaks_later(checkpoint: str, version: str) -> bool:
    return any(name == checkpoint and version in SpecifierSet(spec) for name, spec in NOT_READ_AS_TRAINED)


def test_every_outcome_has_a_reason() -> None:
    assert {what for outcomes in EXPECTED.values() for what in outcomes.values()} <= set(WHY)


def test_table_holds_every_checkpoint() -> None:
    assert {row["checkpoint"] for row in rows()} == set(EXPECTED)
    assert len(rows()) == 34 * len({row["version"] for row in rows()}) >= 34 * 15


@pytest.mark.parametrize("checkpoint", sorted(EXPECTED))
def test_table_agrees_with_the_real_loaders(checkpoint: str) -> None:
    """Clean exactly where the loader took the checkpoint whole, but for the rows listed with their reason."""
    for row in rows():
        if row["checkpoint"] == checkpoint:
            outcome = expected(checkpoint, row["version"])
            whole = taken_whole(row) and not breaks_later(checkpoint, row["version"])
            assert outcome == NO_CONTRACT or (outcome == CLEAN) == whole, row["version"]


@pytest.fixture(scope="module")
def producers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked checkpoints."""
    room = tmp_path_factory.mktemp("producers")
    with tarfile.open(FIXTURES / "producers" / "producers.tar.xz") as archive:
        archive.extractall(room, filter="data")
    return room


def judge(report: CheckpointReport, outcome: str, version: str) -> None:
    """Assert that one report is what the table says."""
    loud = [f for f in report.findings if f.severity is not Severity.NOTE]
    said = f"{version}: {[(f.rule, f.severity.value, f.message) for f in loud]}"
    if outcome == CLEAN:
        assert loud == [], said
    elif outcome == NO_CONTRACT:
        assert loud == [], said
        assert any("draft class" in skip.why for skip in report.skipped), said
    else:
        assert outcome in [f.rule for f in loud if f.severity is Severity.ERROR], said


@pytest.mark.parametrize("checkpoint", sorted(EXPECTED))
def test_lint_agrees(producers: Path, checkpoint: str) -> None:
    for version in sorted({row["version"] for row in rows()}):
        report = lint(producers / checkpoint, engine=f"sglang=={version}").checkpoints[0]
        judge(report, expected(checkpoint, version), version)
