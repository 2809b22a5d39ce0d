"""The types that config classes insist on, before anything of a draft is built; the facts: rules/config_types.toml."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from drafcheck.contract import Engine, Table, in_force, load_toml
from drafcheck.lookup import is_integer
from drafcheck.plan.model import Refusal

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig


def refused_type(engine: Engine, config: DraftConfig) -> Refusal | None:
    """The refusal of a key that holds another type than the release's config class takes, or None.

    None as well where the engine allows a release of transformers that does not check, and for a class that the book
    does not list or that the checkpoint brings along.
    """
    model_type = config.model_type
    if model_type is None or config.settled or config.text("auto_map", "AutoConfig") is not None:
        return None
    pinned = in_force(load_toml(engine.name, "model_types.toml").get("transformers", []), engine)
    if pinned is None or not pinned.get("checks", True):
        return None
    book = load_toml("config_types.toml")
    if model_type not in book["fields"] or Version(pinned["least"]) < Version(book["since"]):
        return None
    refused = _wrong_field(book, model_type, config) or _no_multiple(book, model_type, config)
    even = Version(pinned["least"]) >= Version(book["even"]["since"])
    return refused or (_odd_head(book["even"], model_type, config) if even else None)


def class_of(config: DraftConfig) -> str:
    """The name of the config class, as messages give it; dots where the book does not know it."""
    return str(load_toml("config_types.toml")["classes"].get(config.model_type, "..."))


def _wrong_field(book: Table, model_type: str, config: DraftConfig) -> Refusal | None:
    for types in (book["every"], book["fields"][model_type]):
        for wanted, keys in types.items():
            for key in keys.split():
                if key in config.data and not _is(config.data[key], wanted):
                    got = type(config.data[key]).__name__
                    error = book["error"].replace("{key}", key).replace("{type}", wanted).replace("{got}", got)
                    return Refusal("config", error, "config-key", key=key)
    return None


def _no_multiple(book: Table, model_type: str, config: DraftConfig) -> Refusal | None:
    """Two sizes that the class wants to divide without remainder."""
    entry = book["multiples"].get(model_type)
    if entry is None:
        return None
    keys = [key for key in entry if key != "error"]
    whole, part = (config.data.get(key, entry[key]) for key in keys)
    if part == 0 or whole % part == 0:  # a zero is refused elsewhere
        return None
    error = entry["error"].replace("{0}", str(whole)).replace("{1}", str(part))
    blamed = keys[0] if whole <= 0 or keys[1] not in config.data else keys[1]  # a size below one is wrong by itself
    return Refusal("config", error, "config-key", key=blamed)


def _odd_head(book: Table, model_type: str, config: DraftConfig) -> Refusal | None:
    """A head with an odd number of elements, all of which were to be rotated."""
    if book["part"] in config.data or any(_may_say(config.data.get(key), book["part"]) for key in book["tables"]):
        return None
    size, key = config.data.get("head_dim"), "head_dim"
    hidden, heads = config.data.get("hidden_size"), config.data.get("num_attention_heads")
    if size is None and model_type in book["derived"] and is_integer(hidden) and is_integer(heads) and heads:
        size, key = hidden // heads, "num_attention_heads"
    if size is None or not is_integer(size) or size <= book["small"] or size % 2 == 0:
        return None
    return Refusal("config", book["error"].replace("{size}", str(size)), "config-key", key=key)


def _may_say(table: object, key: str) -> bool:
    """Whether a table has the key, or holds tables that may have it, or is none that was tried."""
    if isinstance(table, dict):
        return not table or key in table or any(isinstance(value, dict) for value in table.values())
    return table is not None


def _is(value: object, wanted: str) -> bool:
    """Whether a JSON value is of a type of the book; a boolean is no integer, and an integer no float."""
    if value is None or (not value and wanted.endswith(", if any")):
        return wanted.endswith(("?", ", if any"))
    kind = wanted.removesuffix("?").removesuffix(", if any")
    if isinstance(value, list):
        items = {"ints": is_integer, "integers": is_integer, "texts": lambda item: isinstance(item, str)}
        return kind in items and all(map(items[kind], value))
    return {
        "int": is_integer(value),
        "ints": is_integer(value),
        "float": isinstance(value, float),
        "number": is_integer(value) or isinstance(value, float),
        "flag": isinstance(value, bool),
        "text": isinstance(value, str),
        "table": isinstance(value, dict),
    }.get(kind, False)
