"""Paths whose bytes are no UTF-8, and terminals that take little: no traceback, and the exit code of any other path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from drafts import Draft

ENGINE = ("--engine", "sglang==0.5.15")
FORMATS = ("full", "concise", "json", "sarif", "junit", "github", "gitlab", "markdown")
PLACES = {
    "C": {"LC_ALL": "C"},
    "C without UTF-8": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "UTF-8": {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "0"},
    "ASCII": {"PYTHONIOENCODING": "ascii:strict"},
    "Latin-1": {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"},
}


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """Two drafts that lack a tensor: one whose name is Latin-1, and one whose name is UTF-8."""
    draft = Draft()
    draft.drop("fc.weight")
    draft.write(tmp_path / "caf\udce9")
    draft.write(tmp_path / "caf\u00e9 \u2713")
    return tmp_path


def drafcheck(room: Path, place: str, *args: str, **more: str) -> subprocess.CompletedProcess[bytes]:
    """One run, with the environment that ``place`` names; its output are bytes."""
    done = subprocess.run(
        [sys.executable, "-c", "from drafcheck.cli import main; main()", *map(os.fsencode, args)],
        cwd=room,
        env={**os.environ, **PLACES[place], **more},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"Traceback" not in done.stderr and b"failed with" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("place", PLACES)
def test_every_format_takes_the_name(place: str, room: Path) -> None:
    goals = [word for name in FORMATS for word in ("--format", name, "--output-file", f"report-\udcff.{name}")]
    done = drafcheck(room, place, "caf\udce9", *ENGINE, *goals)
    assert done.returncode == 1, done.stderr
    text = {name: (room / f"report-\udcff.{name}").read_text(encoding="utf-8") for name in FORMATS}
    for name in ("full", "concise", "github"):
        assert "caf\\udce9" in text[name]
    assert json.loads(text["json"])["checkpoints"][0]["path"] == "caf\\udce9"
    assert json.loads(text["sarif"]) and json.loads(text["gitlab"])
    assert ElementTree.fromstring(text["junit"])[0].get("name") == "caf\\udce9"
    assert "caf&#92;udce9" in text["markdown"]


@pytest.mark.parametrize("place", PLACES)
def test_standard_output_takes_every_name(place: str, room: Path) -> None:
    for name in ("caf\udce9", "caf\u00e9 \u2713"):
        for style in ("full", "junit", "json"):
            done = drafcheck(room, place, name, *ENGINE, "--format", style)
            assert done.returncode == 1 and not done.stderr
            if style == "junit":  # in the encoding that it says, whatever that of the terminal is
                assert ElementTree.fromstring(done.stdout)[0].get("errors") == "0"
            elif style == "json":
                assert json.loads(done.stdout)["summary"]["errors"]


def test_a_report_of_junit_holds_every_letter(room: Path) -> None:
    for place in ("Latin-1", "ASCII", "UTF-8"):
        done = drafcheck(room, place, "caf\u00e9 \u2713", *ENGINE, "--format", "junit")
        assert ElementTree.fromstring(done.stdout)[0].get("name") == "caf\u00e9 \u2713"


@pytest.mark.parametrize("place", ["C", "C without UTF-8"])
def test_what_is_wrong_with_such_a_path_is_said(place: str, room: Path) -> None:
    (room / "bad-\udcff.toml").write_text("bogus = 1\n")
    gone, written, settings = "gone-\udcff", "nowhere-\udcff/report", "bad-\udcff.toml"
    for args, said in {
        (gone,): b"error: gone-\\udcff: no such file or directory\n",
        ("caf\udce9", *ENGINE, "--output-file", written): b"error: can not write nowhere-\\udcff/report: ",
        ("caf\udce9", "--config", settings): b"error: bad-\\udcff.toml:1: unknown key 'bogus'",
        ("caf\udce9", "--format", gone): b"gone-\\udcff",
        ("show", gone): b"error: gone-\\udcff: no such file or directory\n",
        ("fix", gone): b"error: gone-\\udcff: no such file or directory\n",
    }.items():
        done = drafcheck(room, place, *args)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_tree_of_them_and_a_repair(room: Path) -> None:
    done = drafcheck(room, "C", ".", *ENGINE)
    assert done.returncode == 1 and b"2 checkpoints: " in done.stdout
    assert drafcheck(room, "C", "fix", "caf\udce9", *ENGINE, "--diff").returncode == 1


@pytest.mark.parametrize("place", ["C", "C without UTF-8", "UTF-8"])
@pytest.mark.parametrize(("word", "offered"), [("caf\udce9", b"file,caf?\n"), ("cafe", b"file,cafe\n")])
def test_a_shell_may_ask_for_them(word: str, offered: bytes, place: str, room: Path) -> None:
    """It completes files itself, from its own word."""
    asked = {"_DRAFCHECK_COMPLETE": "bash_complete", "COMP_WORDS": f"drafcheck {word}", "COMP_CWORD": "1"}
    done = drafcheck(room, place, **asked)
    assert (done.returncode, done.stdout, done.stderr) == (0, offered, b"")
