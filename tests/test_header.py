"""Safetensors headers: the same verdict as the safetensors library, and a clear sentence for each fault."""

from __future__ import annotations

import json
import random
import re
import resource
import struct
from pathlib import Path

import pytest
from safetensors import SafetensorError, safe_open
from weightfiles import POINTER, entry, safetensors

from drafcheck.header import Header, read_header
from drafcheck.header_json import DTYPE_BITS
from drafcheck.source import LocalFile
from drafcheck.tensor import Trouble

STRICTER = ("twice", "by a list", "an object as dtype", "dimensions, more", "described in more")
"""Where drafcheck refuses and the library does not. Twice: of two entries of one name, or two fields, every reader
takes another one. By a list, an object as dtype: forms that serde happens to accept and that no other reader takes."""


def header_of(path: Path, raw: bytes) -> Header:
    path.write_bytes(raw)
    return read_header(LocalFile(path))


def library_accepts(path: Path) -> bool:
    try:
        with safe_open(path, framework="np") as file:
            list(file.keys())
    except (SafetensorError, OSError, ValueError):
        return False
    return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def test_healthy(path: Path) -> None:
    header = header_of(
        path,
        safetensors(
            {"__metadata__": {"format": "pt"}, "b": entry(stop=4), "a": entry("I64", (3, 1), 4, 28)}, bytes(28)
        ),
    )
    assert header.problems == ()
    assert header.metadata == {"format": "pt"}
    base = path.stat().st_size - 28
    assert [(t.name, t.dtype, t.shape, t.file, t.start - base, t.stop - base) for t in header.tensors] == [
        ("b", "BF16", (2,), "model.safetensors", 0, 4),
        ("a", "I64", (3, 1), "model.safetensors", 4, 28),
    ]
    assert library_accepts(path)


@pytest.mark.parametrize("dtype", sorted(DTYPE_BITS))
def test_every_dtype_of_the_library(path: Path, dtype: str) -> None:
    size = DTYPE_BITS[dtype]
    header = header_of(path, safetensors({"t": entry(dtype, (8,), 0, size)}, bytes(size)))
    assert header.problems == () and library_accepts(path)


def test_the_library_knows_no_other_dtype(path: Path) -> None:
    """The library lists its dtypes in the refusal of an unknown one: drafcheck knows all of these and no more."""
    path.write_bytes(safetensors({"t": entry("NOPE")}, bytes(4)))
    with pytest.raises(SafetensorError) as caught:
        safe_open(path, framework="np")
    listed = set(re.findall(r"`([A-Z0-9_]+)`", str(caught.value).partition("expected one of")[2]))
    assert listed == set(DTYPE_BITS)


