"""What the engine refuses fails: no report says "refuses it" and ends with exit code 0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agree_vllm import says_nothing
from cases_kv import other_pages
from drafts import Draft
from make_class_corpus import write_corpus
from make_fixtures import FIXTURES, command_line
from recorded import rows, unpack
from test_class_verdicts import LEFT_OUT as CPU_ALONE
from test_fixtures import CASES
from test_verdicts_vllm import CORPORA, LEFT_OUT, PASSED_OVER, RENAMED

from drafcheck import lint
from drafcheck.cli import run
from drafcheck.finding import Confidence, Severity
from drafcheck.registry import Hit, Rule, load_rules
from drafcheck.report.model import CheckpointReport, Outcome
from drafcheck.runner import Options, examine, lint_many
from drafcheck.session import Session

SGLANG = FIXTURES / "verdicts" / "sglang"
VLLM = FIXTURES / "verdicts" / "vllm"


def broken_promise(report: CheckpointReport) -> str:
    """What is wrong with the outcome beside the exit code and the findings; empty when nothing is."""
    if report.outcome is not Outcome.REFUSED:
        return ""
    has_error = any(f.severity is Severity.ERROR for f in report.findings)
    return "" if report.exit_code() == 1 and has_error else f"{report.outcome}, exit code {report.exit_code()}"


@pytest.mark.parametrize("case", CASES)
def test_no_fixture_is_refused_without_an_error(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(FIXTURES)
    code = run(["json" if word == "concise" else word for word in command_line(case)])
    for checkpoint in json.loads(capsys.readouterr().out)["checkpoints"]:
        has_error = any(finding["severity"] == "error" for finding in checkpoint["findings"])
        assert checkpoint["outcome"] != "refused" or (has_error and code == 1)


def recorded_refusals(room: Path) -> Iterator[tuple[Path, Options]]:
    """One release for each checkpoint of the corpora that an engine refused."""
    write_corpus(room / "classes")
    folders = {"classes": room / "classes", "mtp": unpack(SGLANG / "mtp.tar.xz", room / "mtp")}
    folders["synthetic"] = unpack(SGLANG / "checkpoints.tar.xz", room / "synthetic")
    for name, folder in folders.items():
        known = [row for row in rows(SGLANG / f"{name}.jsonl") if row["checkpoint"] not in CPU_ALONE]
        for row in once([row for row in known if row["error"] is not None]):
            release = row["releases"][0] if "releases" in row else row["version"]
            algorithm = "EAGLE" if name == "mtp" else None
            yield folder / row["checkpoint"], Options(engine=f"sglang=={release}", algorithm=algorithm)
    for name, archive in CORPORA.items():
        folder = unpack(archive, room / f"vllm-{name}")
        left_out = {*LEFT_OUT, *(checkpoint for corpus, checkpoint in PASSED_OVER if corpus == name)}
        known = [row for row in rows(VLLM / f"{name}.jsonl") if row["checkpoint"] not in left_out]
        if name in RENAMED:  # that release was asked about them under another class
            known = [row for row in known if row["version"] != "0.9.2"]
        for row in once([row for row in known if row["error"] and says_nothing(row) is None and not is_served(row)]):
            place = folder / row["checkpoint"]
            target = place / "target_config.json" if name == "producers" else folder / "target.json"
            options = Options(engine=f"vllm=={row['version']}", algorithm=row["method"] or "eagle3", target=str(target))
            yield place, options


def is_served(row: dict[str, Any]) -> bool:
    """Whether it loaded, and the recording stumbled over a head that the target lends."""
    return row["error"]["stage"] in ("share", "compute_logits")


def once(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first row of each checkpoint."""
    return list({row["checkpoint"]: row for row in reversed(found)}.values())


def test_what_a_real_engine_refused_fails(tmp_path: Path) -> None:
    wrong, asked = [], 0
    for folder, options in recorded_refusals(tmp_path):
        if "quantization_config" in (folder / "config.json").read_text():
            continue  # sizes of packed tensors are not known
        asked += 1
        (report,) = lint_many((folder,), options).checkpoints
        if report.exit_code() != 1 or broken_promise(report):
            wrong.append(f"{folder.name} {options.engine}: {report.outcome.value}")
    assert not wrong, "\n".join(wrong)
    assert asked > 300


def pages(folder: Path, version: str, **options: Any) -> CheckpointReport:
    draft = Draft()
    other_pages(draft, 8, 1)
    draft.set(architectures=["LlamaForCausalLM"])
    draft.write(folder)
    return lint(folder, engine=f"vllm=={version}", **options).checkpoints[0]


def test_pages_that_a_recorded_release_refuses_are_an_error(tmp_path: Path) -> None:
    report = pages(tmp_path, "0.9.2", tp=1)
    assert [f.rule for f in report.findings if f.severity is Severity.ERROR] == ["DC605"]
    assert report.outcome is Outcome.REFUSED and report.exit_code() == 1


@pytest.mark.parametrize(("version", "tp"), [("0.9.2", None), ("0.9.1", 1)])
def test_pages_that_are_only_likely_refused_are_a_warning(tmp_path: Path, version: str, tp: int | None) -> None:
    """The ranks may make them equal; a release that was not run may not refuse them."""
    report = pages(tmp_path, version, tp=tp)
    (found,) = [f for f in report.findings if f.rule == "DC605"]
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.LIKELY)
    assert report.outcome is Outcome.DEGRADED and report.exit_code() == 0


def test_a_warning_that_says_it_stops_does_not_make_it_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes a rule cannot bring the two together either."""
    rule = Rule("ZZ1", "zz", (Severity.WARNING,), (), "1", lambda _: iter([Hit("stops", stops=True)]))
    monkeypatch.setattr("drafcheck.session.load_rules", lambda: {**load_rules(), "ZZ1": rule})
    Draft().write(tmp_path)
    report = lint(tmp_path, engine="sglang==0.5.9").checkpoints[0]
    assert "ZZ1" in [f.rule for f in report.findings]
    assert report.outcome is Outcome.DEGRADED and report.exit_code() == 0


def test_a_refusal_of_which_no_rule_speaks_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Draft()
    draft.shape("midlayer.mlp.down_proj.weight", 3, 3)
    draft.write(tmp_path)
    silent = {code: rule._replace(check=lambda _: iter(())) for code, rule in load_rules().items()}
    monkeypatch.setattr("drafcheck.session.load_rules", lambda: silent)
    report = lint(tmp_path, engine="sglang==0.5.9").checkpoints[0]
    assert report.findings == ()
    assert report.outcome is Outcome.REFUSED and report.exit_code() == 1


@pytest.mark.parametrize("by", ["ignore", "settings"])
def test_an_accepted_refusal_counts_neither_way(tmp_path: Path, by: str) -> None:
    draft = Draft()
    draft.shape("midlayer.mlp.down_proj.weight", 3, 3)
    folder = tmp_path / "draft"
    draft.write(folder)
    settings = tmp_path / "drafcheck.toml"
    settings.write_text('[[suppress]]\nrule = "DC201"\nreason = "known"\n')
    options = Options(engine="sglang==0.5.9", **({"ignore": ("DC201",)} if by == "ignore" else {"config": settings}))
    seen = examine(str(folder), Session(options).setup(str(folder)))
    assert seen.subject is not None and seen.subject.load is not None and seen.subject.load.refused is not None
    report = lint_many((folder,), options).checkpoints[0]
    assert report.outcome is Outcome.CLEAN and report.exit_code() == 0
