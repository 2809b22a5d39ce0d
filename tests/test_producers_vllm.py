"""Trainers' checkpoints in vLLM: what lint says of each, release by release, and what the real loader answered.

What it takes in part is held against the load plan by tests/test_verdicts_vllm.py.
"""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import recorded
from packaging.specifiers import SpecifierSet

from drafcheck import lint
from drafcheck.finding import Severity

FIXTURES = Path(__file__).parent.parent / "fixtures"
ROWS = recorded.rows(FIXTURES / "verdicts" / "vllm" / "producers.jsonl")
SERVED = ("compute_logits", "combine_hidden_states")
FILLED = {"model.embed_tokens.weight", "lm_head.weight"}
"""What the engine takes from the target after the recording ended."""

CLEAN = ""
ALWAYS = ">=0.9.2"
EARLY, LATER = "<0.11.0", ">=0.11.0"

NAMELESS = {EARLY: "DC501", LATER: CLEAN}
"""0.9.2 puts Eagle3 before the class name and looks for it; later releases know the name that SGLang uses."""

OUTPUTS = {EARLY: "DC501", ">=0.11.0,!=0.22.1": CLEAN, "==0.22.1": "DC404w"}
"""Outputs in eagle_config's ids: read as inputs by 0.22.1 alone, which looks there; the default elsewhere fits."""

NESTED = {EARLY: "DC503", LATER: CLEAN}
"""Converted since 0.11.0."""

NO_IDS = {EARLY: "DC503", LATER: "DC406w"}
"""Trained on other layers than the usual ones before speculators wrote the ids down."""

EXPECTED: dict[str, dict[str, str]] = {
    "angelslim-eagle3": {ALWAYS: CLEAN},
    "automodel-eagle3": {ALWAYS: "DC501"},
    "eagle-traineagle3": {ALWAYS: CLEAN},
    "modelopt-eagle1": {EARLY: "DC501", LATER: "DC504"},
    "modelopt-eagle3": OUTPUTS,
    "modelopt-eagle3-fullvocab": OUTPUTS,
    "modelopt-eagle3-qwen3": {EARLY: "DC501 DC601", LATER: CLEAN},
    "specforge-eagle3-auxids-sglang": OUTPUTS,
    "specforge-eagle3-fullvocab-sglang": {EARLY: "DC501", ">=0.11.0,<0.33.0": CLEAN, ">=0.33.0": "DC104"},
    "specforge-eagle3-hf": NAMELESS,
    "specforge-eagle3-sglang": NAMELESS,
    "specforge-peagle-hf": {ALWAYS: "DC501"},
    "speculators-0.3.0-eagle3": NO_IDS,
    "speculators-0.3.0-eagle3-converted": NESTED,
    "speculators-0.4.0-eagle3": NO_IDS,
    "speculators-0.5.0-eagle3-converted": NESTED,
    "speculators-0.6.0-eagle3-converted": NESTED,
    "speculators-eagle3": NESTED,
    "speculators-eagle3-5aux-2layer": {
        EARLY: "DC503 DC601",
        "==0.11.0": "DC104 DC401 DC405",
        "==0.16.0": "DC104 DC401 DC403",
        "==0.22.1": "DC104 DC401",
        ">=0.33.0": CLEAN,
    },
    "speculators-eagle3-converted": NESTED,
    "speculators-eagle3-fullvocab": NESTED,
    "speculators-eagle3-norm_before_fc": {EARLY: "DC503", ">=0.11.0,<0.22.1": "DC104", ">=0.22.1": CLEAN},
    "speculators-eagle3.1": {EARLY: "DC503", ">=0.11.0,<0.33.0": "DC104", ">=0.33.0": CLEAN},
    "speculators-peagle": {"<0.22.1": "DC503", ">=0.22.1": CLEAN},
    "torchspec-eagle3-fullvocab": NAMELESS,
    "torchspec-eagle3-pruned-vllm": NAMELESS,
}
"""Every error and warning of lint by release: rules, with a w where it is a warning."""

WHY: dict[str, tuple[str, str]] = {
    "DC104": (
        "a name without a parameter stops the loader",
        r"^KeyError: '(layers\.0\.self_attn\.k_norm|input_norm|fc_norm\.0)\.weight'|"
        r"^ValueError: There is no module or parameter named 'draft_id_to_target_id'",
    ),
    "DC401": (
        "fc for five states, and a release that builds it for three whatever the ids are",
        r"(Attempted to load weight|Tried to load weights of size) ?\(?torch\.Size\(\[64, 320\]\)",
    ),
    "DC501": (
        "architectures names a class that is not registered",
        r"Cannot find model module\. '\w+' is not a registered|Model architectures \['\w+'\] are not supported",
    ),
    "DC503": (
        "a nested config without model_type, or of a kind that the release does not convert",
        r"Unrecognized model in speculators-|Expected one of: \{'eagle3'",
    ),
    "DC504": ("made for the last hidden state alone: its tensors do not fit the EAGLE-3 class", r"^AssertionError: $"),
    "DC601": ("0.9.2 drafts for Llama targets only", r"Eagle3 is only supported for Llama models"),
}
"""Why the loader stops, by rule, and how it says so itself."""

