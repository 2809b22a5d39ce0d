"""The GitHub Action: its scripts run as a runner runs them, with inputs as hostile as a workflow can make them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft
from helpers import need_index

yaml = pytest.importorskip("yaml", reason="PyYAML, which pre-commit brings, is not installed")

ROOT = Path(__file__).parent.parent
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
CHECK = next(step for step in STEPS if step.get("id") == "check")
INPUT = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")
ENGINE = "sglang==0.5.9"


class Runner:
    """What GitHub's runner does for a step of a composite action, in a workspace of its own."""

    def __init__(self, root: Path) -> None:
        self.workspace, self.temp = root / "workspace", root / "temp"
        self.summary, self.output = root / "summary.md", root / "output.txt"
        for folder in (self.workspace, self.temp):
            folder.mkdir()

    def run(self, step: dict[str, Any], **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run the script of one step; inputs that are not given have their defaults."""
        values = {name: str(spec.get("default", "")) for name, spec in ACTION["inputs"].items()}
        values.update({name.replace("_", "-"): value for name, value in inputs.items()})
        script = self.temp / "step.sh"
        script.write_text(step["run"])
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "PYTHON"))},
            **{name: values[INPUT.fullmatch(text)[1]] for name, text in step["env"].items()},  # type: ignore[index]
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_ACTIONS": "true",
            "RUNNER_TEMP": str(self.temp),
        }
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        return subprocess.run(
            shell, cwd=self.workspace, env=env, capture_output=True, text=True, timeout=300, check=False
        )

    @property
    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A runner on which the first step has installed drafcheck: the one at hand."""
    made = Runner(tmp_path)
    program = made.temp / "drafcheck" / "bin" / "drafcheck"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m drafcheck "$@"\n')
    program.chmod(0o755)
    return made


@pytest.fixture
def broken() -> Draft:
    draft = Draft()
    draft.drop("fc.weight")
    return draft


def test_findings(runner: Runner, broken: Draft) -> None:
    broken.write(runner.workspace / "exports" / "draft")
    Draft().write(runner.workspace / "good")
    runner.summary.write_text("before\n")
    done = runner.run(CHECK, paths="exports/draft\n\ngood\n", engine=ENGINE)
    assert done.returncode == 1, done.stderr
    assert re.search(r"^::error [^\n]*file=exports/draft/[^\n]*DC102", done.stdout, re.MULTILINE)
    assert "good: clean" in done.stdout
    summary = runner.summary.read_text()
    assert summary.startswith("before\n") and "DC102" in summary
    assert runner.outputs["exit-code"] == "1"
    sarif = json.loads(Path(runner.outputs["sarif"]).read_text())
    assert "DC102" in {result["ruleId"] for result in sarif["runs"][0]["results"]}
    assert "DC102" in Path(runner.outputs["markdown"]).read_text()


def test_clean_and_nothing_to_check(runner: Runner) -> None:
    Draft().write(runner.workspace / "draft")
    assert runner.run(CHECK, paths="draft", engine=ENGINE).returncode == 0
    assert runner.outputs["exit-code"] == "0" and "clean" in runner.summary.read_text()
    (runner.workspace / "empty").mkdir()
    assert runner.run(CHECK, paths="empty", engine=ENGINE).returncode == 3


def test_the_other_inputs_arrive(runner: Runner, broken: Draft) -> None:
    broken.write(runner.workspace / "draft")
    assert runner.run(CHECK, paths="draft", engine=ENGINE, fail_on="never").returncode == 0
    absent = runner.run(CHECK, paths="draft", engine=ENGINE, target="absent/target.json")
    assert absent.returncode == 2 and "absent/target.json" in absent.stderr
    algorithm = runner.run(CHECK, paths="draft", engine=ENGINE, algorithm="EAGLE")
    assert "algorithm EAGLE," in algorithm.stdout
    assert runner.run(CHECK, paths="draft", engine=ENGINE, lfs="nonsense").returncode == 2


def test_an_error_is_in_the_summary(runner: Runner) -> None:
    """As indented text, whatever is in it: no report says it."""
    absent = runner.run(CHECK, paths="<b>`absent`</b>\n", engine=ENGINE)
    assert absent.returncode == 2 and "no such file or directory" in absent.stderr
    assert runner.summary.read_text() == f"### drafcheck failed\n\n    {absent.stderr}"
    assert absent.stderr.startswith("error: <b>`absent`</b>: ")


HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "a\ntouch pwned\n",
    "--output-file=pwned",
    "-h",
    "${IFS}touch${IFS}pwned",
    "a\x1b[2J\r::set-output name=exit-code::0",
    "*",
]


