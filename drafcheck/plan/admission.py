"""Before a draft class is built: does this release read the config at all, and has it a class of that name?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.contract import Engine, load_toml
from drafcheck.modeltypes import book, knows
from drafcheck.plan.model import Refusal
from drafcheck.targets import draft_mode_name, registered

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig


def chosen_class(engine: Engine, config: DraftConfig) -> str | None:
    """The class that the engine builds: the first of ``architectures`` that it has, after draft mode's renaming."""
    named = [draft_mode_name(engine, name) for name in config.architectures]
    return next((name for name in named if registered(engine, name)), None)


def refused_early(engine: Engine, config: DraftConfig) -> Refusal | None:
    """The refusal before any tensor is looked at (stages ``config`` and ``class``), or None.

    None as well for an engine whose classes and model types the contract book does not list.
    """
    return _refused_model_type(engine, config) or _refused_class(engine, config)


def _refused_model_type(engine: Engine, config: DraftConfig) -> Refusal | None:
    rules = book(engine)
    if not rules or config.text("auto_map", "AutoConfig") is not None:
        return None
    if config.model_type is None:
        return Refusal("config", rules["refusals"]["absent"], "model-type", key="model_type")
    if knows(engine, config.model_type) is False:
        error = rules["refusals"]["unknown"].replace("{name}", config.model_type)
        return Refusal("config", error, "model-type", key="model_type")
    return None


def _refused_class(engine: Engine, config: DraftConfig) -> Refusal | None:
    refusals = load_toml(engine.name, "registry.toml").get("refusals")
    if not refusals or chosen_class(engine, config) is not None:
        return None
    which = "unregistered" if config.architectures else "absent"
    return Refusal("class", refusals[which], "architecture", key="architectures")
