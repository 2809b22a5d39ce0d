"""One checkpoint for several engines: a report for each, one matrix, and the formats that name the engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from drafts import Draft

from drafcheck import checkpoint, lint
from drafcheck.cli import run
from drafcheck.contract import engines, releases
from drafcheck.errors import UsageError
from drafcheck.report.json import schema
from drafcheck.report.model import Outcome
from drafcheck.several import resolve_engines

VLLM_ONLY = ["--engine", "sglang==0.5.9", "--engine", "vllm==0.33.0"]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """SGLang drops the stray tensor of a healthy draft, vLLM 0.33.0 stops at it."""
    draft = Draft()
    draft.weights["extra.weight"] = draft.weights["fc.weight"]
    draft.write(tmp_path / "draft")
    monkeypatch.chdir(tmp_path)
    return "draft"


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = run([*args, "--color", "never"])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_all_is_the_newest_release_of_every_engine() -> None:
    found = resolve_engines(" ALL ")
    assert [(e.name, e.known) for e in found] == [(name, releases(name)[-1]) for name in engines()]
    assert all(e.exact for e in found)


def test_several_are_taken_in_order_and_once() -> None:
    found = resolve_engines("vllm==0.33.0, sglang==0.5.9,vllm==0.33.0,sglang==0.5.12")
    assert [str(e) for e in found] == ["vllm 0.33.0", "sglang 0.5.9", "sglang 0.5.12"]


@pytest.mark.parametrize(
    ("words", "says"),
    [("all,vllm", "all stands alone"), (",", "no engine in"), ("sglang,tgi", "unknown engine 'tgi'")],
)
def test_words_that_mean_nothing(words: str, says: str, refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, errors = printed(capsys, refused, "--engine", words)
    assert (code, says in errors) == (2, True)


def test_a_refusal_of_one_engine_is_an_error(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = printed(capsys, refused, *VLLM_ONLY, "--format", "json")
    assert code == 1
    report = json.loads(out)
    outcomes = [(c["path"], c["engine"]["name"], c["outcome"]) for c in report["checkpoints"]]
    assert [name for _, name, _ in outcomes] == ["sglang", "vllm"]
    assert outcomes[0][2] in ("clean", "degraded")
    assert outcomes[1] == ("draft", "vllm", "refused")
    (row,) = report["matrix"]
    assert row["path"] == "draft"
    assert [v["outcome"] for v in row["engines"]] == [c["outcome"] for c in report["checkpoints"]]
    assert row["engines"][1]["first"]["rule"] == "DC104"
    assert "extra.weight" in row["engines"][1]["first"]["message"]
    assert [v["errors"] for v in row["engines"]] == [0, 1]
    assert report["checkpoints"][1]["beside"] == [{"name": "sglang", "version": "0.5.9"}]
    assert printed(capsys, refused, *VLLM_ONLY, "--fail-on", "never")[0] == 0
    assert printed(capsys, refused, "--engine", "sglang==0.5.9")[0] == 0


def test_what_each_engine_says_is_what_it_says_alone(refused: str) -> None:
    together = lint(refused, engine="sglang==0.5.9,vllm==0.33.0")
    for seen in together.checkpoints:
        (alone,) = lint(refused, engine=f"{seen.engine.name}=={seen.engine.version}").checkpoints
        assert seen.model_copy(update={"beside": ()}) == alone
    assert lint(refused, engine="sglang==0.5.9").matrix == ()


def test_the_report_keeps_to_its_schema(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    _, out, _ = printed(capsys, refused, "--engine", "all", "--format", "json")
    jsonschema.validate(json.loads(out), schema())


def test_the_matrix_for_people(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = printed(capsys, refused, *VLLM_ONLY)
    head, sglang, vllm = out[out.rindex("\ndraft\n") :].splitlines()[2:5]
    assert head.split() == ["engine", "verdict", "errors", "warnings", "first", "finding"]
    assert sglang.split()[:2] == ["sglang", "0.5.9"]
    assert "takes it" in sglang
    assert vllm.split()[:6] == ["vllm", "0.33.0", "refuses", "it", "1", "0"]
    assert "DC104 refused-weight:" in vllm
    assert "checkpoints:" not in out  # there is one
    _, out, errors = printed(capsys, refused, *VLLM_ONLY, "--format", "concise")
    assert all(" sglang 0.5.9: " in line or " vllm 0.33.0: " in line for line in out.splitlines())
    assert "refuses it" in errors


def test_a_run_with_one_engine_is_as_it_was(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, errors = printed(capsys, refused, "--engine", "vllm==0.33.0")
    assert "on vllm" not in out + errors
    assert "first finding" not in out + errors
    _, out, _ = printed(capsys, refused, "--engine", "vllm==0.33.0", "--format", "concise")
    assert " vllm 0.33.0: " not in out


def test_sarif_and_gitlab_tell_engines_apart(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(refused) / "model.safetensors").write_bytes(b"short")  # the same fault for all
    two = ("--engine", "sglang==0.5.9,vllm==0.33.0")
    results = json.loads(printed(capsys, refused, *two, "--format", "sarif")[1])["runs"][0]["results"]
    damaged = [r for r in results if r["ruleId"] == "DC004"]
    assert [r["message"]["text"].partition(":")[0] for r in damaged] == ["sglang 0.5.9", "vllm 0.33.0"]
    assert len({r["partialFingerprints"]["drafcheck/v1"] for r in results}) == len(results)
    newer = json.loads(printed(capsys, refused, "--engine", "sglang==0.5.12,vllm", "--format", "sarif")[1])
    prints = [r["partialFingerprints"] for r in newer["runs"][0]["results"] if r["ruleId"] == "DC004"]
    assert prints == [r["partialFingerprints"] for r in damaged]  # another release is the same finding
    issues = json.loads(printed(capsys, refused, *two, "--format", "gitlab")[1])
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    alike = json.loads(printed(capsys, refused, "--engine", "sglang==0.5.9,sglang==0.5.12", "--format", "gitlab")[1])
    assert len({issue["fingerprint"] for issue in alike}) == len(alike)


def test_junit_github_and_markdown_name_the_engine(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    suites = ElementTree.fromstring(printed(capsys, refused, *VLLM_ONLY, "--format", "junit")[1])
    assert [suite.get("name") for suite in suites] == ["draft on sglang 0.5.9", "draft on vllm 0.33.0"]
    lines = printed(capsys, refused, *VLLM_ONLY, "--format", "github")[1].splitlines()
    assert [line for line in lines if line.startswith("::error ") and "::vllm 0.33.0: " in line]
    text = printed(capsys, refused, *VLLM_ONLY, "--format", "markdown")[1]
    assert "| <code>draft</code> on vllm 0.33.0 | refused | 1 |" in text
    assert "### <code>draft</code> on vllm 0.33.0\n" in text


def test_headers_are_read_once(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = checkpoint.read_header

    def counting(source: Any) -> Any:
        read.append(source.name)
        return real(source)

    monkeypatch.setattr(checkpoint, "read_header", counting)
    report = lint(refused, engine="all")
    assert len(report.checkpoints) == len(engines())
    assert read == ["model.safetensors"]


def test_pointers_stay_pointers_for_every_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Draft().write(tmp_path)
    (tmp_path / "model.safetensors").write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 1234\n"
    )
    code, out, _ = printed(capsys, str(tmp_path), *VLLM_ONLY, "--lfs", "config-only", "--format", "json")
    outcomes = {c["engine"]["name"]: c["outcome"] for c in json.loads(out)["checkpoints"]}
    assert (code, outcomes) == (0, {"sglang": "incomplete", "vllm": "incomplete"})
    why = [{s["why"] for s in c["skipped"] if "pointer" in s["why"]} for c in json.loads(out)["checkpoints"]]
    assert why[0] == why[1] != set()


def test_jobs_and_several_checkpoints(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    Draft().write(Path("healthy"))
    for jobs in ("1", "3"):
        code, out, _ = printed(capsys, "draft", "healthy", *VLLM_ONLY, "--jobs", jobs, "--format", "json")
        report = json.loads(out)
        assert code == 1
        assert [(row["path"], len(row["engines"])) for row in report["matrix"]] == [("draft", 2), ("healthy", 2)]
        assert report["summary"]["checkpoints"] == 4
    _, out, _ = printed(capsys, "draft", "healthy", *VLLM_ONLY)
    assert "2 engines, 2 checkpoints\n" in out
    assert out.splitlines()[-1].startswith("2 checkpoints: 1 error")


@pytest.mark.parametrize("more", [[], ["--values"]])
def test_jobs_change_nothing_but_the_time(more: list[str], tmp_path: Path) -> None:
    """In processes of their own: each begins without the modules that threads then want at once."""
    for n in range(24):
        draft = Draft()
        if n % 3 == 1:
            draft.drop("fc.weight")
        draft.write(tmp_path / f"draft-{n}")
    command = [sys.executable, "-m", "drafcheck", "--no-config", *VLLM_ONLY, *more, "--format", "json", str(tmp_path)]
    reports = []
    for jobs in ("1", "6", "24"):
        done = subprocess.run([*command, "--jobs", jobs], capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stderr) == (1, "")
        reports.append([{**c, "seconds": 0} for c in json.loads(done.stdout)["checkpoints"]])
    assert reports[0] == reports[1] == reports[2] and len(reports[0]) == 48
    assert not any(f["rule"] == "DC999" for c in reports[0] for f in c["findings"])


def test_settings_may_name_several(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("drafcheck.toml").write_text('engine = "sglang==0.5.9,vllm==0.33.0"\n')
    both = json.loads(printed(capsys, refused, "--format", "json")[1])
    assert [c["engine"]["name"] for c in both["checkpoints"]] == ["sglang", "vllm"]
    one = json.loads(printed(capsys, refused, "--engine", "vllm", "--format", "json")[1])
    assert [c["engine"]["name"] for c in one["checkpoints"]] == ["vllm"]


def test_what_is_for_one_engine_says_so(refused: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "show", refused, *VLLM_ONLY)[0] == 2
    Path("serve.sh").write_text("python -m sglang.launch_server --model-path m --speculative-draft-model-path draft\n")
    code, _, errors = printed(capsys, refused, "--engine", "all", "--launch", "serve.sh")
    assert code == 2
    assert "a launch line starts one engine: all is more than one" in errors
    with pytest.raises(UsageError, match="unknown engine"):
        lint(refused, engine="sglang,none")


def test_nothing_to_check_for_any(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    report = lint(tmp_path / "empty", engine="all")
    assert {c.outcome for c in report.checkpoints} == {Outcome.NOTHING_TO_CHECK}
    assert report.exit_code == 3
