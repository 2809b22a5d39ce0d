"""A multi-token-prediction layer that the engine does not find, for the rules that speak of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.finding import Location
from drafcheck.lookup import MISSING, raw
from drafcheck.registry import Hit
from drafcheck.words import count

if TYPE_CHECKING:
    from drafcheck.contract import Contract
    from drafcheck.plan.model import LoadPlan
    from drafcheck.subject import Subject


def is_missing(plan: LoadPlan, contract: Contract) -> bool:
    """Whether no tensor reaches a head that is built from one layer of a whole checkpoint."""
    own = any(write.parameter not in plan.fills_from_target for write in plan.writes)
    return contract.names.get("loader") == "mtp" and not own and bool(plan.parameters)


def is_bare(plan: LoadPlan) -> bool:
    """Whether nothing stops the load but what is left out, if anything does."""
    return plan.refused is None or plan.refused.cause in ("missing", "unfilled")


def layer_elsewhere(plan: LoadPlan, contract: Contract) -> int | None:
    """The number of the one layer that is such a head, where the engine reads another one; else None."""
    before, placeholder, _ = contract.names.get("layer_name", "").partition("{layer}")
    if not placeholder or not is_missing(plan, contract):
        return None
    begins = {t.name[len(before) :].partition(".")[0] for t in plan.nameless if t.name.startswith(before)}
    number = begins.pop() if len(begins) == 1 else ""
    return int(number) if number.isascii() and number.isdigit() and len(number) < 7 else None


def other_layer(s: Subject, number: int) -> Hit:
    """The layer lies in the file under another number than the config leads to."""
    plan, contract = s.load, s.contract
    assert plan is not None and contract is not None and s.config is not None
    key = str(contract.read[contract.names["layer"]["count"]][0])
    said = contract.value(contract.names["layer"]["count"], s.config)
    name = contract.names["layer_name"]
    place, read = (name.replace("{layer}", str(n)) for n in (number, contract.names["first_layer"]))
    tensor = plan.nameless[0]
    return Hit(
        f"the multi-token-prediction layer is `{place}.*` in the file, {s.engine} reads `{read}.*`"
        f": {'the config class' if raw(s.config, key) is MISSING else 'config.json'} says {count(said, 'layer')}",
        (Location(file=tensor.file, tensor=tensor.name), s.config.at(*key.split("."))),
        help=f"set `{key}` to {number} if those are the target's layers, or rename the tensors"
        if number
        else f"rename the tensors to `{read}.*`",  # no target has no layers
        about=tuple(t.name for t in plan.nameless),
    )


def _left_behind(plan: LoadPlan) -> str:
    number = len(plan.unwritten)
    stay = f"{count(number, 'parameter')} {'stays as it is' if number == 1 else 'stay as they are'} built"
    return stay if plan.refused is None else f"and refuses: {plan.refused.error}"


def no_layer(s: Subject) -> Hit:
    """The file holds nothing of the head."""
    plan, contract = s.load, s.contract
    assert plan is not None and contract is not None and s.selection is not None
    wanted = contract.names.get("read") or contract.names.get("read_with", [])
    begins = "begins with" if contract.names.get("read") else "has in its name"
    what = "the multi-token-prediction layer" if contract.kind == "mtp" else "the draft"
    files = s.selection.files
    return Hit(
        f"{what} is missing: none of {count(len(plan.seen), 'tensor')} {begins} `{wanted[0]}`, "
        f"from which {s.engine} builds the whole head ({_left_behind(plan)})",
        (Location(file=files[0].name if files else None),),
        help="take that layer over from the original checkpoint (re-uploads, quantised ones above all, often leave it "
        "out), or serve without speculative decoding",
        about=tuple(plan.unwritten),
    )
