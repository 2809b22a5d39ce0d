"""Norms that a key of config.json switches on: with tensors and no switch, or with a switch and no tensors.

What they are called and which key it is stands in the contract: a ``[[param]]`` with ``when``, and that ``[[flag]]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from drafcheck.contract import Engine, contract_for, load_toml, releases
from drafcheck.conversion import as_read, read_later
from drafcheck.lookup import MISSING, raw, without_skips
from drafcheck.plan.names import route

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Contract
    from drafcheck.plan.model import LoadPlan
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
    if s.unswitched is None:
        s.unswitched = _unswitched(s)
    return s.unswitched


def _unswitched(s: Subject) -> list[Unswitched]:
    if s.config is None or s.written is None or s.contract is None or s.load is None:
        return []
    plan, contract = s.load, s.contract
    norms = plan.seen.holding("norm")
    left = [t for t in norms if route(contract, t.name, plan.parameters).end in ("unknown", "design", "refused")]
    found = []
    on = {flag for flag in switched(contract) if contract.flag(flag, s.config)}
    for engine, later, config in _from_here_on(s, contract) if left else ():
        for flag, names in switched(later).items():
            heeded = s.config.settled is False or _heeded(s, engine, later, flag)
            taken = _reaching(later, left, names) if heeded and flag not in on else ()
            left = [t for t in left if t not in taken]
            if taken:
                keys = keys_of(later, flag)
                read = later.flag(flag, config)
                since = None if engine is s.engine else engine.version
                found.append(Unswitched(taken, keys, since, _stated(s.written, keys), read))
        if not left:
            break
    return found


def refused_for_flag(plan: LoadPlan, group: Unswitched) -> bool:
    """Whether the loader stops at these norms and would take them with the flag: DC407's, not DC104's."""
    refused = {t.name for t in plan.lost.tensors("name")}
    return group.since is None and any(t.name in refused for t in group.tensors)


def flag_help(group: Unswitched) -> str:
    """What to do for norm tensors to be applied."""
    set_it = f"set `{key_to_set(group)}` to true in config.json"
    if group.since is None:
        return set_it
    serve = f"serve with a release from {group.since} on"
    return f"{serve}, which applies it" if group.read else f"{serve}, and {set_it}"


def key_to_set(group: Unswitched) -> str:
    """The key that is sure to be heeded: the first one where an earlier one says no, else the one at the top level."""
    if any(key in group.keys for key in group.stated):
        return group.keys[0]
    return next((key for key in group.keys if "." not in key), group.keys[0])


def _from_here_on(s: Subject, contract: Contract) -> Iterator[tuple[Engine, Contract, DraftConfig]]:
    """The contract at hand, then those of later releases, each before the config as its release reads it."""
    assert s.config is not None
    yield s.engine, contract, s.config
    for version in releases(s.engine.name):
        if version > s.engine.known:
            engine = Engine(s.engine.name, str(version), version, exact=True)
            later, config = contract_for(engine, contract.architecture), read_later(s, engine)
            if later is not None and config is not None:
                yield engine, later, config


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
    for placeholder, copied in contract.expand.items():
        if "{" + placeholder + "}" in name:
            texts = copied.texts or [copied.text.replace("{n}", str(number)) for number in range(_COPIES)]
            return {name.replace("{" + placeholder + "}", text) for text in texts}
    return {name}


def _heeded(s: Subject, engine: Engine, contract: Contract, flag: str) -> bool:
    """Whether a release that converts this config keeps one of the keys of a flag."""
    assert s.written is not None
    trial = s.written.with_data({**s.written.data, **dict.fromkeys(keys_of(contract, flag), True)})
    return contract.flag(flag, as_read(engine, trial).config)


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


def measured_as_ones(contract: Contract, parameters: Iterable[str]) -> bool:
    """Whether all of these norms were measured to cost little as ones; the measurements: rules/initial.toml."""
    entries = [entry for entry in load_toml("initial.toml")["measured_as_ones"] if entry["kind"] == contract.kind]
    words = {word for entry in entries for word in entry["words"]}
    return all(words & set(name.split(".")) for name in parameters)
