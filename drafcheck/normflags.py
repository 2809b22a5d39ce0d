"""Norms that a key of config.json switches on: with tensors and no switch, or with a switch and no tensors.

What they are called and which key it is stands in the contract: a ``[[param]]`` with ``when``, and that ``[[flag]]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from drafcheck.contract import Engine, contract_for, releases
from drafcheck.lookup import MISSING, raw, without_skips
from drafcheck.plan.names import route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor

_COPIES = 128  # so many norms of one name at most: there is one for each auxiliary hidden state


class Unswitched(NamedTuple):
    """Norm tensors of the file that this release takes no notice of.

    ``keys`` are those with which the release that knows the norm switches it on. ``since`` is the first later release
    that knows it; None when the one at hand does. ``stated`` are the keys of config.json that mean to switch it on;
    ``read`` tells whether one of them is where that release looks.
    """

    tensors: tuple[Tensor, ...]
    keys: tuple[str, ...]
    since: str | None
    stated: tuple[str, ...]
    read: bool


class Idle(NamedTuple):
    """Norms that the config switches on with ``key``, and that no tensor of the file fills."""

    key: str
    parameters: tuple[str, ...]


def unswitched(s: Subject) -> list[Unswitched]:
    """The norm tensors that a switch in config.json would have brought to a parameter, one entry a switch."""
    if s.config is None or s.contract is None or s.load is None:
        return []
    plan, contract = s.load, s.contract
    norms = [t for t in plan.seen if "norm" in t.name]
    left = [t for t in norms if route(contract, t.name, plan.parameters).end in ("unknown", "design")]
    found = []
    on = {flag for flag in switched(contract) if contract.flag(flag, s.config)}
    for since, later in _from_here_on(s.engine, contract) if left else ():
        for flag, names in switched(later).items():
            taken = () if flag in on else _reaching(later, left, names)
            left = [t for t in left if t not in taken]
            if taken:
                keys = keys_of(later, flag)
                found.append(Unswitched(taken, keys, since, _stated(s.config, keys), later.flag(flag, s.config)))
        if not left:
            break
    return found


def _from_here_on(engine: Engine, contract: Contract) -> Iterator[tuple[str | None, Contract]]:
    """The contract at hand, then those of later releases, each with its release."""
    yield None, contract
    for version in releases(engine.name):
        if version > engine.known:
            later = contract_for(Engine(engine.name, str(version), version, exact=True), contract.architecture)
            if later is not None:
                yield str(version), later


def switched(contract: Contract) -> dict[str, set[str]]:
    """The parameters of the norms that a flag switches on, by flag, a placeholder written out as often as may be.

    A flag that switches on other parameters too (low-rank queries, with their norm) is no switch of norms.
    """
    found: dict[str, set[str]] = {}
    others = {entry["when"] for entry in contract.params if "when" in entry and "norm" not in entry["name"]}
    for entry in contract.params:
        if entry.get("when", "") not in others and keys_of(contract, entry.get("when", "")):
            found.setdefault(entry["when"], set()).update(_spelled(contract, entry["name"]))
    return found


def _spelled(contract: Contract, name: str) -> set[str]:
    for placeholder, (text, _) in contract.expand.items():
        if "{" + placeholder + "}" in name:
            return {
                name.replace("{" + placeholder + "}", text.replace("{n}", str(number))) for number in range(_COPIES)
            }
    return {name}


def _reaching(contract: Contract, tensors: list[Tensor], names: set[str]) -> tuple[Tensor, ...]:
    """The tensors that reach one of ``names``, with or without a wrapper's prefix, were the flags all set."""
    contract = without_skips(contract)
    return tuple(t for t in tensors if any(route(contract, end, names).end == "parameter" for end in _endings(t.name)))


def _endings(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.partition(".")[2]


def keys_of(contract: Contract, flag: str) -> tuple[str, ...]:
    """The config keys that set a flag; none when the release does not have it."""
    entries = [entry for entry in contract.flags if entry["name"] == flag]
    return tuple(key for entry in entries[:1] for key in (*entry.get("any", []), *entry.get("first", [])))


def _stated(config: DraftConfig, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Where the config says so, at the top or in one of its tables, whether or not a release looks there."""
    words = {key.rpartition(".")[2] for key in keys}
    tables = {"": config.data, **{f"{key}.": value for key, value in config.data.items() if isinstance(value, dict)}}
    return tuple(place + word for place, table in tables.items() for word in table if word in words and table[word])


def idle(s: Subject) -> list[Idle]:
    """The norms that are switched on and stay as they were made, one entry a switch; none once the engine refuses."""
    if s.config is None or s.contract is None or s.load is None or s.load.refused is not None:
        return []
    if not s.load.writes:  # the whole head is missing
        return []
    found = []
    for flag, names in switched(s.contract).items():
        empty = tuple(name for name in s.load.unwritten if name in names)
        keys = [key for key in keys_of(s.contract, flag) if raw(s.config, key) not in (MISSING, None, False)]
        if empty and keys:
            found.append(Idle(keys[0], empty))
    return found
