"""Which parameters a loader insists on where it asks for all below a module, or for those that the target fills too.

The keys ``within``, ``runs``, ``shared_too`` and ``named`` of ``[[required]]``, which rules/README.md explains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drafcheck.lookup import in_question
from drafcheck.plan.model import Refusal

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract, Table
    from drafcheck.plan.model import LoadPlan


def insisted_on(entry: Table, plan: LoadPlan, mapping: str | None = None) -> list[str]:
    """The parameters that are wanted and that nothing of the file reached, in the order of the contract."""
    written = {write.parameter for write in plan.writes}
    if not entry.get("shared_too"):
        written |= set(plan.fills_from_target)
    return [name for name in wanted(entry, plan) if name not in written and name != mapping]


def wanted(entry: Table, plan: LoadPlan) -> list[str]:
    """The parameters of which a release wants that they are in the file."""
    kinds = entry.get("loads")
    return [
        name
        for name, parameter in plan.parameters.items()
        if name.startswith(entry.get("within", "")) and (kinds is None or parameter.load in kinds)
    ]


def unnamed(contract: Contract, config: DraftConfig, plan: LoadPlan) -> Refusal | None:
    """What the loader says before it loads anything, where no name has a part that it wants; it comes to no sharing."""
    for entry in (entry for entry in contract.required if "named" in entry):
        if in_question(contract, entry, config) and not any(entry["named"] in tensor.name for tensor in plan.seen):
            plan.fills_from_target = [name for name in plan.fills_from_target if name not in entry["parameters"]]
            return Refusal("load", entry["error"], "missing", parameter=entry["parameters"][0])
    return None


@dataclass(slots=True)
class Run:
    """Names under one module that come without another between them: what is loaded by one call of its loader."""

    entry: Table
    inside: bool = False
    written: set[str] = field(default_factory=set)

    def enters(self, name: str) -> Table | None:
        """Go on to a name; the entry, when a run ends before it."""
        ends = self.inside and not name.startswith(self.entry["within"])
        if name.startswith(self.entry["within"]) and not self.inside:
            self.written.clear()
        self.inside = name.startswith(self.entry["within"])
        return self.entry if ends else None

    def missing(self, plan: LoadPlan) -> list[str]:
        """What is wanted and was not in the run that ended."""
        return [name for name in wanted(self.entry, plan) if name not in self.written]
