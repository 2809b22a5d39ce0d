"""Which rules run: ``--select`` and ``--ignore`` by code, by prefix or by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from drafcheck.errors import UsageError
from drafcheck.registry import Rule, prefix_of


def choose(rules: Mapping[str, Rule], select: Collection[str] = (), ignore: Collection[str] = ()) -> dict[str, Rule]:
    """The rules named by ``select`` (all when empty) without those named by ``ignore``.

    Each word may be a code, a prefix of codes (``DC3``) or a name. Raises UsageError for a word that
    names no rule, and when nothing is left.
    """
    chosen = _codes(rules, select) if select else set(rules)
    chosen -= _codes(rules, ignore)
    if not chosen:
        raise UsageError("--select and --ignore leave no rule to run")
    return {code: rule for code, rule in rules.items() if code in chosen}


def find(rules: Mapping[str, Rule], word: str) -> Rule:
    """The one rule whose code or name is ``word``. Raises UsageError, with a suggestion, when there is none."""
    for rule in rules.values():
        if word.upper() == rule.code or word.lower() == rule.name:
            return rule
    raise UsageError(_unknown(rules, word))


def suggestion(word: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` when a known word is near, else nothing."""
    from difflib import get_close_matches

    spelled = {k.lower(): k for k in known}
    near = get_close_matches(word.lower(), spelled, n=5)
    best = max(near, key=lambda k: _shared_start(k, word.lower()), default=None)
    return f"; did you mean {spelled[best]}?" if best else ""


def _shared_start(one: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _codes(rules: Mapping[str, Rule], words: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for word in words:
        hits = {r.code for r in rules.values() if _matches(r, word)}
        if not hits:
            raise UsageError(_unknown(rules, word))
        found |= hits
    return found


def _matches(rule: Rule, word: str) -> bool:
    start = word.upper()
    return (rule.code.startswith(start) and prefix_of(start) == prefix_of(rule.code)) or rule.name == word.lower()


def _unknown(rules: Mapping[str, Rule], word: str) -> str:
    known = [*rules, *(r.name for r in rules.values())]
    return f"no rule is called {word!r}{suggestion(word, known)}"
