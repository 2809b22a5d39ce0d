"""Plugins: the template really installed and run, what is refused, and that no checkpoint brings one along."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from drafts import Draft

import drafcheck
from drafcheck.cli import run
from drafcheck.registry import declared, forget, load_rules

PAGE = (Path(__file__).parent.parent / "docs" / "plugins.md").read_text(encoding="utf-8")
ENGINE = ("--engine", "sglang==0.5.15")
CHECK = """
from drafcheck.finding import Severity
from drafcheck.registry import Hit, rule

@rule({code!r}, {name!r}, {arguments})
def check(s):
    {body}
"""


@pytest.fixture(autouse=True)
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A healthy draft at models/draft; whatever rules a test adds are taken out again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "site").mkdir()
    draft = Draft()
    draft.write(tmp_path / "models" / "draft")
    draft.write(tmp_path / "models" / "other")
    before = {*load_rules(), *declared()}
    yield tmp_path
    forget(set(declared()) - before)


def plugin(
    name: str, code: str = "ACME001", rule: str = "house-rule", arguments: str = "Severity.ERROR", body: str = ""
) -> None:
    """Write a module into the folder that is importable, and settings that name it."""
    body = body or '"""Doc."""; yield Hit("a fact", about=("x",))'
    text = CHECK.format(code=code, name=rule, arguments=arguments, body=body.replace("; ", "\n    "))
    Path("site", f"{name}.py").write_text(text)
    Path("drafcheck.toml").write_text(f'\nplugins = ["{name}"]\n')


def program(*args: str, path: Path | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(drafcheck.__file__).parent.parent), *([str(path)] if path else [])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "drafcheck", *args]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_the_template_installs_and_runs(room: Path) -> None:
    """Built and installed by pip, offline; then the program itself, in a process of its own."""
    for module in ("pip", "hatchling"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    files = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert [name for name, _ in files] == ["pyproject.toml", "acme_checks/__init__.py"]
    for name, text in files:
        (room / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (room / "source" / name).write_text(text)
    flags = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q"]
    command = [sys.executable, "-m", "pip", "install", *flags, "--target", str(room / "lib"), str(room / "source")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    Path("drafcheck.toml").write_text('plugins = ["acme_checks"]\n')

    seen = program("models/draft", *ENGINE, "--format", "json", path=room / "lib")
    findings = json.loads(seen.stdout)["checkpoints"][0]["findings"]
    assert [f["rule"] for f in findings] == ["ACME001", "DC406"], seen.stderr
    assert findings[0]["name"] == "no-training-run"
    assert seen.returncode == 0
    assert (
        program("models/draft", *ENGINE, "--select", "ACME", "--fail-on", "warning", path=room / "lib").returncode == 1
    )
    assert program("models/draft", *ENGINE, "--ignore", "no-training-run", path=room / "lib").stdout.count("ACME") == 0
    page = program("rule", "acme001", "--config", "drafcheck.toml", path=room / "lib")
    assert page.stdout.startswith("ACME001 no-training-run (warning, since 1.0)\n\nconfig.json does not say")
    without = program("models/draft", *ENGINE)
    assert without.returncode == 2
    assert "drafcheck.toml:1: there is no module acme_checks: is the plugin installed for " in without.stderr
    assert "Traceback" not in without.stderr


def test_a_plugin_is_treated_like_the_others(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin("acme_like")
    assert run(["models/draft", *ENGINE]) == 1
    assert "error[ACME001 house-rule]: a fact" in capsys.readouterr().out
    for style in ("sarif", "junit", "gitlab", "github", "markdown", "concise"):
        assert run(["models/draft", *ENGINE, "--format", style]) == 1
        assert "ACME001" in capsys.readouterr().out
    with Path("drafcheck.toml").open("a") as settings:
        settings.write("[[suppress]]\nrule = 'house-rule'\ntensor = 'x'\nreason = 'known'\n")
    assert run(["models/draft", *ENGINE]) == 0
    assert "1 suppressed" in capsys.readouterr().out
    assert drafcheck.lint("models/draft", engine="sglang==0.5.15").ok
    assert "ACME001" not in load_rules()


def test_a_plugin_runs_only_where_the_settings_name_it(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin("acme_here")
    Path("models/other/drafcheck.toml").write_text("")
    assert run(["models/draft", "models/other", *ENGINE, "--format", "json"]) == 1
    checkpoints = json.loads(capsys.readouterr().out)["checkpoints"]
    assert [[f["rule"] for f in c["findings"] if f["severity"] == "error"] for c in checkpoints] == [["ACME001"], []]
    assert run(["models/draft", "--no-config", *ENGINE]) == 0


def test_a_check_that_raises_is_named(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin("acme_raises", body='"""Doc."""; raise KeyError("boom"); yield')
    assert run(["models/draft", *ENGINE]) == 2
    assert "rule ACME001 house-rule stopped with KeyError: 'boom'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"code": "DC950"}, "codes that begin with DC are drafcheck's own"),
        ({"code": "DC101"}, "ValueError: rule DC101 house-rule is declared twice"),
        ({"rule": "dropped-weight"}, "ValueError: rule ACME001 dropped-weight is declared twice"),
        ({"code": "acme1"}, "two capital letters or more and three digits"),
        ({"code": "A001"}, "two capital letters or more and three digits"),
        ({"rule": "House Rule"}, "small letters joined by hyphens"),
        ({"arguments": ""}, "without a severity"),
        ({"arguments": "Severity.ERROR, needs=('weihgts',)"}, "needs 'weihgts': known are config, weights"),
        ({"body": 'yield Hit("x")'}, "without a docstring"),
    ],
)
def test_a_plugin_that_breaks_the_rules(wrong: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    plugin("acme_breaks", **wrong)
    for _ in range(2):  # the second time as the first: nothing is left behind
        assert run(["models/draft", *ENGINE]) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("error: drafcheck.toml:2: ")
        assert said in captured.err
        assert captured.out == ""
    assert run(["models/draft", "--no-config", *ENGINE]) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "can not be imported: ZeroDivisionError: division by zero"),
        ("def", "can not be imported: SyntaxError"),
        ("import absent_module", "can not be imported: ModuleNotFoundError: No module named 'absent_module'"),
        ("raise SystemExit(0)", "can not be imported: SystemExit: 0"),
        ("", "declares no rule"),
    ],
)
def test_a_module_that_is_no_plugin(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    plugin("acme_none")
    Path("site/acme_none.py").write_text(text)
    assert run(["models/draft", *ENGINE]) == 2
    captured = capsys.readouterr()
    assert f"drafcheck.toml:2: the plugin acme_none {said}" in captured.err
    assert captured.err.count("\n") == 1


def test_a_checkpoint_can_not_bring_code_along(room: Path) -> None:
    """Neither by settings in its folder, nor by a module that lies there when that is the current folder."""
    draft = room / "models" / "draft"
    (draft / "evil.py").write_text("raise SystemExit('it ran')\n")
    (draft / "drafcheck.toml").write_text("plugins = ['evil']\n")
    own = program(".", *ENGINE, cwd=draft)
    assert own.returncode == 2
    assert "drafcheck.toml:1: plugins are not imported for settings in the checkpoint's own folder" in own.stderr
    named = program(".", *ENGINE, "--config", "drafcheck.toml", cwd=draft)
    assert named.returncode == 2
    assert "the plugin evil lies in the checkpoint's folder: not imported" in named.stderr
    (draft / "drafcheck.toml").rename(room / "models" / "drafcheck.toml")
    above = program(".", *ENGINE, cwd=draft)
    assert above.returncode == 2
    assert "the plugin evil lies in the checkpoint's folder" in above.stderr
    assert "it ran" not in own.stderr + named.stderr + above.stderr
    assert program(".", *ENGINE, "--no-config", cwd=draft).returncode == 0


@pytest.mark.parametrize("name", ["no.mod", "json.absent"])
def test_a_dotted_module_is_named_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("drafcheck.toml").write_text(f'\nplugins = ["{name}"]\n')
    assert run(["models/draft", *ENGINE]) == 2
    assert f"drafcheck.toml:2: there is no module {name}: " in capsys.readouterr().err
