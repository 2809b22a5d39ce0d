"""DC507: quantised tensors that the engine would build as plain ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.names import is_quantised_part, names, places, plans
from drafcheck.finding import Severity
from drafcheck.registry import Hit, rule
from drafcheck.words import count, listed

if TYPE_CHECKING:
    from drafcheck.subject import Subject

PLAIN = ("F64", "F32", "F16", "BF16")
"""The dtypes that a plain parameter takes by casting."""


@rule("DC507", "quantization", Severity.ERROR, needs=("contract", "load"))
def quantization(s: Subject) -> Iterator[Hit]:
    """The tensors are quantised, and the config does not say so.

    ## What it does
    Reports tensors of 8 bits and fewer that reach a plain parameter, and the scales and packed parts of a quantised
    checkpoint, when config.json has no `quantization_config`. How a quantised draft is built is not checked yet.

    ## Why is this bad?
    The numbers are cast one by one and their scales are dropped without a word: the layer computes something else.

    ## Fix
    Write the `quantization_config` of the exporter into config.json, or export the drafter without quantisation.
    """
    plan, contract = plans(s)
    if contract.names.get("quantised_parts"):
        return  # the config says so
    stored = [w.tensor for w in plan.writes if w.tensor.dtype not in PLAIN]
    parts = [t for t in plan.nameless if is_quantised_part(t.name)]
    if stored or parts:
        first = f"`{stored[0].name}` is stored as {stored[0].dtype}" if stored else f"`{parts[0].name}` is a part"
        yield Hit(
            f"{count(len(stored) + len(parts), 'tensor')} of a quantised checkpoint, and config.json has no "
            f"quantization_config: {s.engine} builds plain parameters ({first}): {listed(names(stored + parts))}",
            (*places(stored + parts), *((s.config.at("quantization_config"),) if s.config else ())),
            help="write the exporter's quantization_config into config.json, or export without quantisation",
            about=names(stored + parts),
        )
