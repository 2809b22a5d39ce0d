"""The table of an index that lists a million tensors: names kept as text, which takes a quarter of the memory."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain, compress, repeat
from typing import Any, NamedTuple


class _Part(NamedTuple):
    """Some entries: their names, each on a line of its own, and the file of all of them, or of each."""

    names: str
    number: int
    files: str | list[str]

    def lines(self) -> list[str]:
        return self.names.split("\n")

    def places(self) -> Iterator[str]:
        return repeat(self.files, self.number) if isinstance(self.files, str) else iter(self.files)

    def by_file(self) -> Iterator[tuple[str, int, str]]:
        """Each file with the number of its names and these as lines."""
        if isinstance(self.files, str):
            yield self.files, self.number, self.names
            return
        for file in dict.fromkeys(self.files):
            names = list(compress(self.lines(), map(file.__eq__, self.files)))
            yield file, len(names), "\n".join(names)


class Listing(Mapping[str, Any]):
    """Which file holds which tensor, in the order of the index. ``files`` are the different files of its parts.

    It is gone through from end to end: who looks for more than a few names in it, does so as he goes.
    """

    __slots__ = ("_length", "_parts", "files", "rest")

    def __init__(self) -> None:
        """Nothing so far."""
        self._parts: list[_Part] = []
        self._length = 0
        self.files: set[str] = set()
        self.rest: dict[str, Any] = {}
        """The last entries, whose values may be anything."""

    def add(self, names: list[str], files: list[str]) -> None:
        """Add names that are all new and have no line breaks in them, with the file of each or, in one, of all."""
        self._parts.append(_Part("\n".join(names), len(names), files[0] if len(files) == 1 else files))
        self._length += len(names)
        self.files.update(files)

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return chain(chain.from_iterable(map(_Part.lines, self._parts)), self.rest)

    def __len__(self) -> int:
        """How many."""
        return self._length + len(self.rest)

    def __getitem__(self, name: str) -> Any:
        """The file of one tensor. Raises KeyError."""
        for known, file in self.items():
            if known == name:
                return file
        raise KeyError(name)

    def values(self) -> ValuesView[Any]:
        """The file of each tensor."""
        return _Values(self)

    def items(self) -> ItemsView[str, Any]:
        """The names with their files."""
        return _Items(self)

    def each_file(self) -> Iterator[Any]:
        """The file of each tensor, one after the other."""
        return chain(chain.from_iterable(map(_Part.places, self._parts)), self.rest.values())

    def __repr__(self) -> str:
        """As a dict."""
        return repr(dict(self.items()))

    def tells(self, held: Iterable[tuple[str, list[str]]]) -> bool:
        """Whether it has just these names for these files; False too where it has them in an order of its own.

        That is neither that of the names given nor that of the alphabet.
        """
        if any("\n" in name for name in self.rest):
            return False
        listed = self._by_file()
        for file, names in held:
            count, texts = listed.pop(file, (0, []))
            if count != len(names) or not _are_lines("\n".join(texts), names):
                return False
        return not listed

    def _by_file(self) -> dict[str, tuple[int, list[str]]]:
        """How many names there are for each file, and the texts of which they are the lines."""
        found: dict[str, tuple[int, list[str]]] = {}
        for part in chain(self._parts, (_Part(name, 1, file) for name, file in self.rest.items())):
            for file, count, text in part.by_file():
                before, texts = found.get(file, (0, []))
                found[file] = before + count, [*texts, text]
        return found


def _are_lines(text: str, names: list[str]) -> bool:
    return text == "\n".join(names) or text == "\n".join(sorted(names))


class _Values(ValuesView[Any]):
    """Those of a listing."""

    _mapping: Listing

    def __iter__(self) -> Iterator[Any]:
        return self._mapping.each_file()


class _Items(ItemsView[str, Any]):
    """Those of a listing."""

    _mapping: Listing

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return zip(self._mapping, self._mapping.each_file(), strict=True)
