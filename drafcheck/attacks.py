"""Which names in a pickle make it an attack."""

from __future__ import annotations

import sys

from drafcheck.contract import load_toml


def is_attack(path: str) -> bool:
    """Whether a name is one of those that make an attack, by ``rules/attacks.toml``."""
    book = load_toml("attacks.toml")
    module = path.rpartition(".")[0]
    root = path.partition(".")[0]
    if root in sys.stdlib_module_names:
        return module not in book["plain"]["modules"] and path not in book["plain"]["names"]
    if path in book["written"]["names"]:
        return False
    if any(
        part in book["walked"]["parts"] or part.lstrip("_") in book["walked"]["modules"] for part in path.split(".")
    ):
        return True
    foreign = book["foreign"]
    return path in foreign["names"] or f"{path}.".startswith(tuple(f"{name}." for name in foreign["modules"]))
