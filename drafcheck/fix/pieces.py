"""Bytes that a mended file is made of: new ones, and stretches of files that are there already."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from drafcheck.source import Source


class Span(NamedTuple):
    """The bytes of ``source`` from ``start`` to ``stop``."""

    source: Source
    start: int
    stop: int


Piece = bytes | Span


def length(piece: Piece) -> int:
    """How many bytes a piece has."""
    return piece.stop - piece.start if isinstance(piece, Span) else len(piece)


class Spliced:
    """A file that is not written yet, read as if it were: pieces one after another."""

    def __init__(self, name: str, pieces: Iterable[Piece]) -> None:
        """``name`` is what the file will be called. Neighbouring stretches of one file become one."""
        self.name = name
        self.pieces = tuple(joined(flat(pieces)))
        self._ends = [*accumulate(length(piece) for piece in self.pieces)]

    def size(self) -> int:
        """The length in bytes."""
        return self._ends[-1] if self._ends else 0

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``; shorter at the end. Raises SourceError as the files below do."""
        return b"".join(
            piece if isinstance(piece, bytes) else piece.source.read(piece.start, piece.stop)
            for piece in self.cut(start, stop)
        )

    def cut(self, start: int, stop: int) -> Iterator[Piece]:
        """The pieces that the bytes from ``start`` to ``stop`` are made of."""
        at = bisect_right(self._ends, start)
        begin = self._ends[at - 1] if at else 0
        while start < stop and at < len(self.pieces):
            piece = self.pieces[at]
            end = min(stop, self._ends[at])
            yield _part(piece, start - begin, end - begin)
            start, begin, at = end, self._ends[at], at + 1

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """Nothing: what the files below hold was told to them when they were read first."""

    def close(self) -> None:
        """Give back what the files below hold open."""
        for source in {id(p.source): p.source for p in self.pieces if isinstance(p, Span)}.values():
            source.close()


def flat(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same bytes, with stretches of files that are not written yet replaced by what those are made of."""
    for piece in pieces:
        if isinstance(piece, Span) and isinstance(piece.source, Spliced):
            yield from piece.source.cut(piece.start, piece.stop)
        else:
            yield piece


def joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same bytes in as few pieces as neighbours allow; empty ones are left out."""
    last: Piece | None = None
    for piece in pieces:
        if not length(piece):
            continue
        both = _join(last, piece) if last is not None else None
        if both is None and last is not None:
            yield last
        last = both or piece
    if last is not None:
        yield last


def size_of(pieces: Sequence[Piece]) -> int:
    """How many bytes they have together."""
    return sum(map(length, pieces))


def _join(one: Piece, two: Piece) -> Piece | None:
    if isinstance(one, Span) and isinstance(two, Span):
        return Span(one.source, one.start, two.stop) if one.source is two.source and one.stop == two.start else None
    return one + two if isinstance(one, bytes) and isinstance(two, bytes) else None


def _part(piece: Piece, start: int, stop: int) -> Piece:
    if isinstance(piece, Span):
        return Span(piece.source, piece.start + start, piece.start + stop)
    return piece[start:stop]
