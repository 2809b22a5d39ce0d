"""Suppressions and baselines: what they hide, how that is counted, and when they are stale."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft

from drafcheck.cli import run

ENGINE = ("--engine", "sglang==0.5.15")
ENTRY = {"rule": "DC102", "path": "models/b", "fingerprint": "0" * 32}


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a and b have no fc (DC102), good has no fault."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "good"):
        draft = Draft()
        if name != "good":
            draft.drop("fc.weight")
        draft.write(tmp_path / "models" / name)
    return tmp_path


def settings(*entries: str) -> None:
    Path("drafcheck.toml").write_text("".join(f"[[suppress]]\nreason = 'known'\n{entry}\n" for entry in entries))


def lint(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    capsys.readouterr()
    code = run([*args, *ENGINE, "--format", "json", "--ignore", "DC406"])
    return {**json.loads(capsys.readouterr().out), "code": code}


def codes(report: dict[str, Any]) -> list[list[str]]:
    return [[f["rule"] for f in c["findings"]] for c in report["checkpoints"]]


def test_a_suppressed_finding_is_counted_and_does_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    settings("rule = 'unwritten-parameter'")
    report = lint(capsys, "models/a")
    assert (report["code"], codes(report), report["summary"]["suppressed"]) == (0, [[]], 1)
    assert report["checkpoints"][0]["outcome"] == "clean"
    suppressed = report["checkpoints"][0]["suppressed"][0]
    assert (suppressed["finding"]["rule"], suppressed["by"], suppressed["reason"]) == ("DC102", "settings", "known")
    assert "about" not in suppressed["finding"]
    assert run(["models/a", *ENGINE]) == 0
    text = capsys.readouterr().out
    assert "models/a: clean: 1 suppressed" in text
    assert ", settings drafcheck.toml\n" in text
    assert "DC102" not in text
    assert run(["models/a", *ENGINE, "-v"]) == 0
    text = capsys.readouterr().out
    assert "suppressed error[DC102 unwritten-parameter]: nothing in the file fills 1 parameter" in text
    assert "  = reason: known\n" in text
    assert run(["models/a", "models/b", *ENGINE]) == 0
    assert "2 checkpoints: no findings, 2 suppressed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry", "hidden"),
    [
        ("path = 'models/a'", True),
        ("path = './models/a/'", True),
        ("path = 'models/*'", True),
        ("path = '*/model.safetensors'", True),
        ("path = 'models/b'", False),
        ("path = 'a'", False),
        ("path = 'models/a/config.json'", False),
        ("tensor = 'model.fc.weight'", True),
        ("tensor = 'model.fc.*'", True),
        ("tensor = 'MODEL.fc.*'", False),
        ("tensor = 'fc.*'", False),
        ("key = '*'", False),
    ],
)
def test_what_a_suppression_fits(entry: str, hidden: bool, capsys: pytest.CaptureFixture[str]) -> None:
    settings(f"rule = 'DC102'\n{entry}")
    assert (lint(capsys, "models/a")["code"] == 0) is hidden


def test_a_key_of_the_config(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = Draft()
    draft.set(architectures=["Eagle3LlamaForCausalLM"])
    draft.write(room / "models" / "c")
    settings("rule = 'DC501'\nkey = 'arch*'")
    assert codes(lint(capsys, "models/c")) == [[]]
    settings("rule = 'DC501'\nkey = 'model_type'")
    assert codes(lint(capsys, "models/c")) == [["DC501", "DC901"]]


def test_a_finding_on_more_tensors_than_named_is_not_hidden(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten tensors are dropped and three are shown: a pattern that fits the three shown does not hide the others."""
    draft = Draft()
    draft.rename(lambda name: name.replace("midlayer", "layers.0"))
    draft.write(room / "models" / "c")
    for pattern, hidden in (("layers.0.*", True), ("layers.0.[himl]*", False), ("layers.0.hidden_norm.*", False)):
        settings(f"rule = 'DC101'\ntensor = '{pattern}'")
        run(["models/c", "--engine", "sglang==0.5.9", "--format", "concise"])
        assert ("DC101 error" not in capsys.readouterr().out) is hidden, pattern


def test_used_by_any_checkpoint_of_the_call_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    settings("rule = 'DC102'")
    assert codes(lint(capsys, "models/good", "models/a")) == [[], []]
    report = lint(capsys, "models/good")
    assert (codes(report), report["code"]) == ([["DC901"]], 0)
    place = report["checkpoints"][0]["findings"][0]["locations"][0]
    assert (place["line"], place["key"]) == (1, "suppress.0")
    assert lint(capsys, "models/good", "--fail-on", "warning")["code"] == 1
    assert run(["models/good", *ENGINE, "--format", "concise", "--select", "DC901,DC102"]) == 0
    assert capsys.readouterr().out.startswith("drafcheck.toml:1: DC901 warning ")


