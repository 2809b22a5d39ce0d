"""Configs that an engine turns into another one before it looks at anything, such as speculators' nested ones.

``rules/<engine>/formats.toml`` says which: ``[[converted]]`` how such a config is recognised, ``[[conversion]]`` what
is made of each kind. An engine without these entries reads every config as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from drafcheck.config import DraftConfig
from drafcheck.contract import Engine, Table, in_force, load_toml
from drafcheck.plan.model import Refusal

if TYPE_CHECKING:
    from drafcheck.finding import Location
    from drafcheck.subject import Subject


class ConvertedConfig(DraftConfig):
    """What an engine makes of a config: flat, with the places of the config it comes from."""

    settled = True
    classless = True

    def __init__(self, original: DraftConfig, body: str, data: dict[str, Any]) -> None:
        """``body`` is the key of the nested table, ``data`` the flat config."""
        super().__init__(original.document)
        self.data = data
        self._original = original
        self.body = body

    def at(self, *route: str | int) -> Location:
        """Where a key comes from: the top level when it stands there, else the nested table."""
        nested = self._original.get(self.body)
        inside = isinstance(nested, dict) and route[:1] and route[0] in nested
        if inside and route[0] not in self._original.data:
            return self._original.at(self.body, *route)
        return self._original.at(*route)


class AsRead(NamedTuple):
    """A config as the engine reads it. ``algorithm`` is the one of its format; None for a config without one."""

    config: DraftConfig
    algorithm: str | None = None
    refused: Refusal | None = None


def as_read(engine: Engine, config: DraftConfig) -> AsRead:
    """The config that the draft class of this release gets to see, or why the engine stops at it."""
    from drafcheck.merged import form_of, merge

    form = form_of(engine, config)
    if form is not None:
        return merge(engine, form, config)
    format_ = in_force(load_toml(engine.name, "formats.toml").get("converted", []), engine)
    if format_ is None or not _is_of(format_, config):
        return AsRead(config)
    kind = config.data.get(format_["kind"])
    rule = _rule(engine, kind)
    if rule is None:
        return _refused(config, format_["unknown"], format_["kind"])
    error = _structure(format_, config) or _refusal(rule, config, format_["body"])
    if error is not None:
        return _refused(config, *error)
    body = config.data.get(format_["body"], {})
    data = _flat(rule, body, config.data)
    data["model_type"] = format_["model_type"]
    return AsRead(ConvertedConfig(config, format_["body"], data), str(rule["algorithm"]))


def read_later(s: Subject, engine: Engine) -> DraftConfig | None:
    """The config of ``s`` as another release reads it; None when that release stops at it."""
    if s.config is None or s.written is None or not s.config.settled:
        return s.config
    read = as_read(engine, s.written)
    read.config.target = s.config.target
    return read.config if read.refused is None else None


def route_to(s: Subject, key: str) -> tuple[str, ...] | None:
    """Where config.json, as it is written, says what the engine reads under ``key``; None where it says another number.

    The two differ only where the engine converts the config: there a key comes from the top level or the nested table.
    """
    route = tuple(key.split("."))
    if s.config is None or s.written is None or not s.config.settled:
        return route
    from drafcheck.merged import form_of, route_within

    form = form_of(s.engine, s.written)
    if form is not None:
        return route_within(form, s.written, route)
    format_ = in_force(load_toml(s.engine.name, "formats.toml")["converted"], s.engine)
    rule = _rule(s.engine, s.written.data.get(format_["kind"])) if format_ is not None else None
    if rule is None or key in rule.get("less_one", {}):
        return None
    if key in rule.get("placed", {}):
        return (rule["placed"][key],)
    if route[0] in rule.get("renamed", {}):
        return (rule["renamed"][route[0]], *route[1:])
    taken = [*rule.get("take", []), *rule.get("take_if_given", []), *rule.get("take_if_true", [])]
    return route if route[0] in (*taken, *rule.get("defaults", {})) else (s.config.body, *route)


def as_written(engine: Engine, kind: str) -> tuple[Table, Table] | None:
    """The format that this release converts, and what it makes of a kind of it; None when it does neither."""
    format_, rule = in_force(load_toml(engine.name, "formats.toml").get("converted", []), engine), _rule(engine, kind)
    return (format_, rule) if format_ is not None and rule is not None else None


def _is_of(format_: Table, config: DraftConfig) -> bool:
    model_type = config.data.get("model_type")
    if model_type is None:
        return config.data.get(format_["marker"]) is not None
    return bool(model_type == format_["model_type"])


def _rule(engine: Engine, kind: object) -> Table | None:
    rules = load_toml(engine.name, "formats.toml").get("conversion", [])
    return in_force([rule for rule in rules if rule["kind"] == kind], engine)


def _refused(config: DraftConfig, error: str, key: str) -> AsRead:
    return AsRead(config, refused=Refusal("config", error, "conversion", key=key))


def _structure(format_: Table, config: DraftConfig) -> tuple[str, str] | None:
    """What is missing of the format itself: the error, and the key."""
    for entry in format_.get("required", []):
        found: Any = config.data
        for part in entry["key"].split("."):
            found = _step(found, part)
        if found is _ABSENT:
            return entry["error"], entry["key"].partition(".")[0]
    if not isinstance(config.data.get(format_["body"], {}), dict):
        return format_["no_table"], format_["body"]
    return None


_ABSENT = object()


def _step(value: Any, part: str) -> Any:
    """One step of a route through objects and lists; ``_ABSENT`` when it leads nowhere."""
    if isinstance(value, dict):
        return value.get(part, _ABSENT)
    if isinstance(value, list) and part.isdigit() and int(part) < len(value):
        return value[int(part)]
    return _ABSENT


def _refusal(rule: Table, config: DraftConfig, body: str) -> tuple[str, str] | None:
    """Why this kind is not converted: the error, and the key."""
    model_type = config.get(body, "model_type", default=rule["usual_type"])
    if "classes" in rule and not (isinstance(model_type, str) and model_type in rule["classes"]):
        return rule["unsupported"].replace(
            "{name}", model_type if isinstance(model_type, str) else "of another type"
        ), body
    if model_type is None and "null_type" in rule:
        return rule["null_type"], body
    missing = next((key for key in rule.get("required", []) if key not in config.data), None)
    return (f"KeyError: '{missing}'", missing) if missing is not None else None


def _flat(rule: Table, body: dict[str, Any], outer: dict[str, Any]) -> dict[str, Any]:
    """The nested table, and over it what this kind takes from the top level."""
    data = {**body}
    data |= {key: outer.get(key) for key in rule.get("take", [])}
    data |= {key: outer[key] for key in rule.get("take_if_given", []) if outer.get(key) is not None}
    data |= {key: outer[key] for key in rule.get("take_if_true", []) if outer.get(key)}
    data |= {key: outer.get(key, usual) for key, usual in rule.get("defaults", {}).items()}
    data |= {new: outer.get(old) for new, old in rule.get("renamed", {}).items()}
    within = {place: outer.get(key) for place, key in rule.get("placed", {}).items()}
    for place, key in rule.get("less_one", {}).items():
        ids = outer.get(key)
        less = [i - 1 for i in ids] if isinstance(ids, list) and all(isinstance(i, int) for i in ids) else ids
        within[place] = less
    for place, value in within.items():
        table, _, name = place.rpartition(".")
        data |= {table: {**data.get(table, {}), name: value}} if table else {name: value}
    data["architectures"] = [_class(rule, data, outer)]
    return data


def _class(rule: Table, data: dict[str, Any], outer: dict[str, Any]) -> str:
    named = outer.get("architectures")
    kept = [n for n in named if n in rule.get("keeps", [])] if isinstance(named, list) else []
    if kept:
        return str(kept[0])
    if "class" in rule:
        return str(rule["class"])
    return str(rule["classes"][data.get("model_type", rule["usual_type"])])
