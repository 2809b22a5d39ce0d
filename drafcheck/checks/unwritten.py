"""DC102 and DC103: parameters that nothing in the file fills, or only in part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.entries import without_tensors
from drafcheck.checks.layer import is_bare, is_missing, layer_elsewhere, no_layer
from drafcheck.checks.names import absent_layers, lost, places, plans
from drafcheck.finding import Location, Severity
from drafcheck.normflags import idle, measured_as_ones
from drafcheck.plan.model import LoadPlan, Parameter, Partial
from drafcheck.plan.vocabulary import HEAD
from drafcheck.plan.wiring import is_fc
from drafcheck.registry import Hit, rule
from drafcheck.tensors import layer_of
from drafcheck.words import are, count, listed

if TYPE_CHECKING:
    from drafcheck.subject import Subject


@rule(
    "DC102",
    "unwritten-parameter",
    Severity.ERROR,
    Severity.WARNING,
    Severity.NOTE,
    needs=("contract", "load", "weights"),
    concerns="fit",
)
def unwritten_parameter(s: Subject) -> Iterator[Hit]:
    """The engine creates a parameter that nothing fills.

    ## What it does
    Lists the parameters that this release builds from the config, that no tensor of the file reaches, and that are not
    taken from the target. For a multi-token-prediction head, says when the whole layer is not in the file. Biases are
    DC204's, a head that the file does not have at all is DC309's, whole layers are DC203's, norms that a flag switches
    on are DC407's.

    ## Why is this bad?
    It keeps its initial value: uninitialised memory or a random matrix (accept length 2.30 -> 1.05 without `fc`, 1.01
    without the decoder layer, on SGLang 0.5.15.post1). A norm starts as ones, which cost at most 2.5 % there (2.25 to
    2.32) for `hidden_norm`, `input_layernorm` or `norm` of an EAGLE-3 head: a note when those are all that is missing.
    For other norms (of queries and keys, of multi-token-prediction layers) no measurement is known: a warning.

    ## Fix
    Export the drafter again with the tensor, or mend its name when DC101 or DC105 reports it as dropped.
    """
    plan, contract = plans(s)
    if without_tensors(s):
        return  # DC012's
    if is_missing(plan, contract) and not plan.nameless and is_bare(plan):
        yield no_layer(s)
        return
    if layer_elsewhere(plan, contract) is not None:
        return  # DC203 speaks of it
    if plan.wants:
        yield from _stops_without(s)
        return
    of_others = (HEAD, contract.mapping.get("parameter"))  # DC309's and DC301's
    if plan.refused is not None and plan.refused.cause == "missing" and plan.refused.parameter not in of_others:
        alone = _alone(plan, [plan.refused.parameter or ""])
        yield Hit(
            f"{s.engine} stops: {plan.refused.error}{alone}",
            (Location(file=_file(s)),),
            help="export the drafter again with the counterpart" if alone else None,
            about=tuple(plan.unwritten),
        )
    absent = absent_layers(plan)
    unwritten = [plan.parameters[n] for n in plan.unwritten if layer_of(n) not in absent]
    switched = {name for group in idle(s) for name in group.parameters}
    missing = [p for p in unwritten if _is_ours(p, plan) and p.name not in switched]
    if s.wiring is not None and s.wiring.fc_applied is False:  # a head made for one state has no fc and needs none
        missing = [p for p in missing if not is_fc(p.name)]
    missing.sort(key=lambda p: list(_STATE).index(p.initial))  # the worst first
    if missing and plan.refused is None:  # after a refusal nobody serves what the loader did not come to
        yield _unwritten(s, missing)


def _is_ours(parameter: Parameter, plan: LoadPlan) -> bool:
    if parameter.spare or parameter.name.endswith(".bias"):
        return False
    return parameter.name != "lm_head.weight" or plan.seen.has("lm_head")


def _stops_without(s: Subject) -> Iterator[Hit]:
    """A loader that asks for every parameter, biases and norms too; a missing mapping is DC301's."""
    plan, _ = plans(s)
    if plan.refused is not None and plan.unwritten:
        from drafcheck.fix.repairs.biases import filled  # a whole checkpoint has nothing to be mended

        biases = all(name.endswith(".bias") for name in plan.unwritten)
        yield Hit(
            f"nothing in the file fills {count(len(plan.unwritten), 'parameter')} of {s.engine}, which stops then "
            f"({plan.refused.error}): {listed(plan.unwritten)}",
            (Location(file=_file(s)),),
            help="mend the names of the dropped tensors" if lost(s) else "export the drafter again with these tensors",
            fixable=biases and bool(filled(s, plan.unwritten)),
            about=tuple(plan.unwritten),
        )


