"""Which values of model_type an engine's config loader knows, and which configs it cannot read at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import Version

from drafcheck.contract import Engine, Table, in_force, load_toml, releases

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig
    from drafcheck.subject import Subject


def book(engine: Engine) -> Table:
    """The engine's rules/<engine>/formats.toml; empty when it has none."""
    return load_toml(engine.name, "formats.toml")


def knows(engine: Engine, model_type: str) -> bool | None:
    """Whether the config loader of this release knows a model_type; None when the book cannot tell."""
    if model_type in book(engine).get("everywhere", "").split():
        return True
    lists = load_toml(engine.name, "model_types.toml")
    pinned = in_force(lists.get("transformers", []), engine)
    if pinned is None:
        return None
    answers = (
        _listed(lists["own"], model_type, str(engine.known), str(engine.known)),
        _listed(load_toml("transformers.toml")["since"], model_type, pinned["least"], pinned["most"]),
    )
    if True in answers:
        return True
    return False if answers == (False, False) else None


def is_own(engine: Engine, model_type: str) -> bool:
    """Whether the engine may have its own config class for a model_type: some come before the checkpoint's."""
    own = load_toml(engine.name, "model_types.toml").get("own", {})
    return any(model_type in names.split() for names in own.values())


def first_that_knows(engine: Engine, model_type: str) -> Version | None:
    """The first release after this one whose config loader knows a model_type for sure."""
    later = (version for version in releases(engine.name) if version > engine.known)
    return next((v for v in later if knows(engine._replace(version=str(v), known=v), model_type)), None)


def _listed(since: Table, name: str, least: str, most: str) -> bool | None:
    """Whether a release between ``least`` and ``most`` has ``name``, by the first release read that has it."""
    before = None
    for version, names in since.items():
        if name in names.split():
            if Version(version) <= Version(least):
                return True
            return False if before is not None and Version(before) >= Version(most) else None
        before = version
    return False


def of_the_class(s: Subject) -> str | None:
    """The model_type whose decoder layer the draft class is made of; None where more than that would hang on it.

    The default of theta goes by it, so theta has to be stated.
    """
    from drafcheck.rope import stated

    if s.contract is None or s.config is None or all(p.theta is None for p in stated(s.engine, s.config.data)):
        return None
    found = decoder_of(s.engine, s.contract.architecture)
    return found if found is not None and knows(s.engine, found) else None


def decoder_of(engine: Engine, architecture: str) -> str | None:
    """The model_type whose decoder layer a draft class is made of; None when the book does not say."""
    listed = load_toml(engine.name, "registry.toml").get("decoder", {})
    return next((name for name, classes in listed.items() if architecture in classes.split()), None)


def is_dispensable(s: Subject, config: DraftConfig) -> bool:
    """Whether a config class that is not there can be done without: the model_type is enough, or the draft class."""
    known = config.model_type is not None and knows(s.engine, config.model_type) is True
    return known or of_the_class(s) is not None


def nested_keys(engine: Engine, config: DraftConfig) -> list[str]:
    """The dimensions that stand only in a nested table that this engine does not read; empty for a flat config."""
    rules = book(engine).get("nested")
    if rules is None:
        return []
    body: Any = config.data.get(rules["body"])
    marked = any(key in config.data for key in rules["markers"])
    if not marked and not isinstance(body, dict):
        return []
    missing = [key for key in rules["dimensions"] if config.data.get(key) is None]
    if isinstance(body, dict):
        return [key for key in missing if key in body]
    return missing if "model_type" not in config.data else []
