"""Files far away, read in parts: as few requests as it takes, as few bytes as they need.

Everything that goes wrong on the way is a UsageError of one sentence: it says nothing about the checkpoint.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import urljoin, urlsplit

from drafcheck import __version__
from drafcheck.errors import UsageError
from drafcheck.source import bytes_read
from drafcheck.transport import Answer, ExchangeError, exchange

AHEAD = 64 << 10
"""Bytes that the first read of a file takes at least: the length and the header of most drafters in one request."""

FIRST = 256 << 10
"""The same, of weight files that are no shards: safetensors puts ``d2t``, often 256,000 bytes, behind the header."""

GAP = 16 << 10
"""Bytes between two wanted spans that are read along, which costs less than a second request."""

LONGEST_STEP = 1 << 20
KEPT = 16 << 20
"""Bytes of a file that are remembered; older ones are forgotten."""

UNMEASURED = 64 << 20
"""Bytes that are taken at most of an answer that does not say how long it is."""

REDIRECTS = 5
LONGEST_WAIT = 20.0
"""Seconds between two attempts that a server may ask for; one that wants more is not waited for."""

_SHARD = re.compile(r"-\d{5}-of-\d{5}\.safetensors", re.ASCII)
_MOVED = (301, 302, 303, 307, 308)
_AGAIN = (408, 429)
_RANGE = re.compile(r"\s*bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19})\s*", re.ASCII)
_EMPTY = re.compile(r"\s*bytes\s+\*/(\d{1,19})\s*", re.ASCII)

T = TypeVar("T")

Explain = Callable[[int, Mapping[str, str], str], str]
"""What a status code means, as a sentence that continues the address.

The second part are the answer's headers, the third the host that gave it when the server had redirected to another.
"""

pause: Callable[[float], object] = time.sleep
"""How to wait between two attempts; tests wait by writing it down."""


class NotThere(UsageError):
    """The server has no file of that name."""


class Closed(UsageError):
    """The server does not let the file be read, if there is one: some say so of every file that is missing."""


class Part(NamedTuple):
    """Bytes of a file, and how long the whole file is."""

    data: bytes
    size: int


class Reader(Protocol):
    """How to have the bytes of one file. All methods raise UsageError."""

    def part(self, start: int, stop: int, size: int | None) -> Part:
        """The bytes from ``start`` to ``stop``, fewer at the end of the file; ``size`` is the file's when known."""

    def whole(self, limit: int) -> Part:
        """The first ``limit`` bytes of a file that is read from its beginning."""


