"""A folder of folders: which are found, which are passed over, and that links and strangers do no harm."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from drafts import Draft
from weights import Weights, write_safetensors, zeros

from drafcheck.cli import run
from drafcheck.tree import expand, only_drafts

ENGINE = ("--engine", "sglang==0.5.15")
ROOT = Path(__file__).parent.parent


def whole_model(folder: Path, layers: int = 2, extra: Weights | None = None) -> None:
    """A plain language model, as a target is."""
    draft = Draft(target=None)
    draft.set(architectures=["LlamaForCausalLM"])
    draft.weights = {"model.embed_tokens.weight": zeros("BF16", 256, 32), "lm_head.weight": zeros("BF16", 256, 32)}
    for n in range(layers):
        draft.weights[f"model.layers.{n}.self_attn.q_proj.weight"] = zeros("BF16", 32, 32)
        draft.weights[f"model.layers.{n}.self_attn.o_proj.weight"] = zeros("BF16", 32, 32)
    draft.weights |= extra or {}
    draft.write(folder)


def found(root: Path) -> tuple[list[str], dict[str, str]]:
    """Drafts and what is passed over, relative to the root."""
    made = expand([str(root)])
    return [os.path.relpath(d, root) for d in made.drafts], {
        os.path.relpath(p, root): why for p, why in made.passed_over
    }


def test_drafts_by_class_and_by_tensors(tmp_path: Path) -> None:
    Draft().write(tmp_path / "a" / "by-class")
    misnamed = Draft()
    misnamed.set(architectures=["LlamaForCausalLM"])
    misnamed.write(tmp_path / "a" / "b" / "by-tensors")
    nameless = Draft()
    nameless.write(tmp_path / "no-config")
    (tmp_path / "no-config" / "config.json").unlink()
    empty = Draft(weight_file=None)
    empty.write(tmp_path / "no-weights")
    assert found(tmp_path) == (["a/b/by-tensors", "a/by-class", "no-config", "no-weights"], {})


def test_what_is_passed_over_is_said(tmp_path: Path) -> None:
    Draft().write(tmp_path / "draft")
    whole_model(tmp_path / "target")
    whole_model(tmp_path / "with-mtp", extra={"model.layers.2.eh_proj.weight": zeros("BF16", 32, 64)})
    whole_model(tmp_path / "shards")
    for n in range(4):
        write_safetensors(tmp_path / "shards" / f"model-{n}.safetensors", {f"x{n}": zeros("BF16", 2)}, None)
    (tmp_path / "config-only").mkdir()
    (tmp_path / "config-only" / "config.json").write_text('{"architectures": ["BertModel"]}')
    (tmp_path / "odd").mkdir()
    write_safetensors(tmp_path / "odd" / "vectors.safetensors", {"x": zeros("BF16", 2)}, None)
    drafts, passed = found(tmp_path)
    assert drafts == ["draft"]
    assert passed == {
        "config-only": "no weights, and no draft class (BertModel)",
        "odd": "neither a draft class nor a draft head that is known",
        "shards": "a whole model in 5 files (LlamaForCausalLM)",
        "target": "a whole model (LlamaForCausalLM)",
        "with-mtp": "a whole model (LlamaForCausalLM) with a multi-token-prediction layer: "
        f"`drafcheck {tmp_path / 'with-mtp'}` checks that",
    }


def test_what_is_left_of_a_layer_makes_no_draft_of_a_whole_model(tmp_path: Path) -> None:
    """Nor is it passed over without a word on how to check it."""
    whole_model(tmp_path / "left", extra={"mtp.fc.weight": zeros("BF16", 32, 64)})
    drafts, passed = found(tmp_path)
    assert set(drafts) <= {"."}
    assert passed["left"].endswith(f"`drafcheck {tmp_path / 'left'}` checks that")


def test_a_draft_below_a_whole_model_is_found_and_nothing_below_a_draft(tmp_path: Path) -> None:
    whole_model(tmp_path / "target")
    Draft().write(tmp_path / "target" / "eagle")
    Draft().write(tmp_path / "target" / "eagle" / "checkpoint-500")
    drafts, passed = found(tmp_path)
    assert drafts == ["target/eagle"]
    assert list(passed) == ["target"]


def test_a_checkpoint_with_subfolders_stays_one(tmp_path: Path) -> None:
    Draft().write(tmp_path)
    Draft().write(tmp_path / "checkpoint-500")
    assert expand([str(tmp_path)]).drafts == (str(tmp_path),)


def test_hidden_folders_are_left_out(tmp_path: Path) -> None:
    for name in (".git", ".cache", "seen"):
        Draft().write(tmp_path / name / "draft")
    assert found(tmp_path) == (["seen/draft"], {})


def test_links_are_followed_once_and_never_upward(tmp_path: Path) -> None:
    root = tmp_path / "root"
    Draft().write(root / "b" / "draft")
    Draft().write(tmp_path / "elsewhere")
    (root / "a-link").symlink_to(root / "b")
    (root / "b" / "loop").symlink_to(root)
    (root / "b" / "up").symlink_to(tmp_path)
    (root / "b" / "top").symlink_to("/")
    (root / "b" / "self").symlink_to(root / "b" / "self")
    (root / "b" / "gone").symlink_to(root / "absent")
    (root / "outside").symlink_to(tmp_path / "elsewhere")
    (root / "twice").symlink_to(tmp_path / "elsewhere")
    assert found(root) == (["b/draft", "outside"], {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0)
    Draft().write(tmp_path / "draft")
    assert found(tmp_path) == (["draft"], {})
    assert expand([str(tmp_path)]).unread == ((str(tmp_path / "locked"), "the folder may not be read"),)


@pytest.mark.parametrize(("name", "code"), [("locked", 2), ("lost+found", 0)])
def test_a_folder_that_goes_away_is_said_and_ends_the_run_so(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is known of what lies there; but for the folder of the file system, where no model ever lies."""
    (tmp_path / name).mkdir()
    Draft().write(tmp_path / "draft")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for flags in ([], ["--only-drafts"], ["--fail-on", "never"]):
        assert run(["check", str(tmp_path), *ENGINE, *flags]) == code
        out = capsys.readouterr().out
        verb = "not checked" if code else "passed over"
        assert f"{verb}: {tmp_path / name}: the folder may not be read" in out
        assert "draft: clean" in out, "the others are reported all the same"


