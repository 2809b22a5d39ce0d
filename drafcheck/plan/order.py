"""The order in which a loader comes to the tensors of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.header import all_differ
from drafcheck.tensors import Tensors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from drafcheck.contract import Contract
    from drafcheck.tensor import Tensor


def in_order(contract: Contract, seen: Tensors, parameters: Collection[str]) -> Tensors:
    """The tensors as they are written: those whose names begin with one of ``order`` come last, in that order.

    Those with a part of ``ahead`` come first, where they lead to a parameter. Where all are gathered first, the last of
    one name comes in the place of the first.
    """
    tensors: Iterable[Tensor] = seen
    if contract.names.get("gathered") and not all_differ([seen]):
        tensors = list({tensor.name: tensor for tensor in tensors}.values())
    leading = dict(contract.names.get("becomes", []))
    early = [part for part in contract.names.get("ahead", []) if leading.get(part) in parameters]
    if seen.holding(*early):
        tensors = sorted(tensors, key=lambda t: not any(part in t.name for part in early))
    late = contract.names.get("order", [])
    if seen.holding(*late):
        tensors = sorted(tensors, key=lambda t: next((n for n, s in enumerate(late, 1) if t.name.startswith(s)), 0))
    return Tensors.of(tensors)
