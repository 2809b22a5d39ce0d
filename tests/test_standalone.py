"""DC604: what a whole model as a draft shares with its target, and when that cannot be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import load_cases
from cases_reference import tokenizer
from helpers import of

from drafcheck import lint
from drafcheck.errors import UsageError
from drafcheck.finding import Confidence, Severity

OTHER, SAME = "DC604/standalone-with-other-tokens", "good/standalone-with-the-same-tokens"


def linted(folder: Path, case: str, *without: str, **options: Any) -> Any:
    load_cases()[case].draft().write(folder)
    for name in without:
        (folder / name).unlink()
    asked = {"target": folder / "target", "engine": "sglang==0.5.15", "algorithm": "STANDALONE", **options}
    return lint(folder, **asked).checkpoints[0]


def skipped(seen: Any) -> dict[str, str]:
    return {entry.rule: entry.why for entry in seen.skipped}


def test_ids_that_stand_for_other_texts(tmp_path: Path) -> None:
    (found,) = of(linted(tmp_path, OTHER).findings, "DC604")
    assert found.severity is Severity.ERROR
    assert "2 token ids of the 256" in found.message
    assert "100 is '<|end|>' here and '<|user|>' there" in found.message
    assert str(found.locations[0].file).endswith("tokenizer.json")
    assert found.confidence is Confidence.LIKELY  # two ids may never be said


def test_all_ids_of_another_family_are_certain(tmp_path: Path) -> None:
    linted(tmp_path, SAME)
    other = tokenizer()
    other["model"]["vocab"] = {f"x{token}": token for token in range(256)}
    file = tmp_path / "other.json"
    file.write_text(json.dumps(other))
    report = lint(tmp_path, target=tmp_path / "target", engine="sglang==0.5.15", algorithm="standalone", tokenizer=file)
    (found,) = of(list(report.checkpoints[0].findings), "DC604")
    assert found.confidence is Confidence.CERTAIN


def test_a_token_more_is_no_fault(tmp_path: Path) -> None:
    seen = linted(tmp_path, SAME)
    assert of(seen.findings, "DC604") == []
    assert "DC604" not in skipped(seen)


@pytest.mark.parametrize("missing", ("tokenizer.json", "target/tokenizer.json"))
def test_without_one_of_the_two_it_is_skipped(tmp_path: Path, missing: str) -> None:
    seen = linted(tmp_path, OTHER, missing)
    assert of(seen.findings, "DC604") == []
    assert "a tokenizer beside the draft's config.json" in skipped(seen)["DC604"]


def test_a_broken_one(tmp_path: Path) -> None:
    load_cases()[OTHER].draft().write(tmp_path)
    (tmp_path / "target" / "tokenizer.json").write_text("{")
    asked: dict[str, Any] = {"target": tmp_path / "target", "engine": "sglang==0.5.15", "algorithm": "STANDALONE"}
    assert "DC604" in skipped(lint(tmp_path, **asked).checkpoints[0])
    with pytest.raises(UsageError, match="--tokenizer"):
        lint(tmp_path, tokenizer=tmp_path / "target" / "tokenizer.json", **asked)


def test_other_algorithms_have_no_need_of_it(tmp_path: Path) -> None:
    seen = linted(tmp_path, OTHER, "tokenizer.json", algorithm="EAGLE3")
    assert "DC604" not in skipped(seen)
    assert of(seen.findings, "DC604") == []
