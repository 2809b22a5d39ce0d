"""What several tests share: lint an edited draft, and look at what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft

from drafcheck import lint
from drafcheck.finding import Finding, Severity

NEEDS_INDEX = "DRAFCHECK_NEEDS_INDEX"
"""Where this is set, as .ci/run does, a test that installs for real may not be skipped."""

Edit = Callable[[Draft], object]


def lint_draft(folder: Path, edit: Edit | None = None, version: str = "0.5.15", **options: Any) -> list[Finding]:
    """The findings on a healthy EAGLE-3 draft (hidden 32, 8 target layers) after one edit, for one SGLang release."""
    draft = Draft()
    if edit is not None:
        edit(draft)
    draft.write(folder)
    report = lint(folder, engine=f"sglang=={version}", **options)
    return list(report.checkpoints[0].findings)


def of(findings: list[Finding], code: str) -> list[Finding]:
    """The findings of one rule."""
    return [f for f in findings if f.rule == code]


def codes(findings: list[Finding]) -> set[str]:
    """The rules that found an error or a warning."""
    return {f.rule for f in findings if f.severity is not Severity.NOTE}


@cache
def package_index() -> bool:
    """Whether pip reaches an index: asked for the one package that building drafcheck needs, at most three times."""
    return any(_reached(seconds) for seconds in (10, 20, 40))


def _reached(seconds: int) -> bool:
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--timeout", str(seconds), "--retries", "0"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            command = [*pip, "-d", folder, "hatchling"]
            done = subprocess.run(command, capture_output=True, timeout=2 * seconds, check=False)
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def need_index(what: str) -> None:
    """Skip the test when there is no index to install ``what`` from; with DRAFCHECK_NEEDS_INDEX set, fail it."""
    if package_index():
        return
    message = f"no package index to install {what} from"
    if os.environ.get(NEEDS_INDEX):
        pytest.fail(f"{message}, and {NEEDS_INDEX} is set")
    pytest.skip(message)
