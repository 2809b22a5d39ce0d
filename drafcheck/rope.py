"""Which rotary embedding an engine builds from a config.json: theta, the kind of scaling, and the keys they come from.

The facts stand in ``rules/<engine>/rope.toml``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from drafcheck.contract import Engine, Table, in_force, load_toml

THETA = "rope_theta"
ORIGINAL = "original_max_position_embeddings"
PLAIN = "default"


class Rope(NamedTuple):
    """The embedding that is built. ``theta`` is None where drafcheck cannot tell, ``theta_key`` None where it is the
    default of the config class. ``table`` is the key of the table that counts, None when there is none; ``kind`` its
    kind of scaling (``default``: none), ``factor`` and ``original`` (a length in tokens) what it is scaled by.
    ``error``: the server stops with this, because of ``error_key``; ``wrong``: what its value is and should be.
    """

    theta: float | None = None
    theta_key: str | None = None
    kind: str = PLAIN
    factor: object = None
    original: object = None
    table: str | None = None
    error: str | None = None
    error_key: str | None = None
    wrong: str | None = None


class Stated(NamedTuple):
    """What a place in config.json says, whether or not a release looks there: ``key``, a theta, a kind and a factor."""

    key: str
    theta: float | None = None
    kind: str = PLAIN
    factor: object = None


def rope_of(engine: Engine, data: Mapping[str, Any]) -> Rope | None:
    """The embedding that ``engine`` builds from a model's config; None when the book does not say."""
    book = load_toml(engine.name, "rope.toml")
    reading = in_force(book.get("reading", []), engine)
    if reading is None:
        return None
    for key in reading["tables"]:
        value = data.get(key)
        if value is not None and not isinstance(value, dict) and (value or reading["empty"]):
            return Rope(error=reading["no_table"].replace("{type}", type(value).__name__), error_key=key)
    key, table = _table(book, reading, engine, data)
    theta, theta_key = _theta(book, reading, data, key, table)
    rope = Rope(theta if is_number(theta) else None, theta_key, table=key)
    if theta_key is not None and not is_number(theta):
        error = reading["no_number"].replace("{type}", type(theta).__name__)
        return rope._replace(error=error, error_key=theta_key)
    return rope if table is None else _scaled(book, reading, engine, data, rope, table)


def _table(book: Table, reading: Table, engine: Engine, data: Mapping[str, Any]) -> tuple[str | None, Table | None]:
    """The table that counts and its key; the config class's own has none."""
    for key in reading["tables"]:
        value = data.get(key)
        if isinstance(value, dict) and (value or reading["empty"]):
            return key, value
    given = reading["given"]
    is_given = given in data and (data[given] is not None or reading["null_is_given"])
    own = [entry for entry in book.get("scaling", []) if entry["model_type"] == data.get("model_type")]
    found = None if is_given else in_force(own, engine)
    return None, found["table"] if found is not None else None


def _of_type(table: Table, data: Mapping[str, Any]) -> Any:
    model_type = data.get("model_type")
    return table.get(model_type) if isinstance(model_type, str) else None


def _theta(
    book: Table, reading: Table, data: Mapping[str, Any], key: str | None, table: Table | None
) -> tuple[Any, str | None]:
    if reading["inside"] and table is not None and THETA in table:
        return table[THETA], f"{key}.{THETA}" if key is not None else None
    if THETA in data and data[THETA] is None and "null_theta" in reading:
        return reading["null_theta"], None
    if THETA in data:
        return data[THETA], THETA
    return _of_type(book["theta"], data), None