class HttpReader:
    """One file of a web server. A token goes to that server alone, wherever it redirects to."""

    def __init__(self, url: str, what: str, headers: Mapping[str, str], explain: Explain) -> None:
        """The file at ``url``, called ``what`` in messages; ``headers`` are for that server only."""
        self._url = url
        self._what = what
        self._own = headers
        self._explain = explain
        self._at = url
        self._moved: str | None = None  # where the file really is: asked again there, without the detour

    def part(self, start: int, stop: int, size: int | None) -> Part:
        """The bytes from ``start`` to ``stop``. Only an answer of exactly these bytes is taken. Raises UsageError."""

        def attempt() -> Part:
            answer = self._follow({"range": f"bytes={start}-{stop - 1}"})
            try:
                return self._checked(answer, start, stop, size)
            finally:
                answer.close()

        return self._persist(attempt)

    def whole(self, limit: int) -> Part:
        """The first ``limit`` bytes and the length of the file. Raises UsageError."""

        def attempt() -> Part:
            answer = self._follow({})
            try:
                return self._text(answer, limit)
            finally:
                answer.close()

        return self._persist(attempt)

    def _checked(self, answer: Answer, start: int, stop: int, size: int | None) -> Part:
        if answer.status == 416:
            return self._past_the_end(answer, start, size)
        if answer.status == 200:
            raise self._error("sends whole files where a part is asked for: nothing of it was read")
        if answer.status != 206:
            raise self._refusal(answer)
        first, last, total = self._span(answer)
        if first != start or last != min(stop, total) - 1 or (size is not None and total != size):
            raise self._error(f"sends bytes {first} to {last} of {total} where {start} to {stop - 1} were asked for")
        return Part(self._body(answer, last + 1 - start), total)

    def _span(self, answer: Answer) -> tuple[int, int, int]:
        match = _RANGE.fullmatch(answer.headers.get("content-range", ""))
        if match is None:
            raise self._error("sends a part of a file without saying which")
        return int(match[1]), int(match[2]), int(match[3])

    def _past_the_end(self, answer: Answer, start: int, size: int | None) -> Part:
        """An empty file has no byte to ask for: the refusal says so."""
        match = _EMPTY.fullmatch(answer.headers.get("content-range", ""))
        if match is None or size is not None or int(match[1]) > start:
            raise self._error(f"has no byte {start} of it: the file has changed while it was read")
        return Part(b"", int(match[1]))

    def _text(self, answer: Answer, limit: int) -> Part:
        if answer.status != 200:
            raise self._refusal(answer)
        said = answer.headers.get("content-length", "")
        if not said.isascii() or not said.isdecimal() or len(said) > 19:
            data = self._body(answer, UNMEASURED, exact=False)
            if len(data) == UNMEASURED:
                raise self._error(f"sends more than {UNMEASURED} bytes without saying how many there are")
            return Part(data[:limit], len(data))
        return Part(self._body(answer, min(int(said), limit)), int(said))

    def _body(self, answer: Answer, count: int, *, exact: bool = True) -> bytes:
        if answer.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
            raise self._error("sends a packed answer where a plain one is asked for")
        data = answer.body(count)
        if exact and len(data) < count:
            raise ExchangeError("broke off the connection", attempts=4)
        return data

    def _follow(self, headers: Mapping[str, str]) -> Answer:
        """The answer of the server that has the file."""
        self._at = self._moved or self._url
        own = self._own
        for _ in range(REDIRECTS + 1):
            own = own if _origin(self._at) == _origin(self._url) else {}  # once gone, it never comes back
            answer = exchange(self._at, {"user-agent": f"drafcheck/{__version__}", **headers, **own})
            if answer.status not in _MOVED:
                return self._arrived(answer)
            answer.close()
            self._at = self._next(answer.headers.get("location", ""))
        raise self._error(f"redirects more than {REDIRECTS} times")

    def _arrived(self, answer: Answer) -> Answer:
        if answer.status < 400:
            self._moved = self._at
        elif self._moved is not None and self._moved != self._url:
            answer.close()
            self._moved = None  # signed addresses expire: ask for a new one
            raise ExchangeError(f"answers with status {answer.status}", attempts=4, wait=0)
        return answer

    def _next(self, location: str) -> str:
        try:
            url = urljoin(self._at, location)
            scheme, host = urlsplit(url).scheme, urlsplit(url).hostname
        except ValueError:
            scheme, host = "", None
        if not location or not host or scheme not in ("http", "https"):
            raise self._error("redirects to an address that is none")
        if scheme == "http" and urlsplit(self._at).scheme == "https":
            raise self._error("redirects from https to http, where anybody may change the file")
        return url

    def _persist(self, attempt: Callable[[], T]) -> T:
        """The result of ``attempt``, tried again after a while as long as that may help."""
        tries = 0
        while True:
            tries += 1
            try:
                return attempt()
            except ExchangeError as error:
                wait = 0.5 * 2 ** (tries - 1) if error.wait is None else error.wait
                if tries >= error.attempts or wait > LONGEST_WAIT:
                    raise self._error(_tried(str(error), tries, wait)) from error
                pause(wait)

    def _refusal(self, answer: Answer) -> Exception:
        """What to raise for a status that is no success."""
        status = answer.status
        if status in _AGAIN or status >= 500:
            return ExchangeError(f"answers with status {status}", attempts=4, wait=_retry_after(answer.headers))
        elsewhere = _host(self._at) if _origin(self._at) != _origin(self._url) else ""
        return _KINDS.get(status, UsageError)(f"{self._what}: {self._explain(status, answer.headers, elsewhere)}")

    def _error(self, message: str) -> UsageError:
        return UsageError(f"{self._what}: {_host(self._at)} {message}")


