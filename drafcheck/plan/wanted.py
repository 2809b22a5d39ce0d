"""Under which name a loader would have taken a tensor that it drops: wrappers taken off, dialects translated."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from drafcheck.contract import load_toml
from drafcheck.plan.names import route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drafcheck.contract import Contract
    from drafcheck.plan.model import LoadPlan


@dataclass(frozen=True, slots=True)
class Wanted:
    """The name that would do, the parameter it reaches, and what stands between: a wrapper, a dialect, or both."""

    name: str
    parameter: str
    wrapper: str = ""
    dialect: str = ""
    foreign: bool = False


def wanted_name(contract: Contract, plan: LoadPlan, name: str) -> Wanted | None:
    """The nearest other spelling of ``name`` that this loader takes; None when there is none."""
    for (bare, wrapper), (renames, dialect, foreign) in product(_unwrapped(name), _dialects()):
        candidate = _translate(bare, renames)
        if candidate == name or candidate is None:
            continue
        found = route(contract, candidate, plan.parameters)
        if found.end in ("parameter", "mapping"):
            return Wanted(candidate, found.parameter, wrapper, dialect, foreign)
    return None


def _unwrapped(name: str) -> Iterator[tuple[str, str]]:
    """The name as it is, then with one or two wrapper prefixes taken off."""
    yield name, ""
    prefixes = [entry["prefix"] for entry in load_toml("dialects.toml").get("wrapper", [])]
    for prefix in prefixes:
        if name.startswith(prefix):
            rest = name[len(prefix) :]
            yield rest, prefix
            yield from ((rest[len(p) :], prefix + p) for p in prefixes if rest.startswith(p))


def _dialects() -> list[tuple[list[list[str]], str, bool]]:
    listed = load_toml("dialects.toml").get("dialect", [])
    return [([], "", False)] + [(d["rename"], d["name"], bool(d.get("foreign"))) for d in listed]


def _translate(name: str, renames: list[list[str]]) -> str | None:
    """``name`` with the first rename that fits its beginning; None when the dialect says nothing about it."""
    if not renames:
        return name
    return next((new + name[len(old) :] for old, new in renames if name.startswith(old)), None)


def writer_of(dialect: str) -> str:
    """Who writes a dialect, for messages."""
    entries = load_toml("dialects.toml").get("dialect", [])
    return next((str(d["by"]) for d in entries if d["name"] == dialect), dialect)