ACCEPTED = {
    "no tensors": b"{}",
    "padding": b"{}" + b" " * 100,
    "white space before": b" \n{}",
    "metadata null": b'{"__metadata__":null}',
    "metadata key twice": b'{"__metadata__":{"a":"b","a":"c"}}',
    "scalar of no bytes": b'{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    "two empty tensors at one place": (
        b'{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"s":{"dtype":"U8","shape":[3,0],"data_offsets":[0,0]}}'
    ),
    "control character, escaped": b'{"a\\u0001":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    "unknown field": b'{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":{"y":[1,2.5,null]}}}',
    "empty name": b'{"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    "surrogate pair": b'{"\\ud83d\\ude00":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}',
    "nested to the limit": b'{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":'
    + b"[" * 125
    + b"]" * 125
    + b"}}",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_odd_but_healthy(path: Path, name: str) -> None:
    assert header_of(path, safetensors(ACCEPTED[name])).problems == ()
    assert library_accepts(path)


def one(**changes: object) -> bytes:
    return safetensors({"t": {**entry(), **changes}}, bytes(4))


REFUSED = {
    "is empty": b"",
    "has 5 bytes": b"12345",
    "declares a header of 9223372036854775808 bytes, more than": struct.pack("<Q", 1 << 63) + b"{}",
    "declares a header of 90000 bytes but only 2 bytes follow": struct.pack("<Q", 90000) + b"{}",
    "has an empty header": struct.pack("<Q", 0),
    "not utf-8 (byte 8)": safetensors(b"\xff\xfe{}"),
    "starts with '['": safetensors(b"[]"),
    "starts with '\\ufeff'": safetensors(b"\xef\xbb\xbf{}"),
    "expected a comma": safetensors(b'{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]} "s":1}'),
    "expected a colon": safetensors(b'{"t" 1}'),
    "not json: ": safetensors(b'{"t":'),
    "something after its header object": safetensors(b"{}\0\0"),
    "nested too deeply": safetensors(b'{"t":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "has __metadata__ twice": safetensors(b'{"__metadata__":{},"__metadata__":{}}'),
    "has a list as __metadata__": safetensors({"__metadata__": []}),
    "is an integer, not a string": safetensors({"__metadata__": {"a": 1}}),
    "names a tensor twice": safetensors(
        b'{"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"t":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}',
        bytes(4),
    ),
    "one field given twice": safetensors(b'{"t":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "by an integer, not by an object": safetensors({"t": 3}),
    "without data_offsets": safetensors({"t": {"dtype": "U8", "shape": []}}),
    "gives an integer as dtype": one(dtype=3),
    "the unknown dtype 'INT4'": one(dtype="INT4"),
    "gives a string as shape": one(shape="2"),
    "gives shape with a boolean in it": one(shape=[True]),
    "gives shape with a float in it": one(shape=[2.0]),
    "with the negative number -2": one(shape=[-2]),
    "with the negative number -4": one(data_offsets=[-4, 0]),
    "with 3 numbers instead of 2": one(data_offsets=[0, 4, 4]),
    "end before they begin (4 to 0)": one(data_offsets=[4, 0]),
    "whose size overflows 64 bits": one(shape=[1 << 40, 1 << 40, 0]),
    "gives shape with 18446744073709551616": one(shape=[1 << 64]),
    "has a tensor of 4 bytes whose BF16 of shape [3] needs 6 bytes": one(shape=[3]),
    "needs 12 bits, not whole bytes": one(dtype="F4", shape=[3], data_offsets=[0, 4]),
    "has overlapping tensors": safetensors({"a": entry(), "b": entry(start=2, stop=6)}, bytes(6)),
    "has a hole of 2 bytes": safetensors({"a": entry(), "b": entry(start=6, stop=10)}, bytes(10)),
    "is truncated: its tensors need 4 bytes and 3 are there": safetensors({"t": entry()}, bytes(3)),
    "has 1 byte after its last tensor": safetensors({"t": entry()}, bytes(5)),
    "half a surrogate pair": safetensors(b'{"\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "invalid control character": safetensors(b'{"a\x01":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "NaN is not json": safetensors(b'{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":NaN}}'),
    "number out of range": safetensors(b'{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1e400}}'),
}


@pytest.mark.parametrize("words", REFUSED)
def test_faults_have_names(path: Path, words: str) -> None:
    (problem,) = header_of(path, REFUSED[words]).problems
    assert problem.trouble is Trouble.CORRUPT
    assert problem.message.startswith("model.safetensors ") and words in problem.message
    assert problem.location.file == "model.safetensors"
    assert not library_accepts(path) or any(word in problem.message for word in STRICTER)


def test_the_tensor_at_fault_is_named(path: Path) -> None:
    (problem,) = header_of(path, safetensors({"a": entry(), "b": entry(stop=5, start=4)}, bytes(5))).problems
    assert problem.location.tensor == "b"


def test_lfs_pointer(path: Path) -> None:
    (problem,) = header_of(path, POINTER).problems
    assert problem.trouble is Trouble.LFS_POINTER
    assert "2382319096 bytes" in problem.message and "git lfs pull" in str(problem.help)


@pytest.mark.parametrize(
    ("raw", "words"),
    [(b"<!DOCTYPE html><html></html>", "web page"), (b"PK\x03\x04" + bytes(40), "PyTorch pickle under another name")],
)
def test_other_files_under_the_name(path: Path, raw: bytes, words: str) -> None:
    (problem,) = header_of(path, raw).problems
    assert problem.trouble is Trouble.CORRUPT and words in str(problem.help)


@pytest.mark.parametrize("length", [0x80, 0x280, 0x380, 0x480, 0x580])
def test_a_damaged_header_is_not_taken_for_a_pickle(path: Path, length: int) -> None:
    """Its length is written in the bytes that a pickle begins with."""
    (problem,) = header_of(path, length.to_bytes(8, "little") + b"{" + bytes(length)).problems
    assert problem.trouble is Trouble.CORRUPT and "download the file again" in str(problem.help)


def test_no_regular_file(tmp_path: Path) -> None:
    (problem,) = read_header(LocalFile(tmp_path, "model.safetensors")).problems
    assert problem.trouble is Trouble.UNREADABLE
    assert problem.message == "model.safetensors is a directory, not a regular file"


def test_name_of_a_million_characters(path: Path) -> None:
    header = header_of(path, safetensors({"x" * 1_000_000: entry()}, bytes(4)))
    assert header.problems == () and len(header.tensors[0].name) == 1_000_000


def test_only_the_header_is_read(path: Path) -> None:
    from drafcheck import source

    path.write_bytes(safetensors({"t": entry("U8", (1 << 20,), 0, 1 << 20)}, bytes(1 << 20)))
    assert read_header(LocalFile(path)).problems == ()
    assert source.bytes_read[str(path)] < 2048


def test_many_tensors(path: Path) -> None:
    """A hundred thousand; a million take about a second and 330 MB."""
    count = 100_000
    text = ",".join(
        f'"m.{i}":{{"dtype":"BF16","shape":[1,2],"data_offsets":[{4 * i},{4 * i + 4}]}}' for i in range(count)
    )
    raw = ("{" + text + "}").encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + 4 * count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    header = read_header(LocalFile(path))
    assert header.problems == () and len(header.tensors) == count
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


JUNK_WORDS = """
    null true 1 -1 1.0 -0 1e3 1e999 NaN [] {} "x" [0] [0,0] [0,1,2] 18446744073709551615 18446744073709551616
    99999999999999999999999 "\\ud800" "\\ud83d\\ude00" {"a":1,"a":2} "F32" [true] [[1]]
"""


def _valid(rng: random.Random) -> tuple[bytes, int]:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}} if rng.random() < 0.3 else {}
    at = 0
    for i in range(rng.randrange(5)):
        dtype, shape = rng.choice(list(DTYPE_BITS)), [rng.randrange(5) for _ in range(rng.randrange(3))]
        bits = DTYPE_BITS[dtype]
        for n in shape:
            bits *= n
        if bits % 8 == 0:
            header[f"t{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + bits // 8]}
            at += bits // 8
    items = list(header.items())
    rng.shuffle(items)
    separators = rng.choice([(",", ":"), (", ", ": ")])
    return json.dumps(dict(items), separators=separators).encode(), at


def _mutated(rng: random.Random, raw: bytes) -> bytes:
    text = bytearray(raw)
    for _ in range(rng.randrange(3)):
        kind, at = rng.randrange(6), rng.randrange(len(text) or 1)
        values = list(re.finditer(rb'\d+|"[^"]*"|\[[^\]]*\]', bytes(text)))
        if kind == 0 and text:
            text[at] = rng.randrange(256)
        elif kind == 1:
            del text[at : at + rng.randrange(1, 4)]
        elif kind == 2:
            text[at:at] = rng.choice([b" ", b"\n", b",", b"}", b"{", b"[", b"0", b"-", b'"', b"\\", b":"])
        elif kind == 3 and values:
            found = rng.choice(values)
            text[found.start() : found.end()] = rng.choice(JUNK_WORDS.split()).encode()
        elif kind == 4:
            text += rng.choice([b" ", b"   ", b"\0", b"x"])
        elif kind == 5:
            text[:0] = rng.choice([b" ", b"\n", b"\xef\xbb\xbf"])
    return bytes(text)


def _cut(rng: random.Random, raw: bytes) -> bytes:
    """The whole file, now and then cut short, made longer, or with another length of its header."""
    kind = rng.randrange(12)
    if kind == 0:
        return raw[: rng.randrange(len(raw))]
    if kind == 1:
        return raw + bytes(rng.randrange(1, 9))
    if kind == 2:
        length = struct.unpack("<Q", raw[:8])[0] + rng.choice([-9, -1, 1, 9, 1 << 40])
        return struct.pack("<Q", max(0, length)) + raw[8:]
    return raw


def test_same_verdict_as_the_library(path: Path) -> None:
    rng = random.Random(20)
    healthy = judged = stricter = 0
    while judged < 5000:
        raw, size = _valid(rng)
        header = header_of(path, _cut(rng, safetensors(_mutated(rng, raw), bytes(size))))
        accepts = library_accepts(path)
        message = header.problems[0].message if header.problems else ""
        if accepts and any(word in message for word in STRICTER):
            stricter += 1
            continue
        judged += 1
        healthy += accepts
        assert accepts is (not header.problems), (path.read_bytes(), message)
        if accepts:
            with safe_open(path, framework="np") as file:
                assert list(file.keys()) == sorted(t.name for t in header.tensors)
    assert 500 < healthy < 4500 and stricter < 100
