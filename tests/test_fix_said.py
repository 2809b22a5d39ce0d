"""What ``drafcheck fix`` says beside the repairs: costs, what stands in the way, and that it could not be said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from make_fixtures import FIXTURES

from drafcheck.cli import cli, run
from drafcheck.errors import UsageError

ENGINE = ("--engine", "sglang==0.5.9")
BROKEN = FIXTURES / "DC101/layers-0.5.9"
BELIEVED = "unsafe: DC307 t2d-mismatch: d2t is taken for the right one of the two, which nothing confirms\n"


def fix(*args: str | Path) -> Result:
    """One call; an error is raised."""
    result = CliRunner().invoke(cli, ["fix", *map(str, args)], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A copy of a draft whose decoder layer is called otherwise than this release reads it."""
    return Path(shutil.copytree(BROKEN, tmp_path / "ckpt"))


@pytest.mark.parametrize("how", [["-q"], ["--diff"], ["-q", "--diff"]])
def test_the_cost_is_said_however_little_else(tmp_path: Path, how: list[str]) -> None:
    case = FIXTURES / "DC307/other-tokens"
    args = [case, "--unsafe", *ENGINE, "--output", tmp_path / "new", *how]
    assert BELIEVED in fix(*args).output
    assert "unsafe:" not in fix(BROKEN, "--unsafe", *ENGINE, "--output", tmp_path / "other", *how).output


def test_a_quiet_diff_is_one_line(broken: Path) -> None:
    result = fix(broken, *ENGINE, "-q", "--diff")
    assert (result.return_value, result.output) == (
        1,
        "would be repaired: DC101 dropped-weight\n",
    )
    assert "midlayer.hidden_norm.weight" in fix(broken, *ENGINE, "--diff").output


def test_what_another_rule_could_repair_is_not_denied(broken: Path) -> None:
    lines = fix(broken, *ENGINE, "--select", "DC102").output.splitlines()
    assert lines[:2] == ["nothing of the rules chosen can be repaired", ""]
    assert any(line.startswith("repairable: 1 finding") for line in lines)
    beyond = fix(FIXTURES / "DC401/one-state", *ENGINE).output
    assert beyond.startswith("nothing here can be repaired\n\n") and "repairable:" not in beyond
    assert fix(FIXTURES / "good/healthy", "--engine", "sglang==0.5.15").output.startswith("nothing to repair\n\n")


def test_a_diff_says_that_its_folder_is_taken(broken: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    line = f"nothing would be written: {taken} is there already and is no empty folder: name another one with --output"
    args = (broken, *ENGINE, "--diff", "--output", taken)
    assert "nothing would be written" not in fix(*args).output
    (taken / "file").write_text("x")
    for quiet in ([], ["-q"]):
        result = fix(*args, *quiet)
        assert result.return_value == 1 and result.output.splitlines()[-1] == line
    assert "nothing would be written" not in fix(broken, *ENGINE, "--diff", "--in-place").output
    (tmp_path / "ckpt-fixed").mkdir()
    ((tmp_path / "ckpt-fixed") / "file").write_text("x")
    assert "ckpt-fixed is there already" in fix(broken, *ENGINE, "--diff").output


def test_a_diff_says_that_its_folder_can_not_be_made(
    broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = tmp_path / "nowhere" / "new"
    line = f"can not write {goal}: there is no folder {goal.parent}"
    assert fix(broken, *ENGINE, "--diff", "--output", goal).output.endswith(f"nothing would be written: {line}\n")
    with pytest.raises(UsageError, match="there is no folder"):
        fix(broken, *ENGINE, "--output", goal)
    goal.parent.mkdir()
    assert "nothing would be written" not in fix(broken, *ENGINE, "--diff", "--output", goal).output
    with monkeypatch.context() as patch:  # what a folder of somebody else says, whoever runs the tests
        patch.setattr("os.access", lambda path, *_: Path(path) != goal.parent)
        line = f"nothing would be written: nothing may be made in {goal.parent}\n"
        assert fix(broken, *ENGINE, "--diff", "--output", goal).output.endswith(line)
    assert fix(broken, *ENGINE, "--output", goal).return_value == 0


@pytest.mark.parametrize("where", ["", "new", "deep/new", "../ckpt/new", "../link/new"])
def test_no_new_folder_in_the_old_one(broken: Path, where: str) -> None:
    (broken.parent / "link").symlink_to(broken)
    before = sorted(broken.rglob("*"))
    for more in ([], ["--diff"]):
        with pytest.raises(UsageError, match="lies in the checkpoint itself"):
            fix(broken, *ENGINE, "--output", broken / where, *more)
    assert sorted(broken.rglob("*")) == before
    assert fix(broken, *ENGINE, "--output", f"{broken}-new").return_value == 0


CLOSED = "can not write to standard output: it is closed"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """A line for the shell, with drafcheck in place of ``@``."""
    line = line.replace("@", f"'{sys.executable}' -m drafcheck")
    # What is left in a buffer is written once more at the end; where none is kept, that would not show.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False, env=env)


def test_closed_standard_output_is_an_error(broken: Path) -> None:
    engine = " ".join(ENGINE)
    done = shell(f"@ fix {broken} {engine} >&-")
    assert done.returncode == 2
    assert done.stderr == f"error: {CLOSED}; {broken}-fixed is written all the same\n"
    assert shell(f"@ {broken}-fixed {engine}").returncode == 0
    done = shell(f"@ {broken}-fixed {engine} >&-")
    assert (done.returncode, done.stderr) == (2, f"error: {CLOSED}\n")
    goal = broken.parent / "report.json"
    done = shell(f"@ {broken}-fixed {engine} --format json --output-file {goal} >&-")
    assert done.returncode == 0 and json.loads(goal.read_text())["checkpoints"]
    assert shell(f"@ {broken}-fixed {engine} 2>&-").returncode == 0


@pytest.mark.parametrize("command", ["", "show"])
def test_closed_standard_input_holds_no_launch_command(broken: Path, command: str) -> None:
    done = shell(f"@ {command} {broken} {' '.join(ENGINE)} --launch - <&-")
    said = "error: can not read a launch command from standard input: it is closed\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_output_is_an_error(broken: Path) -> None:
    engine = " ".join(ENGINE)
    done = shell(f"@ fix {broken} {engine} --in-place >/dev/full")
    assert done.returncode == 2 and done.stderr.endswith(f"; {broken} is written all the same\n")
    assert shell(f"@ {broken} {engine}").returncode == 0
    for words in ("--help", "--version"):
        done = shell(f"@ {words} >/dev/full")
        assert (done.returncode, done.stderr) == (2, "error: can not write: No space left on device\n")
    done = shell("@ rule DC101 >/dev/full")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert shell("@ --tp x 2>/dev/full").returncode == 2


def test_a_reader_that_goes_away_is_none(broken: Path) -> None:
    done = shell(f"set -o pipefail; @ fix {broken} {' '.join(ENGINE)} | head -n 0")
    assert (done.returncode, done.stderr) == (0, "")
    assert (Path(f"{broken}-fixed") / "config.json").is_file()


def test_the_help_says_what_the_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["--help"], ["fix", "--help"]):
        assert run(args) == 0
        assert "2 wrong usage" in capsys.readouterr().out
