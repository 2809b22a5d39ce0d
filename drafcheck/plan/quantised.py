"""Drafts with a ``quantization_config``: which layers are built quantised, and of which parts.

What a release does with the list of layers that are left alone differs by method and by release. So three answers are
told apart: no reader could find the layer in the list, every reader does, or it depends.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from drafcheck.contract import in_force, load_toml
from drafcheck.lookup import MISSING
from drafcheck.plan.model import Layer, LoadPlan, Parameter, Parameters

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract, Table
    from drafcheck.tensor import Tensor

LINEAR = ("qkv", "merged", "row", "column", "replicated", "joined")
"""How the layers are loaded that a method may quantise, beside those that the contract names."""

FLOATS = ("F64", "F32", "F16", "BF16")
KEY = "quantization_config"


class Scheme(NamedTuple):
    """How one ``quantization_config`` is built.

    ``parts``: the last words of the names of a layer's parameters, the numbers first. ``spare``: those that may be
    missing. ``ignore``: the list of layers that are left alone, as written. ``proven``: the classes were run.
    ``plain_shape``: the dtypes in which the numbers have the sides of the plain weight.
    """

    method: str
    parts: tuple[str, ...]
    spare: frozenset[str]
    ignore: tuple[str, ...]
    proven: bool
    plain_shape: tuple[str, ...] = ()


def declared(contract: Contract, config: DraftConfig) -> Any:
    """The ``quantization_config`` that the class is built by: the draft's own, or in some releases the target's."""
    if contract.quantised.get("of") == "target":
        return config.target.data.get(KEY) if config.target is not None else None
    return config.data.get(KEY)


ALONE = "hf_quant_config.json"
"""ModelOpt's description in a file of its own, which releases read in different ways where config.json has none."""


def undescribed(contract: Contract, config: DraftConfig, beside: Collection[str] = ()) -> str | None:
    """Why a quantised draft is not described; None when it is, or when it is not quantised."""
    if contract.names.get("loader") == "mtp":
        return None  # compared by names, whatever the method
    if ALONE in beside and not config.data.get(KEY):
        return f"a {ALONE} and no {KEY}"
    table = declared(contract, config)
    if not table or contract.quantised.get("of") == "nobody":
        return None
    return None if scheme_of(contract, config) is not None else f"{KEY} ({_called(table)})"


def _called(table: Any) -> str:
    words = [table.get(key) for key in ("quant_method", "quant_algo", "format")] if isinstance(table, dict) else []
    said = " ".join(str(word)[:40] for word in words if isinstance(word, str))
    return f"method {said}" if said else "without a method"


def scheme_of(contract: Contract, config: DraftConfig) -> Scheme | None:
    """The scheme of ``quantization.toml`` that fits; None when nothing is quantised, or none fits."""
    table = declared(contract, config)
    if contract.quantised.get("of") == "nobody" or not isinstance(table, dict) or contract.engine is None:
        return None
    book = load_toml(contract.engine.name, "quantization.toml")
    seen = {**table, "group": _group(table)}
    fitting = [entry for entry in book.get("scheme", []) if _fits(entry, seen)]
    entry = in_force(fitting, contract.engine)
    if entry is None:
        return None
    found = [table[key] for key in entry.get("ignore", []) if table.get(key)]
    listed = found[0] if found and isinstance(found[0], list) else []
    names = tuple(item for item in listed if isinstance(item, str))
    return Scheme(
        _called(table),
        tuple(entry["parts"]),
        frozenset(entry.get("spare", [])),
        names,
        bool(entry.get("proven")),
        tuple(entry.get("plain_shape", ())),
    )


def quantise(contract: Contract, config: DraftConfig, plan: LoadPlan) -> None:
    """Put the parts of quantised layers in the place of plain ones, where the config speaks of a quantisation."""
    if not declared(contract, config):
        return
    if contract.names.get("loader") == "mtp":
        from drafcheck.plan.quantised_heads import layers_of  # for these classes alone

        plan.layers = layers_of(contract, config, plan.parameters, plan.seen)
    else:
        plan.plain = plan.parameters
        plan.parameters, plan.layers = quantised(contract, config, plan.parameters, plan.seen)


