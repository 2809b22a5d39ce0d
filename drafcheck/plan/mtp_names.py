"""The names of a multi-token-prediction layer: one layer of a whole checkpoint, of which the rest is passed over.

The named loader ``mtp`` of ``[[names]]``. What its keys mean is told in rules/README.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.contract import load_toml
from drafcheck.plan.names import Route

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract, Table
    from drafcheck.plan.model import Parameter
    from drafcheck.tensor import Tensor

MOST_HEADS = 128
"""So many heads of one checkpoint are told from others at most."""

PACKED = ("weight_packed", "qweight")
"""What the numbers of a quantised weight are called where not ``weight``; the other parts say how to read them."""


def for_config(contract: Contract, config: DraftConfig) -> Contract:
    """The contract with the number of the layer written into its names, and with the number of experts.

    A number that the config does not say leaves the placeholder, which no name has: see ``layer_is_known``, which says
    that nothing can be said of names then.
    """
    names = contract.names
    if names.get("loader") != "mtp":
        return contract
    layer = _layer(contract, names, config)
    numbers = _numbers(contract, names, config, layer)
    filled = _filled(names, numbers)
    filled["first_layer"] = layer or 0
    begins = [*(begin for begin in names.get("read", []) if "{layer}" in begin), *names.get("read", []), ""]
    filled["layer_name"] = begins[0].rstrip(".")
    filled["other_heads"] = _other_heads(contract, names, config, layer)
    filled["expert_count"] = contract.value("num_experts", config) or 0
    if "beyond" in names:
        filled["layers_built"] = contract.value(names["beyond"], config)
    if _is_quantised(config):
        from drafcheck.plan.quantised import FLOATS, scheme_of  # for these configs alone

        scheme = scheme_of(contract, config)
        filled["quantised_parts"] = load_toml("dialects.toml")["quantised"]["parts"]
        filled["plain_dtypes"] = (*FLOATS, *(scheme.plain_shape if scheme is not None else ()))
        return contract._replace(names=filled, quantised=_filled(contract.quantised, numbers), proven=False)
    return contract._replace(names=filled)


def _is_quantised(config: DraftConfig) -> bool:
    """Whether the engine builds quantised layers, of which this book only knows what their tensors are called."""
    return any(config.data.get(key) is not None for key in ("quantization_config", "compression_config"))


def as_stored(contract: Contract, parameter: Parameter, tensors: Iterable[Tensor]) -> Parameter:
    """The parameter as the dtypes of the tensors for it tell: of what may be packed only vectors are of a known size.

    The numbers of a plain tensor have the sides of the plain weight, and so have those of some methods.
    """
    parts = contract.names.get("quantised_parts")
    if not parts or len(parameter.shape) == 1:
        return parameter
    plain = contract.names["plain_dtypes"]
    if all(t.dtype in plain and t.name.rpartition(".")[2] not in parts for t in tensors):
        return parameter
    return parameter._replace(shape=(-1,) * len(parameter.shape), shards=dict.fromkeys(parameter.shards, -1))


def layer_is_known(contract: Contract, config: DraftConfig) -> bool:
    """Whether the config, or its class, says which layer the head is."""
    return _layer(contract, contract.names, config) is not None


def _layer(contract: Contract, names: Table, config: DraftConfig) -> int | None:
    rule = names.get("layer")
    count = contract.value(rule["count"], config) if rule else None
    return rule["alone"] if rule and count == 1 and "alone" in rule else count


def _other_heads(contract: Contract, names: Table, config: DraftConfig, layer: int | None) -> list[str]:
    """The beginnings of further heads in the same checkpoint, each of which is a draft of its own."""
    count = contract.value(names["heads"], config) if "heads" in names else None
    if layer is None or count is None or not names.get("read"):
        return []
    return [names["read"][0].replace("{layer}", str(layer + n)) for n in range(1, min(count, MOST_HEADS))]


def _numbers(contract: Contract, names: Table, config: DraftConfig, layer: int | None) -> list[str]:
    """The numbers of all layers that are built: the one, or as many from it on as ``every`` counts."""
    if layer is None:
        return []
    built = contract.value(names["every"], config) if "every" in names else 1
    return [str(layer + n) for n in range(min(built or 0, MOST_HEADS))]


def _filled(value: Table, layers: list[str]) -> Table:
    """The entries with the numbers of layers in them: in a list, what speaks of the layer is there for each."""
    return {key: _written(item, layers) for key, item in value.items()}


def _written(value: object, layers: list[str]) -> object:
    if isinstance(value, str):
        return value.replace("{layer}", layers[0]) if layers else value
    if isinstance(value, list):
        return [_written(item, each) for item in value for each in _each(item, layers)]
    return _filled(value, layers) if isinstance(value, dict) else value


def _each(item: object, layers: list[str]) -> list[list[str]]:
    texts = item.values() if isinstance(item, dict) else item if isinstance(item, list) else [item]
    speaks = any(isinstance(text, str) and "{layer}" in text for text in texts)
    return [[layer] for layer in layers] if speaks and layers else [layers]


def strays(contract: Contract, names: Sequence[str]) -> tuple[str, ...]:
    """The beginnings under which a head lies that is not read: another layer's, or one behind a prefix.

    What lies there would else pass for the target's own. Layers after one that is read are drafts of their own, or left
    alone by design: the head is whole without them.
    """
    parts = {f".{part}." for move in contract.names.get("move", []) for part in move.get("any", [])}
    named = [(f".{name}", part) for name in names for part in parts if part in f".{name}"]
    begins = {name[1:]: f"{name.partition(part)[0][1:]}." for name, part in named}
    known = tuple(contract.names.get("other_heads", []))
    read = [_place_and_number(begin) for name, begin in begins.items() if _is_read(contract.names, name)]
    found = {begin for name, begin in begins.items() if not _is_read(contract.names, name)}
    found |= _misplaced(contract.names, names)
    return tuple(sorted(b for b in found if not b.startswith(known) and not _is_after(b, read)))


def _misplaced(names: Table, tensors: Sequence[str]) -> set[str]:
    """Of a beginning with which no name begins: where it stands behind a prefix, or with a higher number.

    Layers with a lower number are the target's.
    """
    found: set[str] = set()
    numbered = [names["numbered"].replace("{n}", str(names.get("first_layer", 0)))] if "numbered" in names else []
    for wanted in [*names.get("read", []), *numbered]:
        if not any(name.startswith(wanted) for name in tensors):
            found |= {name[: name.index(f".{wanted}") + 1] + wanted for name in tensors if f".{wanted}" in name}
            found |= _higher(wanted, [name for name in tensors if name.startswith(wanted.partition(".")[0])])
    for wanted in names.get("read_with", []):
        if not any(wanted in name for name in tensors):
            found |= _higher(wanted, tensors)
    return found


def _higher(wanted: str, tensors: Sequence[str]) -> set[str]:
    """The beginnings of names with a higher number in the place of that in ``wanted``."""
    place, first = _place_and_number(wanted)
    before, _, after = place.partition("#")
    parts = [name.partition(before) for name in tensors if first >= 0 and before in name]
    numbers = [(start + before, rest.partition(".")[0]) for start, _, rest in parts]
    return {
        start + n + (after or ".")
        for start, n in numbers
        if n.isascii() and n.isdigit() and len(n) < 7 and int(n) > first
    }


def _place_and_number(begin: str) -> tuple[str, int]:
    """``("model.layers.#.", 61)`` of ``model.layers.61.``: the last number in it, -1 where there is none."""
    parts = begin.split(".")
    at = next((n for n in reversed(range(len(parts))) if parts[n].isascii() and parts[n].isdigit()), None)
    if at is None or len(parts[at]) > 6:
        return begin, -1
    return ".".join([*parts[:at], "#", *parts[at + 1 :]]), int(parts[at])


def _is_after(begin: str, read: Sequence[tuple[str, int]]) -> bool:
    """Whether a layer comes after one that is read."""
    place, number = _place_and_number(begin)
    return any(place == other and number > first for other, first in read)


def route_layer(contract: Contract, name: str, parameters: Collection[str]) -> Route:
    """Follow ``name`` as ``drafcheck.plan.names.route`` does; ``end`` is ``elsewhere`` for what is the target's own."""
    names = contract.names
    if not _is_read(names, name):
        return Route("elsewhere")
    if any(part in name for part in names.get("drop", [])):
        return Route("design")
    if _is_beyond(names, name):
        return Route("unknown", looked_for=name)
    name = _moved(names, name)
    for old, new in names.get("rename", []):
        name = name.replace(old, new)
    name = next((whole for part, whole in names.get("becomes", []) if part in name), name)
    if names.get("quantised_parts"):
        return _asked_modules(contract, _quantised(contract, name, parameters), parameters)
    found = _projection(contract, name, parameters) or _rest(names, name, parameters)
    return _asked_modules(contract, found, parameters)


