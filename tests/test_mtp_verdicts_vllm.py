"""The load plan of multi-token-prediction heads against what vLLM's own classes answered, tensor by tensor.

fixtures/verdicts/vllm/mtp.jsonl.xz was recorded by tools/record_mtp.py on the corpus of tools/make_mtp_corpus.py: each
checkpoint is target and draft in one, as it is served.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from mtp_heads import FAMILIES as FAMILIES_OF_HEADS
from packaging.version import Version
from recorded import rows, unpack
from test_mtp import packed, save
from test_mtp_verdicts import disagreements

import drafcheck
from drafcheck.runner import Options, inspect_one
from drafcheck.subject import Subject

FOLDER = Path(__file__).parent.parent / "fixtures" / "verdicts" / "vllm"
ROWS = rows(FOLDER / "mtp.jsonl")
FAMILIES = sorted({row["checkpoint"].partition("-")[0] for row in ROWS})
MISSING = {"DC102", "DC104", "DC107"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(FOLDER / "mtp.tar.xz", tmp_path_factory.mktemp("corpus"))


def subject_of(corpus: Path, row: dict[str, Any], release: str) -> Subject:
    seen = inspect_one(str(corpus / row["checkpoint"]), Options(engine=f"vllm=={release}", algorithm="mtp"))
    assert seen.subject is not None
    assert not seen.crashed, seen.crashed
    return seen.subject


@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_agrees(corpus: Path, family: str) -> None:
    wrong: dict[str, list[str]] = defaultdict(list)
    asked = [row for row in ROWS if row["checkpoint"].startswith(f"{family}-")]
    for row in asked:
        for release in row["releases"]:
            s = subject_of(corpus, row, release)
            named = row["class"] or (s.contract.architecture if s.contract else None)  # refused before one is built
            problems = disagreements({**row, "class": named}, s)
            if problems:
                wrong[row["checkpoint"]].append(f"{release}: {'; '.join(problems)}")
    assert not wrong, f"{len(wrong)} of {len(asked)}: {json.dumps(wrong, indent=1)[:6000]}"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_checkpoint_is_a_healthy_head_and_one_without_the_layer_is_none(corpus: Path, family: str) -> None:
    """No method is named: the target's config leads to the class."""
    newest = max((r for row in ROWS if row["checkpoint"] == f"{family}-healthy" for r in row["releases"]), key=Version)
    engine = f"vllm=={newest}"
    healthy = drafcheck.lint(corpus / f"{family}-healthy", engine=engine, target=corpus / f"{family}-healthy")
    assert [f.rule for f in healthy.findings if f.severity.value != "note"] == []
    assert (healthy.checkpoints[0].algorithm, healthy.checkpoints[0].outcome.value) == ("mtp", "clean")
    bare = {finding.rule for finding in drafcheck.lint(corpus / f"{family}-no_layer", engine=engine).findings}
    assert bare & {"DC102", "DC104"}


@pytest.mark.parametrize(
    "release, said, rules",
    (
        ("0.33.0", '"method": "mtp"', []),
        ("0.33.0", '"method": "deepseek_mtp"', []),  # the older name of the same method
        ("0.33.0", '"model": "{draft}"', []),  # no method: the target's config leads to it
        ("0.9.2", '"method": "deepseek_mtp"', []),
        ("0.9.2", '"method": "mtp"', ["DC701"]),
        ("0.33.0", '"method": "dflash"', ["DC701"]),
    ),
)
def test_a_launch_names_the_method_or_leaves_it_to_the_config(
    corpus: Path, tmp_path: Path, release: str, said: str, rules: list[str]
) -> None:
    draft = corpus / "deepseek-healthy"
    line = said.replace("{draft}", str(draft))
    launch = tmp_path / "serve.sh"
    launch.write_text(f"vllm serve {draft} --speculative-config '{{{line}, \"num_speculative_tokens\": 1}}'\n")
    report = drafcheck.lint(draft, engine=f"vllm=={release}", target=draft, launch=launch)
    assert {f.rule for f in report.findings} & {"DC701"} == set(rules)


@pytest.mark.parametrize("release", ["0.9.2", "0.16.0", "0.33.0"])
def test_a_quantised_checkpoint_is_compared_by_its_names(tmp_path: Path, release: str) -> None:
    """Of such a checkpoint nothing has to be there, and no finding is certain."""
    head = FAMILIES_OF_HEADS["deepseek"]
    config = {**head.config(), "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    whole = packed(head.weights(), "weight_scale_inv")
    save(tmp_path, config, whole)
    report = drafcheck.lint(tmp_path, engine=f"vllm=={release}")
    assert ([f.rule for f in report.findings], report.checkpoints[0].outcome.value) == ([], "clean")
    save(tmp_path, config, {n: t for n, t in whole.items() if "o_proj" not in n})
    (found,) = drafcheck.lint(tmp_path, engine=f"vllm=={release}").findings
    assert (found.rule, found.confidence.value) == ("DC102", "likely")