def _scaled(  # noqa: PLR0917 - what rope_of has found so far
    book: Table, reading: Table, engine: Engine, data: Mapping[str, Any], rope: Rope, table: Table
) -> Rope:
    at, sections = rope.table or reading["tables"][0], book["sections"]
    # A theta that does not count is written over, whatever it is.
    read = (value for key, value in table.items() if reading["inside"] or key != THETA)
    if "nested" in reading and any(isinstance(value, dict) for value in read):
        return rope._replace(error=reading["nested"], error_key=at)
    kind = next((table[key] for key in reading["kind"] if key in table), reading.get("plain"))
    if sections in table and (kind == PLAIN or reading["of_any_kind"]):
        if table[sections] is not None and not _is_list(table[sections]):
            return _ill(rope, f"{at}.{sections}", table[sections], "a list of numbers", book["sections_error"])
        return rope._replace(kind=sections)
    if kind is None and not any(key in table for key in reading["kind"]):
        return rope._replace(error=reading["no_kind"], error_key=at)
    facts = in_force([entry for entry in book["kind"] if entry["name"] == kind], engine)
    if facts is None:
        listed = in_force(book.get("kind_as_list", []), engine) if isinstance(kind, list) else None
        unknown = book["errors"]["unknown"].replace("{kind}", str(kind)[:40])
        return rope._replace(error=listed["error"] if listed is not None else unknown, error_key=at)
    made_up = data.get("max_position_embeddings") if reading["original"] else None
    original = data.get(ORIGINAL) or table.get(ORIGINAL, made_up)
    there = table if original is None else {**table, ORIGINAL: original}
    stopped = _stopped(book, facts, rope, at, there)
    return stopped or rope._replace(kind=str(kind), factor=table.get("factor"), original=original)


def _stopped(book: Table, facts: Table, rope: Rope, at: str, table: Mapping[str, Any]) -> Rope | None:
    """The rope of a table in which a key of its kind is missing or of another type; None where all are fine."""
    missing = next((key for key in facts.get("needs", []) if key not in table), None)
    if missing is not None:
        return rope._replace(error=book["errors"]["missing"].replace("{key}", repr(missing)), error_key=at)
    ill = next(_of_wrong_type(facts, table), None)
    return _ill(rope, f"{at}.{ill[0]}", table[ill[0]], *ill[1:]) if ill is not None else None


def _ill(rope: Rope, key: str, value: object, wanted: str, error: str) -> Rope:
    return rope._replace(error=error, error_key=key, wrong=f"{json.dumps(value):.40}, not {wanted}")


def _of_wrong_type(facts: Table, table: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each key of a table whose value the kind of scaling cannot calculate with: what it should be, and the error."""
    named = [(how, key) for how in _TYPES for key in facts.get(how, {}) if key in table]
    for how, key in named:
        if not any(fits(table[key]) for other, (_, fits) in _TYPES.items() if key in facts.get(other, {})):
            yield key, _TYPES[how][0], facts[how][key]


def _is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_number, value))


def is_number(value: object) -> bool:
    """Whether Python can calculate with a JSON value; true is 1 to it."""
    return isinstance(value, (int, float))


_TYPES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "numbers": ("a number", is_number),
    "optional": ("a number", lambda value: value is None or is_number(value)),
    "floats": ("a number with a point", lambda value: isinstance(value, float)),
    "lists": ("a list of numbers", _is_list),
}
"""What the book says that a value has to be: in words, and whether one is."""


def reads_so(engine: Engine, architecture: str) -> bool:
    """Whether the book says how this draft class reads its rope in this release."""
    book = load_toml(engine.name, "rope.toml")
    return architecture in book.get("classes", []) and in_force(book["reading"], engine) is not None


def scaling_key(engine: Engine) -> str:
    """The key under which this release looks for a scaling first."""
    reading = in_force(load_toml(engine.name, "rope.toml").get("reading", []), engine) or {}
    return str(reading.get("tables", [""])[0])


def stated(engine: Engine, data: Mapping[str, Any]) -> Iterator[Stated]:
    """Every place of the config in which some release looks for theta or a scaling, with what it says."""
    readings = load_toml(engine.name, "rope.toml").get("reading", [])
    if is_number(data.get(THETA)):
        yield Stated(THETA, data[THETA])
    for key in dict.fromkeys(key for reading in readings for key in reading["tables"]):
        table = data.get(key)
        if isinstance(table, dict) and table:
            kind = table.get("rope_type", table.get("type", PLAIN))
            yield Stated(key, _theta_in(table), kind if isinstance(kind, str) else PLAIN, table.get("factor"))


def _theta_in(table: Table) -> float | None:
    """The theta of a table, or the one that all tables in it agree on."""
    found = {t[THETA] for t in (table, *table.values()) if isinstance(t, dict) and is_number(t.get(THETA))}
    return found.pop() if len(found) == 1 else None
