"""DC407 and DC408: norms around `fc` that the drafter was trained with, and those that the engine applies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.names import names, places, plans, quietly
from drafcheck.conversion import route_to
from drafcheck.fc import at
from drafcheck.finding import Confidence, Severity
from drafcheck.lookup import MISSING, raw
from drafcheck.normflags import (
    Idle,
    Unswitched,
    flag_help,
    idle,
    key_to_set,
    measured_as_ones,
    refused_for_flag,
    unswitched,
)
from drafcheck.producers import producer_of, weaker
from drafcheck.registry import Hit, rule
from drafcheck.words import count, listed

if TYPE_CHECKING:
    from drafcheck.contract import Table
    from drafcheck.plan.model import LoadPlan
    from drafcheck.producers import Producer
    from drafcheck.subject import Subject
    from drafcheck.trial import Changes


@rule(
    "DC407",
    "norm-flag",
    Severity.ERROR,
    Severity.WARNING,
    Severity.NOTE,
    needs=("contract", "load", "config"),
    concerns="fit",
)
def norm_flag(s: Subject) -> Iterator[Hit]:
    """Norm tensors without the flag that makes this release use them, or the flag without the tensors.

    ## What it does
    Looks for tensors such as `input_norm.weight` and `fc_norm.0.weight` that this release drops because config.json
    does not set the flag that goes with them, sets it at a place that is not read, or because the release does not
    know the norm yet. Also where it stops at them, unless a later release alone knows the norm: that is DC104's. The
    other way round, a flag without tensors, is a note for `fc_norm`, whose cost was measured, and else a warning. The
    two norms do not shut each other out: where both flags are set, the Llama class of SGLang (0.5.17 on) and that of
    vLLM (0.22.1 on) apply both, `input_norm` to all states together and then `fc_norm` to each.

    ## Why is this bad?
    The drafter was trained on normed hidden states and is served without the norm, and nothing is said: accept length
    1.1 instead of 2.68 for a public gpt-oss head whose layers were off as well (sglang issue 32226). A norm that is
    switched on and has no tensor starts as ones, which cost little where it was measured (2.26 against 2.30 with
    `fc_norm` on SGLang 0.5.15.post1).

    ## Fix
    Set the flag where the message says, or serve with a release that knows the norm.
    """
    plan, _ = plans(s)
    loud = plan.refused is not None and plan.refused.cause == "name"
    for group in unswitched(s):
        if not loud or refused_for_flag(plan, group):
            yield _without_flag(s, group)
    if loud:
        return
    for unfilled in idle(s):
        yield _without_tensors(s, unfilled)


def _without_flag(s: Subject, group: Unswitched) -> Hit:
    plan, contract = plans(s)
    tensors = list(group.tensors)
    verb = "is" if len(tensors) == 1 else "are"
    end = f"refused ({_error(plan, group)})" if refused_for_flag(plan, group) else f"dropped {quietly(plan, contract)}"
    return Hit(
        f"{listed([t.name for t in tensors])} {verb} {end}: {_why(s, group)}",
        (*places(tensors), *(at(s, key) for key in (group.stated or _denied(s, group)))),
        help=flag_help(group),
        fixable=flag_set(s, group) is not None,
        about=names(tensors),
    )


def flag_set(s: Subject, group: Unswitched) -> Changes | None:
    """The flag with which this release applies the norms, where it looks; None when it does not know them."""
    route = route_to(s, key_to_set(group)) if group.since is None else None
    if route is None or s.written is None:
        return None
    table = s.written.get(*route[:-1])
    return {route: True} if table is None or isinstance(table, dict) else None


def _error(plan: LoadPlan, group: Unswitched) -> str:
    names_of = {t.name for t in group.tensors}
    return next(r.error for r in plan.lost.because("name") if r.tensor is not None and r.tensor.name in names_of)


def _why(s: Subject, group: Unswitched) -> str:
    if group.since is not None:
        return f"{s.engine} has no such norm"
    if not group.stated:
        return f"`{key_to_set(group)}` is not set"
    if any(key in group.keys for key in group.stated):
        return f"`{group.keys[0]}` says no, and {s.engine} takes that before `{group.stated[0]}`"
    return f"`{group.stated[0]}` is set where {s.engine} does not look"


def _denied(s: Subject, group: Unswitched) -> list[str]:
    """The keys that are there and say no."""
    assert s.written is not None
    return [key for key in group.keys if raw(s.written, key) is not MISSING]


def _without_tensors(s: Subject, group: Idle) -> Hit:
    return Hit(
        f"`{group.key}` is set and the file has no tensor for {count(len(group.parameters), 'norm')} of {s.engine} "
        f"(left: all ones): {listed(group.parameters)}",
        (at(s, group.key),),
        help=f"set `{group.key}` to false if the drafter was trained without, else export it again with the tensors",
        severity=Severity.NOTE if measured_as_ones(plans(s)[1], group.parameters) else Severity.WARNING,
        about=group.parameters,
    )


@rule("DC408", "norm-semantics", Severity.WARNING, Severity.NOTE, needs=("contract", "config"), concerns="fit")
def norm_semantics(s: Subject) -> Iterator[Hit]:
    """A key asks for a computation that this release does not do, or means another one to who wrote it.

    ## What it does
    Looks at the keys that change what is computed without a trace in the tensors: `norm_before_residual`,
    `norm_output`, and ModelOpt's `use_last_layernorm` and `use_input_layernorm_in_first_layer`. Reports a value that
    this release does not go by and that asks for something else than it always does, unless the exporter is one that
    never trains so; and `norm_output` in a config of SpecForge, where it says whether there is a norm before `lm_head`.
    `rms_norm_eps` is not judged: the file does not say what it was in training.

    ## Why is this bad?
    The drafter is served with another computation than it was trained with, and nothing is said. `norm_output` the
    other way round cost nothing on SGLang 0.5.15.post1 (accept length 2.32 against 2.30), so it is a note; for
    `norm_before_residual` no measurement is known.

    ## Fix
    Serve with an engine that goes by the key, or train as this one computes.
    """
    assert s.contract is not None and s.config is not None and s.written is not None
    for entry in s.contract.computed:
        value = raw(s.config if "reads" in entry else s.written, entry["key"])
        if isinstance(value, bool):
            yield from _otherwise(s, entry, value)


def _otherwise(s: Subject, entry: Table, value: bool) -> Iterator[Hit]:
    producer = producer_of(s).producer
    meant = producer.norms.get(entry.get("about", "")) if producer is not None else None
    if "reads" in entry:
        if producer is not None and meant in entry.get("others", {}):
            yield _means_another(s, entry, value, producer)
    elif value is not entry["always"] and meant != "never" and not (producer and meant == "head"):
        sure = producer.confidence if producer is not None and meant is not None else Confidence.LIKELY
        yield _not_heeded(s, entry, value, sure)


def _not_heeded(s: Subject, entry: Table, value: bool, sure: Confidence) -> Hit:
    asked, done = (entry["yes"], entry["no"]) if value else (entry["no"], entry["yes"])
    elsewhere = f"serve with {entry['read_by']}, which goes by it, or " if "read_by" in entry else ""
    return Hit(
        f"`{entry['key']}` is {_word(value)} ({asked}), which {s.engine} does not read: {done}",
        (at(s, entry["key"]),),
        help=f"{elsewhere}train the head as this engine computes; set it to {_word(not value)} if it was trained so",
        severity=_cost(entry),
        confidence=sure,
    )


def _means_another(s: Subject, entry: Table, value: bool, producer: Producer) -> Hit:
    key, meant = entry["key"], producer.norms[entry["about"]]
    told = entry["yes"] if value else entry["no"]
    return Hit(
        f"`{key}` is {_word(value)}: for {s.engine} this means that {told}; {producer.name}, which seems to have "
        f"written it, says with it {entry['others'][meant]}",
        (at(s, key),),
        help=f"take `{key}` out of config.json, if the drafter comes from a version that means that" if value else None,
        severity=_cost(entry),
        confidence=weaker(producer.confidence, Confidence.LIKELY),
    )


def _word(value: bool) -> str:
    return "true" if value else "false"


def _cost(entry: Table) -> Severity:
    """What the other choice costs: a note where that is known to be little."""
    return Severity.NOTE if entry.get("harmless") else Severity.WARNING