SILENT: dict[str, str] = {
    "DC403": "8 is no layer of 8: its state never arrives",
    "DC404w": "outputs are read as inputs: each state is that of one layer before",
    "DC405": "0.11.0 reads no layer ids, and feeds three layers of its own",
    "DC406w": "the producer's own layers are others than those that the engine takes by default",
}
"""What the loader never sees: the states that will be fed."""

IDENTITY = {"draft_id_to_target_id"}
IN_PART: dict[str, tuple[set[str], str]] = {
    "modelopt-eagle3-fullvocab": (IDENTITY, "offsets of zero, as built, are right for a whole vocabulary"),
    "speculators-eagle3-fullvocab": (IDENTITY, "the same"),
    "torchspec-eagle3-fullvocab": (IDENTITY, "the same"),
    "speculators-eagle3-5aux-2layer": (
        {"model.layers.1.hidden_norm.weight"},
        "the forward pass uses the norm of the hidden state in the first layer only",
    ),
    "speculators-peagle": (
        {"model.layers.1.hidden_norm.weight", "mask_hidden"},
        "the same; mask_hidden is kept apart for the drafting of several tokens at once",
    ),
}
"""What is neither read nor written in rows that lose nothing by it, and why."""


@pytest.fixture(scope="module")
def producers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("producers")
    with tarfile.open(FIXTURES / "producers" / "producers.tar.xz") as archive:
        archive.extractall(room, filter="data")
    return room


def expected(row: dict[str, Any]) -> set[str]:
    """The one entry of the table for this row."""
    [found] = [codes for spec, codes in EXPECTED[row["checkpoint"]].items() if row["version"] in SpecifierSet(spec)]
    return set(found.split())


def lost(row: dict[str, Any]) -> set[str]:
    """The tensors that are dropped and the parameters that stay as built."""
    dropped = {name for name in row["dropped"] if "t2d" not in name}
    return dropped | (set(row["unwritten"]) - FILLED) | {str(part) for part in row["partial"]}


def outcome(row: dict[str, Any]) -> str:
    """``whole``, ``stops``, or ``in part``: what the real loader did."""
    error = row["error"]
    if error is not None and error["stage"] not in SERVED:
        return "not asked" if "PagedAttention" in error["message"] else "stops"
    return "in part" if lost(row) else "whole"


@pytest.mark.parametrize("checkpoint", sorted(EXPECTED))
def test_every_error_and_warning(producers: Path, checkpoint: str) -> None:
    for row in ROWS:
        if row["checkpoint"] == checkpoint:
            report = lint(producers / checkpoint, engine=f"vllm=={row['version']}").checkpoints[0]
            told = {
                f.rule + "w" * (f.severity is Severity.WARNING): f.message
                for f in report.findings
                if f.severity is not Severity.NOTE
            }
            assert set(told) == expected(row), (row["version"], told)


def test_table_holds_every_row() -> None:
    assert {row["checkpoint"] for row in ROWS} == set(EXPECTED)
    assert len(ROWS) == 5 * len(EXPECTED)
    assert {code for row in ROWS for code in expected(row)} == {*WHY, *SILENT}
    assert Counter(map(outcome, ROWS)) == {"whole": 69, "stops": 47, "in part": 12, "not asked": 2}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['checkpoint']}-{row['version']}")
def test_the_reason_is_what_the_loader_answered(row: dict[str, Any]) -> None:
    """An error of the table where the loader stops, for the cause that it names, and none where it does not."""
    loud = expected(row) & set(WHY)
    if outcome(row) == "stops":
        answer = f"{row['error']['type']}: {row['error']['message']}"
        assert any(re.search(WHY[code][1], answer) for code in loud), (loud, answer)
    else:
        assert not loud
    if outcome(row) == "in part":
        assert lost(row) == IN_PART[row["checkpoint"]][0]


BLOCKS: dict[str, tuple[str, str]] = {
    "modelopt-dflash": ("DC405", CLEAN),
    "modelopt-dspark": ("DC504", "DC504"),
    "specforge-dflash-hf": ("DC405", CLEAN),
    "specforge-domino-hf": ("DC501", "DC501"),
    "speculators-dflash": (CLEAN, CLEAN),
    "speculators-dflash-fullvocab": (CLEAN, CLEAN),
    "speculators-dspark": ("DC503", CLEAN),
}
"""Heads that draft blocks: errors and warnings for 0.22.1, which feeds layers of its own where the ids stand in
dflash_config, knows no Domino and converts no DSpark, and for 0.33.0. ModelOpt names its DSpark heads DFlash."""


@pytest.mark.parametrize("checkpoint", BLOCKS)
def test_heads_that_draft_blocks(producers: Path, checkpoint: str) -> None:
    for version, codes in zip(("0.22.1", "0.33.0"), BLOCKS[checkpoint], strict=True):
        report = lint(producers / checkpoint, engine=f"vllm=={version}")
        assert [f.rule for f in report.findings if f.severity is not Severity.NOTE] == codes.split()
