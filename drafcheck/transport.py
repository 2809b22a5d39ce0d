"""One HTTP exchange over huggingface_hub's session, whichever library is beneath it.

huggingface_hub 0.x speaks through requests, 1.x through httpx and 2.x through httpx2. The session is that of the user:
proxies, certificates and offline mode are honoured as in every other tool that uses huggingface_hub.
"""

from __future__ import annotations

import importlib
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

CHUNK = 1 << 16
"""Bytes that are taken from a body at a time."""

SLOWEST = 50_000
"""Bytes a second below which a body counts as hanging, after PATIENCE."""

PATIENCE = 60.0
"""Seconds that any body may take."""


class ExchangeError(Exception):
    """No answer, one that broke off, or one that says to come again. The message continues the server's name.

    ``attempts`` is how often such an exchange is worth being tried in all, ``wait`` how many seconds the server asks
    for in between (None: it does not say).
    """

    def __init__(self, message: str, attempts: int = 1, wait: float | None = None) -> None:
        """``message`` continues the name of the server."""
        super().__init__(message)
        self.attempts = attempts
        self.wait = wait


class Answer(Protocol):
    """The head of an answer; its body waits to be read, or is thrown away unread by ``close``."""

    @property
    def status(self) -> int:
        """The status code."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; the case of names does not matter."""

    def body(self, limit: int) -> bytes:
        """The body as it was sent, cut after ``limit`` bytes. Raises ExchangeError when it breaks off or hangs."""

    def close(self) -> None:
        """Give the connection back, or drop it when there is more of the body."""


def exchange(url: str, headers: Mapping[str, str]) -> Answer:
    """GET ``url`` and wait for the head of the answer; redirects are answers too. Raises ExchangeError."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    session: Any = get_session()
    library = _library(session)
    plain = {"accept-encoding": "identity", **headers}
    seconds = float(constants.HF_HUB_DOWNLOAD_TIMEOUT)
    try:
        if library.__name__ == "requests":
            # An ``auth`` that adds nothing keeps requests from putting a password of ~/.netrc in the token's place.
            reply = session.get(
                url, headers=plain, stream=True, allow_redirects=False, timeout=seconds, auth=lambda request: request
            )
        else:
            request = session.build_request("GET", url, headers=plain, timeout=seconds)
            reply = session.send(request, stream=True, follow_redirects=False)
    except _errors(library) as error:
        raise _failure(error, library) from error
    return _Answer(reply, library)


class _Answer:
    """A streamed response of requests, httpx or httpx2."""

    def __init__(self, reply: Any, library: Any) -> None:
        self._reply = reply
        self._library = library

    @property
    def status(self) -> int:
        return int(self._reply.status_code)

    @property
    def headers(self) -> Mapping[str, str]:
        headers: Mapping[str, str] = self._reply.headers
        return headers

    def body(self, limit: int) -> bytes:
        data = bytearray()
        deadline = time.monotonic() + PATIENCE + limit / SLOWEST
        try:
            for chunk in self._chunks():
                data += chunk
                if len(data) >= limit:
                    break
                if time.monotonic() > deadline:
                    raise ExchangeError("sends its answer too slowly", attempts=2)
        except _errors(self._library) as error:
            raise _failure(error, self._library) from error
        return bytes(data[:limit])

    def _chunks(self) -> Iterator[bytes]:
        reply = self._reply
        chunks: Iterator[bytes] = reply.iter_raw() if hasattr(reply, "iter_raw") else reply.iter_content(CHUNK)
        return chunks

    def close(self) -> None:
        self._reply.close()


def _library(session: Any) -> Any:
    """The module of the HTTP library that a session belongs to."""
    roots = (cls.__module__.partition(".")[0] for cls in type(session).__mro__)
    return importlib.import_module(next((r for r in roots if r in ("requests", "httpx", "httpx2")), "requests"))


def _errors(library: Any) -> tuple[type[Exception], ...]:
    """What an exchange may raise: the library's own errors, those of the socket, and the address that is none."""
    own = [getattr(library, name, None) for name in ("RequestException", "HTTPError", "InvalidURL", "StreamError")]
    return (*(error for error in own if error is not None), OSError, ValueError)


def _failure(error: Exception, library: Any) -> ExchangeError:  # noqa: PLR0911 - one line for each cause
    """The error in one's own words: those of the libraries differ, and run over several lines."""
    causes = list(_causes(error))
    timeouts = tuple(t for n in ("TimeoutException", "Timeout") if isinstance(t := getattr(library, n, None), type))
    if type(error).__name__ == "OfflineModeIsEnabled":
        return ExchangeError("was not asked: HF_HUB_OFFLINE is set")
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return ExchangeError("is not known: its name cannot be resolved (is there a network?)")
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return ExchangeError("shows a certificate that cannot be verified")
    if any(isinstance(cause, (*timeouts, TimeoutError)) for cause in causes):
        return ExchangeError("does not answer in time", attempts=2)
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return ExchangeError("refuses the connection", attempts=2)
    if isinstance(error, ValueError) or type(error).__name__ == "InvalidURL":
        return ExchangeError("cannot be asked: the address or the token has characters that HTTP does not allow")
    return ExchangeError("broke off the connection", attempts=4)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and everything it came from, also what libraries keep in ``args`` or ``reason``."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        more = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
        waiting += (other for other in more if isinstance(other, BaseException))
