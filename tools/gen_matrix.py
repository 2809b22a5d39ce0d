"""The table of README.md that says which engine takes whose checkpoints, from real runs on those of the producers."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from recorded import unpack

from drafcheck.report.model import Matrix, Outcome, Verdict
from drafcheck.runner import lint_many
from drafcheck.session import Options

ARCHIVE = Path(__file__).parent.parent / "fixtures" / "producers" / "producers.tar.xz"

WORDS = {
    Outcome.CLEAN: "takes it",
    Outcome.DEGRADED: "takes it, {code}",
    Outcome.BROKEN: "broken, {code}",
    Outcome.REFUSED: "refuses it, {code}",
    Outcome.INCOMPLETE: "not known",
}


@cache
def rows() -> tuple[Matrix, ...]:
    """What the newest release of every engine makes of each checkpoint that the producers wrote; run once."""
    with tempfile.TemporaryDirectory() as room:
        unpack(ARCHIVE, Path(room))
        folders = sorted(path.parent for path in Path(room).rglob("config.json"))
        return lint_many(folders, Options(engine="all")).matrix


def table() -> str:
    """One row a checkpoint, one column an engine; codes lead to the rule."""
    heads = [f"{v.engine.name} {v.engine.version}" for v in rows()[0].engines]
    lines = [["checkpoint", *heads], ["---"] * (1 + len(heads))]
    lines += [[Path(row.path).name, *map(cell, row.engines)] for row in rows()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(verdict: Verdict) -> str:
    """What an engine makes of it, and the code of the worst finding."""
    first = verdict.first
    code = "" if first is None else f"[{first.rule}](docs/rules.md#{first.rule.lower()}-{first.name})"
    return WORDS[verdict.outcome].format(code=code)
