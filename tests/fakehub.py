"""A Hub on loopback: real HTTP, two servers on two ports, of which the second stands for the host of large files.

Both write down every request with the bytes that went out, and can be told to misbehave.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".bin", ".pt")
TOKEN = "hf_secret"


@dataclass
class Seen:
    """One request as a server saw it. ``sent`` counts the bytes of the body that went out."""

    server: str
    path: str
    headers: dict[str, str]
    status: int = 0
    sent: int = 0


@dataclass
class Repo:
    """A repository. ``token`` makes it private, ``gated`` closes its files but not its listing."""

    folder: Path
    token: str | None = None
    gated: bool = False
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})


Fault = Callable[["Handler"], bool]
"""What a server does instead of answering well; False when the answer is left to it after all."""


@dataclass
class Hub:
    """Both servers, and what they know."""

    repos: dict[str, Repo] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    faults: list[tuple[str, str, Fault, int]] = field(default_factory=list)
    endpoint: str = ""
    store: str = ""
    listing: Any = None
    """What the API answers instead of the truth."""

    def misbehave(self, fault: Fault, path: str = "", server: str = "", times: int = 1_000_000) -> None:
        """Let requests whose path holds ``path`` meet ``fault``, so many ``times``."""
        self.faults.append((server, path, fault, times))

    def fault(self, server: str, path: str) -> Fault | None:
        """The first fault that applies now."""
        for number, (which, part, fault, times) in enumerate(self.faults):
            if which in ("", server) and part in path and times > 0:
                self.faults[number] = (which, part, fault, times - 1)
                return fault
        return None

    def paths(self, server: str = "") -> list[str]:
        """The paths that were asked for, without their queries."""
        return [s.path.partition("?")[0] for s in self.seen if server in ("", s.server)]

    @property
    def sent(self) -> int:
        """The bytes of all bodies."""
        return sum(s.sent for s in self.seen)


class Handler(BaseHTTPRequestHandler):
    """What both servers share: counting, sending files in parts."""

    protocol_version = "HTTP/1.1"
    hub: Hub
    which = ""

    def do_GET(self) -> None:
        self.record = Seen(self.which, self.path, {k.lower(): v for k, v in self.headers.items()})
        self.hub.seen.append(self.record)
        fault = self.hub.fault(self.which, self.path)
        if fault is None or not fault(self):
            self.answer(unquote(urlsplit(self.path).path).strip("/"))

    def answer(self, path: str) -> None:
        raise NotImplementedError

    def log_message(self, *_: object) -> None:
        """Silence."""

    def send_response(self, code: int, message: str | None = None) -> None:
        self.record.status = code
        super().send_response(code, message)

    def reply(self, status: int, body: bytes = b"", **headers: str) -> bool:
        self.send_response(status)
        for name, value in {"content_length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.write(body)
        return True

    def write(self, body: bytes) -> None:
        self.record.sent += len(body)  # before the client has it all and asks how much that was
        try:
            self.wfile.write(body)
        except OSError:
            self.record.sent -= len(body)
            self.close_connection = True

    def refuse(self, status: int, code: str = "", message: str = "") -> bool:
        return self.reply(status, b"no", x_error_code=code, x_error_message=message)

    def range(self, size: int) -> tuple[int, int] | None:
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        return (int(match[1]), min(int(match[2]) + 1, size)) if match else None

    def file(self, path: Path) -> None:
        size = path.stat().st_size
        span = self.range(size)
        if span is not None and span[0] >= size:
            self.reply(416, content_range=f"bytes */{size}")
            return
        with path.open("rb") as file:
            if span is None:
                self.reply(200, file.read())
                return
            file.seek(span[0])
            self.reply(206, file.read(span[1] - span[0]), content_range=f"bytes {span[0]}-{span[1] - 1}/{size}")


class HubHandler(Handler):
    """The Hub: model info, and resolve, which sends large files elsewhere."""

    which = "hub"

    def answer(self, path: str) -> None:
        if path.startswith("api/models/"):
            self.info(path.removeprefix("api/models/"))
        elif "/resolve/" in path:
            name, _, rest = path.partition("/resolve/")
            self.resolve(name, *rest.split("/", 1))
        else:
            self.refuse(404)

    def repo(self, name: str) -> Repo | None:
        repo = self.hub.repos.get(name)
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        if repo is not None and repo.token in (None, token):
            return repo
        self.refuse(*((404, "RepoNotFound") if token else (401, "", "Invalid username or password.")))
        return None

    def info(self, path: str) -> None:
        name, _, revision = path.partition("/revision/")
        repo = self.repo(name)
        if repo is None:
            return
        commit = repo.revisions.get(revision or "main")
        if commit is None:
            self.refuse(404, "RevisionNotFound")
            return
        assert parse_qs(urlsplit(self.path).query) == {"blobs": ["true"]}
        files = sorted(f for f in repo.folder.rglob("*") if f.is_file())
        siblings = [{"rfilename": f.relative_to(repo.folder).as_posix(), "size": f.stat().st_size} for f in files]
        told = {"id": name, "sha": commit, "siblings": siblings} if self.hub.listing is None else self.hub.listing
        self.reply(200, told if isinstance(told, bytes) else json.dumps(told).encode())

    def resolve(self, name: str, commit: str, path: str) -> None:
        repo = self.repo(name)
        if repo is None:
            return
        assert commit in repo.revisions.values(), "files are asked for by commit"
        if repo.gated:
            self.refuse(403 if "authorization" in self.headers else 401, "GatedRepo")
        elif not (repo.folder / path).is_file():
            self.refuse(404, "EntryNotFound")
        elif path.endswith(LARGE):
            self.reply(302, location=f"{self.hub.store}/{name}/{quote(path)}?Signature=xyz")
        else:
            self.file(repo.folder / path)


class StoreHandler(Handler):
    """Another host, which has the large files and no business with tokens."""

    which = "store"

    def answer(self, path: str) -> None:
        name, _, file = path.partition("/")
        rest, _, file = file.partition("/")
        self.file(self.hub.repos[f"{name}/{rest}"].folder / file)


class Quiet(ThreadingHTTPServer):
    """A client that hangs up is what some tests want."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Silence; a test that wanted an answer fails for the lack of it."""