def _asked_modules(contract: Contract, found: Route, parameters: Collection[str]) -> Route:
    """What the modules that a name leads through say to one without a parameter, where the contract has their words."""
    if found.end != "unknown" or not contract.unknown:
        return found
    from drafcheck.plan.names import nowhere  # for these classes alone

    return nowhere(contract, found.looked_for, parameters)


def _quantised(contract: Contract, name: str, parameters: Collection[str]) -> Route:
    """Where a tensor goes that may be part of a packed weight: the numbers reach the parameter, scales are beside."""
    names = contract.names
    stem, _, last = name.rpartition(".")
    plain = f"{stem}.weight" if last in names["quantised_parts"] else name
    found = _projection(contract, plain, parameters) or _rest(names, plain, parameters)
    if plain == name or last in names.get("packed", PACKED):
        return found
    return Route("design") if found.end == "parameter" else Route("unknown", looked_for=plain)


def _number_of(names: Table, name: str) -> int | None:
    """The number of the layer that a name is of, where layers lie under ``numbered``."""
    begin = _numbered(names["numbered"], name) if "numbered" in names else None
    if begin is None:
        return None
    before, _, after = names["numbered"].partition("{n}")
    number = begin[len(before) : len(begin) - len(after)]
    return int(number) if len(number) < 9 else MOST_HEADS


