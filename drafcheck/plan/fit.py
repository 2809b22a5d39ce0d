"""Whether a tensor fits the parameter it reaches: copied, cut or padded without a word, or refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafcheck.contract import Contract
    from drafcheck.plan.model import Parameter


@dataclass(frozen=True, slots=True)
class Fit:
    """``error`` is None when the tensor is taken; ``cut`` and ``short`` count rows or columns of the sharded side."""

    error: str | None = None
    cut: int = 0
    short: int = 0


Shape = tuple[int, ...]


def fit(contract: Contract, kind: str, parameter: Parameter, shard: str | None, shape: Shape) -> Fit:
    """How the loader of this release takes a tensor of ``shape`` into ``parameter`` (or one shard of it).

    A parameter with an unknown size (-1) is taken to fit. A tensor that is already fused is laid over all shards.
    """
    wanted = parameter.shape if shard is None else (parameter.shards[shard], *parameter.shape[1:])
    if -1 in wanted or shape == wanted:
        return Fit()
    if kind == "plain":
        return _plain(contract, wanted, shape)
    if kind == "vocab":
        return _vocab(contract, wanted, shape)
    return _sharded(contract, kind, wanted, shape)


def _plain(contract: Contract, wanted: Shape, shape: Shape) -> Fit:
    if _elements(wanted) == 1 == _elements(shape):
        return Fit()
    return _refuse(contract, "plain", wanted, shape)


def _vocab(contract: Contract, wanted: Shape, shape: Shape) -> Fit:
    if not shape or shape[0] != wanted[0]:
        return _refuse(contract, "vocab", wanted, shape)
    return _refuse(contract, "copy", wanted, shape)


def _sharded(contract: Contract, kind: str, wanted: Shape, shape: Shape) -> Fit:
    axis = 1 if kind == "row" else 0
    others_differ = len(shape) != len(wanted) or any(
        a != b for i, (a, b) in enumerate(zip(wanted, shape, strict=True)) if i != axis
    )
    rule = contract.loaders[kind]
    missing = wanted[axis] - shape[axis] if len(shape) > axis else 0
    if missing > 0 and rule["short"] == "refuse":
        return _refuse(contract, "short", wanted, shape, axis)
    if others_differ:
        cut = tuple(wanted[i] if i == axis else n for i, n in enumerate(shape))
        return _refuse(contract, "sharded", wanted, cut)
    return Fit(short=missing) if missing > 0 else Fit(cut=-missing)


def _refuse(contract: Contract, message: str, wanted: Shape, shape: Shape, axis: int = 0) -> Fit:
    size = shape[axis] if len(shape) > axis else 0
    text = str(contract.messages[message])
    values = {
        "parameter": str(list(wanted)),
        "tensor": str(list(shape)),
        "rows": str(wanted[0] if wanted else 0),
        "size": str(size),
        "length": str(wanted[axis] if len(wanted) > axis else 0),
    }
    for key, value in values.items():
        text = text.replace("{" + key + "}", value)
    return Fit(text)


def _elements(shape: Shape) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
