"""Several reports of one run: which goes where, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drafts import Draft

from drafcheck.cli import run
from drafcheck.errors import UsageError
from drafcheck.outputs import pairs

ENGINE = ("--engine", "sglang==0.5.15")


@pytest.fixture
def good(tmp_path: Path) -> str:
    Draft().write(tmp_path / "good")
    return str(tmp_path / "good")


@pytest.mark.parametrize(
    ("formats", "files", "made"),
    [
        ([], [], [("full", None)]),
        ([], ["a.txt"], [("full", "a.txt")]),
        (["json"], [], [("json", None)]),
        (["json"], ["-"], [("json", None)]),
        (["sarif", "github"], ["a.sarif"], [("sarif", "a.sarif"), ("github", None)]),
        (["github", "sarif"], ["-", "a.sarif"], [("github", None), ("sarif", "a.sarif")]),
        (["json", "json"], ["a.json", "b.json"], [("json", "a.json"), ("json", "b.json")]),
        (["full"], ["a.md"], [("full", "a.md")]),
    ],
)
def test_pairs(formats: list[str], files: list[str], made: list[tuple[str, str | None]]) -> None:
    assert pairs(formats, files) == made


@pytest.mark.parametrize(
    ("formats", "files", "said"),
    [
        (["json"], ["a", "b"], "2 times --output-file and 1 time --format"),
        ([], ["a", "b"], "b has none"),
        (["json", "sarif"], [], "json and sarif would both go to standard output"),
        (["json", "sarif", "junit"], ["a.json"], "sarif and junit would both go to standard output"),
        (["json", "sarif"], ["a", "./a"], "json and sarif would both go to ./a"),
        (["github", "sarif"], ["a.sarif"], "the github report would go to a.sarif"),
        (["junit", "markdown"], ["a.MD", "b"], "put --format markdown in the place of its file"),
    ],
)
def test_what_is_refused(formats: list[str], files: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        pairs(formats, files)


def test_usage_errors_write_nothing(good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--output-file", str(tmp_path / "a"), "--output-file", str(tmp_path / "b"))
    assert run([good, *ENGINE, "--format", "json", *files]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "the nth file is for the nth format" in captured.err
    assert [p.name for p in tmp_path.iterdir()] == ["good"]


def test_a_file_and_standard_output(good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goal = tmp_path / "a.sarif"
    assert run([good, *ENGINE, "--format", "sarif", "--output-file", str(goal), "--format", "github"]) == 0
    captured = capsys.readouterr()
    assert json.loads(goal.read_text())["version"] == "2.1.0"
    assert captured.out.startswith("::notice ")
    assert captured.out.endswith(f"drafcheck: {good}: clean: 1 note\n")
    assert captured.err == ""


def test_files_alone_leave_the_verdict_on_standard_error(
    good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    goals = [str(tmp_path / "a.json"), str(tmp_path / "a.xml")]
    options = ("--format", "json", "--output-file", goals[0], "--format", "junit", "--output-file", goals[1])
    assert run([good, *ENGINE, *options]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{good}: clean" in captured.err
    assert all(Path(goal).stat().st_size for goal in goals)


def test_colour_is_for_the_terminal_only(good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goal = str(tmp_path / "a")
    options = ("--format", "full", "--output-file", goal, "--format", "json")
    assert run([good, *ENGINE, *options]) == 0
    assert "\x1b" not in Path(goal).read_text()
    assert json.loads(capsys.readouterr().out)["schema"] == "drafcheck-report-1"
