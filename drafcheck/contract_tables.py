"""The files of contracts: which one speaks of a draft class, and what it takes over from others."""

from __future__ import annotations

from typing import Any

from drafcheck.contract import Table, contract_files, is_own, load_toml, of_the_book

PARTS = "parts"
"""The folder, below that of the engine, of what several contracts share."""

_LISTS = ("values", "not_described")
"""Sections whose lists are lists of words, which are joined; elsewhere in tables a list is one value."""


def files_for(engine: str, architecture: str) -> list[str]:
    """The contract files that may speak of a draft class, without their ending, in their order.

    engine.toml says under ``[classes]`` which classes a file is for; a file about which it says nothing is looked into.
    """
    index = load_toml(engine, "engine.toml").get("classes", {})
    return [
        stem
        for stem in contract_files(engine)
        if architecture in index.get(stem, [architecture]) or is_own(engine, f"{stem}.toml")
    ]


def own_tables(engine: str) -> list[Table]:
    """The contracts of the user's own for an engine."""
    stems = contract_files(engine)
    return [contract_table(engine, stem) for stem in stems if is_own(engine, f"{stem}.toml")]


@of_the_book
def contract_table(engine: str, stem: str) -> Table:
    """The contract ``<engine>/<stem>.toml`` with all that it extends; empty when there is no such file.

    Raises ValueError when a file extends itself, or one that there is not.
    """
    return _whole(engine, stem, ())


def _whole(engine: str, stem: str, within: tuple[str, ...]) -> Table:
    if stem in within:
        raise ValueError(f"{stem}.toml extends itself")
    whole = load_toml(engine, *f"{stem}.toml".split("/"))
    if within and not whole:
        raise ValueError(f"{within[-1]}.toml extends {stem!r}, and there is no {stem}.toml")
    for base in whole.get("extends", []):
        whole = _joined(whole, _whole(engine, base, (*within, stem)))
    left = ("extends", "proof") if within else ("extends",)  # that another class was run proves nothing of this one
    return {key: value for key, value in whole.items() if key not in left}


def _joined(own: Table, base: Table) -> Table:
    """Lists of entries joined, one's own first; tables key by key, and of all else one's own."""
    return {**base, **own, **{key: _both(key, own[key], base[key]) for key in own if key in base}}


def _both(section: str, own: Any, base: Any) -> Any:
    if isinstance(own, dict):
        shared = {key: _both(section, own[key], base[key]) for key in own if key in base}
        return {**base, **own, **shared}
    entries = isinstance(own, list) and any(isinstance(item, dict) for item in [*own, *base])
    return [*own, *base] if entries or (section in _LISTS) else own