_STATE = {"empty": "uninitialised memory", "random": "random", "ones": "all ones", "zeros": "all zeros"}


def _unwritten(s: Subject, missing: list[Parameter]) -> Hit:
    counted = Counter(_STATE[p.initial] for p in missing)
    states = ", ".join(f"{n} {state}" for state, n in counted.items()) if len(counted) > 1 else next(iter(counted))
    plan, contract = plans(s)
    names = [p.name for p in missing]
    alone = _alone(plan, names)
    only_norms = list(counted) == [_STATE["ones"]]
    of_norms = Severity.NOTE if measured_as_ones(contract, names) else Severity.WARNING
    return Hit(
        f"nothing in the file fills {count(len(missing), 'parameter')} of {s.engine} (left: {states}): "
        f"{listed(names)}{alone}",
        (Location(file=_file(s)),),
        help="mend the names of the dropped tensors" if lost(s) else "export the drafter again with these tensors",
        severity=of_norms if only_norms else Severity.ERROR,
        about=tuple(names),
    )


def _alone(plan: LoadPlan, parameters: list[str]) -> str:
    """Which tensors wait for one that never comes."""
    waiting = [t.name for name in parameters for t in plan.waiting.get(name, [])]
    return f"; {listed(waiting)} {are(len(waiting))} only read with the counterpart" if waiting else ""


def _file(s: Subject) -> str | None:
    files = s.selection.files if s.selection else ()
    return files[0].name if files else None


@rule("DC103", "partial-parameter", Severity.ERROR, needs=("contract", "load"), concerns="fit")
def partial_parameter(s: Subject) -> Iterator[Hit]:
    """A fused parameter gets only some of its parts.

    ## What it does
    Reports `qkv_proj` and `gate_up_proj` parameters for which the file has, say, `q_proj` and `v_proj` but no `k_proj`.

    ## Why is this bad?
    The rest of the fused parameter stays uninitialised memory, and nothing is said: accept length 2.30 -> 1.14 on
    SGLang 0.5.15.post1 without `q_proj`.

    ## Fix
    Export the drafter again with the missing projections.
    """
    plan, _ = plans(s)
    missed = [p._replace(missing=shards) for p in plan.partial if (shards := plan.lacking(p))]
    for partial in missed if plan.refused is None or plan.wants else []:
        parts = _parts(partial, plan)
        stays = (
            f"{100 * plan.parameters[partial.parameter].share(partial.missing):.1f} % of its rows stay uninitialised"
        )
        outcome = f"{s.engine} stops ({plan.refused.error})" if plan.refused is not None else stays
        yield Hit(
            f"`{partial.parameter}` gets no {parts}: {outcome}",
            places([w.tensor for w in plan.writes_to(partial.parameter)], 1),
            help=f"export the drafter again with {parts}",
            about=(partial.parameter,),
        )


def _parts(partial: Partial, plan: LoadPlan) -> str:
    """The projections that are missing: ``k_proj``, or ``gate_proj and up_proj of 2 experts (1, 3)``."""
    if plan.parameters[partial.parameter].load not in ("experts", "experts_row"):
        return ", ".join(f"{shard}_proj" for shard in partial.missing)
    pairs = [shard.partition(".") for shard in partial.missing]
    found = list(dict.fromkeys(number for number, _, _ in pairs))
    kinds = " and ".join(f"{kind}_proj" for kind in dict.fromkeys(kind for _, _, kind in pairs))
    some = ", ".join(found[:4]) + (" ..." if len(found) > 4 else "")
    return f"{kinds} of {count(len(found), 'expert')} ({some})"
