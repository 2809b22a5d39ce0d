"""The checksums of storages while their values are read: those that are unpacked, and those at an address.

What lies on this machine as it is, is read once more for them, from the memory of the system: ``drafcheck.checksums``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from drafcheck.valuescan.model import Damaged

if TYPE_CHECKING:
    from drafcheck.checkpoint import WeightFile
    from drafcheck.source import Source
    from drafcheck.tensor import Summed

_POLYNOMIAL = 0xEDB88320  # that of CRC-32, its bits turned round
_ONE = 1 << 31


class Summing:
    """A file that keeps the checksum of every piece that is read of it."""

    def __init__(self, source: Source) -> None:
        """Reads from ``source``."""
        self.name = source.name
        self._source = source
        self._sums: dict[tuple[int, int], int] = {}

    def size(self) -> int:
        """The length in bytes."""
        return self._source.size()

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``, as far as they are there. Raises SourceError."""
        data = self._source.read(start, stop)
        self._sums[start, start + len(data)] = zlib.crc32(data)
        return data

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """As the file itself."""
        self._source.expect(spans)

    def close(self) -> None:
        """As the file itself."""
        self._source.close()

    def differing(self, file: WeightFile) -> Iterator[Damaged]:
        """The storages of which every byte was read, and has another checksum than the archive says."""
        pieces = sorted(self._sums)
        for one in file.header.sums:
            if one.crc and not one.packed and self._sum(one, pieces) not in (one.crc, None):
                yield Damaged(file.name, one.tensor)

    def _sum(self, one: Summed, pieces: list[tuple[int, int]]) -> int | None:
        """The checksum of a storage from those of its pieces; None where they do not lie one behind the other."""
        from bisect import bisect_left

        at, crc = one.start, 0
        for start, stop in pieces[bisect_left(pieces, (one.start, 0)) :]:
            if at >= one.stop:
                break
            if start != at:
                return None
            crc, at = joined(crc, self._sums[start, stop], stop - start), stop
        return crc if at == one.stop else None


def joined(first: int, second: int, length: int) -> int:
    """The CRC-32 of two texts, one behind the other, from that of each and the length of the second in bytes."""
    return _times(_shift(length), first) ^ second


@lru_cache(maxsize=16)
def _shift(length: int) -> int:
    """x to the power of 8 * ``length``, modulo the polynomial."""
    power, square = _ONE, _ONE >> 8
    while length:
        if length & 1:
            power = _times(power, square)
        square = _times(square, square)
        length >>= 1
    return power


def _times(a: int, b: int) -> int:
    """The product of two polynomials, modulo that of CRC-32."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
