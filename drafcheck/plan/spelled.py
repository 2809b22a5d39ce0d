"""Names that a loader takes whole: a list of patterns says what each becomes, and a name that fits none is passed over.

The keys ``spelled`` and ``words`` of ``[[names]]``. What they mean is told in rules/README.md.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafcheck.contract import Table

_PLACES = re.compile(r"\{n\}|\{word\}")
_KINDS = {"{n}": r"(\d+)", "{word}": r"(\w+)"}


def respelled(names: Table, name: str) -> str | None:
    """What ``name`` becomes by the first pattern that fits it from end to end; None where none does.

    Names that begin with one of ``spelled_already`` stay as they are.
    """
    if name.startswith(tuple(names.get("spelled_already", ()))):
        return name
    for pattern, new in names["spelled"]:
        found = _compiled(pattern).fullmatch(name)
        if found is not None:
            parts = iter(found.groups())
            return _PLACES.sub(lambda _, parts=parts: next(parts), new)  # type: ignore[misc]
    return None


def reworded(words: dict[str, str], name: str) -> str:
    """``name`` with what stands for its words, or for two words side by side, wherever they occur in it.

    A word for which something stands in the name already is left.
    """
    parts = name.split(".")
    for word, following in zip(parts, [*parts[1:], ""], strict=True):
        both = f"{word}.{following}"
        if both in words:
            name = name.replace(both, words[both])
        elif word in words and words[word] not in name:
            name = name.replace(word, words[word])
    return name


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern as an expression, in which only the places stand for more than themselves."""
    places = [_KINDS[place] for place in _PLACES.findall(pattern)]
    texts = [re.escape(text) for text in _PLACES.split(pattern)]
    return re.compile("".join(text + place for text, place in zip(texts, [*places, ""], strict=True)))
