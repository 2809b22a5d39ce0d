"""A list of tensors that may be a million, and questions to their names that are answered for many at once.

The names of a large file differ in their numbers. Of each piece of the list the names are kept with every digit made a
zero, each of these once: where a word so changed does not stand in them, it stands in no name of the piece.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice, repeat
from operator import eq, itemgetter
from typing import NamedTuple, overload

from drafcheck.tensor import Tensor

AT_ONCE = 1024
"""Tensors of a piece."""

NO_LAYER = -1
DIGITS = {ord(digit): "0" for digit in "123456789"}
"""For ``str.translate``: makes all digits one."""

_ALIKE = 4  # so many names or more have to differ in nothing but digits for that to be worth keeping
_KINDS = 64  # more kinds than these in one piece are not kept
_LAYERS, _ABSURD = "layers.", 7
_NAME, _DTYPE, _SHAPE, _KIND = itemgetter(0), itemgetter(1), itemgetter(2), itemgetter(1, 2)
_START, _STOP = itemgetter(4), itemgetter(5)

Kind = tuple[str, tuple[int, ...]]
"""Dtype and shape."""


@lru_cache(maxsize=1 << 12)  # the same words are looked for in every piece
def _folded(word: str) -> str:
    return word.translate(DIGITS)


class Called(NamedTuple):
    """Names to be looked for, as they are and with zeros for digits."""

    whole: frozenset[str]
    folded: frozenset[str]

    @classmethod
    def by(cls, names: Iterable[str]) -> Called:
        """The names."""
        whole = frozenset(names)
        return cls(whole, frozenset(map(_folded, whole)))


class Piece:
    """Some tensors of a list. Nothing is worked out before somebody asks, and what was is kept."""

    __slots__ = ("_kinds", "_layers", "_span", "_text", "tensors")

    def __init__(self, tensors: list[Tensor]) -> None:
        """The tensors belong to the piece from here on."""
        self.tensors = tensors
        self._forget()

    def append(self, tensor: Tensor) -> None:
        """Add one more."""
        self.tensors.append(tensor)
        self._forget()

    def _forget(self) -> None:
        self._text: tuple[str, bool] | None = None
        self._kinds: Counter[Kind] | None = None
        self._layers: array[int] | None = None
        self._span: range | None = None

    @property
    def names(self) -> Iterator[str]:
        """What the tensors are called."""
        return map(_NAME, self.tensors)

    def may_hold(self, words: Iterable[str]) -> bool:
        """False where none of the words stands in a name; no word has a line break in it."""
        text, folded = self._searched()
        return any((_folded(word) if folded else word) in text for word in words)

    def may_end(self, words: Iterable[str]) -> bool:
        """False where none of the words is the last one of a name, which stands behind its last dot."""
        text, folded = self._searched()
        ends = [_folded(word) if folded else word for word in words]
        return any(f".{end}\n" in text or f"\n{end}\n" in text for end in ends)

    def has(self, words: Iterable[str]) -> bool:
        """Whether one of the words stands in a name; no word has a line break in it."""
        text, folded = self._searched()
        found = [word for word in words if (_folded(word) if folded else word) in text]
        return any(map("\n".join(self.names).__contains__, found)) if found and folded else bool(found)

    def may_be(self, names: Called) -> bool:
        """False where no tensor is called by one of the names."""
        text, folded = self._searched()
        return not (names.folded.isdisjoint(text.split("\n")) if folded else names.whole.isdisjoint(self.names))

    @property
    def lines(self) -> tuple[list[str], bool]:
        """The lines of the names or, where it says so, of what they are with zeros for digits, each once."""
        text, folded = self._searched()
        return text[1:-1].split("\n"), folded

    def _searched(self) -> tuple[str, bool]:
        """A text whose lines are the names or, where it says so, what they are with zeros for digits, each once."""
        if self._text is None:
            text = "\n".join(self.names)
            lines = set(text.translate(DIGITS).split("\n")) if text.isascii() else set()
            folded = 0 < _ALIKE * len(lines) < len(self.tensors)
            self._text = ("\n".join(("", *sorted(lines), "")) if folded else f"\n{text}\n", folded)
        return self._text

    @property
    def kinds(self) -> Counter[Kind]:
        """How many tensors there are of each dtype and shape."""
        if self._kinds is not None:
            return self._kinds
        dtypes, shapes = set(map(_DTYPE, self.tensors)), set(map(_SHAPE, self.tensors))
        alike = len(dtypes) == len(shapes) == 1  # as in most pieces of a long list
        kinds = Counter({(*dtypes, *shapes): len(self.tensors)} if alike else map(_KIND, self.tensors))
        if len(kinds) <= _KINDS:
            self._kinds = kinds
        return kinds

    @property
    def stored(self) -> int:
        """The bytes of all, as far as the file tells where they are."""
        total: int = sum(map(_STOP, self.tensors)) - sum(map(_START, self.tensors))
        return total

    @property
    def layers(self) -> array[int]:
        """The number of each tensor's decoder layer, ``NO_LAYER`` for those that are in none."""
        if self._layers is None:
            self._layers = array("i", self._numbers())
        return self._layers

    @property
    def different_layers(self) -> range | set[int]:
        """The numbers in ``layers``, each once."""
        if self._span is None:
            numbers = set(self.layers)
            span = range(min(numbers), max(numbers) + 1) if numbers else range(0)
            if len(span) != len(numbers):
                return numbers
            self._span = span
        return self._span

    def _numbers(self) -> Iterable[int]:
        text, folded = self._searched()
        if _LAYERS not in text:
            return repeat(NO_LAYER, len(self.tensors))
        lines = text[1:-1].split("\n")
        if folded and all(line.count(_LAYERS) == 1 for line in lines):
            after = self._between(lines) or self._after()
            sizes = set(map(len, after))
            if len(after) == len(self.tensors) and "".join(after).isdigit() and 0 not in sizes and max(sizes) < _ABSURD:
                return map(int, after)
        return (NO_LAYER if (number := layer_of(name)) is None else number for name in self.names)

    def _between(self, lines: list[str]) -> list[str]:
        """What stands for the number where the names differ in nothing else; nothing where they do."""
        around = {(before, rest.lstrip("0")) for before, _, rest in (line.partition(_LAYERS) for line in lines)}
        before, rest = around.pop()
        if around or "0" in before + rest or rest[:1] not in ("", "."):
            return []
        return "\n".join(self.names)[len(before + _LAYERS) : -len(rest) or None].split(f"{rest}\n{before}{_LAYERS}")

    def _after(self) -> list[str]:
        """What stands between the word for layers and the next dot."""
        return [part.partition(".")[0] for part in "\n".join(self.names).split(_LAYERS)[1:]]


