"""Names that differ in numbers alone which no loader can know: they all take the same way.

What a loader knows of names are texts of its contract and the names of its parameters. A number with more digits than
any in these is none of them, and larger than all of them: so is every other of as many digits.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from drafcheck.contract import Contract

_SAID = {"source", "versions", "error", "nested", "by", "relaid"}
"""Keys under which nothing stands that decides over the way of a name."""

_AT_ONCE = 1024
_RUN = re.compile("[0-9]+")


class Alike:
    """Tells names that take the same way through a contract."""

    def __init__(self, contract: Contract, exact: Iterable[str], parts: Iterable[object] = ()) -> None:
        """``exact`` are names with which whole ones are compared; of ``parts`` any may stand in a name."""
        loader = (contract.names, contract.unknown, contract.stacked, contract.mapping, contract.skips)
        self._parts = list(_texts([*loader, *parts]))
        self._exact = exact

    @cached_property
    def _free(self) -> re.Pattern[str] | None:
        """Numbers of more digits than a known one has; None where a known text is no more than a number."""
        if any(map(_RUN.fullmatch, self._parts)):
            return None
        runs = (run for texts in (self._parts, self._exact) for text in texts for run in _RUN.findall(text))
        return re.compile(f"[0-9]{{{max(map(len, runs), default=0) + 1},}}")

    @cached_property
    def _edges(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The numbers with which known texts end and begin: in a name a longer one may be the continuation."""
        ends = {found[0] for text in self._parts if (found := re.search("[0-9]+$", text)) is not None}
        begins = {found[0] for text in self._parts if (found := _RUN.match(text)) is not None}
        return tuple(ends), tuple(begins)

    def _form(self, found: re.Match[str]) -> str:
        """A number with nines for all digits but those with which it may continue a known text."""
        number, (ends, begins) = found[0], self._edges
        if not (ends or begins):
            return "9" * len(number) if number[0] != "0" else number
        lead = max(filter(number.startswith, ends), key=len, default="") if number.startswith(ends) else ""
        tail = max(filter(number.endswith, begins), key=len, default="") if number.endswith(begins) else ""
        form = lead + "9" * (len(number) - len(lead) - len(tail)) + tail
        same = len(form) == len(number) and all(form.startswith(n) == number.startswith(n) for n in ends)
        same = same and all(form.endswith(n) == number.endswith(n) for n in begins)
        return form if same and number[0] != "0" else number

    def forms(self, names: Sequence[str]) -> Iterator[str]:
        """A form for each name: names of one form take the same way, which is that of the form."""
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            text = "\n".join(some)
            if self._free is not None and text.isascii() and text.count("\n") == len(some) - 1:
                yield from self._free.sub(self._form, text).split("\n")
            else:
                yield from some


def _texts(of: object) -> Iterator[str]:
    """All texts and numbers inside of tables and lists, but for what is said to people."""
    if isinstance(of, dict):
        for key, value in of.items():
            if key not in _SAID:
                yield str(key)
                yield from _texts(value)
    elif isinstance(of, (list, tuple, set, frozenset)):
        for value in of:
            yield from _texts(value)
    elif isinstance(of, str):
        yield of
    elif isinstance(of, int):
        yield f".{of}."  # compared as a number, not as a text
