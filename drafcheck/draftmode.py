"""What an engine makes of the class names in a draft's config: which algorithm is meant, which class is looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.contract import Engine, Table, in_force, load_toml
from drafcheck.targets import draft_kind, registered

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig


def usual_algorithm(engine: Engine, config: DraftConfig, told: str | None = None) -> str:
    """The algorithm that a draft is served with when none is named: its draft class's, else the engine's usual one.

    A named draft class only counts where the algorithm decides which class is looked for; elsewhere its contract tells
    the algorithm later. ``told`` is what else speaks for one (see ``drafcheck.heads.told_algorithm``): it counts where
    the config names no draft class.
    """
    usual = str(load_toml(engine.name, "engine.toml").get("default_algorithm", ""))
    book = load_toml(engine.name, "registry.toml")
    named = [*config.architectures, overridden(engine, config) or ""]
    kinds = [draft_kind(engine, name) for name in named]
    if "rewrite" not in book:
        return usual if any(kinds) else told or usual
    served = next((book["algorithms"][kind] for kind in kinds if kind in book["algorithms"]), [told or usual])
    return str(served[0])


def rewriting(engine: Engine, algorithm: str) -> Table | None:
    """The rule by which this algorithm changes class names; None where the algorithm changes none by a rule."""
    for rule in load_toml(engine.name, "registry.toml").get("rewrite", []):
        if same_word(rule["algorithm"], algorithm) and engine.within(rule.get("versions", "")):
            return dict(rule)
    return None


def class_name(engine: Engine, config: DraftConfig, name: str, algorithm: str) -> str:
    """The class that is looked for when ``config`` names this one."""
    if config.settled:
        return name
    rule = rewriting(engine, algorithm)
    other = overridden(engine, config, algorithm) if rule is None or rule.get("overridden") else None
    return other if other and rule is None else draft_mode_name(engine, other or name, algorithm)


def overridden(engine: Engine, config: DraftConfig, algorithm: str = "") -> str | None:
    """The class that the release writes into the config of a draft before it looks for one; None where it does not.

    It goes by the first class that the config names, or by the model type: a head in the target's own checkpoint has
    the target's config.
    """
    first = config.architectures[0] if config.architectures else ""
    for entry in load_toml(engine.name, "registry.toml").get("overrides", []):
        found = entry.get("classes", {}).get(first) or entry.get("model_types", {}).get(config.model_type)
        meant = entry.get("of_type", config.model_type) == config.model_type and engine.within(
            entry.get("versions", "")
        )
        if found is not None and meant and _is_bundled(entry, config, algorithm):
            return str(found)
    return None


def _is_bundled(entry: Table, config: DraftConfig, algorithm: str) -> bool:
    """Whether the algorithm is one of those that an override is for, and the config has one of its keys."""
    keys = entry.get("keys", [])
    return one_of(algorithm, entry.get("algorithms", [algorithm])) and (
        not keys or any(config.data.get(key) is not None for key in keys)
    )


def draft_mode_name(engine: Engine, architecture: str, algorithm: str = "") -> str:
    """The class that draft mode looks for when a config names ``architecture``: some names are replaced."""
    rule = rewriting(engine, algorithm)
    if rule is not None:
        kept = architecture.startswith(tuple(rule["starts"])) or architecture.endswith(tuple(rule["ends"]))
        return architecture if kept else str(rule["prefix"]) + architecture
    listed = load_toml(engine.name, "registry.toml").get("rewrites", {}).get(architecture, [])
    renames = [["", listed]] if isinstance(listed, str) else listed
    renamed = next((str(name) for versions, name in renames if engine.within(versions)), None)
    return renamed if renamed is not None and registered(engine, renamed) else architecture


def same_word(a: str, b: str) -> bool:
    """Whether two names of an algorithm are the same, whatever their case."""
    return a.lower() == b.lower()


def one_of(word: str, words: list[str]) -> bool:
    """Whether an algorithm is among those listed, whatever its case."""
    return any(same_word(word, other) for other in words)


def drafts_whole(engine: Engine, algorithm: str) -> bool:
    """Whether the algorithm drafts with a whole model as it is, without a draft class."""
    return one_of(algorithm, load_toml(engine.name, "registry.toml").get("whole_models", {}).get("algorithms", []))


def flag_text(engine: Engine, what: str, name: str) -> str:
    """How a launch of this engine says it, such as ``--dtype bfloat16``; ``what`` is a key of ``[flags]``."""
    template = load_toml(engine.name, "engine.toml").get("flags", {}).get(what, "--" + what + " {name}")
    return str(template).replace("{name}", name)


def refusal_text(engine: Engine, what: str, name: str) -> str:
    """What the release says when it has no class ``name`` (``unregistered``), or gets no name (``absent``)."""
    refusals = in_force(load_toml(engine.name, "registry.toml")["refusals"], engine) or {}
    return str(refusals.get(what, "")).replace("{name}", name)
