"""Changes of config keys as edits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.fix.edits import Edit, RemoveKey, SetKey
from drafcheck.lookup import MISSING, raw
from drafcheck.trial import GONE, Changes

if TYPE_CHECKING:
    from drafcheck.subject import Subject


def edits_of(s: Subject, changes: Changes | None) -> Iterator[Edit]:
    """One edit for each key that then says something else; none for no changes."""
    for route, value in (changes or {}).items():
        there = raw(s.written, ".".join(route)) if s.written is not None else MISSING
        if value is GONE:
            if there is not MISSING:
                yield RemoveKey(route)
        elif there != value or type(there) is not type(value):
            yield SetKey(route, value)
