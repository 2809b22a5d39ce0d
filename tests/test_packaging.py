"""What is shipped: the rules inside the wheel, the schema, the hook for pre-commit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from drafts import Draft

from drafcheck import __version__

ROOT = Path(__file__).parent.parent
HOOKS = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = pytest.importorskip("hatchling.builders.wheel", reason="hatchling, the build backend, is not installed")
    made = build.WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    return Path(next(iter(made)))


def test_wheel_ships_rules_schema_and_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wheel.name == f"drafcheck-{__version__}-py3-none-any.whl"
    for path in (ROOT / "rules").rglob("*.toml"):
        assert f"drafcheck/rules/{path.relative_to(ROOT / 'rules').as_posix()}" in names
    assert {"drafcheck/report/schema.json", "drafcheck/py.typed"} <= names
    assert not [n for n in names if n.startswith(("tests/", "fixtures/", "tools/"))]


def test_wheel_runs_from_anywhere(wheel: Path, tmp_path: Path) -> None:
    """Unpacked and put first on the path, away from the source tree: it finds its own rules and a fault."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    draft = Draft()
    draft.drop("fc.weight")
    draft.write(tmp_path / "broken")
    done = subprocess.run(
        [sys.executable, "-m", "drafcheck", "broken", "--engine", "sglang==0.5.9"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "DC102" in done.stdout
    where = "import drafcheck.contract as c; print(c.rules_folder())"
    found = subprocess.run(
        [sys.executable, "-c", where],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stdout.strip() == str(tmp_path / "site" / "drafcheck" / "rules")


@pytest.mark.parametrize(
    ("path", "passed"),
    [
        ("config.json", True),
        ("exports/draft/config.json", True),
        ("exports/draft/model-00001-of-00002.safetensors", True),
        ("exports/draft/model.safetensors.index.json", True),
        ("exports/draft/pytorch_model.bin", True),
        ("exports/draft/tokenizer_config.json", False),
        ("exports/draft/README.md", False),
    ],
)
def test_hook_takes_the_files_of_a_checkpoint(path: str, passed: bool) -> None:
    pattern = re.search(r"^  files: (.+)$", HOOKS, re.MULTILINE)
    assert pattern
    assert bool(re.search(pattern[1], path)) is passed


def test_pre_commit_itself(tmp_path: Path) -> None:
    """A scratch repository with this hook, offline: the same entry and files, but the drafcheck at hand."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    pytest.importorskip("pre_commit", reason="pre-commit is not installed")
    config = HOOKS.replace("language: python", "language: system").replace(
        "entry: drafcheck", f"entry: {sys.executable} -m drafcheck --engine sglang==0.5.9"
    )
    hook = "".join(f"    {line}\n" for line in config.splitlines())
    (tmp_path / ".pre-commit-config.yaml").write_text(f"repos:\n- repo: local\n  hooks:\n{hook}")
    draft = Draft(target=None)
    draft.write(tmp_path / "draft")
    env = {
        **os.environ,
        "PRE_COMMIT_HOME": str(tmp_path / "cache"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "NO_COLOR": "1",
    }

    def call(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)

    assert call("git", "init", "-q").returncode == 0
    call("git", "add", "draft", ".pre-commit-config.yaml")
    passed = call(sys.executable, "-m", "pre_commit", "run", "--all-files")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    draft.drop("fc.weight")
    draft.write(tmp_path / "draft")
    call("git", "add", "draft")
    failed = call(sys.executable, "-m", "pre_commit", "run", "--all-files")
    assert failed.returncode == 1
    assert "DC102" in failed.stdout
    assert failed.stdout.count("draft: broken") == 1
