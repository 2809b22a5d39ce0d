"""What several tests share: lint an edited draft, and look at what it says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drafts import Draft

from drafcheck import lint
from drafcheck.finding import Finding, Severity

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


def package_index(folder: Path) -> bool:
    """Whether pip reaches an index: asked for the one package that building drafcheck needs."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--timeout", "5", "--retries", "0"]
    done = subprocess.run([*pip, "-d", str(folder), "hatchling"], capture_output=True, timeout=120, check=False)
    return done.returncode == 0
