"""Servers that misbehave: retries that end, refusals in one sentence, and never a byte that was not asked for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import fakehub
import pytest
from drafts import Draft
from fakehub import Fault, Hub, Repo

from drafcheck import lint, transport
from drafcheck.errors import UsageError
from drafcheck.remote import AHEAD, FIRST, GAP, Part, RemoteFile

ENGINE = "sglang==0.5.15"
ADDRESS = "hf://org/draft"


@pytest.fixture
def draft(hub: Hub, tmp_path: Path) -> Path:
    """A small healthy draft, which the Hub has as org/draft."""
    folder = tmp_path / "draft"
    Draft().write(folder)
    hub.repos["org/draft"] = Repo(folder)
    return folder


def said() -> str:
    """The sentence in which the lint ends."""
    with pytest.raises(UsageError) as caught:
        lint(ADDRESS, engine=ENGINE)
    assert "\n" not in str(caught.value) and "Signature" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "fault",
    [fakehub.status(503), fakehub.status(500), fakehub.status(429), fakehub.dropped, fakehub.truncated],
    ids=["503", "500", "429", "dropped", "truncated"],
)
@pytest.mark.parametrize("where", ["hub /api/", "hub config.json", "store model.safetensors"])
def test_passing_troubles_pass(hub: Hub, draft: Path, fault: Fault, where: str, waits: list[float]) -> None:
    server, path = where.split()
    hub.misbehave(fault, path, server, times=2)
    assert lint(ADDRESS, engine=ENGINE).findings == lint(draft, engine=ENGINE).findings
    assert 1 <= len(waits) <= 3 and sum(waits) < 4


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (fakehub.status(503), "answers with status 503 (tried 4 times)"),
        (fakehub.status(429), "answers with status 429 (tried 4 times)"),
        (fakehub.dropped, "broke off the connection (tried 4 times)"),
        (fakehub.truncated, "broke off the connection (tried 4 times)"),
    ],
)
def test_lasting_troubles_end(hub: Hub, draft: Path, fault: Fault, words: str, waits: list[float]) -> None:
    hub.misbehave(fault, "/api/")
    assert said().endswith(words)
    assert waits == [0.5, 1.0, 2.0] and len(hub.seen) == 4


def test_the_server_says_how_long_to_wait(hub: Hub, draft: Path, waits: list[float]) -> None:
    hub.misbehave(fakehub.status(429, retry_after="7"), "/api/", times=1)
    hub.misbehave(fakehub.status(503, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"), "/api/", times=1)
    assert lint(ADDRESS, engine=ENGINE).ok
    assert waits == [7.0, 1.0]
    hub.misbehave(fakehub.status(429, retry_after="3600"), "/api/")
    assert "429 and asks to wait for 3600 seconds" in said()
    assert waits == [7.0, 1.0]


def test_a_server_that_ignores_ranges_is_not_listened_to(hub: Hub, draft: Path) -> None:
    hub.misbehave(fakehub.range_ignored, "model.safetensors", "store")
    assert "sends whole files where a part is asked for" in said()
    time.sleep(0.2)
    stopped = hub.seen[-1].sent
    time.sleep(0.2)
    # What the kernels at both ends hold was sent; nothing of it was taken.
    assert hub.seen[-1].sent == stopped < 64 << 20


SIZE = "36672"
WRONG: list[tuple[str, Fault, str]] = [
    ("another start", fakehub.other_head(content_range=f"bytes 8-{SIZE}/{SIZE}"), "where 0 to"),
    ("too short", fakehub.other_head(content_range=f"bytes 0-99/{SIZE}"), "where 0 to"),
    ("another size", fakehub.other_head(content_range="bytes 0-65535/2400000000"), "of 2400000000 where 0 to"),
    ("no range", fakehub.other_head(content_range=""), "without saying which"),
    ("nonsense", fakehub.other_head(content_range="bytes 0-9/*"), "without saying which"),
    ("huge numbers", fakehub.other_head(content_range="bytes 0-9/" + "9" * 5000), "without saying which"),
    ("packed", fakehub.added_head("content-encoding", "gzip"), "sends a packed answer"),
    ("416", fakehub.status(416), "has no byte 0 of it"),
    ("418", fakehub.status(418), "status 418"),
    ("redirect to itself", lambda h: h.reply(302, location=h.path), "redirects more than 5 times"),
    ("redirect to nowhere", fakehub.moved(""), "redirects to an address that is none"),
    ("redirect to a file", fakehub.moved("file:///etc/passwd"), "redirects to an address that is none"),
    ("redirect to nonsense", fakehub.moved("http://[::1/x"), "127.0.0.1"),  # some releases of httpx refuse it first
]


@pytest.mark.parametrize(("fault", "words"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong_answers_are_refused(hub: Hub, draft: Path, fault: Fault, words: str) -> None:
    hub.misbehave(fault, "model.safetensors", "store")
    sentence = said()
    assert sentence.startswith("hf://org/draft/model.safetensors: ") and words in sentence
    assert len(hub.seen) < 14


def test_redirects_from_https_to_http_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Moved:
        def __init__(self) -> None:
            self.status, self.headers = 302, {"location": "http://127.0.0.1:1/x"}

        def close(self) -> None:
            """Nothing to close."""

    monkeypatch.setattr("drafcheck.remote.exchange", lambda url, headers: Moved())
    with pytest.raises(UsageError, match="from https to http"):
        lint("https://host.invalid/draft/model.safetensors", engine=ENGINE)


def test_an_expired_address_is_asked_for_again(hub: Hub, tmp_path: Path) -> None:
    from make_kimi import draft_weights, write_pair

    folder = write_pair(tmp_path / "kimi", draft_weights())
    hub.repos["org/draft"] = Repo(folder)
    lint(ADDRESS, engine=ENGINE)
    asked = len(hub.seen)
    hub.seen.clear()
    met: list[int] = []

    def expired(handler: fakehub.Handler) -> bool:
        met.append(1)
        return len(met) == 2 and handler.reply(403, b"Request has expired")  # the second part, at the kept address

    hub.misbehave(expired, "model.safetensors", "store")
    assert lint(ADDRESS, engine=ENGINE).ok
    assert len(hub.seen) == asked + 2  # the refusal, and the detour once more


def test_a_server_that_does_not_answer(hub: Hub, draft: Path, monkeypatch: pytest.MonkeyPatch, waits: Any) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    hub.misbehave(lambda handler: bool(time.sleep(0.5)) or True, "/api/")
    assert said().endswith("does not answer in time (tried 2 times)")
    assert len(waits) == 1


def test_a_server_that_drips(hub: Hub, draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.utils import get_session

    if hasattr(get_session(), "adapters"):
        pytest.skip("requests, beneath huggingface_hub 0.x, hands over whole chunks only")

    def drip(handler: fakehub.Handler) -> bool:
        handler.send_response(200)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        for _ in range(30):
            handler.write(b" ")
            time.sleep(0.02)
        return True

    monkeypatch.setattr(transport, "PATIENCE", -5000.0)
    hub.misbehave(drip, "/api/")
    assert "sends its answer too slowly" in said()


def test_a_port_where_nobody_listens(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "127.0.0.1:9 refuses the connection" in said()


def test_a_token_that_no_header_can_hold(hub: Hub, draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_\u20ac")
    assert "characters that HTTP does not allow" in said()


# What is asked of a file.


class Written:
    """A file of which every byte is its place modulo 251; writes down what is asked for."""

    def __init__(self, size: int) -> None:
        self.content = bytes(i % 251 for i in range(size))
        self.asked: list[tuple[int, int]] = []

    def part(self, start: int, stop: int, size: int | None) -> Part:
        self.asked.append((start, stop))
        return Part(self.content[start:stop], len(self.content))

    def whole(self, limit: int) -> Part:
        self.asked.append((0, limit))
        return Part(self.content[:limit], len(self.content))


SHARD = "model-00001-of-00002.safetensors"


def test_a_map_behind_the_header_comes_with_it_and_shards_are_not_read_ahead_so_far() -> None:
    for name, first in (("model.safetensors", FIRST), ("eagle3_head.safetensors", FIRST), (SHARD, AHEAD)):
        reader = Written(1_000_000)
        file = RemoteFile(name, reader)
        assert file.read(0, 8) == reader.content[:8]
        assert file.read(first - 100, first) == reader.content[first - 100 : first]
        assert reader.asked == [(0, first)], name


def test_neighbours_come_in_one_request_whichever_is_read_first() -> None:
    one, two, far = (100_000, 120_000), (120_000 + GAP, 150_000), (900_000, 900_010)
    for order in ((one, two, far), (two, one, far), (far, one, two)):
        reader = Written(1_000_000)
        file = RemoteFile(SHARD, reader)
        assert file.size() == 1_000_000 and reader.asked == [(0, AHEAD)]
        file.expect([far, one, two])
        for span in order:
            assert file.read(*span) == reader.content[slice(*span)]
        assert sorted(reader.asked) == [(0, AHEAD), (100_000, 150_000), far]


def test_nothing_is_asked_for_twice() -> None:
    reader = Written(300_000)
    file = RemoteFile(SHARD, reader, 300_000)
    assert file.read(0, 8) == reader.content[:8]
    file.expect([(60_000, 90_000)])
    assert file.read(60_000, 90_000) == reader.content[60_000:90_000]
    assert file.read(0, 90_000) == reader.content[:90_000]
    assert file.read(299_999, 400_000) == reader.content[299_999:] and file.read(400_000, 500_000) == b""
    assert reader.asked == [(0, AHEAD), (AHEAD, 90_000), (299_999, 300_000)]


def test_files_read_in_bites_are_fetched_in_larger_ones() -> None:
    reader = Written(3_000_000)
    file = RemoteFile("pytorch_model.bin", reader, 3_000_000)
    assert file.read(2_999_978, 3_000_000) == reader.content[-22:]
    for start in range(0, 2_000_000, 4096):
        assert file.read(start, start + 4096) == reader.content[start : start + 4096]
    assert len(reader.asked) < 10 and reader.asked[0] == (3_000_000 - AHEAD, 3_000_000)


def test_json_is_read_whole_and_what_is_too_long_is_not(hub: Hub, draft: Path) -> None:
    (draft / "config.json").write_bytes(b" " * (17 << 20))
    (finding,) = [f for f in lint(ADDRESS, engine=ENGINE).findings if f.rule == "DC002"]
    assert "more than the 16777216 that are read" in finding.message
    assert hub.sent < 17 << 20


def test_old_parts_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafcheck.remote.KEPT", 100_000)
    reader = Written(500_000)
    file = RemoteFile(SHARD, reader, 500_000)
    for start in (0, 200_000, 300_000, 0):
        assert file.read(start, start + 50_000) == reader.content[start : start + 50_000]
    assert len(reader.asked) == 4
