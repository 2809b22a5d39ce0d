"""What a loader does with what the dict of a PyTorch file holds beside tensors: it is handed on under its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.contract import load_toml
from drafcheck.plan.model import MAPPING, LoadPlan, Stopper
from drafcheck.plan.names import route
from drafcheck.plan.order import in_order
from drafcheck.tensor import Tensor
from drafcheck.tensors import Tensors

if TYPE_CHECKING:
    from drafcheck.contract import Contract, Table
    from drafcheck.plan.files import Selection
    from drafcheck.tensor import Entry


def take_entries(plan: LoadPlan, selection: Selection, contract: Contract) -> tuple[Tensors, Tensors]:
    """Put the entries at which the loader stops into ``plan``, by ``[entries]`` of ``rules/<engine>/loader.toml``.

    An entry without a place is passed over like a tensor of that name, and is not told of. An engine without such facts
    is not spoken of. The tensors in the loader's order are given: those before the first such entry, and the others.
    """
    told = [entry for file in selection.files for entry in file.header.entries]
    facts: Table = load_toml(contract.name.partition("/")[0], "loader.toml").get("entries", {}) if told else {}
    stoppers = [s for entry in told if (s := _stopper(plan, contract, facts, entry)) is not None] if facts else []
    if not stoppers:
        return in_order(contract, plan.seen, plan.parameters), Tensors()
    if any(s.entry.odd for s in stoppers) and contract.names.get("gathered"):  # it comes to no load
        plan.stoppers = sorted(stoppers, key=lambda s: not s.entry.odd)
        return Tensors(), in_order(contract, plan.seen, plan.parameters)
    return _divided(plan, selection, contract, stoppers)


def _divided(
    plan: LoadPlan, selection: Selection, contract: Contract, stoppers: list[Stopper]
) -> tuple[Tensors, Tensors]:
    """The entries go where tensors of their names would."""
    stand_ins: dict[int, Stopper] = {}
    mixed: list[Tensor] = []
    for file in selection.files:
        ours = [s for s in stoppers if s.entry.file == file.name]
        tensors = list(file.header.tensors)
        for stopper in reversed(ours):  # what was put in before does not move what is to come
            stand_in = Tensor("" if stopper.entry.odd else stopper.entry.key, "", (), file.name)
            stand_ins[id(stand_in)] = stopper
            tensors.insert(stopper.entry.before, stand_in)
        mixed += tensors
    ordered = list(in_order(contract, Tensors(mixed), plan.parameters))
    places = [place for place, tensor in enumerate(ordered) if id(tensor) in stand_ins]
    plan.stoppers = [stand_ins[id(ordered[place])] for place in places]
    first = places[0]
    return Tensors(ordered[:first]), Tensors(t for t in ordered[first:] if id(t) not in stand_ins)


def _stopper(plan: LoadPlan, contract: Contract, facts: Table, entry: Entry) -> Stopper | None:
    """What is said of an entry; None where it is passed over."""
    if entry.odd:  # before any class sees it
        return Stopper(entry, facts["key"].replace("{kind}", entry.odd.replace("?", "...")))
    found = route(contract, entry.key, plan.parameters)
    if found.end == "refused":
        return Stopper(entry, found.error.replace("{name}", found.looked_for).replace("{written}", entry.key))
    if found.end not in ("parameter", "mapping"):
        return None
    place = MAPPING if found.end == "mapping" else found.parameter
    return Stopper(entry, facts["value"].replace("{kind}", entry.kind or "..."), place)
