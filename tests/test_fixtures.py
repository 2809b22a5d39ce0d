"""Every fixture gives the report beside it; every rule has one that fails and one that passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import load_cases
from make_fixtures import FIXTURES, report

from drafcheck.registry import load_rules

CASES = sorted(path.parent.relative_to(FIXTURES).as_posix() for path in FIXTURES.glob("*/*/args.txt"))
FAILING = [case for case in CASES if not case.startswith("good/")]
PASSING = [case for case in CASES if case.startswith("good/")]

NO_FIXTURE = {"DC999": "a fault of drafcheck itself: tests/test_property.py asserts that there is none"}

TWINS = {
    "DC001": "healthy",
    "DC002": "healthy",
    "DC003": "healthy",
    "DC004": "header-padding-and-metadata",
    "DC005": "odd-shard-names",
    "DC006": "two-shards",
    "DC007": "two-files-alike",
    "DC008": "healthy",
    "DC009": "plain-state-dict",
    "DC010": "healthy",
    "DC011": "side-files-that-engines-want",
    "DC012": "odd-shard-names",
    "DC101": "rotary-buffer",
    "DC102": "head-borrowed",
    "DC103": "fused-projections",
    "DC104": "healthy-0.4.8",
    "DC105": "model-prefix",
    "DC106": "rotary-buffer",
    "DC107": "wider-target",
    "DC108": "layers-0.5.12",
    "DC201": "packed",
    "DC202": "heads-wider-than-hidden",
    "DC203": "second-layer-without-input-layernorm",
    "DC204": "fc-bias-with-a-slot",
    "DC205": "key-value-heads-copied",
    "DC301": "full-vocabulary",
    "DC302": "draft-vocabulary-padded",
    "DC303": "unsorted-offsets",
    "DC304": "unsorted-offsets",
    "DC305": "unsorted-offsets-without-t2d",
    "DC306": "zeros-at-full-vocabulary",
    "DC307": "t2d-padded",
    "DC308": "d2t-int32",
    "DC309": "head-borrowed",
    "DC310": "tied-flag-and-borrowed-head",
    "DC311": "same-mapping",
    "DC312": "vocab-size-padded",
    "DC313": "cut-by-tokens",
    "DC314": "special-tokens-kept",
    "DC401": "wider-target",
    "DC402": "one-state-head",
    "DC403": "final-state-of-gpt-oss",
    "DC404": "specforge-on-kimi-0.5.12",
    "DC405": "top-level-names-the-default",
    "DC406": "ids-name-the-default",
    "DC407": "input-norm-in-eagle-config",
    "DC408": "residual-as-computed",
    "DC409": "wider-target",
    "DC501": "renamed-in-draft-mode",
    "DC502": "healthy",
    "DC503": "keys-at-both-levels",
    "DC504": "one-state-head",
    "DC505": "longer-context-than-the-target",
    "DC506": "both-forms-of-the-rope",
    "DC507": "fp8",
    "DC508": "float16-under-dtype",
    "DC509": "healthy",
    "DC601": "kimi-0.5.11",
    "DC602": "same-target-stored-otherwise",
    "DC603": "healthy-0.5.23",
    "DC604": "standalone-with-the-same-tokens",
    "DC605": "vllm-kv-windows-0.16.0",
    "DC701": "launched",
    "DC702": "launched-with-defaults",
    "DC703": "launched-with-defaults",
    "DC704": "launched-in-depth",
    "DC705": "launched-with-a-tree",
    "DC706": "launched-with-defaults",
    "DC707": "launched-vllm",
    "DC708": "launched",
    "DC801": "values",
    "DC802": "values",
    "DC803": "values",
    "DC804": "embedding-of-the-target",
    "DC805": "rows-of-their-tokens",
    "DC806": "large-in-bfloat16",
    "DC901": "suppressed-for-another-checkpoint",
    "DC902": "suppressed",
}
"""For each rule the checkpoint of fixtures/good that comes nearest to its fault and has none."""


@pytest.mark.parametrize("case", CASES)
def test_report_is_as_expected(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FIXTURES)
    assert report(case) == (FIXTURES / case / "expected.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", FAILING)
def test_failing_fixture_fires_its_rule(case: str) -> None:
    code = case.partition("/")[0]
    assert code in (FIXTURES / case / "expected.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", PASSING)
def test_good_fixture_has_no_error_and_no_warning(case: str) -> None:
    expected = (FIXTURES / case / "expected.txt").read_text(encoding="utf-8")
    assert expected.endswith("exit code 0\n")
    assert "warning" not in expected.partition("summary")[0]


@pytest.mark.parametrize("code", sorted(set(load_rules()) - set(NO_FIXTURE)))
def test_every_rule_has_a_failing_fixture(code: str) -> None:
    assert any(case.startswith(f"{code}/") for case in FAILING)


@pytest.mark.parametrize("code", sorted(set(load_rules()) - set(NO_FIXTURE)))
def test_every_rule_has_a_passing_twin(code: str) -> None:
    """Not even a note of that rule."""
    assert code not in (FIXTURES / "good" / TWINS[code] / "expected.txt").read_text(encoding="utf-8")


def test_checkpoints_are_those_of_the_table(tmp_path: Path) -> None:
    """The script writes what is committed, byte for byte; nothing else lies there."""
    assert sorted(load_cases()) == CASES
    for path, case in load_cases().items():
        case.draft().write(tmp_path / path)
        assert contents(tmp_path / path) == contents(FIXTURES / path), path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the expectation, by path."""
    found = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    found.pop("expected.txt", None)
    return found
