"""Settings: which file counts, what may stand in it, and that the command line wins."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from drafts import Draft

import drafcheck
from drafcheck.cli import run
from drafcheck.errors import UsageError
from drafcheck.settings import Search, read
from drafcheck.settings_model import SCHEMA_FILE
from drafcheck.tomlpos import parse

SCHEMA = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
WHOLE = """
engine = "sglang==0.5.9"
algorithm = "EAGLE3"
dtype = "bfloat16"
tp = 4
launch = "serve.sh"
target = "targets/big"
select = ["DC1", "missing-d2t"]
ignore = ["DC406"]
fail-on = "warning"
extend-contracts = ["contracts"]
plugins = ["acme_checks"]

[[suppress]]
rule = "DC402"
path = "old/*"
tensor = "layers.*"
key = "eagle_config.*"
reason = "served elsewhere"
until = 2027-01-31
"""


@pytest.fixture
def draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A draft without fc, two folders below the current one; there DC102 is the only error."""
    made = Draft()
    made.drop("fc.weight")
    made.write(tmp_path / "models" / "draft")
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "models" / "draft"


def lint(capsys: pytest.CaptureFixture[str], *args: str | Path) -> dict[str, Any]:
    """The report as JSON, with the exit code beside it."""
    capsys.readouterr()
    code = run([*map(str, args), "--format", "json"])
    return {**json.loads(capsys.readouterr().out), "code": code}


def engine(report: dict[str, Any]) -> str:
    return str(report["checkpoints"][0]["engine"]["version"])


