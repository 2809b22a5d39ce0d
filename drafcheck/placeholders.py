"""What the placeholders of a contract's names stand for: the [[expand]] entries."""

from __future__ import annotations

from typing import Any, NamedTuple


class Copies(NamedTuple):
    """What a placeholder stands for: one text, or as many as ``number`` says, each with its own, counted on from the
    quantity ``first`` where that is said.

    With ``kinds`` (a config key that lists the kinds of layers) only those of ``kind``; ``last`` is what the config
    class makes of the last one. ``texts``: it stands for each of these.
    """

    text: str
    number: str | None = None
    first: str = ""
    kinds: str = ""
    kind: str = ""
    last: str = ""
    texts: tuple[str, ...] = ()


def placeholders(entry: dict[str, Any]) -> dict[str, Copies]:
    """``{"layer": Copies("layers.{n}", "num_layers")}`` of one [[expand]] entry; the count is None for a single one."""
    first, kinds, kind, last = (entry.get(key, "") for key in ("from", "kinds", "kind", "last"))
    texts = {
        k: v for k, v in entry.items() if k not in ("versions", "source", "count", "from", "kinds", "kind", "last")
    }
    listed = {key: tuple(text) if isinstance(text, list) else () for key, text in texts.items()}
    number = entry.get("count")
    return {key: Copies(text, number, first, kinds, kind, last, listed[key]) for key, text in texts.items()}
