"""The upload gate, driven for real: huggingface_hub against a Hub on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from drafts import Draft

from drafcheck.gate import COMMENT_LIMIT, _new_status

ENGINE = ("--engine", "sglang==0.5.9")
COMMIT = "c0ffee" + "0" * 34
DAY = "2025-11-01T10:00:00.000Z"
MARK = "<!-- drafcheck gate -->\n"
REPO = "org/draft"


def comment(number: int, author: str, text: str, hidden: bool = False) -> dict[str, Any]:
    data = {"edited": False, "hidden": hidden, "latest": {"raw": text, "html": "", "updatedAt": DAY}, "history": []}
    return {"id": f"{number:024x}", "type": "comment", "createdAt": DAY, "author": {"name": author}, "data": data}


class Hub(ThreadingHTTPServer):
    """One repository with a pull request 5, whose files are those of a folder; every request is noted."""

    def __init__(self, files: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.events: list[dict[str, Any]] = [comment(1, "someone", "please merge")]
        self.status = "open"
        self.asked: list[str] = []
        self.refuse: dict[str, int] = {}

    def handle_error(self, request: object, client_address: object) -> None:
        """The client closes connections as it likes."""

    @property
    def comments(self) -> list[str]:
        return [e["data"]["latest"]["raw"] for e in self.events if e["type"] == "comment"]

    def details(self) -> dict[str, Any]:
        return {
            "title": "Upload",
            "num": 5,
            "author": {"name": "someone"},
            "createdAt": DAY,
            "status": self.status,
            "repo": {"name": REPO, "type": "model"},
            "isPullRequest": True,
            "changes": {"base": "refs/heads/main"},
            "filesWithConflicts": [],
            "events": self.events,
            "diff": "",
        }


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"
    PULL = f"/api/models/{REPO}/discussions/5"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, content: object, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refused(self, path: str) -> bool:
        self.server.asked.append(f"{self.command} {path}")
        status = next((code for part, code in self.server.refuse.items() if part in path), 0)
        if not status and self.headers.get("authorization") != "Bearer hf_gate":
            status = 401
        if status:
            self.answer({"error": "refused"}, status)
        return bool(status)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if self.refused(path):
            return
        if path == self.PULL:
            self.answer(self.server.details())
        elif path == "/api/whoami-v2":
            self.answer({"name": "gate-bot", "type": "user"})
        elif path == f"/api/models/{REPO}/revision/refs/pr/5":
            files = [{"rfilename": p.name, "size": p.stat().st_size} for p in sorted(self.server.files.iterdir())]
            self.answer({"id": REPO, "sha": COMMIT, "siblings": files})
        elif path.startswith(f"/{REPO}/resolve/{COMMIT}/"):
            self.file(self.server.files / path.rpartition("/")[2])
        else:
            self.answer({"error": "no such thing"}, 404)

    def file(self, path: Path) -> None:
        data = path.read_bytes()
        wanted = self.headers.get("range")
        if wanted is None:
            self.answer(data, X_Repo_Commit=COMMIT)
            return
        first, last = wanted.removeprefix("bytes=").split("-")
        start, stop = int(first), min(int(last or len(data)) + 1, len(data))
        self.answer(data[start:stop], 206, Content_Range=f"bytes {start}-{stop - 1}/{len(data)}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = unquote(urlsplit(self.path).path)
        if self.refused(path):
            return
        events = self.server.events
        if path == f"{self.PULL}/comment":
            events.append(comment(len(events) + 1, "gate-bot", body["comment"]))
            self.answer({"newMessage": events[-1]})
        elif path == f"{self.PULL}/status":
            self.server.status = body["status"]
            event = {**comment(99, "gate-bot", ""), "type": "status-change", "data": {"status": body["status"]}}
            self.answer({"newStatus": event})
        else:
            (edited,) = [e for e in events if path == f"{self.PULL}/comment/{e['id']}/edit"]
            edited["data"]["latest"]["raw"] = body["content"]
            self.answer({"updatedComment": edited})


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    draft = Draft()
    draft.drop("fc.weight")
    draft.write(tmp_path / "files")
    server = Hub(tmp_path / "files")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def payload(name: str = REPO, **discussion: object) -> dict[str, Any]:
    return {
        "event": {"action": "update", "scope": "discussion"},
        "repo": {"type": "model", "name": name},
        "discussion": {"num": 5, "status": "open", "isPullRequest": True, **discussion},
    }


def gate(
    hub: Hub, *args: str, told: object = None, given: bytes | None = None, closed: bool = False, **env: str
) -> subprocess.CompletedProcess[str]:
    """``drafcheck gate`` in a process of its own, as a webhook's job starts it; ``closed``: without standard output."""
    text = json.dumps(payload() if told is None else told)
    home = str(hub.files.parent)
    known = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("HF_", "WEBHOOK_"))},
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": f"{home}/hf",
        "HF_TOKEN": "hf_gate",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "WEBHOOK_SECRET": "s3cret",
        "WEBHOOK_SECRET_HEADER": "s3cret",
        **({"WEBHOOK_PAYLOAD": text} if given is None else {}),
        **env,
    }
    command = [sys.executable, "-m", "drafcheck", "gate", *ENGINE, *args]
    command = ["bash", "-c", 'exec "$@" >&-', "bash", *command] if closed else command
    done = subprocess.run(command, input=given or b"", env=known, capture_output=True, timeout=60, check=False)
    out = subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in out.stderr and "hf_gate" not in out.stdout + out.stderr
    return out


