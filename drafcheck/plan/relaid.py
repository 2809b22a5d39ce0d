"""Tensors that a loader lays out anew by the sizes of the config before it loads them.

The key ``relaid`` of ``[[names]]``. What it means is told in rules/README.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.lookup import evaluate
from drafcheck.plan.fit import Fit

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract
    from drafcheck.tensor import Tensor


def relaid(contract: Contract, config: DraftConfig, tensor: Tensor) -> Fit | tuple[int, ...]:
    """The shape in which this tensor goes to its parameter, or the refusal of one with more or fewer values."""
    parts = tensor.name.split(".")
    for word, rows, columns in contract.names["relaid"]:
        sizes = tuple(evaluate(contract, text, config) for text in (rows, columns))
        meant = (word in parts and parts[-1] == "weight") or parts[-1] == word
        if not meant or None in sizes:
            continue
        wanted = tuple(size or 0 for size in sizes)
        values = 1
        for side in tensor.shape:
            values *= side
        if values != wanted[0] * wanted[1]:
            return Fit(str(contract.messages["relaid"]).replace("{values}", str(values)))
        return wanted
    return tensor.shape