def test_the_nearest_file_upward_counts_and_nothing_is_merged(draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("drafcheck.toml").write_text('engine = "sglang==0.5.8"\nignore = ["DC102"]\n')
    report = lint(capsys, "models/draft")
    assert (engine(report), report["code"], report["checkpoints"][0]["settings"]) == ("0.5.8", 0, "drafcheck.toml")
    Path("models/drafcheck.toml").write_text('engine = "sglang==0.5.9"\n')
    report = lint(capsys, "models/draft")
    assert (engine(report), report["code"]) == ("0.5.9", 1)
    (draft / "pyproject.toml").write_text('[tool.drafcheck]\nengine = "sglang==0.5.15"\n')
    assert engine(lint(capsys, draft)) == "0.5.15"


def test_which_file_of_a_folder(draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """drafcheck.toml before pyproject.toml; a pyproject.toml without the table is passed over, TOML or not."""
    Path("drafcheck.toml").write_text('engine = "sglang==0.5.8"\n')
    Path("pyproject.toml").write_text('[tool.drafcheck]\nengine = "sglang==0.5.9"\n')
    assert engine(lint(capsys, draft)) == "0.5.8"
    for other in ("[tool.ruff]\n", '[project]\nname = "drafcheck-models"\n', "no toml", ""):
        (draft / "pyproject.toml").write_text(other)
        assert engine(lint(capsys, draft)) == "0.5.8"
    Path("drafcheck.toml").unlink()
    (draft / "drafcheck.toml").mkdir()  # a folder of that name is no settings file
    assert engine(lint(capsys, draft)) == "0.5.9"


@pytest.mark.parametrize(
    "text",
    [
        "[tool]\ndrafcheck.{}",
        "[ 'tool' ]\n[tool . drafcheck]\n{}",
        'tool."drafcheck".{}',
        '"tool".drafcheck.{}',
        "tool = {{ drafcheck = {{ {} }} }}",
        "[tool]\n'drafcheck' = {{ {} }}",
    ],
)
def test_the_table_counts_however_it_is_written(draft: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text(text.format('engine = "sglang==0.5.9"') + "\n")
    assert engine(lint(capsys, draft)) == "0.5.9"


def test_a_repository_is_no_boundary(draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (draft / ".git").mkdir()
    Path("drafcheck.toml").write_text('engine = "sglang==0.5.8"\n')
    assert engine(lint(capsys, draft)) == "0.5.8"


def test_each_checkpoint_has_its_own(draft: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Engine and threshold too: the exit code is the worst of each under its own."""
    Draft().write(tmp_path / "other")
    (tmp_path / "other" / "drafcheck.toml").write_text('engine = "sglang==0.5.8"\n')
    (draft.parent / "drafcheck.toml").write_text('engine = "sglang==0.5.9"\nfail-on = "never"\n')
    report = lint(capsys, "models/draft", "other")
    assert [c["engine"]["version"] for c in report["checkpoints"]] == ["0.5.9", "0.5.8"]
    assert report["summary"]["errors"] == 1
    assert report["code"] == 0
    assert lint(capsys, "models/draft", "other", "--fail-on", "error")["code"] == 1


def test_the_command_line_wins(draft: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Draft().write(tmp_path / "targets" / "big")
    Path("drafcheck.toml").write_text(
        'engine = "sglang==0.5.9"\ntarget = "targets/big"\nalgorithm = "EAGLE"\nignore = ["DC102"]\nselect = ["DC1"]'
    )
    checkpoint = lint(capsys, draft)["checkpoints"][0]
    assert checkpoint["target"] == str(tmp_path / "targets" / "big")
    assert (checkpoint["algorithm"], checkpoint["findings"]) == ("EAGLE", [])
    args = ("--engine", "sglang==0.5.15", "--target", "models/draft/target_config.json", "--algorithm", "EAGLE3")
    checkpoint = lint(capsys, draft, *args, "--ignore", "DC101")["checkpoints"][0]
    assert checkpoint["target"] == "models/draft/target_config.json"
    assert (checkpoint["engine"]["version"], checkpoint["algorithm"]) == ("0.5.15", "EAGLE3")
    assert [f["rule"] for f in checkpoint["findings"]] == ["DC102"]


def test_config_and_no_config(draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("drafcheck.toml").write_text('engine = "sglang==0.5.8"\n')
    Path("ci").mkdir()
    Path("ci/strict.toml").write_text('engine = "sglang==0.5.9"\ntarget = "../models/draft"\n')
    Path("pyproject.toml").write_text("[tool]\n")
    report = lint(capsys, draft, "--config", "ci/strict.toml")
    assert (engine(report), report["checkpoints"][0]["settings"]) == ("0.5.9", "ci/strict.toml")
    assert Path(report["checkpoints"][0]["target"]).samefile(draft)
    report = lint(capsys, draft, "--no-config", "--engine", "sglang==0.5.15")
    assert (engine(report), report["checkpoints"][0]["settings"]) == ("0.5.15", None)
    assert run(["show", str(draft)]) == 0
    assert "0.5.8" in capsys.readouterr().out
    with pytest.raises(UsageError, match="does not exist"):
        Search("a\0b")
    for wrong, said in (
        (("--config", "absent.toml"), "absent.toml does not exist"),
        (("--config", "ci"), "ci is not a file"),
        (("--config", "pyproject.toml"), "pyproject.toml has no [tool.drafcheck]"),
        (("--config", "ci/strict.toml", "--no-config"), "do not go together"),
    ):
        assert run([str(draft), *wrong]) == 2
        assert said in capsys.readouterr().err


def test_python_looks_for_no_settings_unless_given_some(draft: Path) -> None:
    Path("drafcheck.toml").write_text('engine = "sglang==0.5.8"\n')
    assert drafcheck.lint(draft, engine="sglang==0.5.15").checkpoints[0].settings is None
    report = drafcheck.lint(draft, config="drafcheck.toml")
    assert (report.checkpoints[0].engine.version, report.checkpoints[0].settings) == ("0.5.8", "drafcheck.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('engin = "sglang"', ":1: unknown key 'engin'; did you mean engine?"),
        ("# a comment\n\nfail_on = 'error'", ":3: unknown key 'fail_on'; did you mean fail-on?"),
        ("engine = 59", ":1: engine should be a valid string"),
        ("engine = ''", ":1: engine should not be empty"),
        ("select = 'DC1'", ":1: select should be a valid list"),
        ("select = [\n  'DC1',\n  true,\n]", ":1: select[1] should be a valid string"),
        ("engine = 'sglang'\nfail-on = 'note'", ":2: fail-on should be 'error', 'warning' or 'never'"),
        ("[[suppress]]\nrule = 'DC101'", ":1: suppress[0].reason is missing"),
        ("[[suppress]]\nrule = 'DC101'\nreason = ' '", ":3: suppress[0].reason should not be empty"),
        (
            "[[suppress]]\nrule = 'DC101'\nreason = 'x'\n\n[[suppress]]\nrule = 'DC102'\nreason = 'y'\nresaon = 'z'",
            ":8: unknown key 'resaon'; did you mean reason?",
        ),
        ("[[suppress]]\nrule = 'DC101'\nreason = 'x'\nuntil = '2027-01-31'", ":4: suppress[0].until should be a date"),
        ("[[suppress]]\nrule = 'DC101'\nreason = 'x'\nuntil = 2027-01-31T00:00:00", ":4: suppress[0].until should be"),
        ("suppress = [\n {rule = 'DC101'},\n]", ":1: suppress[0].reason is missing"),
        ("suppress = [3]", ":1: suppress[0] should be a table"),
        ("[[suppress]]\nrule = 'DC1O1'\nreason = 'x'", ":2: no rule is called 'DC1O1'; did you mean DC101?"),
        ("[[suppress]]\nrule = 'DC999'\nreason = 'x'", ":2: DC999 can not be suppressed"),
        ("engine = 'nonsense'", ":1: unknown engine 'nonsense'"),
        ("engine = 'sglang==x'", ":1: not a version of sglang"),
        ("\nignore = ['DC1O1']", ":2: no rule is called 'DC1O1'"),
        ("select = ['DC102']\nignore = ['DC102']", ":2: "),
        ("engine = [", ":1: not TOML: invalid value"),
        ("engine = 'a'\nengine = 'b'", "not TOML: cannot overwrite a value"),
        ("a = " + "[" * 20_000, " is nested too deeply"),
        ("a = " + "9" * 5_000, "not TOML"),
        ("a = 1\n" * 200_000, "is longer than the 1,048,576 bytes"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    draft: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("drafcheck.toml").write_text(text)
    assert run([str(draft)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"error: drafcheck.toml{said}" in captured.err or (said in captured.err and ":" not in said[:1])
    assert captured.err.count("\n") == 1


def test_lines_inside_a_pyproject(draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '[project]\nname = "x"\n[tool.drafcheck]\nengine = "sglang"\n[[tool.drafcheck.suppress]]\nrule = "DC1"\n'
    Path("pyproject.toml").write_text(f'{text}reason = "x"\n[[tool.drafcheck.suppress]]\nrul = "DC101"\nreason = "y"\n')
    assert run([str(draft)]) == 2
    assert "pyproject.toml:9: unknown key 'rul'; did you mean rule?" in capsys.readouterr().err
    Path("pyproject.toml").write_text("tool.drafcheck = 3\n")
    assert run([str(draft)]) == 2
    assert "pyproject.toml:1: [tool.drafcheck] should be a table" in capsys.readouterr().err


def test_not_text_and_hostile_text(draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("drafcheck.toml").write_bytes(b"engine = '\xff'")
    assert run([str(draft)]) == 2
    assert "not UTF-8" in capsys.readouterr().err
    Path("drafcheck.toml").write_text('"\\u001b[31m" = 1')
    assert run([str(draft)]) == 2
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("drafcheck.toml").touch(mode=0)
    assert run([str(draft)]) == 2
    assert "can not read" in capsys.readouterr().err


def test_what_no_file_can_be_read_from(draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody waits for a pipe, and nobody passes over it either."""
    for make, said in ((os.mkfifo, "is not a file"), (lambda name: Path(name).symlink_to("absent"), "does not exist")):
        make("drafcheck.toml")
        assert run([str(draft)]) == 2
        assert f"drafcheck.toml {said}" in capsys.readouterr().err
        assert run([str(draft), "--no-config", "--engine", "sglang==0.5.15"]) in (0, 1)
        capsys.readouterr()
        Path("drafcheck.toml").unlink()
    os.mkfifo("pyproject.toml")  # no file of anybody's settings
    assert run([str(draft), "--engine", "sglang==0.5.15"]) in (0, 1)


def test_a_pyproject_that_may_not_be_read(
    draft: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold the table: ruff stops as well."""
    Path("pyproject.toml").write_text("[tool.ruff]\n")
    real = Path.open

    def denied(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == "pyproject.toml":
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "open", denied)
    assert run([str(draft)]) == 2
    said = capsys.readouterr().err
    assert "pyproject.toml: Permission denied" in said and "--no-config" in said
    assert run([str(draft), "--no-config", "--engine", "sglang==0.5.15"]) in (0, 1)


def test_the_schema_says_what_the_program_says(tmp_path: Path) -> None:
    file = tmp_path / "drafcheck.toml"
    file.write_text(WHOLE)
    assert read(file).values.fail_on == "warning"
    whole = parse(file, WHOLE)
    whole["suppress"][0]["until"] = str(whole["suppress"][0]["until"])
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(whole, SCHEMA)
    assert set(SCHEMA["properties"]) == set(whole)
    assert set(SCHEMA["$defs"]["Suppression"]["properties"]) == set(whole["suppress"][0])
    for wrong in ({"engin": "x"}, {"engine": 3}, {"suppress": [{"rule": "DC101"}]}, {"fail-on": "note"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)
        file.write_text("".join(f"{key} = {json.dumps(value).replace(': ', ' = ')}\n" for key, value in wrong.items()))
        with pytest.raises(UsageError):
            read(file)


def test_a_remote_checkpoint_has_the_settings_of_the_current_folder(draft: Path) -> None:
    Path("drafcheck.toml").write_text('engine = "sglang==0.5.8"\n')
    found = Search().find("hf://org/name@main")
    assert found is not None and found.path == Path.cwd() / "drafcheck.toml"


def test_many_checkpoints_read_one_file_once(draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("drafcheck.toml").write_text('engine = "sglang==0.5.8"\n')
    search = Search()
    first = search.find("models/draft")
    monkeypatch.setattr("drafcheck.settings._in_folder", lambda folder: pytest.fail(f"looked at {folder} again"))
    assert search.find("models/draft") is first


@pytest.mark.parametrize(
    ("line", "said", "flag"),
    [
        ('target = "gone"', "gone", "--target"),
        ('extend-contracts = ["gone"]', "no folder of contracts: gone", "--contracts"),
        ('extend-contracts = ["models"]', "models holds no contracts", "--contracts"),
    ],
)
def test_errors_on_folders_say_who_names_them(
    draft: Path, capsys: pytest.CaptureFixture[str], line: str, said: str, flag: str
) -> None:
    Path("drafcheck.toml").write_text(f"\n{line}\n")
    assert run([str(draft)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: drafcheck.toml:2: ") and said in error
    assert run([str(draft), flag, "absent"]) == 2
    error = capsys.readouterr().err
    assert "absent" in error and "drafcheck.toml" not in error
