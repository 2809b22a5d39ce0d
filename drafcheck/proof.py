"""How each contract was proven, release by release: by running the real class, by reading it, or by neither."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from packaging.version import Version

from drafcheck.contract import Engine, Table, contract_for, holds, load_toml, releases
from drafcheck.contract_tables import contract_table
from drafcheck.targets import registered

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
    return _proofs([release for _, known in eras(engine, stem) for release in known], contract_table(engine, stem))


def eras(engine: str, stem: str) -> list[tuple[Table, list[Version]]]:
    """The eras of a contract, oldest first, each with the releases that it is in force for.

    Those are releases which register a class of the contract: what it extends may speak of earlier ones. Of two eras
    that hold for a release the first counts, as everywhere.
    """
    book = contract_table(engine, stem)
    found: dict[int, list[Version]] = {}
    for release in releases(engine):
        if _has_class(engine, release, book.get("architectures", [])):
            held = (n for n, era in enumerate(book.get("revision", [])) if holds(era.get("versions", ""), release))
            number = next(held, None)
            if number is not None:
                found.setdefault(number, []).append(release)
    return [(book["revision"][number], known) for number, known in found.items()]


def _has_class(engine: str, release: Version, names: list[str]) -> bool:
    """Whether the release registers one of the classes, or builds one whatever the config names."""
    book = load_toml(engine, "registry.toml")
    known = Engine(engine, str(release), release, exact=True)
    return any(name in book.get("built", {}).values() or registered(known, name) for name in names)


def whole_models(engine: str) -> list[Proof]:
    """How it was proven what the releases make of a whole model that drafts; empty where the book says nothing."""
    said = load_toml(engine, "registry.toml").get("whole_models", {})
    return _proofs([r for r in releases(engine) if holds(said["versions"], r)] if "versions" in said else [], said)


def _proofs(known: list[Version], said: Table) -> list[Proof]:
    executed, read = _said(said.get("proof", {}))
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
    return in_words([p.release for p in found], {p.release for p in found if p.how == how})


def in_words(known: Sequence[Version], wanted: Collection[Version]) -> str:
    """Those of the known releases that are wanted, runs of neighbours shortened."""
    runs: list[list[Version]] = []
    before = False
    for release in known:
        if release in wanted:
            runs = [*runs[:-1], [*runs[-1], release]] if before else [*runs, [release]]
        before = release in wanted
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
