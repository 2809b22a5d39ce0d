"""Several engines in one run: ``all``, or releases separated by commas."""

from __future__ import annotations

from drafcheck.contract import Engine, engines, releases, resolve_engine
from drafcheck.errors import UsageError

ALL = "all"


def resolve_engines(text: str | None) -> tuple[Engine, ...]:
    """The releases meant by ``sglang==0.5.12,vllm``, each once, in that order.

    ``all``: the newest release of every engine that the book knows. Raises UsageError as ``resolve_engine`` does.
    """
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if len(words) == 1 and words[0].lower() == ALL:
        return tuple(_newest(name) for name in engines())
    if ALL in (word.lower() for word in words):
        raise UsageError(f"{ALL} stands alone: it is every engine already")
    found = [resolve_engine(word) for word in words]
    if not found:
        raise UsageError(f"no engine in {text!r}: known are {', '.join(engines())}")
    return tuple({(engine.name, engine.version): engine for engine in found}.values())


def _newest(name: str) -> Engine:
    newest = releases(name)[-1]
    return Engine(name, str(newest), newest, exact=True, how="newest")