def test_posts_once_and_then_edits(hub: Hub) -> None:
    first = gate(hub)
    assert first.returncode == 1, first.stderr
    assert "DC102" in first.stdout and "org/draft pull request 5: commented" in first.stderr
    assert len(hub.comments) == 2 and hub.comments[1].startswith(MARK) and "DC102" in hub.comments[1]
    again = gate(hub)
    assert again.returncode == 1 and "the comment says so already" in again.stderr
    Draft().write(hub.files)
    clean = gate(hub)
    assert clean.returncode == 0, clean.stderr
    assert "comment updated" in clean.stderr
    assert len(hub.comments) == 2 and "DC102" not in hub.comments[1] and "clean" in hub.comments[1]
    assert hub.status == "open" and not [a for a in hub.asked if a.endswith("/status")]


def test_the_comment_is_made_even_if_nothing_can_be_printed(hub: Hub) -> None:
    done = gate(hub, closed=True)
    assert done.returncode == 2 and done.stderr.endswith("error: can not write to standard output: it is closed\n")
    assert len(hub.comments) == 2 and "DC102" in hub.comments[1]


def test_reads_headers_only(hub: Hub) -> None:
    """A pull request is judged by its own files, and by the little of them that a lint needs.

    The state of a training is looked at for code that attacks, and no more.
    """
    draft = Draft()
    draft.drop("fc.weight")
    draft.files["optimizer.pt"] = bytes(100_000)
    draft.write(hub.files)
    gate(hub)
    read = [a for a in hub.asked if "/resolve/" in a]
    assert read and all(f"/resolve/{COMMIT}/" in a for a in read)
    assert sum("optimizer" in a for a in read) <= 2
    assert f"GET /api/models/{REPO}/revision/refs/pr/5" in hub.asked


def test_payload_on_standard_input(hub: Hub) -> None:
    assert gate(hub, given=json.dumps(payload()).encode()).returncode == 1
    assert len(hub.comments) == 2


def test_status_only_when_told(hub: Hub) -> None:
    assert "set to closed" in gate(hub, "--set-status").stderr
    assert hub.status == "closed" and hub.comments[1].startswith("<!-- drafcheck gate, closed -->\n")
    Draft().write(hub.files)
    push = {**payload(), "event": {"action": "update", "scope": "repo.content"}, "discussion": None}
    push["updatedRefs"] = [{"ref": "refs/pr/5", "oldSha": None, "newSha": COMMIT}]
    assert "set to open" in gate(hub, "--set-status", told=push).stderr
    assert hub.status == "open" and hub.comments[1].startswith(MARK)


@pytest.mark.parametrize(
    ("now", "code", "was_closed", "then"),
    [
        ("open", 1, False, "closed"),
        ("draft", 1, False, "closed"),
        ("closed", 1, True, None),
        ("merged", 1, False, None),
        ("open", 0, False, None),
        ("draft", 0, False, None),
        ("closed", 0, True, "open"),
        ("closed", 0, False, None),
        ("open", 2, False, None),
        ("open", 3, False, None),
        ("closed", 3, True, None),
    ],
)
def test_new_status(now: str, code: int, was_closed: bool, then: str | None) -> None:
    assert _new_status(now, code, was_closed) == then


