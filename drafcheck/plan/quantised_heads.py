"""Quantised heads in a target's own checkpoint: of which layers the file holds quantised parts, and which are built so.

A packed weight leads to the parameter of the plain one (see ``drafcheck.plan.mtp_names``), so the parameters stay as
they are; only what there is to say of each layer is worked out here. The experts of a layer are one layer, as the
release builds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.plan.model import Layer
from drafcheck.plan.quantised import LINEAR, Held, Scheme, asked_for, asked_name, built_plain, is_packed, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract
    from drafcheck.plan.model import Parameters
    from drafcheck.tensor import Tensor

EXPERTS = ("experts", "experts_row")
LAYERS = (*LINEAR, *EXPERTS)
"""How the layers are loaded that a method may quantise."""


def layers_of(
    contract: Contract, config: DraftConfig, parameters: Parameters, tensors: Iterable[Tensor]
) -> list[Layer]:
    """Every layer of the head of which the file holds something; none where the method is not described."""
    scheme = scheme_of(contract, config)
    if scheme is None:
        return []
    held = _held(contract, parameters, tensors)
    return [_layer(contract, config, scheme, module, of) for module, of in held.items()]


def of_parameters(contract: Contract, config: DraftConfig, parameters: Parameters) -> list[Layer]:
    """Every layer that a method may quantise, as if the file held nothing of it."""
    scheme = scheme_of(contract, config)
    named = [*contract.quantised.get("plain", []), *contract.quantised.get("heads", [])]
    modules = {name.rpartition(".")[0] for name, p in parameters.items() if p.load in LAYERS}
    modules |= {name for name in named if f"{name}.weight" in parameters}
    return [] if scheme is None else [_layer(contract, config, scheme, module, {}) for module in sorted(modules)]


def _held(contract: Contract, parameters: Parameters, tensors: Iterable[Tensor]) -> dict[str, Held]:
    from drafcheck.plan.mtp_names import route_layer

    parts = contract.names.get("quantised_parts", ())
    bare = contract._replace(names={key: value for key, value in contract.names.items() if key != "quantised_parts"})
    plain = contract.quantised.get("plain", [])
    found: dict[str, Held] = {}
    for tensor in tensors:
        stem, _, last = tensor.name.rpartition(".")
        name = f"{stem}.weight" if last in parts else tensor.name
        reached = route_layer(bare, name, parameters)
        if reached.end != "parameter" or not name.endswith(".weight"):
            continue
        module = reached.parameter.rpartition(".")[0]
        if module in contract.quantised.get("upcast", []):
            continue
        if parameters[reached.parameter].load in LAYERS or module in plain:
            found.setdefault(module, {}).setdefault(last, {})[reached.shard or ""] = tensor.dtype
    return found


def _layer(contract: Contract, config: DraftConfig, scheme: Scheme, module: str, held: Held) -> Layer:
    numbers, *rest = scheme.parts
    shards = list(dict.fromkeys(shard for of in held.values() for shard in of))
    packed = [shard for shard in shards if is_packed(held, numbers, rest, shard)]
    plain = [shard for shard in shards if shard not in packed]
    missing = [
        (shard, part)
        for part in scheme.parts
        for shard in packed
        if part not in scheme.spare and shard not in held.get(part, {})
    ]
    return Layer(
        module, _state(contract, config, scheme, module), bool(packed), tuple(packed), tuple(plain), tuple(missing)
    )


def _state(contract: Contract, config: DraftConfig, scheme: Scheme, module: str) -> str:
    if module in contract.quantised.get("plain", []) or built_plain(contract, config):
        return "left"
    if module in contract.quantised.get("heads", []):
        return "either"
    state = asked_for(contract, config, scheme, module)
    if not module.endswith((".experts", ".routed_experts")):
        return state
    told = scheme.method.removeprefix("method ").partition(" ")[0] in contract.quantised.get("experts", [])
    asked = asked_name(contract, config, module)
    listed = asked is None or any(asked in entry for entry in scheme.ignore)  # single experts count
    return "built" if told and state == "built" and not listed else "either"
