"""The trainers' checkpoints repaired: the real loaders took what the repair makes of them now, whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gen_fixed import bare, is_whole, missed, rows
from record_fixed import PRODUCERS, RELEASES, repaired, summary
from recorded import unpack

ROWS = rows()

SPECULATORS_NORM = "a norm that this release does not have: its tensors stay behind, and drafcheck says so"
IN_PART: dict[tuple[str, str], str] = {
    ("sglang 0.5.1", "speculators-eagle3-norm_before_fc"): SPECULATORS_NORM,
    ("sglang 0.5.1", "speculators-eagle3.1"): SPECULATORS_NORM,
    ("sglang 0.5.12", "speculators-eagle3-norm_before_fc"): SPECULATORS_NORM,
}
"""Repaired as far as the release goes."""

ONE_STATE = "a head for the last hidden state alone, which no class of this engine is made for"
PARALLEL = "P-EAGLE: SGLang has no class, and for vLLM the export does not say which token fills the later positions"
LATER = "the class came with a later release"
LEFT: dict[str, str] = {
    "modelopt-eagle1": ONE_STATE,
    "specforge-peagle-hf": PARALLEL,
    "speculators-peagle": PARALLEL,
    "speculators-mtp-converted": "its names and its layer are those of no loader",
    "speculators-eagle3-5aux-2layer": "SGLang's class has no norms of q and k",
    "speculators-dspark": "SGLang's Markov head has a row for each token of the target, this one for each of its own",
    "modelopt-dflash": LATER,
    "modelopt-dspark": LATER,
    "specforge-dflash-hf": LATER,
    "speculators-dflash": LATER,
    "speculators-dflash-fullvocab": LATER,
    "specforge-domino-hf": "SGLang reads the projector since 0.5.20, vLLM never",
}
"""What no repair mends, and why."""


def release(row: dict[str, Any]) -> str:
    return f"{row['engine']} {row['version']}"


@pytest.fixture(scope="module")
def producers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(PRODUCERS, tmp_path_factory.mktemp("producers"))


def test_every_checkpoint_was_asked_about_in_every_release(producers: Path) -> None:
    asked = {(f"{row['engine']}=={row['version']}", row["checkpoint"]) for row in ROWS}
    assert asked == {(r, folder.name) for r in RELEASES for folder in producers.iterdir() if folder.is_dir()}


@pytest.mark.parametrize("name", RELEASES)
def test_the_repair_is_the_one_that_was_recorded(name: str, producers: Path) -> None:
    """Else the loader was asked about another checkpoint: record it anew."""
    wrong = {}
    for row in (row for row in ROWS if f"{row['engine']}=={row['version']}" == name):
        now = summary(repaired(producers / row["checkpoint"], name))
        if now != {key: row[key] for key in now}:
            wrong[row["checkpoint"]] = now
    assert not wrong


def test_what_is_repaired_is_taken_whole() -> None:
    for row in ROWS:
        after = row["after"]
        if after is not None and (release(row), row["checkpoint"]) not in IN_PART:
            assert is_whole(after), (release(row), row["checkpoint"], after["error"], missed(after), bare(after))
            assert row["verdict"] in ("clean", "degraded"), row


def test_what_is_repaired_in_part_is_taken_all_the_same() -> None:
    for row in ROWS:
        if (release(row), row["checkpoint"]) in IN_PART:
            assert row["after"] is not None and not row["after"]["error"] and not bare(row["after"])
            assert missed(row["after"]) and row["verdict"] == "broken"


def test_whatever_is_not_taken_is_repaired_or_has_a_reason() -> None:
    left = {row["checkpoint"] for row in ROWS if row["after"] is None and not is_whole(row["before"])}
    assert left == LEFT.keys()


def test_no_repair_of_what_is_taken_changes_that() -> None:
    for row in ROWS:
        if row["after"] is not None and is_whole(row["before"]):
            assert is_whole(row["after"]), row
