"""Settings that a checkpoint brings along: what they hide is said, and that it holds code can not be hidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft
from weightfiles import archive, state

from drafcheck.cli import run

ENGINE = ("--engine", "sglang==0.5.15")
SUPPRESS = '[[suppress]]\nrule = "DC009"\nreason = "trust me"\n'
WAYS = {
    "ignore": 'ignore = ["DC009"]\n',
    "prefix": 'ignore = ["DC0"]\n',
    "name": 'ignore = ["unsafe-pickle"]\n',
    "select": 'select = ["DC1"]\n',
    "suppress": SUPPRESS,
    "fail-on": 'fail-on = "never"\n',
    "all": 'ignore = ["DC009"]\nfail-on = "never"\n' + SUPPRESS,
}


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A draft whose weights would run code."""
    draft = Draft(weight_file=None)
    draft.write(tmp_path / "evil")
    raw = archive(state({"a": b"cos\nsystem\n"}), {"0": bytes(16)})
    (tmp_path / "evil" / "pytorch_model.bin").write_bytes(raw)
    return tmp_path / "evil"


def lint(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = run([*map(str, args), *ENGINE, "--format", "json"])
    (checkpoint,) = json.loads(capsys.readouterr().out)["checkpoints"]
    return code, checkpoint


@pytest.mark.parametrize("file", ["drafcheck.toml", "pyproject.toml"])
@pytest.mark.parametrize("way", WAYS)
def test_code_is_told_whatever_the_checkpoint_says(
    way: str, file: str, evil: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = WAYS[way]
    if file == "pyproject.toml":
        text = "[tool.drafcheck]\n" + text.replace("[[suppress]]", "[[tool.drafcheck.suppress]]")
    (evil / file).write_text(text)
    for path in (evil, evil.parent, evil / "pytorch_model.bin"):
        code, checkpoint = lint(capsys, path)
        assert code == 1
        assert "DC009" in {f["rule"] for f in checkpoint["findings"] if f["severity"] == "error"}
        assert checkpoint["outcome"] == "refused"
        assert checkpoint["left_out"] is not None and "DC009" not in checkpoint["left_out"]


@pytest.mark.parametrize("way", WAYS)
def test_what_the_caller_says_counts(way: str, evil: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a file above the checkpoint, one that --config names, or on the command line."""
    for file in (evil.parent / "drafcheck.toml", evil / "drafcheck.toml"):
        file.write_text(WAYS[way])
        flags = ["--config", file] if file.parent == evil else []
        code, checkpoint = lint(capsys, evil, *flags)
        assert checkpoint["left_out"] is None
        assert code == 0 or way == "ignore" or "DC009" not in {f["rule"] for f in checkpoint["findings"]}
        file.unlink()


def test_the_command_line_may_leave_it_out(evil: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (evil / "drafcheck.toml").write_text('select = ["DC1"]\n')
    for flags in (("--ignore", "DC009"), ("--select", "DC3")):
        _, checkpoint = lint(capsys, evil, *flags)
        assert "DC009" not in {f["rule"] for f in checkpoint["findings"]}


def test_the_verdict_says_what_is_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = Draft()
    draft.drop("fc.weight")
    draft.write(tmp_path / "d")
    own = tmp_path / "d" / "drafcheck.toml"
    own.write_text('ignore = ["DC102"]\n')
    assert run([str(tmp_path / "d"), *ENGINE, "-q"]) == 0
    said = f"clean; 1 rule left out by {own}, which lies in the checkpoint itself\n"
    assert capsys.readouterr().out.endswith(said)
    own.write_text('ignore = ["DC406"]\n[[suppress]]\nrule = "DC102"\nreason = "known"\n')
    assert run([str(tmp_path / "d"), *ENGINE, "-q"]) == 0
    hidden = "1 suppressed; 1 rule left out and 1 finding suppressed by "
    assert f"{hidden}{own}, which lies in the checkpoint itself\n" in capsys.readouterr().out


def test_settings_that_hide_nothing_are_not_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And those above the checkpoint are the caller's: one setup for both must not be kept."""
    Draft().write(tmp_path / "d")
    Draft().write(tmp_path / "d" / "checkpoint-5")
    (tmp_path / "d" / "drafcheck.toml").write_text('engine = "sglang==0.5.15"\nfail-on = "warning"\n')
    assert run([str(tmp_path / "d"), "-q"]) == 0
    assert "itself" not in capsys.readouterr().out
    (tmp_path / "d" / "drafcheck.toml").write_text('engine = "sglang==0.5.15"\nignore = ["DC406"]\n')
    assert run([str(tmp_path / "d"), str(tmp_path / "d" / "checkpoint-5"), "-q"]) == 0
    first, second = capsys.readouterr().out.splitlines()[:3:2]
    assert "which lies in the checkpoint itself" in first
    assert "itself" not in second
