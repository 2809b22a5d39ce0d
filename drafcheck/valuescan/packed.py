"""The bytes of a storage that an archive holds deflated: unpacked from its beginning on, as far as is asked for."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable

from drafcheck.pickle_opcodes import Budget
from drafcheck.source import Source, SourceError
from drafcheck.tensor import Packed, Summed
from drafcheck.words import count, ends
from drafcheck.zip_members import DEFLATED, Unpacked

SIZE = 256 << 20
"""What unpacks to no more bytes is unpacked, however small it was."""

RATIO = 100
"""What is longer may be so many times as long as packed. Weights are not twice as long; deflate ends at 1,032."""

_SKIPPED = 1 << 18


def refused(packed: Packed) -> str | None:
    """Why a storage is not unpacked, in a clause; None where it is."""
    held = packed.stop - packed.start
    if packed.size <= max(SIZE, RATIO * held):
        return None
    they = "it unpacks" if held == 1 else "they unpack"
    return f"its {count(held, 'compressed byte')} say{ends(held)} that {they} to {packed.size:,}"


class Inflated:
    """A storage as a file of its own. It is read forwards: a place before the last one begins anew."""

    def __init__(self, source: Source, packed: Packed) -> None:
        """The storage in the file that ``source`` reads."""
        self.name = source.name
        self._source, self._packed = source, packed
        self._stream: io.BufferedReader | None = None
        self._at = self._crc = 0
        self.broken = False
        """Whether it could not be unpacked to its end: torch, which does not ask, takes what lay in memory."""

    def size(self) -> int:
        """The length that the archive says, in bytes."""
        return self._packed.size

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``. Raises SourceError where they are broken, or not all there."""
        if self._stream is None or start < self._at:
            self._stream, self._at, self._crc = self._begun(), 0, 0
        while self._at < start:
            self._at += len(self._next(self._stream, min(start - self._at, _SKIPPED)))
        data = self._next(self._stream, stop - start)
        self._at = stop
        return data

    def differs(self, one: Summed) -> bool:
        """Whether all of it has another checksum than the archive says; unpacks what is left of it."""
        if self.broken:
            return True
        try:
            for start in range(self._at, self.size(), _SKIPPED):
                self.read(start, min(start + _SKIPPED, self.size()))
        except SourceError:
            return self.broken
        return one.crc not in (0, self._crc)

    def _begun(self) -> io.BufferedReader:
        start, stop = self._packed.start, self._packed.stop
        budget = Budget()
        budget.bytes = self._packed.size + (stop - start) + (1 << 20)
        return io.BufferedReader(Unpacked(self._source, start, stop, DEFLATED, budget), 1 << 16)

    def _next(self, stream: io.BufferedReader, length: int) -> bytes:
        data = stream.read(length)
        self._crc = zlib.crc32(data, self._crc)
        if len(data) < length:
            self.broken = True
            raise SourceError(f"{self.name} has compressed bytes that are broken or too few")
        return data

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing is held open."""