def test_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = Draft()
    broken.drop("fc.weight")
    broken.write(tmp_path / "broken")
    Draft().write(tmp_path / "good")
    whole_model(tmp_path / "target\x1b[31m")
    assert run([str(tmp_path), *ENGINE, "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [Path(c["path"]).name for c in report["checkpoints"]] == ["broken", "good"]
    assert [(Path(p["path"]).name, p["why"]) for p in report["passed_over"]] == [
        ("target\x1b[31m", "a whole model (LlamaForCausalLM)")
    ]
    assert run([str(tmp_path), *ENGINE]) == 1
    text = capsys.readouterr().out
    assert f"passed over: {tmp_path}/target\\x1b[31m: a whole model (LlamaForCausalLM)\n" in text
    assert text.endswith("2 checkpoints: 1 error, 1 note\n")


@pytest.mark.parametrize("style", ["sarif", "github", "markdown", "concise"])
def test_every_format_says_what_was_passed_over(tmp_path: Path, style: str, capsys: pytest.CaptureFixture[str]) -> None:
    Draft().write(tmp_path / "good")
    whole_model(tmp_path / "target")
    assert run([str(tmp_path), *ENGINE, "--format", style]) == 0
    captured = capsys.readouterr()
    assert "passed over" in (captured.err if style == "concise" else captured.out)


def test_a_tree_without_drafts_is_nothing_to_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole_model(tmp_path / "models" / "target")
    assert run([str(tmp_path / "models"), *ENGINE]) == 3
    text = capsys.readouterr().out
    assert "DC001" in text
    assert "passed over" in text
    assert run([str(tmp_path / "models" / "target"), *ENGINE]) in (0, 1)


def test_many_folders_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Draft().write(tmp_path / "draft")
    for n in range(9):
        whole_model(tmp_path / f"target-{n}")
    assert run([str(tmp_path), *ENGINE]) == 0
    assert "passed over: 3 more folders\n" in capsys.readouterr().out
    assert run([str(tmp_path), *ENGINE, "-v"]) == 0
    assert "target-8" in capsys.readouterr().out


def progress(folder: Path, *options: str) -> str:
    """What a terminal on standard error is shown."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "drafcheck", str(folder), *ENGINE, *options]
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=slave, env=environment, timeout=60, check=True)
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 4096):
            shown += chunk
    except OSError:  # how Linux ends a terminal that nobody has open any more
        pass
    os.close(master)
    return shown.decode()


def test_a_progress_line_for_a_terminal_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for n in range(3):
        Draft().write(tmp_path / f"draft-{n}")
    shown = progress(tmp_path)
    assert "checking" in shown
    assert "3/3" in shown
    assert "checking" not in progress(tmp_path, "-q")
    assert "checking" not in progress(tmp_path / "draft-0")
    assert run([str(tmp_path), *ENGINE]) == 0
    assert capsys.readouterr().err == ""


def strangers(root: Path) -> list[str]:
    """Files of a repository that start the hook and belong to no draft, as the hook names them."""
    files = {
        "app/config.json": b'{"port": 1}',
        "fw/firmware.bin": Random(1).randbytes(3000),
        "tgt/config.json": b'{"architectures": ["LlamaForCausalLM"], "hidden_size": 32}',
        "alone/target_config.json": b"{}",
        "odd/config.json": b"// the port\n{port: 1}",
        "odd/table.bin": b"no weights",
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return list(files)


def test_strangers_alone_never_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = strangers(tmp_path)
    assert run(["check", "--only-drafts", *names]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split(":")[:2] for line in out] == [
        ["passed over", f" {name}"] for name in ("app", "fw/firmware.bin", "tgt", "alone/target_config.json", "odd")
    ]
    assert run(["check", *names]) != 0, "without the flag what is named is checked"


def test_drafts_among_strangers_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(tmp_path / name) for name in strangers(tmp_path)]
    broken = Draft()
    broken.drop("fc.weight")
    broken.write(tmp_path / "draft")
    assert run(["check", "--only-drafts", *ENGINE, *names, str(tmp_path / "draft")]) == 1
    out = capsys.readouterr().out
    assert "DC102" in out and "draft: broken" in out and out.count("passed over") == 5


@pytest.mark.parametrize("made", ["class", "tensors", "speculators", "weight file"])
def test_what_makes_a_draft(tmp_path: Path, made: str) -> None:
    draft = Draft(target=None, weight_file=None if made in ("class", "speculators") else "model.safetensors")
    if made != "class":
        draft.set(architectures=["LlamaForCausalLM"])
    if made == "speculators":
        draft.set(architectures=["Unheard"], speculators_model_type="eagle3")
    draft.write(tmp_path / "d")
    path = tmp_path / "d"
    if made == "weight file":
        (path / "config.json").unlink()
        path = path / "model.safetensors"
    assert only_drafts([str(path)]).drafts == (str(path),)
    assert only_drafts([str(tmp_path)]).drafts == (str(tmp_path / "d"),), "and so below a folder"


def test_only_drafts_still_misses_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--only-drafts", str(tmp_path / "absent")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert run(["check", "--only-drafts", str(tmp_path)]) == 0
    assert "no checkpoint in it" in capsys.readouterr().out
    assert only_drafts(["hf://org/name"]).drafts == ("hf://org/name",)
