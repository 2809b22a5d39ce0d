"""Names of models as paths and addresses give them: which model is meant, however its weights are stored."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from drafcheck.address import is_remote
from drafcheck.contract import load_toml

_CACHED = re.compile(r"(?:^|/)models--([^/]+?)--([^/]+)(?:/|$)")
_HASH = re.compile(r"[0-9a-f]{32,64}")
_STATE = re.compile(r"(?:checkpoint|epoch|step|iter|global-step|v)-?[0-9]+")
_SIZE = re.compile(r"(?<![0-9.])(?:[0-9]+x)?[0-9]+(?:\.[0-9]+)?[bm](?![a-z0-9])")
_VERSION = re.compile(r"[0-9]+(?:[._-][0-9]{1,2}(?![0-9a-z]))*")
_DATE = re.compile(r"(?:0[1-9]|1[0-2])[0-3][0-9]|2[3-9](?:0[1-9]|1[0-2])")  # 0905, 2507
_WORDS = re.compile(r"[^a-z0-9]+")


def model_name(path: str) -> str | None:
    """The name of the model that a path or an address leads to, such as ``org/name`` or ``name``.

    None where it tells none: folders that are called ``target``, hashes, states of a training, a config by itself.
    """
    path = path.replace("\\", "/")
    scheme, mark, rest = path.partition("://")
    if mark:
        return _of_address(scheme, rest.rstrip("/"))
    path = path.rstrip("/")
    cached = _CACHED.search(path)
    if cached:
        return f"{cached[1]}/{cached[2]}"
    if path.endswith("/config.json"):
        path = path[: -len("/config.json")]
    name = "/".join(path.split("/")[-2:]) if path.count("/") == 1 and path[:1] not in "./~" else path.rpartition("/")[2]
    return name if _tells(name) else None


def local_name(path: str) -> str | None:
    """The model in a folder of this machine or at an address: ``org/name`` only where the org is certain."""
    if is_remote(path):
        return model_name(path)
    folder = os.path.dirname(path) if path.endswith(".json") else path  # noqa: PTH120
    if path.endswith(".json") and os.path.basename(path) != "config.json":  # noqa: PTH119
        return None
    found = model_name(path) or model_name(os.path.realpath(folder))
    return found if found is None or _CACHED.search(path) else found.rpartition("/")[2]


def _of_address(scheme: str, rest: str) -> str | None:
    parts = rest.partition("?")[0].split("/")
    if scheme != "hf":
        return (parts[-1] if _tells(parts[-1]) else None) if parts[0] != "huggingface.co" else "/".join(parts[1:3])
    return "/".join(parts[:2]).partition("@")[0] if len(parts) > 1 else None


def _tells(name: str) -> bool:
    last = "-".join(_words(name))
    known: Any = load_toml("discovery.toml")["names"]["generic"]
    nothing = last in known or _HASH.fullmatch(last) or _STATE.fullmatch(last) or last.endswith("json")
    return any(c.isalpha() for c in last) and not nothing


def stem(name: str) -> tuple[str, ...]:
    """The words of the last part of a name that tell which model it is: two names with one stem are one model."""
    book = load_toml("discovery.toml")["names"]
    words = _words(name)
    if len(words) > 1 and words[0] in book["vendors"]:
        words = words[1:]
    cut = next((i for i, word in enumerate(words) if i and word in book["variants"]), len(words))
    return tuple(words[:cut])


def differ(official: str, folder: str) -> bool:
    """Whether a folder's name surely tells another model of the same family than the one named ``official``.

    A folder may be called anything: what it leaves out or adds proves nothing. Another size, another version, a date or
    a kind (base, instruct) that the official name has not do.
    """
    if not are_sisters(official, folder):
        return False
    here, there = _traits(official), _traits(folder)
    if here.letters == there.letters:
        return False
    sizes = bool(here.sizes and there.sizes) and not (here.sizes <= there.sizes or there.sizes <= here.sizes)
    version = bool(here.version and there.version) and here.version != there.version
    return sizes or version or bool(there.marks - here.marks)


class _Traits(NamedTuple):
    """What a name tells: all its ``letters`` and digits, ``sizes`` (8b), first ``version`` (31 of 3.1), ``marks``."""

    letters: str
    sizes: frozenset[str]
    version: str
    marks: frozenset[str]


def _traits(name: str) -> _Traits:
    last = name.rpartition("/")[2].lower()
    words = stem(name)
    kinds = load_toml("discovery.toml")["names"]["kinds"]
    sizes = _SIZE.findall(last)
    version = _VERSION.search(_SIZE.split(last)[0])  # a v2 behind the size is the folder's own
    marks = {word for word in words if word in kinds or _DATE.fullmatch(word)}
    digits = re.sub("[^0-9]", "", version[0]) if version is not None else ""
    return _Traits("".join(words), frozenset(sizes), digits, frozenset(marks))


def are_sisters(one: str, other: str) -> bool:
    """Whether two names begin with the same word and its number aside, as those of one family do."""
    first, second = (re.sub("[0-9]+$", "", stem(name)[0]) if stem(name) else "" for name in (one, other))
    return bool(first) and first == second


def _words(name: str) -> list[str]:
    return [word for word in _WORDS.split(name.rpartition("/")[2].lower()) if word]
