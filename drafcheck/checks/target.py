"""DC601 and DC603: the target class and the engine version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from packaging.version import Version

from drafcheck.contract import load_toml
from drafcheck.draftmode import one_of
from drafcheck.finding import Confidence, Severity
from drafcheck.registry import Hit, rule
from drafcheck.subject import Subject
from drafcheck.targets import capturing_algorithms, refused_by_words

if TYPE_CHECKING:
    from drafcheck.config import TargetConfig
    from drafcheck.targets import TargetClass


@rule("DC601", "target-unsupported", Severity.ERROR, needs=("target",))
def target_unsupported(s: Subject) -> Iterator[Hit]:
    """The target cannot be drafted for in this engine version.

    ## What it does
    Looks up the target's class: whether this version has it, whether it hands over hidden states, and whether it
    lets a drafter borrow its embedding and head. Says since which version it does.

    ## Why is this bad?
    The server stops at start (`AttributeError`), or runs a drafter that gets none of what it was trained on.

    ## Fix
    Use the version named, or another engine.
    """
    assert s.target is not None
    error = refused_by_words(s.engine, s.target, s.algorithm)
    if error is not None:
        yield _refused(s, s.target, error)
        return
    found = s.target_class
    obstacle = _obstacle(s, found) if found is not None else None
    if found is None or obstacle is None:
        return
    since = found.drafted_for_since
    known = found.registered_since is not None and s.engine.exact
    yield Hit(
        f"{s.engine} cannot draft for {found.architecture}: {obstacle}",
        (s.target.at("architectures"),),
        help=_help(s, found, since),
        confidence=Confidence.CERTAIN if known else Confidence.LIKELY,
        stops=not found.registered or load_toml(s.engine.name, "targets.toml")["capture"].get("asks", True),
    )


def _refused(s: Subject, target: TargetConfig, error: str) -> Hit:
    """A target that this release refuses by name. What its class can do counts in releases without such a list."""
    since = s.target_class.captures_since if s.target_class is not None else None
    return Hit(
        f"{s.engine} drafts for no target of model_type {target.language.get('model_type')}: {error}",
        (target.at(*target.route, "model_type"),),
        help=f"use {s.engine.name} {since} or later" if since and _later(s, since) else "use a later release",
        confidence=Confidence.CERTAIN if s.engine.exact else Confidence.LIKELY,
        stops=True,
    )


def _obstacle(s: Subject, found: TargetClass) -> str | None:
    if not found.registered:
        since = found.registered_since
        return f"it has the class only since {since}" if since else "no known release has such a class"
    if not one_of(s.algorithm, capturing_algorithms(s.engine)):
        return None
    if not found.captures:
        return f"the class hands over hidden states {_span(s, found)}"
    return None if found.has_head else "the class does not let a drafter borrow its embedding and head"


def _span(s: Subject, found: TargetClass) -> str:
    since = found.captures_since
    if since is None:
        return "in no known release"
    return f"only from {since} on" if _later(s, since) else f"only in {found.captured_in}"


def _later(s: Subject, since: str) -> bool:
    return Version(since) > s.engine.known


def _help(s: Subject, found: TargetClass, since: str | None) -> str:
    if since is None:
        return "use another engine or another kind of draft"
    return f"use {s.engine.name} {since} or later" if _later(s, since) else f"use {s.engine.name}{found.captured_in}"


@rule("DC603", "unknown-engine-version", Severity.NOTE)
def unknown_engine_version(s: Subject) -> Iterator[Hit]:
    """This engine version was not read: the nearest known one stands in for it.

    ## What it does
    Says which release's contract was used: the last one known before it, else the oldest. Where the release lies
    between two that are known, it is interpolated, and the note says whether both require the same of this draft class.

    ## Why is this bad?
    Loaders change: what is said here may not hold for the version that will serve the drafter.

    ## Fix
    Name a known version with `--engine`, or update drafcheck. `drafcheck contracts` lists the versions known.
    """
    if not s.engine.exact:
        stand_in = f"{s.engine} is not a known release: judged as {s.engine.name} {s.engine.known}"
        yield Hit(stand_in + _between(s))


def _between(s: Subject) -> str:
    """What the next release that is known says of an interpolated one; nothing for one that is newer than all."""
    from drafcheck.proof import following, requires_the_same

    after = following(s.engine)
    if after is None:
        return ""
    between = f", interpolated between it and {after}"
    if s.contract is None:
        return between
    same = requires_the_same(s.engine, s.contract.architecture)
    return f"{between}, which {'requires' if same else 'does not require'} the same of {s.contract.architecture}"
