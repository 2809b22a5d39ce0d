"""From the name of a tensor to the parameter it reaches, as the loader of a release goes about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from drafcheck.contract import Contract


class Route(NamedTuple):
    """Where a name leads: to ``parameter`` (and ``shard``), to the mapping, or nowhere.

    ``end``: ``parameter``, ``mapping``, ``design`` (skipped on purpose), ``unknown`` or ``refused``;
    ``looked_for`` is the last parameter name that was tried.
    """

    end: str
    parameter: str = ""
    shard: str | None = None
    looked_for: str = ""


def route(contract: Contract, name: str, parameters: Collection[str]) -> Route:
    """Follow ``name`` through renames, the mapping, skipped names, fused parameters and prefixes."""
    names = contract.names
    for old, new in names.get("rename", []):
        name = name.replace(old, new)
    if names.get("mapping") and names["mapping"] in name:
        return Route("mapping")
    if any(part in name for part in names.get("drop", [])):
        return Route("design")
    fused, shard = _fused(contract, name)
    tried = _candidates(contract, fused)
    hit = next((candidate for candidate in tried if candidate in parameters), None)
    if hit is not None:
        return Route("parameter", hit, shard, hit)
    loud = shard is not None and "unknown_stacked" in names and not tried[-1].endswith(".bias")
    return Route("refused" if loud else "unknown", looked_for=tried[-1])


def _fused(contract: Contract, name: str) -> tuple[str, str | None]:
    for part, (fused, shard) in contract.stacked.items():
        if part in name:
            return name.replace(part, fused), shard
    return name, None


def _candidates(contract: Contract, name: str) -> list[str]:
    if any(part in name for part in contract.names.get("bare", [])):
        return [name]
    return [prefix + name for prefix in contract.names.get("prefixes", [""])]
