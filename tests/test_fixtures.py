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
