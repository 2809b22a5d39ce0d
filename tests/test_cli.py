"""The command line: arguments, exit codes, where output goes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from drafts import Draft
from weightfiles import POINTER, write_tensors

from drafcheck import __version__
from drafcheck.cli import run
from drafcheck.registry import Rule, load_rules

WHY = "`model.safetensors` is a git lfs pointer, so only the config was checked"
ENGINE = ("--engine", "sglang==0.5.15")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    Draft().write(tmp_path / "good")
    return tmp_path / "good"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    draft = Draft()
    draft.drop("fc.weight")
    draft.write(tmp_path / "broken")
    return tmp_path / "broken"


def drafcheck(*args: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """The real program in a process of its own."""
    command = [sys.executable, "-m", "drafcheck", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_check_is_the_default_command(good: Path, broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(good), *ENGINE]) == 0
    assert run(["check", str(good), *ENGINE]) == 0
    assert run([*ENGINE, str(broken)]) == 1
    assert "error[DC102 unwritten-parameter]" in capsys.readouterr().out


def test_a_folder_named_like_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Draft().write(tmp_path / "show")
    monkeypatch.chdir(tmp_path)
    assert run(["./show", *ENGINE]) == 0
    assert run(["check", "show", *ENGINE]) == 0
    assert run(["show", *ENGINE]) == 2


def test_worst_exit_code_of_several(good: Path, broken: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    empty = str(tmp_path / "empty")
    assert run([str(good), str(broken), *ENGINE]) == 1
    assert run([str(good), empty, *ENGINE]) == 3
    assert run([str(broken), empty, *ENGINE]) == 3
    assert run([str(broken), str(tmp_path / "absent"), *ENGINE]) == 2


def test_nothing_to_check_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "readme.txt").write_text("hello")
    assert run([str(tmp_path), *ENGINE, "--format", "json", "--fail-on", "never"]) == 3
    checkpoint = json.loads(capsys.readouterr().out)["checkpoints"][0]
    assert checkpoint["outcome"] == "nothing-to-check"
    assert checkpoint["findings"][0]["rule"] == "DC001"


def test_fail_on(broken: Path, good: Path) -> None:
    assert run([str(broken), *ENGINE, "--fail-on", "never"]) == 0
    assert run([str(good), *ENGINE, "--fail-on", "warning"]) == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--select", "DC1O1"], "did you mean DC101?"),
        (["--ignore", "droped-weight"], "did you mean dropped-weight?"),
        (["--select", "DC102", "--ignore", "DC1"], "leave no rule"),
        (["--engine", "nonsense"], "nonsense"),
        (["--engine", "sglang==not.a.version"], "not.a.version"),
        (["--target", "absent"], "absent"),
        (["--reference", "absent"], "absent"),
        (["--format", "xml"], "xml"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage(good: Path, args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(good), *args]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_absent_path_and_no_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(tmp_path / "absent")]) == 2
    assert "absent" in capsys.readouterr().err
    assert run([""]) == 2
    assert "empty" in capsys.readouterr().err
    assert run([]) == 2
    assert "Usage: drafcheck" in capsys.readouterr().err
    assert run(["check"]) == 2


def test_select_and_ignore(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(broken), *ENGINE, "--select", "DC3,dropped-weight"]) == 0
    assert run([str(broken), *ENGINE, "--select", "dc1"]) == 1
    assert run([str(broken), *ENGINE, "--ignore", "unwritten-parameter"]) == 0
    capsys.readouterr()
    assert run([str(broken), *ENGINE, "--select", "unwritten-parameter", "--format", "concise"]) == 1
    assert all(" DC102 error " in line for line in capsys.readouterr().out.splitlines())


def test_files_of_one_checkpoint_are_one_checkpoint(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(good / name) for name in ("config.json", "model.safetensors", "target_config.json", "args.txt")]
    assert run([*files, *ENGINE, "--format", "json"]) == 0
    assert [c["path"] for c in json.loads(capsys.readouterr().out)["checkpoints"]] == [str(good)]


def test_weights_that_are_lfs_pointers(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error, unless told that only the config is there; then nothing is said about how the weights load."""
    write_tensors(good / "other.safetensors", a=(1,))
    (good / "model.safetensors").write_bytes(POINTER)
    assert run([str(good), *ENGINE]) == 1
    assert "DC003" in capsys.readouterr().out
    assert run([str(good), *ENGINE, "--lfs", "config-only", "--format", "json"]) == 0
    (checkpoint,) = json.loads(capsys.readouterr().out)["checkpoints"]
    assert checkpoint["outcome"] == "incomplete" and checkpoint["plan"] is None
    assert {"rule": "DC010", "why": WHY, "asked": False} in checkpoint["skipped"]
    (good / "model.safetensors").unlink()
    assert run([str(good), *ENGINE, "--lfs", "config-only"]) == 1


