"""DC604: what a whole model as a draft shares with its target, and when that cannot be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cases import load_cases
from cases_reference import tokenizer
from cases_standalone import whole_model
from drafts import Draft
from helpers import of

from drafcheck import lint
from drafcheck.errors import UsageError
from drafcheck.finding import Confidence, Severity
from drafcheck.report.model import Outcome

OTHER, SAME = "DC604/standalone-with-other-tokens", "good/standalone-with-the-same-tokens"


def linted(folder: Path, case: str, *without: str, **options: Any) -> Any:
    load_cases()[case].draft().write(folder)
    for name in without:
        (folder / name).unlink()
    asked = {"target": folder / "target", "engine": "sglang==0.5.14", "algorithm": "STANDALONE", **options}
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
    report = lint(tmp_path, target=tmp_path / "target", engine="sglang==0.5.14", algorithm="standalone", tokenizer=file)
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


@pytest.mark.parametrize(("case", "what"), [(OTHER, "2 token ids of the 256"), (SAME, "1 token that only one of")])
def test_a_release_that_compares_the_tables_stops(tmp_path: Path, case: str, what: str) -> None:
    seen = linted(tmp_path, case, engine="sglang==0.5.15")
    (found,) = of(seen.findings, "DC604")
    assert what in found.message
    assert "stops (ValueError: STANDALONE" in found.message
    assert found.confidence is Confidence.LIKELY  # read, not run
    assert seen.outcome is Outcome.REFUSED and seen.exit_code() == 1


@pytest.mark.parametrize(
    ("engine", "algorithm", "stops"),
    [
        ("sglang==0.5.14", "STANDALONE", False),
        ("sglang==0.5.15", "STANDALONE", True),
        ("vllm==0.16.0", "draft_model", True),
        ("vllm==0.33.0", "draft_model", True),
    ],
)
@pytest.mark.parametrize("padded", [0, 64])
def test_the_sizes_of_the_vocabularies(tmp_path: Path, engine: str, algorithm: str, stops: bool, padded: int) -> None:
    """Padding alone is enough for a release that compares them."""
    draft = Draft()
    whole_model(draft, {}, {})
    draft.set(vocab_size=draft.config["vocab_size"] + padded)
    draft.write(tmp_path)
    seen = lint(tmp_path, target=tmp_path / "target", engine=engine, algorithm=algorithm).checkpoints[0]
    found = of(list(seen.findings), "DC604")
    assert [f.locations[0].key for f in found] == ["vocab_size"] * (stops and padded > 0)


def test_a_launch_may_have_the_tokens_translated(tmp_path: Path) -> None:
    draft = Draft()
    whole_model(draft, {100: "<|end|>"}, {100: "<|user|>"})
    draft.write(tmp_path / "draft")
    for more, count in (("", 1), (', "use_heterogeneous_vocab": true', 0)):
        launch = tmp_path / "serve.sh"
        config = f'{{"method": "draft_model", "model": "{tmp_path}/draft", "num_speculative_tokens": 3{more}}}'
        launch.write_text(f"vllm serve {tmp_path}/draft/target --speculative-config '{config}'\n")
        report = lint(tmp_path / "draft", target=tmp_path / "draft" / "target", engine="vllm==0.33.0", launch=launch)
        assert len(of(list(report.findings), "DC604")) == count