def test_unused_is_judged_only_where_its_rule_ran(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings("rule = 'DC102'\npath = 'models/b'", "rule = 'DC311'", "rule = 'DC304'")
    assert codes(lint(capsys, "models/good")) == [["DC901"]]  # DC304; b is not here, DC311 had no --reference
    assert codes(lint(capsys, "models/good", "--select", "DC102,DC901")) == [[]]
    assert codes(lint(capsys, "models/good", "--ignore", "DC901")) == [[]]
    (room / "models" / "empty").mkdir()
    assert codes(lint(capsys, "models/empty")) == [["DC001"]]


def test_the_last_day_and_the_day_after(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    settings("rule = 'DC102'\nuntil = 2027-01-31")
    monkeypatch.setattr("drafcheck.suppress.today", lambda: date(2027, 1, 31))
    assert codes(lint(capsys, "models/a", "models/b")) == [[], []]
    monkeypatch.setattr("drafcheck.suppress.today", lambda: date(2027, 2, 1))
    report = lint(capsys, "models/a", "models/b")
    assert codes(report) == [["DC102", "DC902"], ["DC102"]]
    assert "ended on 2027-01-31 (reason given: known)" in report["checkpoints"][0]["findings"][1]["message"]


def test_a_crash_is_never_hidden(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def crash(*_: object) -> None:
        raise KeyError("boom")

    monkeypatch.setattr("drafcheck.runner.plan_load", crash)
    assert run(["models/good", *ENGINE, "--write-baseline", "known.json"]) == 2
    assert run(["models/good", *ENGINE, "--baseline", "known.json"]) == 2
    assert "DC999" in capsys.readouterr().out


def test_a_baseline_hides_what_it_lists_and_nothing_else(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = lint(capsys, "models/a", "models/b", "--write-baseline", "known.json")
    assert (report["code"], codes(report), report["summary"]["suppressed"]) == (0, [[], []], 2)
    assert report["checkpoints"][0]["suppressed"][0]["by"] == "baseline"
    listed = json.loads(Path("known.json").read_text())
    assert listed["schema"] == "drafcheck-baseline-1"
    assert [(e["rule"], e["path"]) for e in listed["findings"]] == [("DC102", "models/a"), ("DC102", "models/b")]
    draft = Draft()
    draft.drop("fc.weight", "midlayer.mlp.down_proj.weight")
    draft.write(room / "models" / "a")
    report = lint(capsys, "models/a", "models/b", "--baseline", "known.json")
    assert (report["code"], codes(report)) == (1, [["DC102"], []])


def test_a_baseline_holds_for_other_releases_and_other_folders(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages, numbers and lines may change; the folder from which drafcheck is called, too."""
    lint(capsys, "models/a", "--write-baseline", "known.json")
    first = Path("known.json").read_bytes()
    config = room / "models" / "a" / "config.json"
    config.write_text("\n\n" + config.read_text())
    monkeypatch.chdir(room / "models" / "b")
    assert run(["../a", "--engine", "sglang==0.5.12", "--baseline", "../../known.json"]) == 0
    assert run([str(room / "models" / "a"), *ENGINE, "--ignore", "DC406", "--write-baseline", "../../known.json"]) == 0
    assert (room / "known.json").read_bytes() == first


def test_suppressions_come_before_the_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    settings("rule = 'DC102'")
    report = lint(capsys, "models/a", "--write-baseline", "known.json")
    assert [s["by"] for s in report["checkpoints"][0]["suppressed"]] == ["settings"]
    assert json.loads(Path("known.json").read_text())["findings"] == []


@pytest.mark.parametrize(
    "content",
    [b"", b"no json", b"[]", b"null", b"{}", b"\xff\xfe", b'{"schema": "drafcheck-baseline-2", "findings": []}']
    + [b'{"schema": "drafcheck-baseline-1", "findings": [%s]}' % e for e in (b"1", b"{}", b"null")]
    + [b"[" * 100_000]
    + [
        json.dumps({"schema": "drafcheck-baseline-1", "findings": [{**ENTRY, key: value}]}).encode()
        for key, value in (("rule", 3), ("path", None), ("fingerprint", ["1"]), ("fingerprint", 1))
    ],
)
def test_a_bad_baseline(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path("known.json").write_bytes(content)
    assert run(["models/a", *ENGINE, "--baseline", "known.json"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "error: known.json is no baseline: write it with --write-baseline\n"
    assert captured.out == ""


def test_a_baseline_of_what_is_there_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    Path("known.json").write_text(json.dumps({"schema": "drafcheck-baseline-1", "findings": [ENTRY]}))
    report = lint(capsys, "models/a", "--baseline", "known.json")
    assert (codes(report), report["code"]) == ([["DC102"]], 1)


def test_a_baseline_is_not_written_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models/a", *ENGINE, "--write-baseline", "-"]) == 2
    assert capsys.readouterr().err == "error: --write-baseline takes a file, not standard output\n"
    assert not Path("-").exists()
    assert run(["models/a", *ENGINE, "--write-baseline", "./-"]) == 0
    assert Path("-").exists()


def test_a_baseline_that_can_not_be_used(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models/a", "--baseline", "absent.json"]) == 2
    assert "can not read the baseline absent.json" in capsys.readouterr().err
    os.mkfifo("pipe")
    assert run(["models/a", "--baseline", "pipe"]) == 2  # and nobody waits for what may come out of it
    assert "not a regular file" in capsys.readouterr().err
    assert run(["models/a", "--write-baseline", "absent/known.json"]) == 2
    assert "can not write" in capsys.readouterr().err
    assert run(["models/a", "--baseline", "x", "--write-baseline", "x"]) == 2
    assert "do not go together" in capsys.readouterr().err
