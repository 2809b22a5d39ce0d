"""DC204: biases without a parameter, and bias parameters without a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.layer import is_missing
from drafcheck.checks.names import names, places, plans
from drafcheck.finding import Location, Severity
from drafcheck.plan.wanted import wanted_names
from drafcheck.registry import Hit, rule
from drafcheck.words import count, listed

if TYPE_CHECKING:
    from drafcheck.subject import Subject


@rule(
    "DC204",
    "bias-without-slot",
    Severity.ERROR,
    Severity.WARNING,
    Severity.NOTE,
    needs=("contract", "load"),
    concerns="fit",
)
def bias_without_slot(s: Subject) -> Iterator[Hit]:
    """A bias has no parameter, or a bias parameter has no tensor.

    ## What it does
    Reports bias tensors that this release's class builds no parameter for (a warning when they are all zero), and bias
    parameters that nothing writes: an error where they are uninitialised memory (o_proj before SGLang 0.5.9), a note
    where `fc` starts from its own random bias. Biases that start as zeros are no fault.

    ## Why is this bad?
    The drafter was trained with the bias and is served without it, or the other way round. A random `fc` bias cost
    nothing on SGLang 0.5.15.post1 (accept length 2.31 against 2.30).

    ## Fix
    Set `attention_bias` and `bias` to what the tensors are; a bias that this class cannot hold has no lossless repair.
    """
    plan, contract = plans(s)
    if is_missing(plan, contract):
        return  # no tensor reaches the head, which DC102 and DC203 say
    homeless = plan.dropped.because("no-slot")
    spelt = wanted_names(contract, plan, [d.tensor.name for d in homeless])
    homeless = [d for d, wanted in zip(homeless, spelt, strict=True) if wanted is None]  # not a prefix away
    for zero, severity in ((True, Severity.WARNING), (False, Severity.ERROR)):
        group = [d.tensor for d in homeless if (d.zero is True) is zero]
        if group:
            from drafcheck.fix.repairs.biases import housed  # where every bias has its place nothing is to be mended

            state = "all zero, " if zero else ""
            yield Hit(
                f"{count(len(group), 'bias tensor')} ({state}{listed([t.name for t in group])}) without a parameter in "
                f"{s.engine}{': served without' if plan.refused is None else ''}",
                places(group),
                help=_bias_help(s, group[0].name),
                severity=severity,
                fixable=bool(housed(s, group)),
                about=names(group),
            )
    yield from _unwritten_biases(s)


def _bias_help(s: Subject, name: str) -> str:
    """The config key that gives this bias a parameter, where the class has one for it."""
    _, contract = plans(s)
    last = ".".join(name.split(".")[-2:])
    slots = [p["when"] for p in contract.params if p["name"].endswith(last) and "when" in p]
    keys = [key for flag in contract.flags if flag["name"] in slots for key in flag.get("any", [])]
    if keys:
        return f"set `{keys[0]}` to true in config.json: the class then builds the bias"
    return "train the head without these biases: this draft class has no place for them"


def _unwritten_biases(s: Subject) -> Iterator[Hit]:
    plan, contract = plans(s)
    biases = (
        [n for n in plan.unwritten if n.endswith(".bias")]
        if plan.refused is None and not is_missing(plan, contract)
        else []
    )
    for initial, severity in (("empty", Severity.ERROR), ("random", Severity.NOTE)):
        group = [n for n in biases if plan.parameters[n].initial == initial]
        if group:
            from drafcheck.fix.repairs.biases import filled

            state = "uninitialised memory" if initial == "empty" else "its random initialisation"
            said = [k for k in ("attention_bias", "bias") if s.config is not None and s.config.data.get(k)]
            keep = "keeps" if len(group) == 1 else "keep"
            yield Hit(
                f"{listed(group)} of {s.engine} {keep} {state}: the file has no such bias",
                tuple(s.config.at(k) for k in said if s.config is not None) or (Location(file="config.json"),),
                help=_help_unwritten(said, initial),
                severity=severity,
                fixable=bool(filled(s, group)),
                about=tuple(group),
            )


def _help_unwritten(said: list[str], initial: str) -> str:
    if said:
        return "set `attention_bias` and `bias` to false in config.json"
    zeros = "write zeros under this name if the head was trained without"
    return zeros if initial == "empty" else f"nothing to do (measured harmless in an EAGLE-3 head), or {zeros}"