def test_comments_of_others_are_left_alone(hub: Hub) -> None:
    hub.events.append(comment(2, "someone", MARK + "all is well"))
    hub.events.append(comment(3, "gate-bot", "no mark"))
    hub.events.append(comment(4, "gate-bot", "", hidden=True))
    gate(hub)
    assert hub.comments[:4] == ["please merge", MARK + "all is well", "no mark", ""]
    assert len(hub.comments) == 5 and "DC102" in hub.comments[4]


@pytest.mark.parametrize(
    "env",
    [
        {"WEBHOOK_SECRET_HEADER": "wrong"},
        {"WEBHOOK_SECRET_HEADER": ""},
        {"WEBHOOK_SECRET": ""},
        {"WEBHOOK_SECRET": "", "WEBHOOK_SECRET_HEADER": ""},
    ],
)
def test_wrong_secret(hub: Hub, env: dict[str, str]) -> None:
    done = gate(hub, **env)
    assert done.returncode == 2 and done.stdout == "" and "WEBHOOK_SECRET" in done.stderr
    assert done.stderr.count("\n") == 1
    assert hub.asked == []


def test_secret_in_another_variable(hub: Hub) -> None:
    assert gate(hub, "--secret-env", "OTHER", WEBHOOK_SECRET_HEADER="", OTHER="s3cret").returncode == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"\xff",
        b"[" * 200_000,
        b" " * (2 << 20),
        json.dumps(payload(name="../../etc")).encode(),
        json.dumps(payload(name="org/x\x1b]0;\n")).encode(),
        json.dumps(payload(num="5; rm -rf")).encode(),
    ],
)
def test_wrong_payloads(hub: Hub, raw: bytes) -> None:
    done = gate(hub, given=raw)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.strip().isprintable()
    assert hub.asked == []


@pytest.mark.parametrize("raw", [b"", b" \n"])
def test_no_payload(hub: Hub, raw: bytes) -> None:
    done = gate(hub, given=raw)
    assert done.returncode == 2
    assert done.stderr.startswith("error: no payload: neither is WEBHOOK_PAYLOAD set nor is there anything")


def test_events_that_are_none_of_ours(hub: Hub) -> None:
    told = {**payload(), "event": {"action": "create", "scope": "discussion.comment"}}
    done = gate(hub, told=told)
    assert done.returncode == 0 and "nothing to do for org/draft" in done.stderr
    assert hub.asked == []


@pytest.mark.parametrize(
    ("part", "status", "said"),
    [
        ("/revision/", 404, "org/draft"),
        ("/revision/", 403, "org/draft"),
        ("/discussions/5", 403, "could not be read"),
        ("/whoami", 401, "could not be read"),
        ("/comment", 403, "could not be commented"),
        ("/status", 403, "could not be set to closed"),
    ],
)
def test_a_hub_that_refuses(hub: Hub, part: str, status: int, said: str) -> None:
    hub.refuse[part] = status
    hub.events.append(comment(2, "other", MARK))
    done = gate(hub, "--set-status")
    assert done.returncode == 2 and said in done.stderr
    assert done.stderr.count("\n") == 1
    assert ("DC102" in done.stdout) is (part != "/revision/")


def test_hostile_names_stay_text(hub: Hub) -> None:
    """What a stranger calls a tensor is neither markup nor a mention in the comment, nor can it make it too long."""
    draft = Draft()
    evil = "layers.0.<img src=x>[x](http://x)@everyone|`--><!-- drafcheck gate -->"
    draft.rename(lambda name: name if "midlayer" not in name else f"{evil}{name}")
    draft.write(hub.files)
    done = gate(hub)
    assert done.returncode == 1, done.stderr
    text = hub.comments[1].removeprefix(MARK)
    assert "DC101" in text and len(hub.comments[1].encode()) < COMMENT_LIMIT + 100
    for markup in ("<img", "](http", "@everyone", "<!--", "-->"):
        assert markup not in text, markup


def test_a_draft_of_a_stranger_reads_no_file_here(hub: Hub, tmp_path: Path) -> None:
    """The config may name any folder as its target: on this machine it is not looked for."""
    Draft().write(tmp_path / "secret")
    draft = Draft(target=None)
    draft.set(target_model_name_or_path=str(tmp_path / "secret"))
    draft.write(hub.files)
    (hub.files / "target_config.json").unlink()
    done = gate(hub)
    assert "no target" in done.stdout and str(tmp_path / "secret") not in done.stdout
