"""What torch's zip reader asks of a directory and its ends, byte by byte; torch is the judge where it is there."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
import zipfile
from typing import Any

import pytest
from weightfiles import LEGACY_MAGIC, Storage, archive, legacy, state, tensor

from drafcheck.source import Memory
from drafcheck.torch_pickle import read_pickle

PLAIN = archive(state({"w": tensor(Storage("FloatStorage", "0", 4), (4,), (1,))}), {"0": bytes(16)})


def timed(raw: bytes, time: int) -> bytes:
    """The archive with this time in each entry of its directory: programs write one there, torch.save a zero."""
    for at in range(len(raw)):
        if raw.startswith(b"PK\x01\x02", at):
            raw = changed(raw, at + 12, struct.pack("<H", time))
    return raw


def changed(raw: bytes, at: int, new: bytes) -> bytes:
    return raw[:at] + new + raw[at + len(new) :]


HONEST, NOON = timed(PLAIN, 0), timed(PLAIN, 12 << 11)
END = HONEST.index(b"PK\x05\x06")
WIDE = (
    HONEST[:END]
    + struct.pack(
        "<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 3, 3, *struct.unpack("<2I", HONEST[END + 12 : END + 20])
    )
    + struct.pack("<4sIQI", b"PK\x06\x07", 0, END, 1)
    + HONEST[END:]
)
ENTRIES = [at for at in range(END) if HONEST.startswith(b"PK\x01\x02", at)]
assert len(ENTRIES) == 3


def said(raw: bytes) -> list[str]:
    return [problem.message for problem in read_pickle(Memory(raw, "m.bin")).problems]


def torch_loads(raw: bytes) -> bool:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.load(io.BytesIO(raw), weights_only=True)
        except Exception:
            return False
    return True


BROKEN = {
    "two sizes": (HONEST, ENTRIES[1] + 20, struct.pack("<I", 15), "is not packed, and 15 bytes of 16"),
    "no bytes": (
        HONEST,
        ENTRIES[1] + 10,
        b"\x08\0" + HONEST[ENTRIES[1] + 12 : ENTRIES[1] + 20] + bytes(4),
        "packed in none",
    ),
    "another disk": (HONEST, ENTRIES[1] + 34, b"\2\0", "archive/data/0 is on disk 2"),
    "behind the end": (HONEST, ENTRIES[2] + 42, struct.pack("<I", len(HONEST)), "behind the end of the file"),
    "several disks": (WIDE, END + 56 + 16, b"\2", "one of several disks"),
    "of this disk": (WIDE, END + 16, b"\2", "one of several disks"),
    "of its directory": (WIDE, END + 20, b"\2", "one of several disks"),
    "files here": (WIDE, END + 24, b"\2", "counts 3 files and 2 of them here"),
    "a short record": (WIDE, END + 4, b"\x0c", "a length of 12 bytes"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_miniz_refuses(kind: str) -> None:
    raw, at, new, words = BROKEN[kind]
    (message,) = said(changed(raw, at, new))
    assert words in message


@pytest.mark.parametrize("kind", BROKEN)
def test_torch_refuses_it(kind: str) -> None:
    raw, at, new, _ = BROKEN[kind]
    assert not torch_loads(changed(raw, at, new))


SOUND = {
    "as written": HONEST,
    "wide ends": WIDE,
    "two sizes at noon": changed(NOON, ENTRIES[1] + 20, struct.pack("<I", 15)),
    "the first disk of one": changed(HONEST, ENTRIES[1] + 34, b"\1\0"),
    "the rights of a file": changed(HONEST, ENTRIES[1] + 38, struct.pack("<I", 0o100644 << 16)),
}


@pytest.mark.parametrize("kind", SOUND)
def test_what_miniz_takes(kind: str) -> None:
    assert said(SOUND[kind]) == []
    assert torch_loads(SOUND[kind])


def test_a_storage_that_is_marked_as_a_directory() -> None:
    raw = changed(HONEST, ENTRIES[1] + 38, struct.pack("<I", 0x10))
    assert said(raw) == [
        "m.bin is a zip archive whose archive/data/0 is marked as a directory, of which torch reads nothing"
    ]


def test_folders_of_an_archive_are_none() -> None:
    stream = io.BytesIO(HONEST)
    with zipfile.ZipFile(stream, "a") as file:
        file.writestr("archive/empty/", b"")
    assert said(stream.getvalue()) == []


def saved(value: Any, **options: Any) -> bytes:
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def test_tensors_without_elements_may_begin_anywhere() -> None:
    torch = pytest.importorskip("torch")
    for old in (False, True):
        raw = saved({"a": torch.empty(3, 0)[1:], "b": torch.ones(4)[4:]}, _use_new_zipfile_serialization=not old)
        header = read_pickle(Memory(raw, "m.bin"))
        assert header.problems == () and torch_loads(raw)
        assert [(t.shape, t.stop - t.start) for t in header.tensors] == [((2, 0), 0), ((0,), 0)]


def test_the_same_without_torch() -> None:
    storage = Storage("FloatStorage", "0", 0)
    header = read_pickle(Memory(archive(state({"w": tensor(storage, (2, 0), (1, 1), 8)}), {"0": b""}), "m.bin"))
    assert header.problems == () and header.tensors[0].start == header.tensors[0].stop


@pytest.mark.parametrize("name", ["float8_e4m3fn", "uint16", "float32", "bfloat16"])
def test_dtypes_that_the_old_format_can_not_carry(name: str) -> None:
    torch = pytest.importorskip("torch")
    value = {"a": torch.zeros(4).to(getattr(torch, name))}
    old, new = saved(value, _use_new_zipfile_serialization=False), saved(value)
    assert said(new) == [] and torch_loads(new)
    assert (said(old) == []) == torch_loads(old) == (name in ("float32", "bfloat16"))


def slow(data: bytes) -> bytes:
    """A pickle that puts its value into the memo 300 times."""
    return data[:-1] + b"q\x05" * 300 + b"."


def test_the_pickles_of_one_file_have_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    data = state({"w": tensor(Storage("FloatStorage", "0", 1), (1,), (1,))})
    raw, first = legacy(data, {"0": (1, bytes(4))}), pickle.dumps(LEGACY_MAGIC, 2)
    second = pickle.dumps(1001, 2)
    long = slow(first) + slow(second) + raw.removeprefix(first + second)
    assert said(raw) == said(long) == []
    monkeypatch.setattr("drafcheck.pickle_machine.STEP_LIMIT", 1000)
    assert said(raw) == []
    assert said(slow(first) + raw.removeprefix(first)) == []
    (message,) = said(long)
    assert "more than 1000 steps" in message
