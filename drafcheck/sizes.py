"""Sizes that follow from the tensors: the one value of one config key with which tensors fit that do not fit now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from drafcheck.conversion import route_to
from drafcheck.lookup import LISTS, MISSING, OF_THE_LAUNCH, OF_THE_TARGET, key_in, present_key, raw
from drafcheck.plan.fit import shape_of
from drafcheck.trial import Trial, tried

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract
    from drafcheck.plan.model import LoadPlan, Parameter
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor

VOCABULARIES = ("vocab_size", "draft_vocab_size")
"""What the vocabulary's own rules judge: more than shapes hangs on these."""

MOST = 16
"""So many values are tried at most."""


class Misfit(NamedTuple):
    """A tensor that has not the shape of the parameter, or of the shard of it, that it is written to."""

    tensor: Tensor
    parameter: Parameter
    shard: str | None


class Reading(NamedTuple):
    """A value for a config key with which tensors fit; ``mends`` are their names, ``absent``: the config has none."""

    key: str
    value: int
    mends: frozenset[str]
    absent: bool


def misfits(plan: LoadPlan, contract: Contract) -> dict[str, Misfit]:
    """The tensors of a load that do not fit, by name: those that are refused, cut, padded or leave rows bare."""
    loud = [(r.tensor, r.parameter) for r in plan.lost.because("shape") if r.tensor and r.parameter]
    silent = [(w.tensor, w.parameter) for w in plan.writes if w.cut or w.short or w.repeated or w.bare]
    return {
        tensor.name: Misfit(tensor, plan.parameters[name], _shard(contract, plan.parameters[name], tensor))
        for tensor, name in (*loud, *silent)
        if name in plan.parameters
    }


def _shard(contract: Contract, parameter: Parameter, tensor: Tensor) -> str | None:
    found = (shard for part, (_, shard) in contract.stacked.items() if part in tensor.name)
    return next((shard for shard in found if shard in parameter.shards), None)


def one_readings(s: Subject) -> list[Reading]:
    """The values that follow from the shapes: no other value of no other key makes the same tensors fit.

    A key that the config states is as good as any other that it states; one that it lacks gives way to these.
    """
    if s.load is None or s.contract is None or s.config is None:
        return []
    found = misfits(s.load, s.contract)
    asked = dict.fromkeys(pair for one in found.values() for pair in candidates(s.contract, s.config, one))
    working = [r for key, value in list(asked)[:MOST] if (r := _reading(s, found, key, value)) is not None]
    return [one for one in working if _stands(one, [other for other in working if other is not one])]


def _stands(one: Reading, others: list[Reading]) -> bool:
    """Whether no other reading contests one: those of the same tensors explain fewer, and speak against the config.

    Or there is a tensor that this one alone explains.
    """
    alone = one.mends - frozenset().union(*(other.mends for other in others))
    rivals = [other for other in others if other.key == one.key or other.mends & one.mends]
    return all(
        other.key != one.key and other.mends < one.mends and (bool(alone) or (one.absent and not other.absent))
        for other in rivals
    )


def _reading(s: Subject, found: dict[str, Misfit], key: str, value: int) -> Reading | None:
    """What a value mends; None when it mends nothing, or at the cost of another tensor."""
    trial = tried_at(s, key, value)
    if trial is None or trial.load is None or trial.contract is None:
        return None
    if trial.refused is not None or (trial.load.refused is not None and trial.load.refused.stage != "load"):
        return None
    left = misfits(trial.load, trial.contract).keys()
    if not left < found.keys():
        return None
    assert s.config is not None
    return Reading(key, value, frozenset(found.keys() - left), raw(s.config, key) in (MISSING, None))


def tried_at(s: Subject, key: str, value: object) -> Trial | None:
    """What becomes of the load with another value of a key that the draft class reads."""
    route = route_to(s, key)
    return tried(s, {route: value}) if route is not None else None


def candidates(contract: Contract, config: DraftConfig, misfit: Misfit) -> Iterator[tuple[str, int]]:
    """Keys and values with which the sides of a tensor would be as long as they are."""
    parameter, shard, have = misfit.parameter, misfit.shard, misfit.tensor.shape
    if shard is None and parameter.shards:
        return
    want = shape_of(parameter, shard)
    formula = (parameter.shard_formulas[shard], *parameter.formula[1 - len(want) :]) if shard else parameter.formula
    if len(have) != len(want):
        return
    for size, other, term in zip(have, want, formula, strict=False):
        if size != other:
            yield from _factors(contract, config, term, size)


def _factors(contract: Contract, config: DraftConfig, term: str, size: int) -> Iterator[tuple[str, int]]:
    """For each quantity of a product the value that makes it ``size``, the others being as they are."""
    factors = term.split(" * ")
    for place, name in enumerate(factors):
        rest = 1
        for other in (f for i, f in enumerate(factors) if i != place):
            rest *= int(other) if other.isdigit() else contract.value(other, config) or 0
        if not name.isdigit() and rest > 0 and size % rest == 0 and size > 0:
            yield from _of_quantity(contract, config, name, size // rest)


def _of_quantity(contract: Contract, config: DraftConfig, name: str, value: int) -> Iterator[tuple[str, int]]:
    """The key that says a quantity, and, where it is worked out from others, the one that is divided by."""
    key = key_of(contract, config, name)
    if key is not None and key not in VOCABULARIES:
        yield key, value
    derived = next((i for i in contract.read.get(name, []) if isinstance(i, str) and i.startswith("= ")), "")
    whole, divided, by = derived[2:].partition(" // ")
    size = contract.value(whole, config) if divided else None
    stated = key is not None and raw(config, key) not in (MISSING, None)
    if size and not stated and size % value == 0 and (other := key_of(contract, config, by)) is not None:
        yield other, size // value


def key_of(contract: Contract, config: DraftConfig, name: str) -> str | None:
    """The config key from which a quantity is read first; None where it is no plain key."""
    for item in contract.read.get(name, [name]):
        if not isinstance(item, str) or item.startswith(("= ", OF_THE_TARGET)) or item.partition(" ")[0] in LISTS:
            return None
        if item.startswith(OF_THE_LAUNCH):
            if item.removeprefix(OF_THE_LAUNCH) in config.numbers:
                return None  # no key counts
            continue
        if (key := key_in(item, config)) is not None:
            return present_key(config, key)
    return None
