"""How each contract was proven, release by release: by running the real class, by reading it, or by neither."""

from __future__ import annotations

from typing import Literal, NamedTuple

from packaging.version import Version

from drafcheck.contract import Engine, Table, contract_for, holds, releases
from drafcheck.contract_tables import contract_table

How = Literal["executed", "read", "interpolated", "assumed"]

MEANINGS: dict[str, str] = {
    "executed": "the engine's own class was run, and what it did with every tensor is what the contract says",
    "read": "the engine's source was read",
    "interpolated": "between two releases that were executed or read, with neither done for this class",
    "assumed": "before the first or after the last release that was executed or read, or nothing is said",
}


class Proof(NamedTuple):
    """One release, and how a contract was proven for it; ``checkpoints`` is 0 where the number is not known."""

    release: Version
    how: How
    checkpoints: int = 0


def proofs(engine: str, stem: str) -> list[Proof]:
    """How the contract ``<engine>/<stem>`` was proven, for each release that it speaks of, oldest first."""
    book = contract_table(engine, stem)
    known = [r for r in releases(engine) if any(holds(era.get("versions", ""), r) for era in book.get("revision", []))]
    executed, read = _said(book.get("proof", {}))
    firm = [r for r in known if r in executed or r in read]
    return [Proof(r, _how(r, executed, read, firm), executed.get(r, 0)) for r in known]


def _how(release: Version, executed: dict[Version, int], read: set[Version], firm: list[Version]) -> How:
    if release in executed:
        return "executed"
    if release in read:
        return "read"
    return "interpolated" if firm and firm[0] < release < firm[-1] else "assumed"


def _said(proof: Table) -> tuple[dict[Version, int], set[Version]]:
    executed = proof.get("executed", [])
    counts = executed if isinstance(executed, dict) else dict.fromkeys(executed, 0)
    return {Version(r): n for r, n in counts.items()}, {Version(r) for r in proof.get("read", [])}


def spans(found: list[Proof], how: How) -> str:
    """The releases with one kind of proof in words, runs of neighbours shortened: ``0.4.5, 0.5.1 to 0.5.9``."""
    runs: list[list[Version]] = []
    before: str | None = None
    for proof in found:
        if proof.how == how:
            runs = [*runs[:-1], [*runs[-1], proof.release]] if before == how else [*runs, [proof.release]]
        before = proof.how
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def following(engine: Engine) -> Version | None:
    """The next release that the book knows, for one that lies between two; None for any other."""
    after = next((release for release in releases(engine.name) if release > engine.known), None)
    return after if after is not None and engine.known < Version(engine.version) < after else None


def requires_the_same(engine: Engine, architecture: str) -> bool:
    """Whether the two known releases around an interpolated one require the same of a draft class."""
    after = following(engine)
    if after is None:
        return False
    before, later = (contract_for(engine._replace(known=known), architecture) for known in (engine.known, after))
    if before is None or later is None:
        return False
    return before == later._replace(summary=before.summary, engine=before.engine)
