"""Before a draft class is built: does this release read the config at all, and has it a class of that name?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.contract import Engine, load_toml
from drafcheck.draftmode import draft_mode_name, refusal_text, rewriting
from drafcheck.modeltypes import book, converted, knows
from drafcheck.plan.model import Refusal
from drafcheck.targets import registered

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig


def chosen_class(engine: Engine, config: DraftConfig, algorithm: str) -> str | None:
    """The class that the engine builds: the first of ``architectures`` that it has, after draft mode's renaming."""
    named = [draft_mode_name(engine, name, algorithm) for name in config.architectures]
    return next((name for name in named if registered(engine, name)), None)


def refused_early(engine: Engine, config: DraftConfig, algorithm: str) -> Refusal | None:
    """The refusal before any tensor is looked at (stages ``config`` and ``class``), or None.

    None as well for an engine whose classes and model types the contract book does not list.
    """
    return _refused_model_type(engine, config) or _refused_class(engine, config, algorithm)


def _refused_model_type(engine: Engine, config: DraftConfig) -> Refusal | None:
    rules = book(engine)
    if "refusals" not in rules or config.text("auto_map", "AutoConfig") is not None:
        return None
    if config.model_type is None:
        return Refusal("config", rules["refusals"]["absent"], "model-type", key="model_type")
    if knows(engine, config.model_type) is False:
        error = rules["refusals"]["unknown"].replace("{name}", config.model_type)
        return Refusal("config", error, "model-type", key="model_type")
    return None


def _refused_class(engine: Engine, config: DraftConfig, algorithm: str) -> Refusal | None:
    if not names_count(engine, config, algorithm) or chosen_class(engine, config, algorithm) is not None:
        return None
    names = config.architectures
    wanted = looked_for(engine, names[0], algorithm) if names else ""
    error = refusal_text(engine, "unregistered" if names else "absent", wanted)
    return Refusal("class", error, "architecture", key="architectures")


def names_count(engine: Engine, config: DraftConfig, algorithm: str) -> bool:
    """Whether the names in ``architectures`` decide which class is built, and the book knows the engine's classes.

    Not where the config is converted first, or where the algorithm's own code chooses the class.
    """
    book = load_toml(engine.name, "registry.toml")
    if "refusals" not in book or converted(engine, config):
        return False
    return "rewrite" not in book or rewriting(engine, algorithm) is not None


def looked_for(engine: Engine, name: str, algorithm: str) -> str:
    """The name in the engine's refusal: the one as written where it is looked up before draft mode changes it."""
    early = load_toml(engine.name, "registry.toml").get("name_as_written", "")
    if early and engine.within(early) and not registered(engine, name):
        return name
    return draft_mode_name(engine, name, algorithm)