def layer_of(name: str) -> int | None:
    """The number of the decoder layer in ``...layers.3.mlp...``, or None; numbers of absurd length are none."""
    _, found, rest = name.partition(_LAYERS)
    if not found:
        return None
    number = rest.partition(".")[0]
    return int(number) if number.isascii() and number.isdigit() and len(number) < _ABSURD else None


class Tensors(Sequence[Tensor]):
    """A list of tensors in pieces, to which others can be added at the end."""

    __slots__ = ("_length", "pieces")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        """The tensors in their order."""
        self.pieces: list[Piece] = []
        self._length = 0
        rest = iter(tensors)
        while some := list(islice(rest, AT_ONCE)):
            self.add(Piece(some))

    @classmethod
    def made_of(cls, pieces: Iterable[Piece]) -> Tensors:
        """The tensors of all the pieces, which are not copied."""
        made = cls()
        for piece in pieces:
            made.add(piece)
        return made

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> Tensors:
        """The same list where it is one already."""
        return tensors if isinstance(tensors, Tensors) else cls(tensors)

    def add(self, piece: Piece) -> None:
        """Add the tensors of a piece, with what is known of them; the piece is not copied."""
        self.pieces.append(piece)
        self._length += len(piece.tensors)

    def append(self, tensor: Tensor) -> None:
        """Add one tensor, in a piece of those that were added so."""
        if not self.pieces or not isinstance(self.pieces[-1], _Single) or len(self.pieces[-1].tensors) >= AT_ONCE:
            self.pieces.append(_Single([]))
        self.pieces[-1].append(tensor)
        self._length += 1

    def __iter__(self) -> Iterator[Tensor]:
        """One after the other."""
        return chain.from_iterable(piece.tensors for piece in self.pieces)

    def __reversed__(self) -> Iterator[Tensor]:
        """From the last to the first."""
        return chain.from_iterable(reversed(piece.tensors) for piece in reversed(self.pieces))

    def __len__(self) -> int:
        """How many."""
        return self._length

    @overload
    def __getitem__(self, at: int) -> Tensor: ...
    @overload
    def __getitem__(self, at: slice) -> list[Tensor]: ...
    def __getitem__(self, at: int | slice) -> Tensor | list[Tensor]:
        """One of them, or some in a list. Raises IndexError."""
        if isinstance(at, slice):
            return list(self)[at]
        rest = at if at >= 0 else at + self._length
        for piece in self.pieces if rest >= 0 else ():
            if rest < len(piece.tensors):
                return piece.tensors[rest]
            rest -= len(piece.tensors)
        raise IndexError(at)

    def __eq__(self, other: object) -> bool:
        """Whether the other is a sequence of the same tensors, of whatever type."""
        return isinstance(other, Sequence) and len(other) == self._length and all(map(eq, self, other))

    def __repr__(self) -> str:
        """As a list."""
        return f"Tensors({list(self)})"

    def has(self, word: str) -> bool:
        """Whether the word stands in a name."""
        return any(piece.has((word,)) for piece in self.pieces)

    def holding(self, *words: str) -> list[Tensor]:
        """The tensors in whose names one of the words stands."""
        pieces = (piece for piece in self.pieces if piece.may_hold(words))
        return [t for piece in pieces for t in piece.tensors if any(word in t.name for word in words)]

    def ending(self, *words: str) -> list[Tensor]:
        """The tensors whose names have one of the words behind their last dot."""
        pieces = (piece for piece in self.pieces if piece.may_end(words))
        return [t for piece in pieces for t in piece.tensors if t.name.rpartition(".")[2] in words]

    def of_kind(self, dtypes: Collection[str], shape: tuple[int, ...]) -> list[Tensor]:
        """The tensors of one of the dtypes and this shape."""
        pieces = (p for p in self.pieces if any((dtype, shape) in p.kinds for dtype in dtypes))
        return [t for piece in pieces for t in piece.tensors if t.dtype in dtypes and t.shape == shape]


class _Single(Piece):
    """A piece to which tensors are added one by one."""

    __slots__ = ()