@contextmanager
def serving(handler: type[Handler], hub: Hub) -> Iterator[str]:
    """A server on a free port of loopback, as the beginning of its addresses."""
    server = Quiet(("127.0.0.1", 0), type("Bound", (handler,), {"hub": hub}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def running() -> Iterator[Hub]:
    """The Hub with both its servers."""
    hub = Hub()
    with serving(HubHandler, hub) as hub.endpoint, serving(StoreHandler, hub) as hub.store:
        yield hub


# Faults.


def status(code: int, **headers: str) -> Fault:
    """An answer with this status."""
    return lambda handler: handler.reply(code, b"oh", **headers)


def moved(to: str) -> Fault:
    """A redirect."""
    return lambda handler: handler.reply(302, location=to)


def truncated(handler: Handler) -> bool:
    """The head of a good answer, half of its body, and the line goes dead."""
    whole = handler.write

    def half(body: bytes) -> None:
        whole(body[: len(body) // 2])
        handler.close_connection = True

    handler.write = half  # type: ignore[method-assign]
    return False


def dropped(handler: Handler) -> bool:
    """No answer at all."""
    handler.close_connection = True
    return True


def range_ignored(handler: Handler) -> bool:
    """The whole file, as servers do that know no ranges: 2.4 GB, sent as fast as they are taken."""
    handler.send_response(200)
    handler.send_header("content-length", str(2_400_000_000))
    handler.end_headers()
    while not handler.close_connection and handler.record.sent < 2_400_000_000:
        handler.write(bytes(1 << 16))
    return True


def other_head(**headers: str) -> Fault:
    """A good answer with other headers."""

    def fault(handler: Handler) -> bool:
        send = handler.send_header

        def changed(name: str, value: str) -> None:
            value = headers.get(name.lower().replace("-", "_"), value)
            if value:
                send(name, value)

        handler.send_header = changed  # type: ignore[method-assign]
        return False

    return fault


def added_head(name: str, value: str) -> Fault:
    """A good answer with one more header."""

    def fault(handler: Handler) -> bool:
        end = handler.end_headers

        def more() -> None:
            handler.send_header(name, value)
            end()

        handler.end_headers = more  # type: ignore[method-assign]
        return False

    return fault
