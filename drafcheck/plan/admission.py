"""Before a draft class is built: does this release read the config at all, and has it a class of that name?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.configtypes import refused_type
from drafcheck.contract import Engine, load_toml
from drafcheck.draftmode import class_name, overridden, refusal_text, rewriting, same_word
from drafcheck.modeltypes import book, knows
from drafcheck.plan.model import Refusal
from drafcheck.targets import draft_kind, refused_by_words, registered

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig, TargetConfig


def chosen_class(engine: Engine, config: DraftConfig, algorithm: str) -> str | None:
    """The class that the engine builds: the first of ``architectures`` that it has, after draft mode's renaming.

    Or one class whatever the config says, where the algorithm chooses it.
    """
    built = load_toml(engine.name, "registry.toml").get("built", {})
    if (fixed := next((built[word] for word in built if same_word(word, algorithm)), None)) is not None:
        return str(fixed)
    named = [class_name(engine, config, name, algorithm) for name in config.architectures]
    return next((name for name in named if registered(engine, name)), None)


def refused_early(
    engine: Engine, config: DraftConfig, algorithm: str, target: TargetConfig | None = None
) -> Refusal | None:
    """The refusal before any tensor is looked at (stages ``config`` and ``class``), or None.

    None as well for an engine whose classes and model types the contract book does not list.
    """
    refused = _refused_model_type(engine, config) or refused_type(engine, config)
    early = refused or (_refused_class(engine, config, algorithm) if _named_early(engine, config) else None)
    return early or _refused_target(engine, target, algorithm) or _refused_class(engine, config, algorithm)


def _named_early(engine: Engine, config: DraftConfig) -> bool:
    """Whether the release looks the first name up as it is written, and has no class for it."""
    early = load_toml(engine.name, "registry.toml").get("name_as_written", "")
    names = config.architectures
    if not names or not early or not engine.within(early):
        return not names
    return not registered(engine, names[0]) and overridden(engine, config) is None


def _refused_target(engine: Engine, target: TargetConfig | None, algorithm: str) -> Refusal | None:
    error = refused_by_words(engine, target, algorithm) if target is not None else None
    return Refusal("config", error, "target") if error is not None else None


def _refused_model_type(engine: Engine, config: DraftConfig) -> Refusal | None:
    rules = book(engine)
    if config.settled or "refusals" not in rules or config.text("auto_map", "AutoConfig") is not None:
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
    wanted = looked_for(engine, config, names[0], algorithm) if names else ""
    error = refusal_text(engine, "unregistered" if names else "absent", wanted)
    return Refusal("class", error, "architecture", key="architectures")


def names_count(engine: Engine, config: DraftConfig, algorithm: str) -> bool:
    """Whether the names in ``architectures`` decide which class is built, and the book knows the engine's classes.

    Not where the algorithm's own code chooses the class, unless the config names draft classes only; nor where the
    config class of the model type takes the names from a config within this one.
    """
    book = load_toml(engine.name, "registry.toml")
    if "refusals" not in book or config.model_type in book.get("named_inside", []):
        return False
    if "rewrite" not in book or rewriting(engine, algorithm) is not None:
        return True
    return bool(config.architectures) and all(draft_kind(engine, name) for name in config.architectures)


def looked_for(engine: Engine, config: DraftConfig, name: str, algorithm: str) -> str:
    """The name in the engine's refusal: the one as written where it is looked up before draft mode changes it."""
    early = load_toml(engine.name, "registry.toml").get("name_as_written", "")
    if early and engine.within(early) and not registered(engine, name):
        return name
    return class_name(engine, config, name, algorithm)
