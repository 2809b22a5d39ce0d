"""The guides and docs/ci.md say what is true: their commands are run, their CI files are read by a reader of such."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_action import ACTION, zizmor

from drafcheck.cli import cli

yaml = pytest.importorskip("yaml", reason="PyYAML, which pre-commit brings, is not installed")

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GUIDES = sorted((DOCS / "guides").glob("*.md"))
CI = (DOCS / "ci.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"#\s*exit code (\d)$")
ELSEWHERE = re.compile(r"\bckpt/|\bhf (upload|:)|org/")  # a reader's own checkpoint


def commands(text: str) -> list[str]:
    """Every fenced line that starts drafcheck on files of this repository."""
    lines = [line for fence in FENCE.findall(text) for line in fence.splitlines()]
    return [line for line in lines if line.startswith("drafcheck ") and not ELSEWHERE.search(line)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the fixtures in it, and a drafcheck on the path."""
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    program = tmp_path / "bin" / "drafcheck"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m drafcheck "$@"\n')
    program.chmod(0o755)
    return tmp_path


def shell(place: Path, line: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", line], cwd=place, env=env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_commands_of_the_guides_run(guide: Path, place: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 80
    lines = commands(text)
    assert len(lines) >= 5
    for line in lines:
        wanted = EXIT.search(line)
        done = shell(place, line)
        assert done.returncode == (int(wanted[1]) if wanted else 0), f"{line}\n{done.stdout}{done.stderr}"


def test_there_is_a_guide_for_each() -> None:
    assert {path.stem for path in GUIDES} == {"trainers", "deployers", "platform-teams"}


@pytest.mark.parametrize("page", [*GUIDES, DOCS / "ci.md"], ids=lambda path: path.stem)
def test_links_and_options(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link, _, anchor in (found.partition("#") for found in re.findall(r"\]\(([^)]+)\)", text)):
        goal = page.parent / link
        assert goal.is_file(), link
        assert not anchor or anchor in anchors(goal), f"{link}#{anchor}"
    known = {opt for command in cli.every_command().values() for param in command.params for opt in param.opts}
    prose = re.sub(r"^```groovy\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", prose)) <= known


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def snippet(name: str) -> str:
    found = re.search(rf"<!-- ci: {name} -->\n```\w+\n(.*?)^```", CI, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1].replace("COMMIT", "0" * 40)


def test_github_workflow(tmp_path: Path) -> None:
    text = snippet("github")
    steps = yaml.safe_load(text)["jobs"]["drafcheck"]["steps"]
    ours = next(step for step in steps if step["uses"].startswith("your/drafcheck@"))
    assert set(ours["with"]) <= set(ACTION["inputs"])
    assert {n for n, spec in ACTION["inputs"].items() if spec.get("required")} <= set(ours["with"])
    workflow = tmp_path / ".github" / "workflows" / "drafter.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(text)
    done = zizmor(workflow)
    assert done.returncode == 0, done.stdout + done.stderr


def test_gitlab_job(place: Path) -> None:
    job = yaml.safe_load(snippet("gitlab"))["drafcheck"]
    shutil.copytree(ROOT / "fixtures" / "DC102" / "no-fc", place / "exports" / "my-drafter")
    (line,) = job["script"]
    done = shell(place, line)
    assert done.returncode == 1 and "DC102" in done.stdout, done.stderr
    for report in job["artifacts"]["reports"].values():
        assert (place / report).stat().st_size > 0


def test_jenkins_stage(place: Path) -> None:
    text = snippet("jenkins")
    script = re.search(r"sh '''\n(.*?)'''", text, re.DOTALL)
    assert script and text.count("{") == text.count("}")
    shutil.copytree(ROOT / "fixtures" / "DC102" / "no-fc", place / "exports" / "my-drafter")
    line = re.sub(r"^.*?\.venv/bin/drafcheck ", "drafcheck ", script[1].replace("\\\n", ""), flags=re.DOTALL)
    assert shlex.split(line)[0] == "drafcheck"
    assert shell(place, line).returncode == 1
    for report in re.findall(r"(?:junit |pattern: )'([^']+)'", text):
        assert (place / report).stat().st_size > 0


def test_pre_commit_config() -> None:
    (repo,) = yaml.safe_load(snippet("pre-commit"))["repos"]
    shipped = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert {hook["id"] for hook in repo["hooks"]} <= shipped
