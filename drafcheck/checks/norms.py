"""DC407 and DC408: norms around `fc` that the drafter was trained with, and those that the engine applies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.names import names, places, plans, quietly
from drafcheck.fc import at
from drafcheck.finding import Severity
from drafcheck.heads import misfit
from drafcheck.lookup import MISSING, raw
from drafcheck.normflags import Idle, Unswitched, idle, unswitched
from drafcheck.registry import Hit, rule
from drafcheck.words import count, listed

if TYPE_CHECKING:
    from drafcheck.subject import Subject


@rule("DC407", "norm-flag", Severity.ERROR, Severity.NOTE, needs=("contract", "load", "config"))
def norm_flag(s: Subject) -> Iterator[Hit]:
    """Norm tensors without the flag that makes this release use them, or the flag without the tensors.

    ## What it does
    Looks for tensors such as `input_norm.weight` and `fc_norm.0.weight` that this release drops because config.json
    does not set the flag that goes with them, sets it at a place that is not read, or because the release does not
    know the norm yet. The other way round, a flag without tensors, is a note.

    ## Why is this bad?
    The drafter was trained on normed hidden states and is served without the norm, and nothing is said: accept length
    1.1 instead of 2.68 for a public gpt-oss head whose layers were off as well (sglang issue 32226). A norm that is
    switched on and has no tensor starts as ones, which cost little where it was measured (2.26 against 2.30 with
    `fc_norm` on SGLang 0.5.15.post1).

    ## Fix
    Set the flag where the message says, or serve with a release that knows the norm.
    """
    plan, _ = plans(s)
    if misfit(s) is not None or (plan.refused is not None and plan.refused.cause == "name"):
        return
    for group in unswitched(s):
        yield _without_flag(s, group)
    for unfilled in idle(s):
        yield _without_tensors(s, unfilled)


def _without_flag(s: Subject, group: Unswitched) -> Hit:
    _, contract = plans(s)
    tensors = list(group.tensors)
    verb = "is" if len(tensors) == 1 else "are"
    return Hit(
        f"{listed([t.name for t in tensors])} {verb} dropped {quietly(contract)}: {_why(s, group)}",
        (*places(tensors), *(at(s, key) for key in (group.stated or _denied(s, group)))),
        help=_flag_help(group),
        fixable=group.since is None,
        about=names(tensors),
    )


def _why(s: Subject, group: Unswitched) -> str:
    if group.since is not None:
        return f"{s.engine} has no such norm"
    if not group.stated:
        return f"`{_key_to_set(group)}` is not set"
    if any(key in group.keys for key in group.stated):
        return f"`{group.keys[0]}` says no, and {s.engine} takes that before `{group.stated[0]}`"
    return f"`{group.stated[0]}` is set where {s.engine} does not look"


def _denied(s: Subject, group: Unswitched) -> list[str]:
    """The keys that are there and say no."""
    assert s.config is not None
    return [key for key in group.keys if raw(s.config, key) is not MISSING]


def _flag_help(group: Unswitched) -> str:
    set_it = f"set `{_key_to_set(group)}` to true in config.json"
    if group.since is None:
        return set_it
    serve = f"serve with a release from {group.since} on"
    return f"{serve}, which applies it" if group.read else f"{serve}, and {set_it}"


def _key_to_set(group: Unswitched) -> str:
    """The key that is sure to be heeded: the first one where an earlier one says no, else the one at the top level."""
    if any(key in group.keys for key in group.stated):
        return group.keys[0]
    return next((key for key in group.keys if "." not in key), group.keys[0])


def _without_tensors(s: Subject, group: Idle) -> Hit:
    return Hit(
        f"`{group.key}` is set and the file has no tensor for {count(len(group.parameters), 'norm')} of {s.engine} "
        f"(left: all ones): {listed(group.parameters)}",
        (at(s, group.key),),
        help=f"set `{group.key}` to false if the drafter was trained without, else export it again with the tensors",
        severity=Severity.NOTE,
        about=group.parameters,
    )