class RemoteFile:
    """A file of which the parts that were read are kept, so that none is asked for twice.

    JSON is read from its beginning in one piece, which every server can do; everything else in parts. Files that are
    not safetensors are read here and there in small bites, so each read takes more than it was asked for.
    """

    def __init__(self, name: str, reader: Reader, size: int | None = None) -> None:
        """The file behind ``reader``, called ``name`` in messages, of ``size`` bytes if that is known."""
        self.name = name
        self._reader = reader
        self._size = size
        self._spans: list[tuple[int, bytes]] = []
        self._wanted: list[tuple[int, int]] = []
        self._in_bites = not name.endswith(".safetensors")
        self._ahead = AHEAD if self._in_bites or _SHARD.search(name) else FIRST
        self._step, self._last = AHEAD, -1

    def size(self) -> int:
        """The length in bytes. Raises UsageError."""
        if self._size is None:
            self._fetch(0, AHEAD)
        return self._size or 0

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``; shorter at the end of the file. Raises UsageError."""
        stop = min(stop, self.size())
        pieces: list[bytes] = []
        while start < stop:
            at, data = self._span(start) or self._fetch(start, stop)
            piece = data[start - at : stop - at]
            if not piece:
                break
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """Say which (start, stop) will be read later: neighbours come in one request."""
        self._wanted = sorted(spans)

    def close(self) -> None:
        """Nothing is held open."""

    def _span(self, place: int) -> tuple[int, bytes] | None:
        return next(((at, data) for at, data in self._spans if at <= place < at + len(data)), None)

    def _fetch(self, start: int, stop: int) -> tuple[int, bytes]:
        if self.name.endswith(".json"):
            start, part = 0, self._reader.whole(max(stop, AHEAD) if self._size is None else stop)
        else:
            start, stop = self._widened(start, stop)
            part = self._reader.part(start, stop, self._size) if start < stop else Part(b"", 0)
        self._last = start + len(part.data)
        self._size = part.size
        self._keep(start, part.data)
        return start, part.data

    def _widened(self, start: int, stop: int) -> tuple[int, int]:
        """What to ask for instead, so that the next reads find their bytes here."""
        if start == 0:
            stop = max(stop, self._ahead)
        elif self._in_bites:
            self._step = min(2 * self._step, LONGEST_STEP) if start == self._last else AHEAD
            stop = max(stop, start + self._step)
        missing = [(self._first_missing(first, last), last) for first, last in self._wanted]
        for first, last in missing:
            if start < last and first < last and first <= stop + GAP:
                stop = max(stop, last)
        for first, last in reversed(missing):
            if first < start and start - GAP <= last:
                start = first
        if self._size is not None and stop > self._size:
            stop = self._size
            start = min(start, max(0, stop - AHEAD)) if self._in_bites else start
        return start, stop

    def _first_missing(self, start: int, stop: int) -> int:
        """The first place from ``start`` on whose byte is not here yet; ``stop`` when all are."""
        while start < stop and (span := self._span(start)):
            start = span[0] + len(span[1])
        return min(start, stop)

    def _keep(self, start: int, data: bytes) -> None:
        bytes_read[self.name] = bytes_read.get(self.name, 0) + len(data)
        self._spans.append((start, data))
        while len(self._spans) > 1 and sum(len(kept) for _, kept in self._spans) > KEPT:
            del self._spans[0]


_KINDS: dict[int, type[UsageError]] = {401: Closed, 403: Closed, 404: NotThere, 410: NotThere}


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _host(url: str) -> str:
    """The server of an address, without what else stands there: names, passwords, signatures."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait; None when it does not say, or gives a date."""
    said = headers.get("retry-after", "").strip()
    return float(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None


def _tried(message: str, tries: int, wait: float) -> str:
    if wait > LONGEST_WAIT:
        return f"{message} and asks to wait for {wait:.0f} seconds"
    return f"{message} (tried {tries} times)" if tries > 1 else message
