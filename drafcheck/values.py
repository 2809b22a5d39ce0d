"""The value that a config key was meant to hold, where a release cannot build a draft class from what it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from drafcheck.conversion import route_to
from drafcheck.lookup import MISSING, raw
from drafcheck.modeltypes import of_the_class
from drafcheck.sizes import candidates, key_of, misfits, tried_at
from drafcheck.trial import GONE, Changes, tried

if TYPE_CHECKING:
    from drafcheck.plan.model import Refusal
    from drafcheck.subject import Subject

_WHOLE = re.compile(r"\s*[+]?\d{1,18}\s*")
_DECIMAL = re.compile(r"\s*\d{1,18}\.?\d{0,18}(?:[eE][+-]?\d{1,3})?\s*")
_CAUSES = ("config-value", "config-key")
_FLAGS = {"true": True, "false": False}


def value_meant(s: Subject) -> Changes | None:
    """The change with which the class can be built; None where the value can be read in no or in several ways."""
    refused = s.load.refused if s.load is not None else None
    if refused is None or refused.key is None or refused.cause not in _CAUSES or s.config is None:
        return None
    route = route_to(s, refused.key)
    if route is None:
        return None
    value = raw(s.config, refused.key)
    fitting = (one for one in _elsewhere(s, refused.key, value) if _fits(s, refused.key, one))
    for meant in (*_as_another_type(value), *fitting, *_decided(s, refused.key, value)):
        if _is_taken(s, refused, {route: meant}):
            return {route: meant}
    return None


def _as_another_type(value: Any) -> Iterator[Any]:
    """The same value as JSON would have said it."""
    if value is None:
        yield GONE
    elif isinstance(value, str) and _WHOLE.fullmatch(value):
        yield int(value)
    elif isinstance(value, str) and _DECIMAL.fullmatch(value):
        yield float(value)
    elif isinstance(value, str) and value.strip().lower() in _FLAGS:
        yield _FLAGS[value.strip().lower()]
    elif isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        yield int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield float(value)
        if value in (0, 1):
            yield bool(value)


def _elsewhere(s: Subject, key: str, value: Any) -> Iterator[Any]:
    """Of a key that is not set where it is read: what stands under its last name elsewhere, if it is one thing."""
    if value is not MISSING and value is not None:
        return
    assert s.written is not None
    word = key.rpartition(".")[2]
    tables = [s.written.data, *(table for table in s.written.data.values() if isinstance(table, dict))]
    found = [table[word] for table in tables if table.get(word) is not None]
    if found and all(type(one) is type(found[0]) and one == found[0] for one in found):
        yield found[0]


def _decided(s: Subject, key: str, value: Any) -> Iterator[Any]:
    """What the class, or the tensors, leave no choice about."""
    assert s.config is not None and s.contract is not None
    if key == "model_type" and (model_type := of_the_class(s)) is not None:
        yield model_type
    if key == "layer_types" and isinstance(value, list) and value and all(kind == value[0] for kind in value):
        yield value[:1] * min(s.contract.value("num_layers", s.config) or 0, len(value) + 128)
    yield from _by_shapes(s, key)


def _by_shapes(s: Subject, key: str) -> Iterator[int]:
    """The size with which every tensor fits."""
    trial = tried_at(s, key, 1)
    if trial is None or trial.load is None or trial.contract is None:
        return
    names = [name for name in trial.contract.read if key_of(trial.contract, trial.config, name) == key]
    if not names:
        return
    found = misfits(trial.load, trial.contract).values()
    asked = dict.fromkeys(
        size for one in found for k, size in candidates(trial.contract, trial.config, one) if k == key
    )
    working = [size for size in list(asked)[:16] if _fits(s, key, size)]
    if len(working) == 1:
        yield working[0]


def _fits(s: Subject, key: str, value: object) -> bool:
    """Whether the class is built with another value, and every tensor fits."""
    trial = tried_at(s, key, value)
    if trial is None or trial.load is None or trial.contract is None or not trial.load.parameters:
        return False
    return not misfits(trial.load, trial.contract)


def _is_taken(s: Subject, refused: Refusal, changes: Changes) -> bool:
    """Whether the release then builds the class, or stops at another key."""
    trial = tried(s, changes)
    if trial is None or trial.load is None or trial.refused is not None:
        return False
    left = trial.load.refused
    return left is None or left.cause not in _CAUSES or left.key != refused.key
