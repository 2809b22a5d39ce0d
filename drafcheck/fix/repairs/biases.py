"""DC204, and DC102 where biases are all that is missing: a bias of zeros is the same as none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.conversion import route_to
from drafcheck.fix.edits import Add, Content, Drop, Edit
from drafcheck.fix.keys import edits_of
from drafcheck.fix.registry import Wishes, repair, tensors_of
from drafcheck.header_json import DTYPE_BITS
from drafcheck.lookup import raw
from drafcheck.plan.fit import shape_of
from drafcheck.plan.names import route
from drafcheck.trial import Changes, Trial, tried

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.plan.model import LoadPlan, Write
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor

_FLOATS = ("BF16", "F16", "F32", "F64")


@repair("DC204")
def settle_biases(s: Subject, findings: Sequence[Finding], _: Wishes) -> Iterator[Edit]:
    """Biases of zeros left out or added; the key with which the class builds those that are there, and no others."""
    for finding in findings:
        there = any(place.tensor is not None for place in finding.locations)
        yield from housed(s, tensors_of(s, finding)) if there else filled(s, finding.about)


@repair("DC102")
def add_biases(s: Subject, findings: Sequence[Finding], _: Wishes) -> Iterator[Edit]:
    """The same where biases are all that a loader misses which asks for every parameter."""
    for finding in findings:
        if all(name.endswith(".bias") for name in finding.about):
            yield from filled(s, finding.about)


def housed(s: Subject, tensors: Sequence[Tensor]) -> list[Edit]:
    """What becomes of biases without a parameter: zeros are left out, others need the key that builds one for each."""
    assert s.load is not None
    zero = {drop.tensor.name for drop in s.load.dropped if drop.zero}
    if all(tensor.name in zero for tensor in tensors):
        loaded = {w.tensor.name for w in s.load.writes}  # of a module that is not read the bias stays with the weight
        spare = [tensor for tensor in tensors if tensor.name.removesuffix("bias") + "weight" in loaded]
        return [Drop(tensor, "a bias of zeros without a parameter") for tensor in spare]
    return list(edits_of(s, _switched_on(s, {t.name for t in tensors})))


def _switched_on(s: Subject, names: set[str]) -> Changes | None:
    """The keys with which all of these are loaded; None where others are then loaded in part."""
    changes = {way: True for way in _switches(s) if names & _loaded(tried(s, {way: True}))}
    trial = tried(s, changes) if changes else None
    if trial is None or trial.load is None or not names <= _loaded(trial) or s.load is None:
        return None
    return changes if len(trial.load.partial) <= len(s.load.partial) else None


def _loaded(trial: Trial | None) -> set[str]:
    plan = trial.load if trial is not None else None
    return {w.tensor.name for w in plan.writes} if plan is not None and plan.refused is None else set()


def _switches(s: Subject) -> list[tuple[str, ...]]:
    """The config keys with which this release builds biases."""
    assert s.contract is not None
    flags = {entry["when"] for entry in s.contract.params if entry["name"].endswith(".bias") and "when" in entry}
    keys = [key for flag in s.contract.flags if flag["name"] in flags for key in flag.get("any", [])]
    return [way for key in dict.fromkeys(keys) if (way := route_to(s, key)) is not None]


def filled(s: Subject, parameters: Sequence[str]) -> list[Edit]:
    """What becomes of bias parameters without a tensor: they are not built, or filled with zeros.

    Nothing where they start at random: that was measured harmless, and other releases have no place for the bias.
    """
    if s.load is None or any(s.load.parameters[name].initial == "random" for name in parameters):
        return []
    return list(edits_of(s, _switched_off(s, set(parameters)))) or zeros_for(s, parameters)


def _switched_off(s: Subject, parameters: set[str]) -> Changes | None:
    """The keys without which just these are not built; None where something else hangs on them."""
    if s.load is None or s.written is None:
        return None
    said = [way for way in _switches(s) if raw(s.written, ".".join(way)) is True]
    changes = dict.fromkeys(said, False)
    plan = trial.load if changes and (trial := tried(s, changes)) is not None else None
    if plan is None or plan.refused is not None:
        return None
    gone = set(s.load.parameters) - set(plan.parameters)
    return changes if parameters <= gone and not gone & {w.parameter for w in s.load.writes} else None


def zeros_for(s: Subject, parameters: Sequence[str]) -> list[Edit]:
    """A bias of zeros beside each weight whose bias nothing fills; nothing where one would be left."""
    if s.load is None or s.contract is None:
        return []
    added = []
    for name in parameters:
        weights = s.load.writes_to(name.removesuffix("bias") + "weight")
        found = [_beside(s, s.load, name, weight) for weight in weights]
        if not found or None in found:
            return []
        added += [edit for edit in found if edit is not None]
    return list(added)


def _beside(s: Subject, plan: LoadPlan, parameter: str, weight: Write) -> Add | None:
    """The bias of zeros for the rows of one weight, of its dtype."""
    assert s.contract is not None
    tensor = weight.tensor
    name = tensor.name.removesuffix("weight") + "bias"
    found = route(s.contract, name, plan.parameters)
    rows = shape_of(plan.parameters[parameter], weight.shard)
    if (found.parameter, found.shard) != (parameter, weight.shard) or tensor.dtype not in _FLOATS:
        return None
    if not tensor.name.endswith(".weight") or len(rows) != 1 or rows[0] < 1:
        return None
    return Add(name, Content(tensor.dtype, rows, (bytes(rows[0] * DTYPE_BITS[tensor.dtype] // 8),)), "zeros")
