"""The hook: which files start it, and pre-commit itself on a scratch repository, with and without LFS."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import helpers
import pytest
from drafts import Draft
from helpers import need_index
from weightfiles import POINTER

ROOT = Path(__file__).parent.parent
HOOKS = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
AUTHOR = ("-c", "user.name=test", "-c", "user.email=test@localhost")


@pytest.mark.parametrize(
    ("path", "passed"),
    [
        ("config.json", True),
        ("exports/draft/config.json", True),
        ("exports/draft/target_config.json", True),
        ("exports/draft/model-00001-of-00002.safetensors", True),
        ("exports/draft/model.safetensors.index.json", True),
        ("exports/draft/pytorch_model.bin", True),
        ("exports/draft/model.pt", True),
        ("exports/draft/tokenizer_config.json", False),
        ("exports/draft/README.md", False),
        ("src/my-config.json", False),
    ],
)
def test_hook_takes_the_files_of_a_checkpoint(path: str, passed: bool) -> None:
    pattern = re.search(r"^  files: (.+)$", HOOKS, re.MULTILINE)
    assert pattern
    assert bool(re.search(pattern[1], path)) is passed


class Scratch:
    """A git repository of its own whose hooks are those of its .pre-commit-config.yaml."""

    def __init__(self, root: Path, config: str) -> None:
        if shutil.which("git") is None:
            pytest.skip("git is not installed")
        pytest.importorskip("pre_commit", reason="pre-commit is not installed")
        self.root = root / "scratch"
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTHONPATH"))},
            "PRE_COMMIT_HOME": str(root / "cache"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "NO_COLOR": "1",
        }
        self.root.mkdir()
        (self.root / ".pre-commit-config.yaml").write_text(config)
        self.call("git", "init", "-q")
        self.call("git", "add", ".pre-commit-config.yaml")

    def call(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        known: dict[str, Any] = {"cwd": self.root, "env": self.env, "timeout": 300, **options}
        return subprocess.run(command, check=False, capture_output=True, text=True, **known)

    def add(self, draft: Draft, name: str = "draft") -> None:
        draft.write(self.root / name)
        self.call("git", "add", name)

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.call(sys.executable, "-m", "pre_commit", "run", *args)


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    """The hook as it is shipped, offline: the drafcheck at hand instead of one that is installed for it."""
    local = HOOKS.replace("language: python", "language: system")
    local = local.replace("entry: drafcheck", f"entry: env PYTHONPATH={ROOT} {sys.executable} -m drafcheck")
    hook = "".join(f"    {line}\n" for line in local.splitlines())
    return Scratch(tmp_path, f"repos:\n- repo: local\n  hooks:\n{hook}      args: [--engine, sglang==0.5.9]\n")


def test_pre_commit_itself(scratch: Scratch) -> None:
    draft = Draft(target=None)
    scratch.add(draft)
    passed = scratch.run("--all-files")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "draft: clean" in passed.stdout
    draft.drop("fc.weight")
    scratch.add(draft)
    failed = scratch.run("--all-files")
    assert failed.returncode == 1
    assert "DC102" in failed.stdout
    assert failed.stdout.count("draft: broken") == 1


def test_a_commit_is_stopped(scratch: Scratch) -> None:
    """Through git's own hook, and started only for what belongs to a checkpoint."""
    scratch.call(sys.executable, "-m", "pre_commit", "install")
    draft = Draft(target=None)
    draft.drop("fc.weight")
    scratch.add(draft)
    stopped = scratch.call("git", *AUTHOR, "commit", "-q", "-m", "draft")
    assert stopped.returncode == 1, stopped.stderr
    assert "DC102" in stopped.stderr + stopped.stdout
    scratch.call("git", "rm", "-q", "-r", "--cached", "draft")
    (scratch.root / "notes.md").write_text("no checkpoint\n")
    scratch.call("git", "add", "notes.md")
    other = scratch.call("git", *AUTHOR, "commit", "-q", "-m", "notes")
    assert other.returncode == 0, other.stderr
    assert "no files to check" in other.stderr + other.stdout


def test_files_of_no_draft_are_passed_over(scratch: Scratch) -> None:
    """Alone they never fail a commit; beside them a broken draft still does."""
    files = {
        "app/config.json": b'{"port": 1}',
        "fw/firmware.bin": Random(1).randbytes(3000),
        "tgt/config.json": b'{"architectures": ["LlamaForCausalLM"]}',
    }
    for name, content in files.items():
        (scratch.root / name).parent.mkdir()
        (scratch.root / name).write_bytes(content)
        scratch.call("git", "add", name)
    passed = scratch.run("--all-files")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert re.findall(r"^passed over: ([^:]+):", passed.stdout, re.MULTILINE) == ["app", "fw/firmware.bin", "tgt"]
    draft = Draft(target=None)
    draft.drop("fc.weight")
    scratch.add(draft)
    failed = scratch.run("--all-files")
    assert failed.returncode == 1
    assert "DC102" in failed.stdout and failed.stdout.count("passed over: ") == 3


@pytest.mark.parametrize(("value", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_no_index_is_a_failure_where_one_is_needed(
    monkeypatch: pytest.MonkeyPatch, value: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setattr(helpers, "package_index", lambda: False)
    monkeypatch.setenv(helpers.NEEDS_INDEX, value)
    with pytest.raises(outcome, match="no package index to install drafcheck from"):
        need_index("drafcheck")


def test_the_index_is_asked_three_times_and_once_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(helpers, "_reached", lambda seconds: asked.append(seconds) or len(asked) == 3)
    fresh = functools.cache(helpers.package_index.__wrapped__)
    assert fresh() and fresh()
    assert len(asked) == 3 and asked == sorted(asked)


def test_ci_wants_an_index() -> None:
    assert f"export {helpers.NEEDS_INDEX}=1" in (ROOT / ".ci" / "run").read_text()


def test_weights_that_lfs_did_not_fetch(scratch: Scratch) -> None:
    """Only the config is checked, which is said; a fault of the config still fails."""
    draft = Draft(target=None, files={"model.safetensors": POINTER})
    scratch.add(draft)
    passed = scratch.run("--all-files")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "`model.safetensors` is a git lfs pointer, so only the config was checked" in passed.stdout
    assert "how it loads was not checked" in passed.stdout
    draft.set(num_hidden_layers=2)
    scratch.add(draft)
    failed = scratch.run("--all-files")
    assert failed.returncode == 1
    assert "DC203" in failed.stdout


def test_pre_commit_installs_this_repository(tmp_path: Path) -> None:
    """As a user has it: a repository and a revision; pre-commit builds and installs drafcheck for the hook."""
    need_index("drafcheck's build backend")
    here = tmp_path / "drafcheck"
    scratch = Scratch(tmp_path, "")
    for folder in ("drafcheck", "rules"):
        shutil.copytree(ROOT / folder, here / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".pre-commit-hooks.yaml", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, here / name)
    scratch.call("git", "init", "-q", cwd=here)
    scratch.call("git", "add", ".", cwd=here)
    scratch.call("git", *AUTHOR, "commit", "-q", "-m", "release", cwd=here)
    revision = scratch.call("git", "rev-parse", "HEAD", cwd=here).stdout.strip()
    (scratch.root / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {here}\n  rev: {revision}\n  hooks:\n"
        "  - id: drafcheck\n    files: ^draft/\n    args: [--engine, sglang==0.5.9]\n"
    )
    draft = Draft(target=None)
    draft.drop("fc.weight")
    scratch.add(draft)
    failed = scratch.run("--all-files")
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "DC102" in failed.stdout