def test_skipped_rules_are_said(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (good / "target_config.json").unlink()
    assert run([str(good), *ENGINE]) == 0
    assert "need --target" in capsys.readouterr().out


def test_target_found_by_the_drafts_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = Draft(target=None)
    draft.set(target_model_name_or_path="../target")
    draft.write(tmp_path / "draft")
    Draft().write(tmp_path / "target")
    run([str(tmp_path / "draft"), *ENGINE, "--format", "json"])
    assert json.loads(capsys.readouterr().out)["checkpoints"][0]["target"].endswith("target")


@pytest.mark.parametrize("name", ["org/absent", "x" * 5000, "a\0b", "/", ""])
def test_a_name_that_is_no_folder_is_no_target(tmp_path: Path, name: str) -> None:
    draft = Draft(target=None)
    draft.set(target_model_name_or_path=name)
    draft.write(tmp_path / "draft")
    assert run([str(tmp_path / "draft"), *ENGINE]) == 0


def test_output_file_is_whole_and_readable(broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goal = tmp_path / "report.json"
    goal.write_text("old")
    goal.chmod(0o640)
    assert run([str(broken), *ENGINE, "--format", "json", "--output-file", str(goal)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "broken" in captured.err
    assert json.loads(goal.read_text())["schema"] == "drafcheck-report-1"
    assert stat.S_IMODE(goal.stat().st_mode) == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken", "report.json"]


def test_output_file_through_a_link(good: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert run([str(good), *ENGINE, "--output-file", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert "clean" in (tmp_path / "real").read_text()


def test_output_file_that_can_not_be_written(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(good), *ENGINE, "--output-file", str(tmp_path / "absent" / "report")]) == 2
    assert "can not write" in capsys.readouterr().err
    assert run([str(good), *ENGINE, "--output-file", str(tmp_path)]) == 2


def test_colour(broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    run([str(broken), *ENGINE])
    assert "\x1b" not in capsys.readouterr().out
    run([str(broken), *ENGINE, "--color", "always"])
    assert "\x1b[1;31merror" in capsys.readouterr().out


def test_quiet_and_verbose(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run([str(broken), *ENGINE, "-q"])
    quiet = capsys.readouterr().out
    assert "checked for" not in quiet
    assert "broken: 1 error" in quiet
    run([str(broken), *ENGINE, "-v"])
    verbose = capsys.readouterr().out
    assert "midlayer.mlp.down_proj.weight" in verbose
    assert " ms\n" in verbose


def test_show(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(broken), *ENGINE]) == 0
    text = capsys.readouterr().out
    assert "lm_head.weight" in text
    assert "unwritten\n    model.fc.weight" in text
    assert "128 values, read as offset" in text
    assert run(["show", str(broken), *ENGINE, "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)["checkpoints"][0]["plan"]
    assert plan["unwritten"] == ["model.fc.weight"]
    assert {"tensor": "lm_head.weight", "parameter": "lm_head.weight"} in plan["loaded"]


def test_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rule", "dc101"]) == 0
    by_code = capsys.readouterr().out
    assert by_code.startswith("DC101 dropped-weight (error")
    assert "## " not in by_code
    assert run(["rule", "dropped-weight"]) == 0
    assert capsys.readouterr().out == by_code
    assert run(["rule", "--all"]) == 0
    everything = capsys.readouterr().out
    assert all(rule.code in everything for rule in load_rules().values())
    assert run(["rule", "dropped-wieght"]) == 2
    assert "did you mean dropped-weight?" in capsys.readouterr().err


def test_contracts_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["contracts"]) == 0
    assert "LlamaForCausalLMEagle3" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"drafcheck {__version__}\n"


def test_a_crash_in_a_rule_is_named_and_the_others_run(
    broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = load_rules()
    victim = rules["DC101"]

    def crash(_: object) -> object:
        raise KeyError("boom")

    broken_rule = Rule(victim.code, victim.name, victim.severities, (), victim.since, crash)  # type: ignore[arg-type]
    monkeypatch.setattr("drafcheck.session.load_rules", lambda: rules | {"DC101": broken_rule})
    assert run([str(broken), *ENGINE, "--fail-on", "never", "--format", "json"]) == 2
    checkpoint = json.loads(capsys.readouterr().out)["checkpoints"][0]
    assert checkpoint["outcome"] == "internal-error"
    codes = {f["rule"]: f["message"] for f in checkpoint["findings"]}
    assert "rule DC101 dropped-weight" in codes["DC999"]
    assert "KeyError" in codes["DC999"]
    assert "DC102" in codes


def test_a_fault_outside_of_the_rules_is_no_traceback(
    good: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*_: object) -> None:
        raise ValueError("boom")

    monkeypatch.setattr("drafcheck.runner.report_of", crash)
    assert run([str(good), *ENGINE]) == 2
    assert "ValueError: boom" in capsys.readouterr().err


def test_broken_pipe_and_full_disk(broken: Path) -> None:
    line = f"{sys.executable} -m drafcheck rule --all | head -n 1"
    shell = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert shell.stdout.startswith("DC")
    assert shell.stderr == ""
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "drafcheck", str(broken), *ENGINE],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                check=False,
                env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            )
        assert done.returncode == 2
        assert "Traceback" not in done.stderr and "ignored" not in done.stderr
        assert "can not write" in done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_interrupt(tmp_path: Path) -> None:
    """Ctrl-C while the report waits for a reader: 130 and no traceback."""
    Draft().write(tmp_path / "good")
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "drafcheck", str(tmp_path / "good"), "--output-file", str(tmp_path / "pipe")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in said


def test_ascii_terminal_and_odd_file_names(tmp_path: Path) -> None:
    Draft().write(tmp_path / "caf\u00e9")
    done = drafcheck(tmp_path / "caf\u00e9", *ENGINE, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "caf\\xe9: clean" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from drafcheck.cli import main; main()"],
        env={**os.environ, "_DRAFCHECK_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "_DRAFCHECK_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("drafcheck --select DC1", "DC101"),
        ("drafcheck check ckpt --ignore dc3,DC1", "dc3,DC101"),
        ("drafcheck rule dropped", "dropped-weight"),
        ("drafcheck --engine sgl", "sglang"),
        ("drafcheck --engine sglang==0.5.9", "sglang==0.5.9"),
        ("drafcheck --fail", "--fail-on"),
        ("drafcheck con", "contracts"),
        ("drafcheck exports", "exports"),
        ("drafcheck ckpt --engine sg", "sglang"),
    ],
)
def test_completion(words: str, offered: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from drafcheck.cli import main; main()"],
        env={
            **os.environ,
            "_DRAFCHECK_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    kind = "file" if offered == "exports" else "plain"
    assert f"{kind},{offered}" in done.stdout.split(), done.stdout + done.stderr
