"""Entries that are read many at once: the same tensors and the same faults as one by one."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest
from test_header import ACCEPTED, REFUSED, _mutated, header_of
from weightfiles import safetensors

from drafcheck import header, header_bulk, header_json
from drafcheck.header import Header

SPACES = [(",", ":"), (", ", ": ")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def both(path: Path, raw: bytes, monkeypatch: pytest.MonkeyPatch, at_once: int) -> tuple[Header, Header]:
    """What is told one by one, and what is told in pieces of so many characters."""
    each = header_of(path, raw)
    with monkeypatch.context() as patch:
        patch.setattr(header_json, "_MANY", 0)
        patch.setattr(header_json, "_AT_ONCE", at_once)
        patch.setattr(header, "_FEW", 0)
        return each, header_of(path, raw)


def rows(rng: random.Random, count: int) -> tuple[dict[str, object], int]:
    """Entries of a header, and how many bytes their tensors have."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}} if rng.random() < 0.3 else {}
    at = 0
    for i in range(count):
        shape = [rng.choice([0, 1, 2, 7, 1000, 151936]) for _ in range(rng.randrange(4))]
        dtype = rng.choice(["BF16", "F32", "F8_E4M3FNUZ", "U8"])
        size = header_json.DTYPE_BITS[dtype] // 8
        for side in shape:
            size *= side
        name = rng.choice(["t{}", "model.layers.{}.w", "a,b]}} {}", "x:{{{}"]).format(i)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return entries, at


def test_many_at_once_are_read_as_one_by_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    taken: list[int] = []
    known = header_bulk.entries

    def counted(text: str) -> header_bulk.Entries | None:
        found = known(text)
        taken.append(0 if found is None else len(found.names))
        return found

    monkeypatch.setattr(header_bulk, "entries", counted)
    healthy = 0
    for _ in range(1500):
        entries, _size = rows(rng, rng.randrange(1, 40))
        text = json.dumps(entries, separators=rng.choice(SPACES)).encode()
        raw = struct.pack("<Q", len(text)) + text
        if rng.random() < 0.7:
            text = _mutated(rng, text)
            raw = struct.pack("<Q", len(text)) + text
        each, together = both(path, raw, monkeypatch, rng.choice([90, 200, 1000, 1 << 17]))
        assert together == each, raw
        healthy += "truncated" in each.problems[0].message if each.problems else True
    assert sum(taken) > 10_000 and taken.count(0) > 200 and 300 < healthy < 1400


@pytest.mark.parametrize("spaces", SPACES)
def test_the_bytes_of_all_are_measured(path: Path, monkeypatch: pytest.MonkeyPatch, spaces: tuple[str, str]) -> None:
    """A gap, an overlap, a size that does not fit, tensors out of order and a name given twice, among many."""
    plain = [(f"t{i}", "BF16", [2, 3], 12 * i, 12 * i + 12) for i in range(30)]
    gap = [*plain[:9], *((n, d, s, a + 4, b + 4) for n, d, s, a, b in plain[9:])]
    lap = [*plain[:9], *((n, d, s, a - 4, b - 4) for n, d, s, a, b in plain[9:])]
    small = [*plain[:9], ("t9", "BF16", [2, 2], 108, 120), *plain[10:]]
    huge = [*plain[:9], ("t9", "BF16", [1 << 40, 1 << 40, 0], 108, 108), *lap[10:]]
    twice = [*plain[:9], ("t3", "BF16", [2, 3], 108, 120), *plain[10:]]
    backwards = [*plain[:9], ("t9", "BF16", [2, 3], 120, 108), *plain[10:]]
    wrong = {"a hole": gap, "overlap": lap, "needs 8 bytes": small, "twice": twice, "before they begin": backwards}
    cases = {"": plain, **wrong, "overflows": huge, "order": plain[::-1]}
    for words, listed in cases.items():
        text = ",".join(
            json.dumps({n: {"dtype": d, "shape": s, "data_offsets": [a, b]}}, separators=spaces)[1:-1]
            for n, d, s, a, b in listed
        )
        raw = struct.pack("<Q", len(text) + 2) + b"{" + text.encode() + b"}" + bytes(360)
        each, together = both(path, raw, monkeypatch, 500)
        assert together == each
        assert len(each.problems) == (words in wrong or words == "overflows"), words
        assert not each.problems or words in each.problems[0].message


@pytest.mark.parametrize("raw", [*map(safetensors, ACCEPTED.values()), *REFUSED.values()])
def test_odd_headers_among_plain_entries(path: Path, monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    each, together = both(path, raw, monkeypatch, 100)
    assert together == each
    plain = "".join(f'"p{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},' for i in range(30)).encode()
    length = struct.unpack("<Q", raw[:8].ljust(8, b"\0"))[0]
    text, body = raw[8 : 8 + length], raw[8 + length :]
    for mixed in (b"{" + plain + text[1:], text[:-1] + b"," + plain[:-1] + b"}"):
        each, together = both(path, safetensors(mixed, body), monkeypatch, 500)
        assert together == each


@pytest.mark.parametrize("space", ["", " "])
def test_a_piece_may_end_anywhere_and_in_whatever(space: str) -> None:
    plain = '"{}": {{"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, '
    entry = plain.replace(" ", space)
    text = "".join(entry.format(name) for name in "abcd")
    for cut in range(len(text)):
        for end in ("", '"' * 9, '"a"' * 3, '"]' * 5, "}" * 20):
            found = header_bulk.entries(text[:cut] + end)
            names = found.names if found is not None else []
            assert names == ["a", "b", "c", "d"][: len(names)] and len(entry.format("a")) * len(names) <= cut
