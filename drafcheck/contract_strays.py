"""What only shows between the entries of a contract: quantities, expressions and placeholders that lead nowhere.

The first fault is told in words, with the way to it. drafcheck.contract_models says what each entry may hold by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from drafcheck.contract import bounds, holds
from drafcheck.lookup import FLOAT, terms
from drafcheck.selection import suggestion

if TYPE_CHECKING:
    from drafcheck.contract_entries import Param
    from drafcheck.contract_models import ContractPart

Stray = tuple[str, tuple[str | int, ...]]

FREE = frozenset({"rows_in_the_file", "columns_in_the_file"})
"""Sizes that no config gives: whatever the file holds fits them."""

MAY_LACK = frozenset({"num_heads", "num_kv_heads"})
"""What a shared part may ask for of a class that has none: the entry then never holds."""

_ENTRIES = ("versions", "source")
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"[0-9]{1,12}")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")

_OF_MESSAGES = (
    "parameter parameter_tuple tensor tensor_tuple rows size length axis start states rank tensor_rank values "
    "target written"
)
_SAID = {
    "messages": _OF_MESSAGES,
    "refuse": "value whole part repr class type place item limit",
    "required": "number missing few first",
    "sharing": "rows layer",
    "split": "size ranks",
    "unknown": "name place",
    "mapping": "first last axis name",
    "names": "name written repr layer",
}
"""The placeholders that the texts of each section may have: what an engine says, with what stands in for its words."""

_TEXTS = {
    "refuse": ("error",),
    "required": ("error", "stray"),
    "sharing": ("outcome",),
    "split": ("error",),
    "unknown": ("error", "nested"),
    "mapping": ("without", "long", "short", "outside", "twice", "sides", "scalar"),
    "names": (
        "unknown",
        "unspelled",
        "unknown_other",
        "unknown_whole",
        "unknown_expert",
        "unknown_stacked",
        "none_read",
    ),
}


def strays(book: ContractPart) -> Iterator[Stray]:
    """Every quantity, expression and placeholder that nothing in the book explains."""
    known = {name for entry in book.read for name in entry} - set(_ENTRIES)
    yield from _expressions(book, known)
    yield from _circles(book.read)
    yield from _quantities(book, known)
    yield from _placeholders(book)


def twice(params: Sequence[Param]) -> Iterator[Stray]:
    """Parameters of one file that are given again for the same releases and configs: the second is never read."""
    first: dict[tuple[object, ...], int] = {}
    for number, param in enumerate(params):
        key = (param.name, param.versions, param.when, param.unless, param.layers)
        if first.setdefault(key, number) != number:
            yield f"{param.name!r} is given twice for the same releases and configs", ("param", number, "name")


def _expressions(book: ContractPart, known: set[str]) -> Iterator[Stray]:
    for number, entry in enumerate(book.read):
        for name, items in entry.items():
            for item in items if name not in _ENTRIES else ():
                if isinstance(item, str) and item.startswith("="):
                    fault = _fault(item[1:], known)
                    if fault:
                        yield f"{item[:80]!r} of {name}: {fault}", ("read", number, name)
    for number, param in enumerate(book.param):
        shape = [("shape", text) for text in param.shape] + [("shards", text) for text in param.shards.values()]
        for key, text in (*shape, ("in", param.in_), ("experts", param.experts)):
            fault = _fault(text, known | FREE) if text else ""
            if fault:
                yield f"{text[:80]!r} of {param.name!r}: {fault}", ("param", number, key)


def _fault(text: str, known: set[str]) -> str:
    """What is wrong with an expression; nothing when it can be worked out."""
    for operand in terms(text)[::2]:
        name = operand.removeprefix(FLOAT)
        if not operand:
            return "a quantity or a number is missing beside an operator (there are *, //, + and -)"
        if _NUMBER.fullmatch(operand) or (operand != name and name) or operand in known:
            continue
        if operand.isdigit():
            return f"{operand[:20]} is no number of at most twelve digits"
        what = "is no quantity of [[read]]" if _NAME.fullmatch(operand) else "is neither a quantity nor a number"
        return f"{operand!r} {what}{suggestion(operand, known)}"
    return ""


def _circles(read: Sequence[Mapping[str, Any]]) -> Iterator[Stray]:
    """Quantities that are worked out of themselves in some release."""
    for version in _releases(read):
        here: dict[str, tuple[int, list[str]]] = {}
        for number, entry in enumerate(read):
            if holds(entry.get("versions", ""), version):
                for name, items in entry.items():
                    if name not in _ENTRIES:
                        here.setdefault(name, (number, list(_asked(items))))
        for name, (number, _) in here.items():
            circle = _circle(name, here)
            if circle:
                yield f"{name} is worked out of itself: {' = '.join(circle)}", ("read", number, name)


def _releases(read: Sequence[Mapping[str, Any]]) -> list[Version]:
    """A release of every stretch in which the same entries are in force."""
    turns = {bound for entry in read for _, bound in bounds(entry.get("versions", ""))}
    return [Version("0"), *sorted({*turns, *(Version(f"{turn.base_version}.post99999") for turn in turns)})]


def _asked(items: Sequence[object]) -> Iterator[str]:
    for item in items:
        if isinstance(item, str) and item.startswith("="):
            yield from (operand for operand in terms(item[1:])[::2] if _NAME.fullmatch(operand))


def _circle(name: str, here: Mapping[str, tuple[int, list[str]]]) -> list[str]:
    """The way from a quantity back to it; nothing where there is none."""
    ways, seen = [[name]], {name}
    while ways:
        way = ways.pop()
        for asked in here.get(way[-1], (0, []))[1]:
            if asked == name:
                return [*way, name]
            if asked not in seen:
                seen.add(asked)
                ways.append([*way, asked])
    return []


def _quantities(book: ContractPart, known: set[str]) -> Iterator[Stray]:
    """The quantities that other entries name."""
    asked: list[tuple[str, int, str, str]] = []
    for number, place in enumerate(book.expand):
        asked += [("expand", number, key, place[key]) for key in ("count", "from") if key in place]
    for number, refuse in enumerate(book.refuse):
        asked += [("refuse", number, key, getattr(refuse, key)) for key in ("of", "beyond", "length")]
        asked += [("refuse", number, "indivisible", name) for name in refuse.indivisible or ()]
    for number, flag in enumerate(book.flag):
        asked += [("flag", number, "same", name) for name in flag.same or ()]
        asked += [("flag", number, "less", name) for name in flag.less or ()]
        asked += [("flag", number, "differ", name) for pair in flag.differ for name in pair]
    asked += [("split", number, "quantity", split.quantity) for number, split in enumerate(book.split)]
    asked += [("mapping", number, "width", mapping.width) for number, mapping in enumerate(book.mapping)]
    asked += [("sharing", number, "unless_differ", n) for number, s in enumerate(book.sharing) for n in s.unless_differ]
    for number, names in enumerate(book.names):
        asked += [("names", number, key, getattr(names, key)) for key in ("heads", "every", "beyond")]
        asked += [("names", number, "layer", names.layer.count)] if names.layer is not None else []
    for section, number, key, name in asked:
        if name and name not in known and not (section in ("refuse", "split") and name in MAY_LACK):
            yield f"{name!r} is no quantity of [[read]]{suggestion(name, known)}", (section, number, key)


def _placeholders(book: ContractPart) -> Iterator[Stray]:
    for section, number, key, text in _texts(book):
        known = _SAID[section].split()
        for word in _PLACEHOLDER.findall(text):
            if word not in known:
                told = suggestion(word, known) or f"; known here are {', '.join(known)}"
                yield f"nothing takes the place of {{{word}}} in {text[:80]!r}{told}", (section, number, key)


def _texts(book: ContractPart) -> Iterator[tuple[str, int, str, str]]:
    for number, entry in enumerate(book.messages):
        yield from (("messages", number, key, text) for key, text in entry.items() if key not in _ENTRIES)
    for section, keys in _TEXTS.items():
        for number, one in enumerate(getattr(book, section)):
            yield from ((section, number, key, getattr(one, key)) for key in keys)
    for number, names in enumerate(book.names):
        yield from (("names", number, "refuse", refused.error) for refused in names.refuse)
