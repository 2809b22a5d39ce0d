"""Whether the draft that a launch line names is the checkpoint at hand."""

from __future__ import annotations

import os

from drafcheck.address import is_remote
from drafcheck.paths import absolute


def compare(draft: str, checkpoint: str) -> str:
    """``same``, ``other`` (both are known, and differ) or ``unlike`` (the names differ, the places cannot be compared).

    In a container a folder has another path than here: then its last part counts.
    """
    ours, theirs = _hub_id(checkpoint), _hub_id(draft)
    if ours is not None and theirs is not None:
        return "same" if ours == theirs else "other"
    if os.path.exists(draft) and not is_remote(checkpoint):  # noqa: PTH110 - strings of people, which pathlib may refuse
        return "same" if _real(draft) == _real(checkpoint) else "other"
    return "same" if _last(draft) and _last(draft) == _last(checkpoint) else "unlike"


def _real(path: str) -> str:
    resolved = os.path.realpath(absolute(path))
    return resolved if os.path.isdir(resolved) else os.path.dirname(resolved)  # noqa: PTH112, PTH120


def _hub_id(text: str) -> str | None:
    """``owner/name`` of a repository of the Hub; None for a path."""
    if text.startswith("hf://"):
        return "/".join(text.removeprefix("hf://").split("/")[:2]).partition("@")[0]
    parts = text.split("/")
    plain = len(parts) == 2 and all(parts) and not text.startswith((".", "~", "$", "/"))
    return text if plain and "$" not in text and not os.path.exists(text) else None  # noqa: PTH110


def _last(path: str) -> str:
    last = path.rstrip("/").rpartition("/")[2]
    if last in (".", "..") and not is_remote(path):
        last = absolute(path).rpartition("/")[2]
    return last.partition("@")[0] if is_remote(path) else last
