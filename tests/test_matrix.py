"""The matrix of README.md: every producer's checkpoint, every engine, and what the real loaders answered."""

from __future__ import annotations

import tarfile
from pathlib import Path

import gen_matrix
import pytest
import recorded
from packaging.version import Version

from drafcheck.contract import engines, releases
from drafcheck.report.model import Outcome

VERDICTS = gen_matrix.ARCHIVE.parent.parent / "verdicts"


def test_every_checkpoint_has_a_row_and_every_engine_a_column() -> None:
    with tarfile.open(gen_matrix.ARCHIVE) as packed:
        names = {Path(name).parent.name for name in packed.getnames() if name.endswith("/config.json")}
    assert {Path(row.path).name for row in gen_matrix.rows()} == names
    assert len(gen_matrix.rows()) == len(names) > 30
    newest = [(name, str(releases(name)[-1])) for name in engines()]
    assert {tuple((v.engine.name, v.engine.version) for v in row.engines) for row in gen_matrix.rows()} == {(*newest,)}
    assert gen_matrix.table().count("\n") == len(names) + 2


@pytest.mark.parametrize("engine", sorted(path.name for path in VERDICTS.iterdir() if path.is_dir()))
def test_no_cell_says_otherwise_than_the_real_loader(engine: str) -> None:
    """What is refused was refused by the real loader, and what is taken was loaded."""
    newest = str(releases(engine)[-1])
    rows = recorded.rows(VERDICTS / engine / "producers.jsonl")
    if Version(newest) > max(Version(row["version"]) for row in rows):
        pytest.skip(f"{engine} {newest} was read, and its loader not asked")
    answers = {row["checkpoint"]: row["error"] for row in rows if row["version"] == newest}
    assert len(answers) > 20
    compared = 0
    for row in gen_matrix.rows():
        verdict = next(v for v in row.engines if v.engine.name == engine)
        name = Path(row.path).name
        if name in answers and verdict.outcome is not Outcome.INCOMPLETE:
            wrong = (name, verdict, answers[name])
            assert (verdict.outcome in (Outcome.REFUSED, Outcome.BROKEN)) or answers[name] is None, wrong
            assert verdict.outcome is not Outcome.REFUSED or answers[name] is not None, wrong
            compared += 1
    assert compared > 10


def test_a_cell_names_the_rule() -> None:
    verdict = next(v for row in gen_matrix.rows() for v in row.engines if v.outcome is Outcome.REFUSED)
    assert verdict.first is not None
    assert gen_matrix.cell(verdict).startswith(f"refuses it, [{verdict.first.rule}](docs/rules.md#")
    assert gen_matrix.cell(verdict.model_copy(update={"outcome": Outcome.CLEAN, "first": None})) == "takes it"
