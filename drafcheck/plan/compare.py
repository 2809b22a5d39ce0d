"""Asking other releases: since when is a name taken?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.contract import Engine, contract_for, releases
from drafcheck.conversion import read_later
from drafcheck.lookup import settled
from drafcheck.plan.names import route
from drafcheck.plan.parameters import build_parameters, refused_config

if TYPE_CHECKING:
    from drafcheck.subject import Subject


def first_release_that_takes(s: Subject, name: str) -> str | None:
    """The first later release of this engine that builds the class from this config and has a parameter ``name``."""
    if s.config is None or s.contract is None:
        return None
    for version in releases(s.engine.name):
        if version <= s.engine.known:
            continue
        later = Engine(s.engine.name, str(version), version, exact=True)
        contract, config = contract_for(later, s.contract.architecture), read_later(s, later)
        if contract is None or config is None or refused_config(contract, config) is not None:
            continue
        contract = settled(contract, config)
        if route(contract, name, build_parameters(contract, config)).end == "parameter":
            return str(version)
    return None
