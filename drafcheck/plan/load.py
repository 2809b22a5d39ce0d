"""The load plan: what the loader of one release does with every tensor, and who fills every parameter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drafcheck.plan.fit import fit
from drafcheck.plan.model import Drop, LoadPlan, Parameter, Partial, Refusal, Write
from drafcheck.plan.names import Route, route
from drafcheck.plan.parameters import build_parameters, load_kinds, refused_config
from drafcheck.tensor import Tensor

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract
    from drafcheck.plan.files import Selection


def plan_load(config: DraftConfig, selection: Selection, contract: Contract) -> LoadPlan:
    """Work out what happens to the tensors of ``selection``, in the order in which the engine reads them.

    A refusal ends the load, as it does in the engine: later tensors stand in ``unread``. The plan goes on in
    thought, so that ``lost`` holds every refusal there would be, the first included.
    """
    plan = LoadPlan(contract.name, refused=refused_config(contract, config))
    if plan.refused and plan.refused.cause == "config-value":
        return plan
    plan.parameters = build_parameters(contract, config)
    plan.fills_from_target = _shared(contract, config, plan.parameters)
    if plan.refused is None:
        plan.refused = selection.refused
    state = _State(contract, plan, load_kinds(contract, config), contract.flag("tied", config))
    for tensor in selection.tensors:
        state.take(tensor)
    state.settle()
    return plan


def _shared(contract: Contract, config: DraftConfig, parameters: dict[str, Parameter]) -> list[str]:
    """The parameters that the engine takes from the target, whatever the file holds."""
    filled = []
    for entry in contract.sharing:
        differ = [contract.value(name, config) for name in entry.get("unless_differ", [])]
        wanted = contract.flag(entry["when"], config) if "when" in entry else True
        if wanted and len(set(differ)) <= 1 and entry["parameter"] in parameters:
            filled.append(str(entry["parameter"]))
    return list(dict.fromkeys(filled))


@dataclass(slots=True)
class _State:
    """A load under way."""

    contract: Contract
    plan: LoadPlan
    kinds: dict[str, str]
    tied: bool
    written: dict[str, set[str]] = field(default_factory=dict)

    def take(self, tensor: Tensor) -> None:
        """What the loader does with one tensor."""
        found = route(self.contract, tensor.name, self.plan.parameters)
        refusal = self._refusal(tensor, found)
        if refusal is not None:
            self.plan.lost.append(refusal)
            self.plan.refused = self.plan.refused or refusal
        if self.plan.refused is not None:
            self.plan.unread.append(tensor)
            return
        if found.end == "parameter":
            self._write(tensor, found)
        elif found.end == "mapping":
            self.plan.mapping = tensor
        else:
            self.plan.dropped.append(self._drop(tensor, found))

    def _refusal(self, tensor: Tensor, found: Route) -> Refusal | None:
        if found.end == "refused":
            error = self.contract.names["unknown_stacked"].replace("{name}", found.looked_for)
            return Refusal("load", error, "name", tensor, found.looked_for)
        if found.end != "parameter":
            return None
        parameter = self.plan.parameters[found.parameter]
        if found.shard is not None and found.shard not in parameter.shards:
            return None
        error = fit(self.contract, self.kinds[found.parameter], parameter, found.shard, tensor.shape).error
        return Refusal("load", error, "shape", tensor, found.parameter) if error is not None else None

    def _write(self, tensor: Tensor, found: Route) -> None:
        parameter = self.plan.parameters[found.parameter]
        kind = self.kinds[found.parameter]
        fitted = fit(self.contract, kind, parameter, found.shard, tensor.shape)
        self.plan.writes.append(
            Write(tensor, found.parameter, found.shard, fitted.cut, fitted.short, padded=fitted.short > 0)
        )
        shards = set(parameter.shards) if found.shard is None else {found.shard}
        self.written.setdefault(found.parameter, set()).update(shards)

    def _drop(self, tensor: Tensor, found: Route) -> Drop:
        if found.end == "design":
            return Drop(tensor, "design")
        if self.tied and "lm_head" in tensor.name:
            return Drop(tensor, "tied")
        if tensor.name.endswith(".bias"):
            return Drop(tensor, "no-slot")
        return Drop(tensor, "unknown")

    def settle(self) -> None:
        """Who was never written, and who only in part."""
        for name, parameter in self.plan.parameters.items():
            written = self.written.get(name)
            if written is None:
                if name not in self.plan.fills_from_target:
                    self.plan.unwritten.append(name)
            elif missing := [s for s in parameter.shards if s not in written]:
                rows = sum(parameter.shards[s] for s in missing)
                share = rows / parameter.shape[0] if parameter.shape[0] > 0 else 0.0
                self.plan.partial.append(Partial(name, tuple(missing), share))
