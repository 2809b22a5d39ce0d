"""What reports look like, and that names from a checkpoint can do no harm in them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafcheck import lint
from drafcheck.finding import Confidence, Finding, Location, Severity
from drafcheck.report import concise, full
from drafcheck.report import json as json_report
from drafcheck.report.model import (
    CheckpointReport,
    EngineInfo,
    FailOn,
    Loaded,
    Outcome,
    Plan,
    Refused,
    Report,
    Skipped,
    Wiring,
    summarise,
)
from drafcheck.report.style import Style
from drafcheck.report.table import table
from drafcheck.report.text import printable

FIXTURES = Path(__file__).parent.parent / "fixtures"

ERROR = Finding(
    rule="DC201",
    name="shape-mismatch",
    severity=Severity.ERROR,
    confidence=Confidence.CERTAIN,
    message="fc.weight is [32, 64], the engine builds [32, 96] (hidden_size x 3 * hidden_size)",
    locations=(
        Location(file="model.safetensors", tensor="fc.weight"),
        Location(file="config.json", key="hidden_size", line=5, column=3),
    ),
    help="export fc with three hidden states",
)
WARNING = Finding(
    rule="DC404",
    name="aux-layer-convention",
    severity=Severity.WARNING,
    confidence=Confidence.LIKELY,
    message="the ids mean outputs to the trainer and inputs to the engine",
    locations=(Location(file="config.json", key="eagle_config", line=9, column=3),),
)
NOTE = Finding(
    rule="DC010", name="pickle-weights", severity=Severity.NOTE, confidence=Confidence.CERTAIN, message="only pickles"
)


def checkpoint(*findings: Finding, outcome: Outcome = Outcome.BROKEN, path: str = "ckpt") -> CheckpointReport:
    return CheckpointReport(
        path=path,
        engine=EngineInfo(name="engine", version="1.2.3"),
        algorithm="EAGLE3",
        contract="engine/class",
        target=None,
        outcome=outcome,
        findings=findings,
        plan=Plan(loaded=(Loaded(tensor="a", parameter="b"),), refused=Refused(tensor=None, error="stop")),
        wiring=Wiring(captured=True, layer_outputs=(1, 3, 4), fc_in=96),
        skipped=(
            Skipped(rule="DC401", why="needs --target"),
            Skipped(rule="DC402", why="needs --target"),
            Skipped(rule="DC311", why="needs --reference"),
        ),
    )


def report(*checkpoints: CheckpointReport) -> Report:
    return Report(drafcheck="0.1.0", summary=summarise(checkpoints), checkpoints=checkpoints)


def test_full() -> None:
    assert full.render(report(checkpoint(ERROR, WARNING, NOTE))) == (
        "error[DC201 shape-mismatch]: fc.weight is [32, 64], the engine builds [32, 96]"
        " (hidden_size x 3 * hidden_size)\n"
        " --> ckpt/model.safetensors (fc.weight)\n"
        " --> ckpt/config.json:5:3 (hidden_size)\n"
        "  = help: export fc with three hidden states\n"
        "\n"
        "warning[DC404 aux-layer-convention]: the ids mean outputs to the trainer and inputs to the engine\n"
        " --> ckpt/config.json:9:3 (eagle_config)\n"
        "  = confidence: likely\n"
        "\n"
        "note[DC010 pickle-weights]: only pickles\n"
        "\n"
        "checked for engine 1.2.3, contract engine/class, algorithm EAGLE3, no target\n"
        "skipped: 2 rules need --target\n"
        "skipped: 1 rule needs --reference\n"
        "ckpt: broken: 1 error, 1 warning, 1 note\n"
    )


def test_full_quiet_and_several() -> None:
    text = full.render(report(checkpoint(ERROR, NOTE), checkpoint(outcome=Outcome.CLEAN, path="other")), quiet=True)
    assert text == (
        "error[DC201 shape-mismatch]: fc.weight is [32, 64], the engine builds [32, 96]"
        " (hidden_size x 3 * hidden_size)\n"
        " --> ckpt/model.safetensors (fc.weight)\n"
        " --> ckpt/config.json:5:3 (hidden_size)\n"
        "  = help: export fc with three hidden states\n"
        "\n"
        "ckpt: broken: 1 error, 1 note\n"
        "\n"
        "other: clean\n"
        "\n"
        "2 checkpoints: 1 error, 1 note\n"
    )


def test_many_places_are_cut() -> None:
    many = tuple(Location(file="model.safetensors", tensor=f"t{i}") for i in range(20))
    finding = ERROR.model_copy(update={"locations": many})
    assert " --> and 14 more\n" in full.render(report(checkpoint(finding)))
    verbose = full.render(report(checkpoint(finding)), verbose=True)
    assert "(t19)" in verbose
    assert "more" not in verbose


def test_colours() -> None:
    assert full.render(report(checkpoint(NOTE)), style=Style(on=True)).startswith(
        "\x1b[1;36mnote[DC010 pickle-weights]\x1b[0m: \x1b[1monly pickles\x1b[0m\n"
    )


def test_concise() -> None:
    assert concise.render(report(checkpoint(ERROR, WARNING, NOTE))) == (
        "ckpt/model.safetensors: DC201 error fc.weight is [32, 64], the engine builds [32, 96]"
        " (hidden_size x 3 * hidden_size)\n"
        "ckpt/config.json:9:3: DC404 warning the ids mean outputs to the trainer and inputs to the engine\n"
        "ckpt: DC010 note only pickles\n"
    )
    assert concise.render(report(checkpoint(outcome=Outcome.CLEAN))) == ""


def test_json_is_valid_and_as_promised() -> None:
    document = json.loads(json_report.render(report(checkpoint(ERROR, WARNING, NOTE))))
    jsonschema.validate(document, json.loads(json_report.SCHEMA_FILE.read_text(encoding="utf-8")))
    assert document["schema"] == "drafcheck-report-1"
    assert document["summary"] == {"errors": 1, "warnings": 1, "notes": 1, "suppressed": 0, "checkpoints": 1}
    made = document["checkpoints"][0]
    assert list(made) == [
        "path",
        "engine",
        "algorithm",
        "contract",
        "target",
        "outcome",
        "findings",
        "plan",
        "wiring",
        "skipped",
        "suppressed",
        "settings",
        "producer",
        "reference",
        "launch",
        "beside",
        "values",
        "head",
        "embedding",
        "left_out",
    ]
    assert made["findings"][0] == {
        "rule": "DC201",
        "name": "shape-mismatch",
        "severity": "error",
        "confidence": "certain",
        "message": ERROR.message,
        "locations": [
            {"file": "model.safetensors", "tensor": "fc.weight", "key": None, "line": None, "column": None},
            {"file": "config.json", "tensor": None, "key": "hidden_size", "line": 5, "column": 3},
        ],
        "help": "export fc with three hidden states",
        "fixable": False,
    }
    assert made["plan"]["loaded"] == [{"tensor": "a", "parameter": "b"}]
    assert made["plan"]["refused"] == {"tensor": None, "error": "stop"}
    assert made["wiring"] == {"captured": True, "layer_outputs": [1, 3, 4], "fc_in": 96, "trained_on": None}
    assert made["skipped"][0] == {"rule": "DC401", "why": "needs --target", "asked": False}


@pytest.mark.parametrize("folder", sorted(FIXTURES.glob("D*")), ids=lambda folder: folder.name)
def test_json_of_real_checkpoints_is_valid(folder: Path) -> None:
    validator = jsonschema.Draft202012Validator(json_report.schema())
    for case in sorted(folder.iterdir()):
        made = lint(case, engine="sglang==0.5.15")
        validator.validate(json.loads(json_report.render(made)))
        assert "DC999" not in {f.rule for f in made.findings}


def test_schema_is_not_stale() -> None:
    assert json.loads(json_report.SCHEMA_FILE.read_text(encoding="utf-8")) == json_report.schema()


def test_schema_rejects_what_it_should() -> None:
    document = json.loads(json_report.render(report(checkpoint(ERROR))))
    document["checkpoints"][0]["outcome"] = "wonderful"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json_report.schema())


@pytest.mark.parametrize(
    ("findings", "outcome", "codes"),
    [
        ((), Outcome.CLEAN, (0, 0, 0)),
        ((NOTE,), Outcome.CLEAN, (0, 0, 0)),
        ((WARNING,), Outcome.DEGRADED, (0, 1, 0)),
        ((ERROR, WARNING), Outcome.REFUSED, (1, 1, 0)),
        ((), Outcome.INTERNAL_ERROR, (2, 2, 2)),
        ((), Outcome.NOTHING_TO_CHECK, (3, 3, 3)),
    ],
)
def test_exit_codes(findings: tuple[Finding, ...], outcome: Outcome, codes: tuple[int, int, int]) -> None:
    made = report(checkpoint(*findings, outcome=outcome))
    assert tuple(made.exit_code_for(f) for f in (FailOn.ERROR, FailOn.WARNING, FailOn.NEVER)) == codes


def test_printable() -> None:
    assert printable("layers.0.weight") == "layers.0.weight"
    assert printable("caf\u00e9 \u4e2d\u6587") == "caf\u00e9 \u4e2d\u6587"
    assert printable("a\x1b[31mb\nc\td\x7f") == "a\\x1b[31mb\\x0ac\\x09d\\x7f"
    assert printable("\u202egnp.exe\u2066\u200b\ufeff") == "\\u202egnp.exe\\u2066\\u200b\\ufeff"
    assert printable("\ud800\x85\u2028\U000e0041") == "\\ud800\\x85\\u2028\\U000e0041"


def test_printable_shortens() -> None:
    long = printable("x" * 1_000_000)
    assert len(long) < 300
    assert "characters..." in long
    assert len(printable("word " * 100_000)) < 4100
    assert printable("a tensor " + "y" * 500 + " is dropped").endswith(" is dropped")


def test_table() -> None:
    assert table([("a", "b"), ("long", "")], ("x", "yyyy")) == "  x     yyyy\n  a     b\n  long\n"
    assert table([]) == ""


anything = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=40)


@given(anything)
def test_whatever_a_name_holds_every_report_takes_it(name: str) -> None:
    hostile = Finding(
        rule="DC101",
        name="dropped-weight",
        severity=Severity.ERROR,
        confidence=Confidence.CERTAIN,
        message=f"{name} is dropped",
        locations=(Location(file=name, tensor=name, key=name),),
        help=name,
    )
    made = report(checkpoint(hostile, path=name))
    for text in (full.render(made), concise.render(made), full.render(made, verbose=True)):
        assert text.replace("\n", "").isprintable()
        text.encode("utf-8")
    text = json_report.render(made)
    assert text.isascii()
    jsonschema.validate(json.loads(text), json_report.schema())
    assert len(concise.render(made).splitlines()) == 1
