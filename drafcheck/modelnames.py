"""Names of models as paths and addresses give them: which model is meant, however its weights are stored."""

from __future__ import annotations

import os
import re
from typing import Any

from drafcheck.address import is_remote
from drafcheck.contract import load_toml

_CACHED = re.compile(r"(?:^|/)models--([^/]+?)--([^/]+)(?:/|$)")
_HASH = re.compile(r"[0-9a-f]{32,64}")
_STATE = re.compile(r"(?:checkpoint|epoch|step|iter|global-step|v)-?[0-9]+")
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


def are_sisters(one: str, other: str) -> bool:
    """Whether two names begin with the same word and its number aside, as those of one family do."""
    first, second = (re.sub("[0-9]+$", "", stem(name)[0]) if stem(name) else "" for name in (one, other))
    return bool(first) and first == second


def _words(name: str) -> list[str]:
    return [word for word in _WORDS.split(name.rpartition("/")[2].lower()) if word]
