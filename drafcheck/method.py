"""Which method an engine serves a draft with when the launch names none: some decide by the draft's path."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from drafcheck.contract import Engine, in_force, load_toml
from drafcheck.draftmode import overridden
from drafcheck.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drafcheck.config import DraftConfig
    from drafcheck.contract import Table


class Method(NamedTuple):
    """A method, and why: ``because`` is a clause about the draft, ``error`` what the engine says to it."""

    name: str
    because: str
    error: str = ""


def chooses(engine: Engine) -> bool:
    """Whether this engine chooses a method by itself where the launch names none."""
    return bool(load_toml(engine.name, "methods.toml"))


def method_of(path: str, config: DraftConfig, engine: Engine, given: str | None = None) -> Method | None:
    """The method that ``engine`` takes for the draft at ``path``, as the launch writes it.

    ``given`` is the method that the launch names; ``config`` the draft's config as the engine reads it (see
    ``drafcheck.conversion``). None for an engine that does not choose by itself.
    """
    rules = in_force(load_toml(engine.name, "methods.toml").get("detect", []), engine)
    if rules is None:
        return None
    if given is not None and given.lower() in rules["kept"]:
        return Method(given.lower(), "the launch names it")
    found = next(_told(path, config, rules, engine), None)
    if found is not None:
        return found
    if given is not None:
        return Method(given.lower(), "the launch names it")
    words = listed([word for word, _ in rules["words"]], 5)
    return Method(rules["otherwise"], f"its path contains none of {words}", rules.get("error", ""))


def _told(path: str, config: DraftConfig, rules: Table, engine: Engine) -> Iterator[Method]:
    """What path and config say, in the order in which the engine asks them."""
    for word, name in rules["words"]:
        if word in path.lower():
            yield Method(name, f"its path contains {word}")
    for named in config.architectures:
        if named in rules.get("classes", {}):
            yield Method(rules["classes"][named], f"architectures names {named}")
    if config.model_type in rules["model_types"]:
        yield Method(rules["model_types"][config.model_type], f"model_type is {config.model_type}")
    other = overridden(engine, config)
    if other is not None and "overridden" in rules:
        yield Method(rules["overridden"], f"its config leads to {other}")
