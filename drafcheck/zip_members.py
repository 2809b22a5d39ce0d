"""The bytes of a file inside another one: as they lie there, or unpacked piece by piece."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable
from typing import Any, Protocol

from drafcheck.pickle_opcodes import Budget
from drafcheck.source import Source

STORED, DEFLATED, BZIPPED, LZMA = 0, 8, 12, 14
"""The ways of packing that can be undone, as zip archives number them."""

GZIP, XZ, ZLIB = -1, -2, -3
"""Those of files of their own, the older form of xz included; bzip2's is the same."""

_WINDOWS = {DEFLATED: -zlib.MAX_WBITS, GZIP: 16 + zlib.MAX_WBITS, ZLIB: zlib.MAX_WBITS}
_FIRST, _PIECE = 1 << 10, 1 << 18
_WINDOW = 64 << 20  # the most that a packer is given to look back
_OUT = 1 << 16


class Window:
    """A part of a file as a file of its own."""

    def __init__(self, source: Source, start: int, stop: int, name: str) -> None:
        """The bytes from ``start`` to ``stop``, as far as they are there. Raises SourceError."""
        self.name = name
        self._source, self._start = source, start
        self._size = max(min(stop, source.size()) - start, 0)

    def size(self) -> int:
        """The length in bytes."""
        return self._size

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``, as far as they are there. Raises SourceError."""
        stop = min(stop, self._size)
        return self._source.read(self._start + start, self._start + stop) if start < stop else b""

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing is held open."""


class Unpacker(Protocol):
    """What zlib, bz2 and lzma have in common once wrapped."""

    @property
    def eof(self) -> bool:
        """Whether all is unpacked."""

    def decompress(self, data: bytes, most: int, /) -> bytes:
        """At most so many bytes more."""


class _Zlib:
    def __init__(self, bits: int) -> None:
        self._inner = zlib.decompressobj(bits)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    def decompress(self, data: bytes, most: int, /) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, most)

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail


class Unpacked(io.RawIOBase):
    """What is unpacked of a part of a file, in order. Broken data end it: ``broken``. Raises SourceError."""

    def __init__(self, source: Source, start: int, stop: int, method: int, budget: Budget) -> None:
        """Raises ValueError for a way of packing that cannot be undone."""
        self._source, self._at, self._stop = source, start, stop
        self._budget, self._piece = budget, _FIRST
        self._inner: Any = self._unpacker(method)
        self.broken = False

    def _unpacker(self, method: int) -> Any:
        if method in _WINDOWS:
            return _Zlib(_WINDOWS[method])
        if method == BZIPPED:
            import bz2

            return bz2.BZ2Decompressor()
        if method not in (LZMA, XZ):
            raise ValueError(f"packing of the number {method}")
        import lzma

        if method == XZ:
            return lzma.LZMADecompressor(memlimit=_WINDOW)
        head = self._source.read(self._at, self._at + 9)  # version, length of the properties, properties
        self._at += 9
        if len(head) < 9 or head[2:4] != b"\x05\x00" or head[4] >= 225:
            raise ValueError("broken properties of lzma")
        rest, lc = divmod(head[4], 9)
        pb, lp = divmod(rest, 5)
        window = min(int.from_bytes(head[5:9], "little"), _WINDOW)
        chain = [{"id": lzma.FILTER_LZMA1, "dict_size": max(window, 4096), "lc": lc, "lp": lp, "pb": pb}]
        try:
            return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=chain)
        except lzma.LZMAError as error:
            raise ValueError(str(error)) from error

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill some of ``buffer`` and answer with how many bytes that took; 0 at the end."""
        most = min(len(buffer), _OUT)
        data = b""
        while not data and not self._inner.eof and not self.broken and self._budget.bytes >= 0:
            raw = self._next() if self._inner.needs_input else b""
            data = self._step(raw, most)
            self._budget.bytes -= len(raw) + len(data)
            if not raw and not data:
                break
        if self._budget.bytes < 0:
            self._budget.stop("there is more to unpack than is looked through")
        buffer[: len(data)] = data
        return len(data)

    def _next(self) -> bytes:
        raw = self._source.read(self._at, min(self._at + self._piece, self._stop))
        self._at += len(raw)
        self._piece = min(self._piece * 2, _PIECE)
        return raw

    def _step(self, raw: bytes, most: int) -> bytes:
        try:
            data: bytes = self._inner.decompress(raw, most)
        except (zlib.error, OSError, EOFError, ValueError, MemoryError):
            data, self.broken = b"", True
        except Exception as error:  # lzma.LZMAError, whose module is imported where it is needed
            if type(error).__name__ != "LZMAError":
                raise
            data, self.broken = b"", True
        return data