def _is_later(names: Table, name: str) -> bool:
    """Whether ``name`` is of a layer beside the one that is read: a draft of its own, or left alone by design."""
    number = _number_of(names, name)
    return number is not None and number != names.get("first_layer", 0)


def _is_read(names: Table, name: str) -> bool:
    if _is_later(names, name):
        return False
    return name.startswith(tuple(names.get("read", ()))) or any(part in name for part in names.get("read_with", ()))


def _is_beyond(names: Table, name: str) -> bool:
    """Whether ``name`` is of a layer that is not built, where the loader passes over such layers at once."""
    built = names.get("layers_built")
    number = name.partition("layers.")[2].partition(".")[0]
    return built is not None and number.isascii() and number.isdigit() and (len(number) > 9 or int(number) >= built)


def _moved(names: Table, name: str) -> str:
    """The first move that fits: ``from`` becomes ``to`` wherever it stands; ``{n}`` in it is any number.

    With ``start`` only names that begin with ``from`` are meant; with ``through`` what stands before it goes too.
    """
    for move in names.get("move", []):
        wanted = "any" not in move or any(part in name for part in move["any"])
        wanted = wanted and ("whole" not in move or name in move["whole"])
        old = _numbered(move["from"], name) if "{n}" in move["from"] else move["from"]
        if wanted and old is not None and (name.startswith(old) if move.get("start") else old in name):
            new = _counted_on(move, old, names.get("first_layer", 0))
            return new + name.rpartition(old)[2] if move.get("through") else name.replace(old, new)
    return name


def _counted_on(move: Table, old: str, first: int) -> str:
    """What takes the place of ``old``: ``{n}`` in it is the number that stands there, counted on from ``first``."""
    if "{n}" not in move["to"]:
        return str(move["to"])
    before, _, after = move["from"].partition("{n}")
    number = old[len(before) : len(old) - len(after)]
    return str(move["to"]).replace("{n}", str(first + int(number)) if len(number) < 9 else number)


def _numbered(pattern: str, name: str) -> str | None:
    """The beginning of ``name`` that is ``pattern`` with a number in the place of ``{n}``; None when it is none."""
    before, _, after = pattern.partition("{n}")
    number = name[len(before) :].partition(after)[0] if name.startswith(before) else ""
    whole = before + number + after
    return whole if number.isascii() and number.isdigit() and name.startswith(whole) else None


def _projection(contract: Contract, name: str, parameters: Collection[str]) -> Route | None:
    """Where a projection of a fused parameter goes; None for what is none. Experts are not fused this way."""
    names = contract.names
    if any(part in name for part in names.get("unstacked", [])):
        return None
    for part, (whole, shard) in names.get("stacked", contract.stacked).items():
        if part in name:
            fused = name.replace(part, whole)
            if fused in parameters:
                return Route("parameter", fused, shard, fused)
            return _nowhere(names, "unknown_stacked", fused)
    return None


def _rest(names: Table, name: str, parameters: Collection[str]) -> Route:
    for part, whole, shard in names.get("halves", []):
        fused = name.replace(part, whole) if part in name else ""
        if fused in parameters:
            return Route("parameter", fused, shard, fused)
    for part, whole in names.get("whole_experts", []):
        if part in name:
            fused = name.replace(part, whole)
            known = fused in parameters
            return Route("parameter", fused, None, fused) if known else _nowhere(names, "unknown_whole", fused)
    expert = _expert(names, name)
    if expert is not None and expert[0] in parameters:
        return Route("parameter", *expert, expert[0])
    if expert is not None and "unknown_expert" in names:
        return _nowhere(names, "unknown_expert", expert[0])
    if name in parameters:
        return Route("parameter", name, None, name)
    return _nowhere(names, "unknown_other", name)


def _nowhere(names: Table, what: str, name: str) -> Route:
    """What becomes of a name without a parameter: an extra bias is dropped by nearly every loader."""
    if what in names and (names.get("unknown_bias") or not name.endswith(".bias")):
        return Route("refused", looked_for=name, error=names[what].replace("{name}", name))
    return Route("unknown", looked_for=name)


def _expert(names: Table, name: str) -> tuple[str, str] | None:
    """``...experts.3.gate_proj.weight`` as the parameter and the shard ``3.gate``; None for another name."""
    before, found, rest = name.partition(".experts.")
    number, _, tail = rest.partition(".")
    if not found or not (number.isascii() and number.isdigit() and len(number) < 7):
        return None
    return _shard_of_expert(
        names.get("experts", []), f"{before}.experts.", int(number), tail, names.get("expert_count", 0)
    )


def _shard_of_expert(
    rules: Sequence[Sequence[str]], before: str, number: int, tail: str, count: int
) -> tuple[str, str] | None:
    for part, whole, shard in rules:
        if tail.startswith(part + ".") and number < count:
            return f"{before}{whole}{tail[len(part) + 1 :]}", f"{number}.{shard}"
    return None