NAMES = ["paths", "target", "engine", "algorithm", "fail_on", "lfs"]
CASES = [*((name, HOSTILE[0] + HOSTILE[4]) for name in NAMES), *(("paths", text) for text in HOSTILE)]


@pytest.mark.parametrize(("name", "text"), CASES)
def test_no_input_is_more_than_a_value(runner: Runner, name: str, text: str) -> None:
    Draft().write(runner.workspace / "draft")
    done = runner.run(CHECK, **{"paths": "draft", "engine": ENGINE, **dict.fromkeys([name], text)})
    assert [p.name for p in runner.workspace.iterdir()] == ["draft"], done.stderr
    assert runner.outputs["exit-code"] == str(done.returncode)
    assert done.returncode in (2, 3), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ['it\'s $(touch pwned) "here"', "-draft", "--help", "a b", "::error::x", "%0A*"])
def test_folders_with_such_names_are_checked(runner: Runner, broken: Draft, name: str) -> None:
    broken.write(runner.workspace / name)
    done = runner.run(CHECK, paths=name, engine=ENGINE)
    assert done.returncode == 1, done.stderr
    assert "DC102" in runner.summary.read_text()
    assert [p.name for p in runner.workspace.iterdir()] == [name]


def test_no_expression_stands_in_a_script() -> None:
    scripts = [step["run"] for step in STEPS if "run" in step]
    assert len(scripts) == 2
    assert [s for s in scripts if "${{" in s] == []
    used = {INPUT.fullmatch(text)[1] for step in STEPS for text in step.get("env", {}).values()}  # type: ignore[index]
    assert used | {"upload-sarif", "category"} == set(ACTION["inputs"])


def test_every_action_that_it_uses_is_pinned_to_a_commit() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name) for name in used)


def test_installed_as_a_job_would(tmp_path: Path, broken: Draft) -> None:
    """The first step too: pip installs this repository, with hostile modules lying in the job's folder."""
    need_index("drafcheck's dependencies")
    runner = Runner(tmp_path)
    for module in ("venv", "pip", "json", "click"):
        (runner.workspace / f"{module}.py").write_text("raise SystemExit('a file of the workspace was run')")
    installed = runner.run(STEPS[0], python=sys.executable)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    broken.write(runner.workspace / "draft")
    done = runner.run(CHECK, paths="draft", engine=ENGINE)
    assert done.returncode == 1 and "DC102" in done.stdout, done.stderr


@pytest.mark.parametrize("python", ["/absent/python", "$(touch pwned)", "touch pwned;"])
def test_a_python_that_is_none(runner: Runner, python: str) -> None:
    assert runner.run(STEPS[0], python=python).returncode != 0
    assert not list(runner.workspace.parent.rglob("pwned"))


def zizmor(path: Path, persona: str = "auditor") -> subprocess.CompletedProcess[str]:
    program = shutil.which("zizmor") or shutil.which("zizmor", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("zizmor is not installed")
    command = [program, "--offline", "--no-progress", "--color=never", f"--persona={persona}", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_zizmor_finds_nothing() -> None:
    done = zizmor(ROOT / "action.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_zizmor_would_find_something(tmp_path: Path) -> None:
    """The same call on an action whose script takes an input into itself."""
    text = (ROOT / "action.yml").read_text().replace('cd "$RUNNER_TEMP"', "cd ${{ inputs.python }}")
    (tmp_path / "action.yml").write_text(text)
    done = zizmor(tmp_path / "action.yml")
    assert done.returncode != 0 and "template-injection" in done.stdout
