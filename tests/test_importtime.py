"""A cold start imports nothing heavy: what the main job imports is compared with what click and pydantic need alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from drafts import Draft

HEAVY = (
    "drafcheck.gate_command",
    "torch",
    "numpy",
    "huggingface_hub",
    "importlib.metadata",
    "hypothesis",
    "safetensors",
    "asyncio",
    "requests",
    "xml",
    "yaml",
    "drafcheck.launch",
)
UNASKED = {
    f"drafcheck.{name}"
    for name in (
        "settings_model",
        "suppress",
        "baseline",
        "plugins",
        "contract_folders",
        "several",
        "proof",
        "report.matrix",
        "report.show",
        "valuescan.formats",
        "valuescan.model",
    )
}
FLOOR = """
import click
from pydantic import BaseModel
class Model(BaseModel):
    field: int
Model(field=1)
"""


def imported(*command: str) -> set[str]:
    """Every module that a fresh interpreter imports while it runs ``command``."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True, timeout=120, check=False
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert len(lines) > 20, done.stderr
    return {line.rpartition("|")[2].strip() for line in lines}


def heavy(modules: set[str]) -> set[str]:
    return {m for m in modules if any(m == name or m.startswith(f"{name}.") for name in HEAVY)}


@pytest.fixture(scope="module")
def floor() -> set[str]:
    return heavy(imported("-c", FLOOR))


def test_a_lint_imports_nothing_heavy(tmp_path: Path, floor: set[str]) -> None:
    Draft().write(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "drafcheck-models"\n')  # no settings in it
    for style in ("full", "json"):
        modules = imported("-m", "drafcheck", str(tmp_path), "--engine", "sglang==0.5.15", "--format", style)
        assert {"drafcheck.plan.load", f"drafcheck.report.{style}"} <= modules
        assert heavy(modules) - floor == set()
        assert modules & UNASKED == set()


@pytest.mark.parametrize("command", ["--help", "--version"])
def test_help_imports_not_even_pydantic(command: str) -> None:
    modules = imported("-m", "drafcheck", command)
    assert heavy(modules) == set()
    assert "pydantic" not in modules
    assert "packaging" not in modules


def test_the_package_itself_imports_nothing() -> None:
    modules = imported("-c", "import drafcheck")
    assert {m for m in modules if m.startswith("drafcheck")} == {"drafcheck"}
    assert "click" not in modules
