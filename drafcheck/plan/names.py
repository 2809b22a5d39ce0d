"""From the name of a tensor to the parameter it reaches, as the loader of a release goes about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from drafcheck.plan.model import Parameters

if TYPE_CHECKING:
    from collections.abc import Collection

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract, Table


class Route(NamedTuple):
    """Where a name leads: to ``parameter`` (and ``shard``), to the mapping, or nowhere.

    ``end``: ``parameter``, ``mapping``, ``design`` (skipped on purpose), ``elsewhere`` (the target's own tensors, which
    lie beside the head's), ``unknown`` or ``refused`` (with ``error``); ``looked_for`` is the last parameter name that
    was tried. Where the mapping is a parameter too, both are there.
    """

    end: str
    parameter: str = ""
    shard: str | None = None
    looked_for: str = ""
    error: str = ""
    shows: str = ""  # the config key whose value the error quotes


def route(contract: Contract, name: str, parameters: Collection[str]) -> Route:
    """Follow ``name`` through renames, the mapping, skipped names, fused parameters and prefixes."""
    if "spelled" in contract.names:
        from drafcheck.plan.spelled import respelled  # for these classes alone

        spelled = respelled(contract.names, name)
        if spelled is None and "unspelled" in contract.names:
            return Route("refused", looked_for=name, error=contract.names["unspelled"])
        if spelled is None:
            return Route("unknown", looked_for=name)
        name = spelled
    if "words" in contract.names:
        from drafcheck.plan.spelled import reworded  # for these classes alone

        name = reworded(contract.names["words"], name)
    if contract.names.get("loader") == "mtp":
        from drafcheck.plan.mtp_names import route_layer  # for these classes alone

        return route_layer(contract, name, parameters)
    if (error := stopped_at_sight(contract.names, name)) is not None:
        return Route("refused", looked_for=name, error=error)
    became = next((new for part, new in contract.names.get("becomes", []) if part in name and new in parameters), None)
    if became is not None:
        return Route("parameter", became, None, became)
    return _route(contract, name, parameters)


def _route(contract: Contract, name: str, parameters: Collection[str]) -> Route:
    names = contract.names
    written, name = name, _renamed(names, name)
    last = name.rpartition(".")[2]
    if is_mapping(names, name):
        return _mapped(contract, name, parameters)
    if _skipped(names, name, last):
        return Route("design")
    direct = written.startswith(tuple(names.get("direct", ())))
    fused, shard = (written, None) if direct else _fused(contract, _prefixed(names, name))
    tried = [written] if direct else _candidates(contract, fused)
    hit = next((candidate for candidate in tried if candidate in parameters), None)
    if hit is not None:
        return Route("parameter", hit, shard, hit)
    if (refused := _refused(names, written, tried[-1], parameters)) is not None:
        return refused
    if shard is not None and "unknown_stacked" in names and not tried[-1].endswith(".bias"):
        return Route("refused", looked_for=tried[-1], error=names["unknown_stacked"].replace("{name}", tried[-1]))
    return nowhere(contract, tried[-1], parameters)


def stopped_at_sight(names: Table, name: str) -> str | None:
    """What the loader says to a name before it loads anything, as it looks at all names first; None for most."""
    return next((str(error) for part, error in names.get("at_sight", []) if part in name), None)


def is_mapping(names: Table, name: str) -> bool:
    """Whether the loader takes a tensor of that name for d2t."""
    return bool(names.get("mapping") and names["mapping"] in name) or name.rpartition(".")[2] == names.get(
        "mapping_word"
    )


def _renamed(names: Table, name: str) -> str:
    for old, new in names.get("rename", []):
        name = name.replace(old, new, 1 if names.get("rename_once") else -1)
    for old, new in names.get("rename_start", []):
        if name.startswith(old):
            return str(new) + name[len(old) :]
    return str(names.get("alias", {}).get(name, name))


def _skipped(names: Table, name: str, last: str) -> bool:
    return (
        any(part in name for part in (*names.get("drop", []), *names.get("skips", [])))
        or last in names.get("drop_word", [])
        or name.startswith(tuple(names.get("drop_start", ())))
    )


def _refused(names: Table, written: str, looked_for: str, parameters: Collection[str]) -> Route | None:
    """The refusal of a name that begins as the loader does not let pass; None for any other."""
    for entry in names.get("refuse", []):
        built = ("having" not in entry or entry["having"] in parameters) and entry.get("lacking") not in parameters
        if built and written.startswith(tuple(entry["start"])):
            return Route("refused", "", None, looked_for, entry["error"], entry.get("shows", ""))
    if "unknown" in names and not looked_for.endswith(".bias"):
        return Route("refused", "", None, looked_for, names["unknown"].replace("{name}", looked_for))
    return None


def _mapped(contract: Contract, name: str, parameters: Collection[str]) -> Route:
    """Where d2t goes: past the parameters, or into one of them under another name, without a prefix."""
    parameter = contract.mapping.get("parameter")
    if parameter is None:
        return Route("mapping")
    name = name.replace(contract.names["mapping"], parameter)
    return Route("mapping", name, None, name) if name in parameters else nowhere(contract, name, parameters)


def nowhere(contract: Contract, name: str, parameters: Collection[str]) -> Route:
    """What becomes of a name without a parameter: dropped, or refused by the first loader that it comes to."""
    entries = sorted(contract.unknown, key=lambda entry: "inside" not in entry)
    entry = next((e for e in entries if _speaks_of(e, name, parameters)), None)
    if entry is None or entry.get("dropped"):
        return Route("unknown", looked_for=name)
    if "inside" in entry:
        return _within_a_layer(entry, name)
    under = entry.get("under", "")
    place, nested = _how_far(entry, name, under, parameters)
    below = place[len(under) :]  # as the loader of these modules sees it
    if "ignored" in entry and below.endswith(entry["ignored"]):
        return Route("unknown", looked_for=name)
    error = str(entry["nested"] if nested and "nested" in entry else entry["error"])
    for word, found in (("{name}", name[len(under) :]), ("{place}", below)):
        error = error.replace(f"'{word}'", repr(found)).replace(word, found)  # as Python quotes it
    return Route("refused", looked_for=name, error=error)


def _speaks_of(entry: Table, name: str, parameters: Collection[str]) -> bool:
    if "inside" in entry:
        built = parameters.modules if isinstance(parameters, Parameters) else frozenset()
        return _layer(entry, name) in built
    having = entry.get("having")
    return name.startswith(entry.get("under", "")) and (having is None or any(part in name for part in having))


def _layer(entry: Table, name: str) -> str:
    """The beginning of ``name`` that ends with the module of this entry; empty when it leads into none such."""
    before, module, _ = f"{name}.".partition(f"{entry['inside']}.")
    return (before + module).rstrip(".") if module else ""


def _within_a_layer(entry: Table, name: str) -> Route:
    """What a layer that loads its own tensors says to a name that it has nothing for."""
    below = name[len(_layer(entry, name)) + 1 :]
    if below == entry.get("ignored", "").removeprefix(".") and below:
        return Route("unknown", looked_for=name)
    error = str(entry["nested"] if "." in below else entry["error"]).replace("{place}", below.partition(".")[0])
    return Route("refused", looked_for=name, error=error)


def _how_far(entry: Table, name: str, under: str, parameters: Collection[str]) -> tuple[str, bool]:
    """The beginning of ``name`` at which no module is left, and whether that is a parameter instead."""
    modules = parameters.modules if isinstance(parameters, Parameters) else frozenset()
    empty = tuple("." + module for module in entry.get("modules", []))
    end = name.find(".", len(under))
    while end >= 0:
        place = name[:end]
        if place in parameters:
            return place, True
        if place not in modules and not place.endswith(empty):
            return place, False
        end = name.find(".", end + 1)
    return name, False


def _prefixed(names: Table, name: str) -> str:
    """The name in which the loader looks for a projection: some put the prefix before it first, and none afterwards."""
    return name if not names.get("prefix_first") or _is_bare(names, name) else names["prefixes"][0] + name


def _is_bare(names: Table, name: str) -> bool:
    return any(part in name for part in names.get("bare", []))


def _fused(contract: Contract, name: str) -> tuple[str, str | None]:
    if any(part in name for part in contract.names.get("unstacked", ())):
        return name, None
    for part, (fused, shard) in contract.stacked.items():
        if part in name:
            return name.replace(part, fused), shard
    return name, None


def _candidates(contract: Contract, name: str) -> list[str]:
    if contract.names.get("prefix_first") or _is_bare(contract.names, name):
        return [name]
    stripped = [name[len(p) :] for p in contract.names.get("strip", []) if name.startswith(p)]
    return [*(prefix + name for prefix in contract.names.get("prefixes", [""])), *stripped]


def is_unnamed(contract: Contract, config: DraftConfig) -> bool:
    """Whether nothing says which layer of a whole checkpoint the head is, so that no name can be told from another."""
    if "layer" not in contract.names:
        return False
    from drafcheck.plan.mtp_names import layer_is_known  # for these classes alone

    return not layer_is_known(contract, config)
