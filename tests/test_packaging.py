"""What is shipped: the rules inside the wheel, the schema."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from drafts import Draft

from drafcheck import __version__

ROOT = Path(__file__).parent.parent


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
    assert {"drafcheck/report/schema.json", "drafcheck/settings.schema.json", "drafcheck/py.typed"} <= names
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
