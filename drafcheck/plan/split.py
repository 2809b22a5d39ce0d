"""Tensor parallelism: which sizes of a draft its ranks cannot share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from drafcheck.lookup import in_question

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract, Table
    from drafcheck.plan.model import Parameter


class Side(NamedTuple):
    """Something that is shared out: ``formula`` over quantities of the contract, its ``size``, the entry about it."""

    formula: str
    size: int
    entry: Table


def sides(contract: Contract, config: DraftConfig, parameters: Mapping[str, Parameter]) -> list[Side]:
    """What this release shares out among the ranks, each once and in about the order in which the layers are built.

    Whatever has no known size is left out.
    """
    found: dict[tuple[str, bool], Side] = {}
    for entry in sorted(contract.splits, key=_place):
        if in_question(contract, entry, config):
            for formula, size in _of(contract, config, entry, parameters.values()):
                if size >= 0:
                    found.setdefault((formula, bool(entry.get("fewest"))), Side(formula, size, entry))
    return list(found.values())


def _place(entry: Table) -> int:
    """Attention asks for its heads before it makes a layer, and so do the experts that come after it."""
    return 2 if "loads" in entry else 1 if entry.get("fewest") else 0


def _of(
    contract: Contract, config: DraftConfig, entry: Table, parameters: Iterable[Parameter]
) -> Iterator[tuple[str, int]]:
    if "quantity" in entry:
        size = contract.value(entry["quantity"], config)
        yield from [] if size is None else [(entry["quantity"], size)]
        return
    for parameter in parameters:
        if parameter.load in entry["loads"] and not parameter.unsplit:
            yield from _sharded(parameter)


def _sharded(parameter: Parameter) -> Iterator[tuple[str, int]]:
    """The sharded side of a parameter: its columns where it is loaded by rows, else the rows of each shard."""
    if parameter.load in ("row", "experts_row"):
        yield parameter.formula[-1], parameter.shape[-1]
    elif parameter.shards:
        yield from {parameter.shard_formulas[shard]: size for shard, size in parameter.shards.items()}.items()
    else:
        yield parameter.formula[0], parameter.shape[0]


def padded(side: Side) -> int:
    """The size that is shared out in the end."""
    padding = int(side.entry.get("padded", 1))
    return -(-side.size // padding) * padding


def splits(side: Side, ranks: int) -> bool:
    """Whether so many ranks can share it."""
    if side.entry.get("fewest"):
        return side.size >= ranks
    if side.entry.get("replicated") and 0 < side.size < ranks:
        return ranks % side.size == 0
    return padded(side) % ranks == 0
