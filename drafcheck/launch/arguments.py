"""The options behind an engine's command, as its own parser would take them apart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from drafcheck.contract import Engine, Table, load_toml, of_the_book, releases
from drafcheck.launch.json_marks import marked
from drafcheck.launch.model import AMBIGUOUS, NEEDS_VALUE, NO_VALUE, REFUSED, UNKNOWN, Launch, Option
from drafcheck.launch.words import Word


class Taken(NamedTuple):
    """What came of the arguments: the options in order, and what belongs to none."""

    options: list[Option]
    strays: list[Word]


@of_the_book
def flags_of(name: str, version: str) -> dict[str, str]:
    """The options of a release that the book describes, each with what it takes; empty when they are not known."""
    known = next((release for release in releases(name) if str(release) == version), None)
    if known is None:
        return {}
    engine = Engine(name, version, known, exact=True)
    groups = load_toml(name, "flags.toml").get("flags", [])
    return {flag: g["takes"] for g in groups if engine.within(g.get("versions", "")) for flag in g["names"].split()}


def take(words: Sequence[Word], flags: dict[str, str], *, underscores: bool) -> Taken:
    """Options and their values. ``underscores``: ``--a_b`` is ``--a-b``, and ``--a.b`` a key of the option ``--a``."""
    made = Taken([], [])
    at = 0
    while at < len(words):
        word = words[at]
        if word.text == "--":
            made.strays.extend(words[at + 1 :])
            break
        if not _is_option(word, flags, underscores):
            made.strays.append(word)
            at += 1
            continue
        option, used = _option(words, at, flags, underscores)
        made.options.append(option)
        at += used
    return made


def _is_option(word: Word, flags: dict[str, str], underscores: bool) -> bool:
    """As argparse sees it: what it does not know and has a blank in it is an argument."""
    text = word.text
    if len(text) < 2 or text[0] != "-" or text.startswith("-$") or _is_number(text):
        return False
    return " " not in text or _resolved(_base(text.partition("=")[0], underscores), flags)[1] != UNKNOWN


def _base(written: str, underscores: bool) -> str:
    """The name of an option without the keys behind it."""
    return _spelled(written).partition(".")[0] if underscores else written


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _option(words: Sequence[Word], at: int, flags: dict[str, str], underscores: bool) -> tuple[Option, int]:
    """The option that begins at ``at``, and how many words it takes."""
    word = words[at]
    written, equals, attached = word.text.partition("=")
    if word.text in flags:
        written, equals, attached = word.text, "", ""
    name = _spelled(written) if underscores else written
    base = name.partition(".")[0] if underscores else name
    full, fault = _resolved(base, flags)
    takes = flags.get(full, "maybe" if "." not in name else "one")
    if base != name:
        full, takes = full + name[len(base) :], "one"
    if equals:
        value = word._replace(text=attached)
        return Option(full, written, (value,), word.line, fault or (NO_VALUE if takes == "none" else "")), 1
    follow = list(_following((words[i] for i in range(at + 1, len(words))), flags, underscores))
    wanted = {"none": 0, "refused": 0, "one": 1, "maybe": 1}.get(takes, len(follow))
    values = tuple(follow[:wanted])
    if takes == "refused":
        fault = fault or REFUSED
    elif takes == "one" and not values:  # a list may be empty
        fault = fault or NEEDS_VALUE
    return Option(full, written, values, word.line, fault), 1 + len(values)


def _following(words: Iterable[Word], flags: dict[str, str], underscores: bool) -> Iterable[Word]:
    for word in words:
        if _is_option(word, flags, underscores) or word.text == "--":
            return
        yield word


def _spelled(written: str) -> str:
    if not written.startswith("--"):
        return written
    name, dot, rest = written.partition(".")
    return name.replace("_", "-") + dot + rest


def _resolved(name: str, flags: dict[str, str]) -> tuple[str, str]:
    """The full name of an option that may be cut short, and what is wrong with it."""
    if name in flags or not flags:
        return name, ""
    longer = [flag for flag in flags if flag.startswith(name)] if name.startswith("--") and len(name) > 2 else []
    if len(longer) == 1:
        return longer[0], ""
    return name, AMBIGUOUS if longer else UNKNOWN


def understood(launch: Launch, book: Table) -> None:
    """Fill ``said`` and ``places`` of a launch from its options, by the keys of launch.toml."""
    keys = {name: key for key, names in book.get("options", {}).items() for name in names}
    nested = book.get("json", {})
    prefix = {name: key for name, key in keys.items() if key == nested.get("option")}
    known = {name for entry in book.get("known", []) for name in entry["names"].split()}
    for option in launch.options:
        name, dot, route = option.name.partition(".")
        if dot and name in prefix:
            word = route.partition(".")[0].replace("-", "_")
            launch.odd_keys += (word,) if known and word not in known else ()
            _nested_key(launch, option, route, nested["keys"])
        elif name in keys:
            launch.places[keys[name]] = option
            if option.value is not None:
                launch.said[keys[name]] = option.value
            elif not option.values:
                launch.said[keys[name]] = "true"
            if keys[name] == nested.get("option"):
                _whole_json(launch, option, nested["keys"])
                launch.odd_keys += tuple(key for key in json_of(option) or {} if known and key not in known)


def _nested_key(launch: Launch, option: Option, route: str, keys: dict[str, str]) -> None:
    key = next((key for key, name in keys.items() if name == route.replace("-", "_")), None)
    if key is not None:
        launch.places[key] = option
        if option.value is not None:
            launch.said[key] = option.value


def _whole_json(launch: Launch, option: Option, keys: dict[str, str]) -> None:
    if not option.values:
        return
    table = json_of(option)
    launch.open_ended |= option.value is None and (table is None or _has_unknown_key(option))
    if table is None:
        if option.value is not None:
            launch.wrong.append(f"{option.written} holds no JSON object")
        return
    for key, name in keys.items():
        if table.get(name) is not None:
            launch.places[key] = option
            found = table[name]
            text = found if isinstance(found, str) else json.dumps(found)
            if option.values[0].known or not set("$`") & set(text):
                launch.said[key] = text


def json_of(option: Option) -> dict[str, object] | None:
    """The JSON object that an option holds; unknown parts are ``$``, keys with such a part are left out."""
    made = _json(option)
    if made is None:
        return None
    sure = option.values[0].known
    return {key.replace("-", "_"): value for key, value in made.items() if sure or "$" not in key}


def _has_unknown_key(option: Option) -> bool:
    return any("$" in key for key in _json(option) or {})


def _json(option: Option) -> dict[str, object] | None:
    try:
        word = option.values[0]
        made = json.loads(word.text if word.known else marked(word.text))
    except (ValueError, RecursionError, IndexError):
        return None
    return made if isinstance(made, dict) else None