def built_plain(contract: Contract, config: DraftConfig) -> bool:
    """Whether the class builds all layers plain under this algorithm: for some it takes only the target to be meant."""
    table = declared(contract, config)
    algorithm = table.get("quant_algo") if isinstance(table, dict) else None
    return isinstance(algorithm, str) and algorithm.lower() in contract.quantised.get("plain_for", [])


def _group(table: Table) -> Any:
    """The one group of ``config_groups``; several are not described."""
    groups = table.get("config_groups")
    return next(iter(groups.values())) if isinstance(groups, dict) and len(groups) == 1 else None


def _fits(entry: Table, table: Table) -> bool:
    same = all(_at(table, key) == value for key, value in entry.get("is", []))
    there = all(_at(table, key) for key in entry.get("set", []))
    return same and there and not any(_at(table, key) for key in entry.get("unset", []))


def _at(table: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(table, dict):
            return None
        table = table.get(part, MISSING)
    if isinstance(table, str):
        return table.lower()
    return None if table is MISSING else table


def quantised(
    contract: Contract, config: DraftConfig, parameters: Parameters, tensors: Iterable[Tensor]
) -> tuple[Parameters, list[Layer]]:
    """The parameters as the file means them, and what there is to say of each layer that a method may quantise.

    A layer of which the file holds quantised parts gets these, and any other one stays plain: whether that is what the
    release builds, the layers tell.
    """
    scheme = scheme_of(contract, config)
    if scheme is None:
        return parameters, []
    modules = {name[: -len(".weight")]: p for name, p in parameters.items() if _may_be(contract, name, p)}
    every = Parameters(parameters)
    for name, parameter in modules.items():
        every.update({f"{name}.{part}": parameter._replace(name=f"{name}.{part}") for part in scheme.parts})
    held = _held(contract, every, modules, tensors)
    made, layers = Parameters(), []
    for name, parameter in parameters.items():
        module = name[: -len(".weight")]
        if module not in modules:
            made[name] = parameter
            continue
        layer = _layer(_Asked(contract, config, scheme), module, parameter, held.get(module, {}))
        layers.append(layer)
        made.update(_parts(scheme, module, parameter, held.get(module, {})) if layer.packed else {name: parameter})
    return made, layers


def _may_be(contract: Contract, name: str, parameter: Parameter) -> bool:
    named = [*contract.quantised.get("heads", []), *contract.quantised.get("plain", [])]
    return name.endswith(".weight") and (parameter.load in LINEAR or name[: -len(".weight")] in named)


Held = dict[str, dict[str, str]]
"""Of one layer: part -> shard (empty for a whole tensor) -> the dtype in the file."""


def _held(
    contract: Contract, every: Parameters, modules: dict[str, Parameter], tensors: Iterable[Tensor]
) -> dict[str, Held]:
    from drafcheck.plan.names import route

    found: dict[str, Held] = {}
    for tensor in tensors:
        reached = route(contract, tensor.name, every)
        module, _, part = reached.parameter.rpartition(".")
        if module in modules:
            found.setdefault(module, {}).setdefault(part, {})[reached.shard or ""] = tensor.dtype
    return found


def _parts(scheme: Scheme, module: str, parameter: Parameter, held: Held) -> dict[str, Parameter]:
    """The parameters of a quantised layer that the file fills, of sizes that are not known."""
    made = {}
    for part, shards in held.items():
        sizes = {} if "" in shards else dict.fromkeys([s for s in parameter.shards if s in shards], -1)
        name, shape = f"{module}.{part}", (-1,) * max(len(parameter.shape), 1)
        if part in scheme.parts:
            made[name] = parameter._replace(name=name, shape=shape, shards=sizes, initial="empty")
    return made


class _Asked(NamedTuple):
    """What decides of a layer, the layer itself aside."""

    contract: Contract
    config: DraftConfig
    scheme: Scheme


def _layer(asked: _Asked, module: str, parameter: Parameter, held: Held) -> Layer:
    contract, _, scheme = asked
    numbers, *rest = scheme.parts
    shards = list(parameter.shards) or [""]
    packed = [shard for shard in shards if is_packed(held, numbers, rest, shard)]
    there = [shard for shard in shards if any(shard in of or "" in of for of in held.values())]
    missing = [
        (shard, part)
        for part in scheme.parts
        for shard in packed
        if part not in scheme.spare and shard not in held.get(part, {}) and "" not in held.get(part, {})
    ]
    state = "either" if module in contract.quantised.get("heads", []) else asked_for(*asked, module)
    if module in contract.quantised.get("plain", []) or built_plain(contract, asked.config):
        state = "left"
    plain = [shard for shard in there if shard not in packed]
    return Layer(module, state, bool(packed), tuple(packed), tuple(plain), tuple(missing))


def is_packed(held: Held, numbers: str, rest: list[str], shard: str) -> bool:
    """Whether the file holds a layer, or a shard of it, in the parts of a quantised one."""

    def of(part: str) -> str | None:
        there = held.get(part, {})
        return there.get(shard, there.get(""))

    if numbers != "weight":
        return of(numbers) is not None
    stored = of("weight")
    return (stored is not None and stored not in FLOATS) or any(of(part) is not None for part in rest)


def asked_for(contract: Contract, config: DraftConfig, scheme: Scheme, module: str) -> str:
    """What the list says of a layer: ``built`` (nobody finds it there), ``left`` (everybody does) or ``either``."""
    asked = asked_name(contract, config, module)
    if asked is None:
        return "either" if scheme.ignore else "built"
    names = _spelled(contract, asked)
    if all(name in scheme.ignore for name in names):
        return "left"
    return "either" if any(may_mean(entry, name) for entry in scheme.ignore for name in names) else "built"


def asked_name(contract: Contract, config: DraftConfig, module: str) -> str | None:
    """The name by which the constructor asks for a layer; None when it depends on a target that nobody named."""
    for old, new in contract.quantised.get("asked", []):
        module = re.sub(re.escape(old).replace(r"\{n\}", r"\d+"), new, module)
    if contract.quantised.get("after_target"):  # layers are counted on from the target's
        depth = config.target.num_hidden_layers if config.target is not None else None
        if depth is None:
            return None
        head, mark, tail = module.partition(".layers.")
        number, dot, rest = tail.partition(".")
        if mark and number.isdigit():
            module = f"{head}{mark}{int(number) + depth}{dot}{rest}"
    return module


def _spelled(contract: Contract, asked: str) -> list[str]:
    """The name, and for a fused layer also the names of what it is made of."""
    head, dot, last = asked.rpartition(".")
    stacked = {**contract.stacked, **contract.names.get("stacked", {})}
    fused = [*((old, new) for old, (new, _) in stacked.items()), *(h[:2] for h in contract.names.get("halves", []))]
    parts = [old.strip(".") for old, new in fused if new.strip(".") == last]
    return [asked, *(f"{head}{dot}{part}" for part in parts)]


def may_mean(entry: str, name: str) -> bool:
    """Whether some reader could take ``entry`` for the layer: as a part of its name, a pattern, a regular expression.

    The pieces between wildcards have to come in that order; expressions of more than ``.*`` may mean anything.
    """
    pattern = entry.removeprefix("re:")
    if pattern != entry:
        pattern = pattern.strip("^$").replace("\\.", ".").replace(".*", "*")
        if any(sign in pattern for sign in "\\[](){}|?+^$"):
            return True
    at, name = 0, name.removeprefix("model.")
    for piece in pattern.removeprefix("model.").split("*"):
        found = name.find(piece.strip("."), at)
        if found < 0:
            return False
        at = found + len(piece.strip("."))
    return True
