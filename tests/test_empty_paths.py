"""A path that is empty: what a script gives for a variable that is not set. It would mean the folder one is in."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from make_fixtures import FIXTURES

from drafcheck import lint
from drafcheck.cli import cli, run
from drafcheck.commands import PathWord
from drafcheck.errors import UsageError

GOOD = FIXTURES / "good/healthy"

OPTIONS = [
    (name, param.opts[-1])
    for name, command in cli.every_command().items()  # type: ignore[attr-defined]
    for param in command.params
    if isinstance(param, click.Option) and isinstance(param.type, click.Path)
]


@pytest.mark.parametrize(("command", "option"), OPTIONS)
def test_an_empty_path_is_wrong_usage(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(GOOD)] if command in ("check", "fix", "show") else []
    assert run([command, *paths, option, ""]) == 2
    assert capsys.readouterr().err == f"error: the path of {option} is empty\n"


def test_every_option_that_takes_a_path_is_among_them() -> None:
    """All that the help calls PATH, FILE or DIR; and one that is empty is refused before anything is read."""
    asked = {
        (name, param.opts[-1])
        for name, command in cli.every_command().items()  # type: ignore[attr-defined]
        for param in command.params
        if isinstance(param, click.Option) and param.metavar in ("PATH", "FILE", "DIR")
    }
    assert asked == set(OPTIONS) and len(asked) > 30


def test_a_path_with_blanks_is_one(tmp_path: Path) -> None:
    target = tmp_path / " "
    target.mkdir()
    (target / "config.json").write_bytes((GOOD / "target_config.json").read_bytes())
    assert PathWord().convert(" ", None, None) == " "
    assert run([str(GOOD), "--target", str(target), "--engine", "sglang==0.5.15", "-q"]) == 0


@pytest.mark.parametrize("name", ["target", "launch", "reference", "tokenizer", "target_weights", "config"])
def test_the_library_refuses_it_too(name: str) -> None:
    with pytest.raises(UsageError, match="a path is empty"):
        lint(GOOD, engine="sglang==0.5.15", **{name: ""})  # type: ignore[arg-type]
    assert lint(GOOD, engine="sglang==0.5.15").checkpoints
