"""What an engine reads in any model's config: the dtype it builds the model in, and the context length it serves.

The facts stand in ``rules/<engine>/config.toml``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from drafcheck.contract import Engine, Table, in_force, load_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drafcheck.config import DraftConfig, TargetConfig
    from drafcheck.subject import Subject

_ABSURD = 1 << 62  # no length in tokens


class Read(NamedTuple):
    """A value that the engine gets, and the key of config.json it comes from (None: a default).

    ``value`` is a dtype name or a length in tokens; ``plain`` is False when more than one key decided.
    """

    value: str | int
    key: str | None = None
    plain: bool = True


def built_dtype(engine: Engine, data: Mapping[str, Any], outer: Mapping[str, Any] | None = None) -> Read | None:
    """The dtype that a model is built in when none is asked for; None when drafcheck cannot tell.

    ``data`` is the language model's config, ``outer`` the whole file where that is nested in it.
    """
    book = load_toml(engine.name, "config.toml")
    rule = in_force(book.get("dtype", []), engine)
    if rule is None:
        return None
    key, value = _first(data, rule["keys"])
    if value is None and outer is not None:
        if not rule["inherits"]:
            return None
        key, value = _first(outer, rule["keys"])
    name = book["dtype_names"].get(value) if isinstance(value, str) else None
    if value is not None and name is None:
        return None
    if name in (None, "float32") and "dtype_default" not in book:
        return None
    if name in (None, "float32"):
        name = _default(book["dtype_default"], data.get("model_type"))
    return Read(str(name), key)


def _first(data: Mapping[str, Any], keys: list[str]) -> tuple[str | None, object]:
    return next(((key, data[key]) for key in keys if data.get(key) is not None), (None, None))


def _default(facts: Table, model_type: object) -> str:
    prefixes = facts["prefixes"].items() if isinstance(model_type, str) else ()
    return str(next((name for prefix, name in prefixes if str(model_type).startswith(prefix)), facts["dtype"]))


def draft_dtype(engine: Engine, config: DraftConfig) -> Read | None:
    """The dtype that the draft is built in when no --dtype is given; None when drafcheck cannot tell."""
    return None if follows_target(engine) else _language_dtype(engine, config)


def _language_dtype(engine: Engine, config: DraftConfig) -> Read | None:
    if len(config.route) > 1:
        return None
    return built_dtype(engine, config.language, config.data if config.route else None)


def dtype_built(s: Subject) -> str | None:
    """The dtype that the draft is built in, by the launch or by the config that counts; None when it cannot be told."""
    if s.dtype not in (None, "auto"):
        return str(load_toml(s.engine.name, "config.toml").get("dtype_names", {}).get(s.dtype, s.dtype))
    if s.config is None:
        return None
    if follows_target(s.engine):
        read = target_dtype(s.engine, s.target) if s.target is not None else None
    else:
        read = draft_dtype(s.engine, s.config)
    return str(read.value) if read is not None else None


def follows_target(engine: Engine) -> bool:
    """Whether the draft is built in the target's dtype, whatever its own config says."""
    return load_toml(engine.name, "config.toml").get("draft_in") == "target"


def unknown_dtype(engine: Engine, config: DraftConfig) -> tuple[str, ...] | None:
    """The route to a text which is no dtype of torch, if the engine reads the key where it stands."""
    book = load_toml(engine.name, "config.toml")
    rule = in_force(book.get("dtype", []), engine)
    key, value = _first(config.language, rule["keys"]) if rule is not None else (None, None)
    known = {*book.get("dtype_names", {}), *book.get("dtype_others", [])}
    return (*config.route, key) if key is not None and isinstance(value, str) and value not in known else None


def target_dtype(engine: Engine, target: TargetConfig) -> Read | None:
    """The dtype that the target is built in when no --dtype is given; None when drafcheck cannot tell."""
    return None if _is_forced(engine, target) else _language_dtype(engine, target)


def _is_forced(engine: Engine, target: TargetConfig) -> bool:
    """Whether the server sets one dtype for both models because of the target's class."""
    for entry in load_toml(engine.name, "config.toml").get("dtype_forced", []):
        method = target.get("quantization_config", "quant_method")
        if target.architecture in entry["architectures"] and entry.get("quant_method") in (None, method):
            return True
    return False


def context_length(engine: Engine, data: Mapping[str, Any]) -> Read | None:
    """How many tokens the engine derives for a model; None when drafcheck cannot tell."""
    book = load_toml(engine.name, "config.toml")
    rope = in_force(book.get("rope", []), engine)
    if rope is None:
        return None
    facts = book["context"]
    key, value = _least(data, facts) if facts.get("pick") == "least" else _first(data, facts["keys"])
    if value is None:
        value = _class_default(data.get("model_type"))
    value, factor = _scaled(facts, rope, data, value)
    if not _is_number(value) or not _is_number(factor):
        return None
    try:
        length = int(factor * value)
    except (OverflowError, ValueError):  # inf and nan are numbers in Python's JSON
        return None
    return Read(length, key, plain=factor == 1) if abs(length) < _ABSURD else None


def _least(data: Mapping[str, Any], facts: Table) -> tuple[str | None, Any]:
    """The smallest length of the keys that hold one; that of ``instead`` where there is one."""
    if data.get(facts["instead"]):
        return facts["instead"], data[facts["instead"]]
    found = [(data[key], key) for key in facts["keys"] if _is_number(data.get(key))]
    least = min(found, key=lambda pair: pair[0], default=None)
    return (least[1], least[0]) if least is not None else (None, None)


def _class_default(model_type: object) -> object:
    defaults = load_toml("model_types.toml").get("max_position_embeddings", {})
    return defaults.get(model_type) if isinstance(model_type, str) else None


def _scaled(facts: Table, rope: Table, data: Mapping[str, Any], value: Any) -> tuple[Any, Any]:
    """The length that scaling starts from, and the factor; None where it cannot be told."""
    scaling = _scaling(rope, data)
    name, unscaled = data.get("model_type"), facts.get("unscaled_models")
    if scaling is None or (unscaled is not None and isinstance(name, str) and unscaled in name):
        return value, 1
    if not isinstance(scaling, dict) or any(isinstance(inner, dict) for inner in scaling.values()):
        return value, None
    kind, original = _rope_type(scaling), "original_max_position_embeddings"
    if kind in [*facts["unscaled"], *rope["standardised"]] or (rope.get("original_unscaled") and original in scaling):
        return value, 1
    return scaling.get(original) if kind in rope.get("from_original", []) else value, scaling.get("factor", 1)


def _scaling(rope: Table, data: Mapping[str, Any]) -> Any:
    return next((data[key] for key in rope["keys"] if data.get(key)), None)


def _rope_type(scaling: Mapping[str, Any]) -> Any:
    return scaling.get("rope_type", scaling.get("type"))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def too_short(engine: Engine, data: Mapping[str, Any], runner: str = "") -> Table | None:
    """What the engine does with a draft whose length is below the target's; keys as in config.toml.

    ``data`` is the draft's config, ``runner`` the model runner that serves it. None when it raises the length itself,
    or when drafcheck cannot tell.
    """
    book = load_toml(engine.name, "config.toml")
    rope = in_force(book.get("rope", []), engine)
    scaling = _scaling(rope, data) if rope is not None else None
    kind = _rope_type(scaling) or "default" if isinstance(scaling, dict) else "default"
    fitting = [
        entry
        for entry in book.get("too_short", [])
        if entry.get("runner", runner) == runner and kind in entry.get("rope_types", [kind])
    ]
    found = in_force(fitting, engine)
    return found if found is not None and found["outcome"] != "raised" else None
