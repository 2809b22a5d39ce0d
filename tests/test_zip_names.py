"""Which files of an archive torch opens, by which names, and what it asks of those; torch is the judge where it is."""

from __future__ import annotations

import io
import random
import struct
import warnings
import zipfile

import pytest
from test_zip_entries import changed, said, torch_loads
from weightfiles import Storage, archive, state, tensor

from drafcheck.source import Memory
from drafcheck.tensor import Trouble
from drafcheck.torch_pickle import read_pickle

STATE = state({"w": tensor(Storage("FloatStorage", "0", 4), (4,), (1,))})
RECORDS = {".format_version": b"1", ".storage_alignment": b"64", "byteorder": b"little", "data/0": bytes(16)}
RECORDS |= {"version": b"3\n", ".data/serialization_id": b"0123456789"}


def packed(records: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive with the files that torch.save writes, and one more that nobody opens."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        for name, data in {"data.pkl": STATE, **records, "notes.txt": b"of the author"}.items():
            file.writestr(f"archive/{name}", data)
    return stream.getvalue()


WHOLE = packed(RECORDS)


def entry(raw: bytes, name: str) -> zipfile.ZipInfo:
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        return file.getinfo(f"archive/{name}")


def loads(raw: bytes) -> bool:
    """Whether drafcheck says that torch takes a file."""
    return not any(problem.stops for problem in read_pickle(Memory(raw, "m.bin")).problems)


LOCAL = {
    "signature": (0, b"XX"),
    "name": (30, b"Q"),
    "method": (8, b"\x08\0"),
    "flags": (6, b"\1\0"),
    "sizes": (18, b"\xff" * 8),
    "checksum": (14, bytes(4)),
    "length of the name": (26, b"\xff\xff"),
}
OPENED = ("data.pkl", *RECORDS)
HEEDED = ("signature", "length of the name")


@pytest.mark.parametrize("damage", LOCAL)
@pytest.mark.parametrize("name", [*OPENED, "notes.txt"])
def test_the_header_of_a_file_is_judged_as_torch_does(name: str, damage: str) -> None:
    at, new = LOCAL[damage]
    raw = changed(WHOLE, entry(WHOLE, name).header_offset + at, new)
    assert loads(raw) is not (name in OPENED and damage in HEEDED)
    assert loads(raw) is torch_loads(raw)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
@pytest.mark.parametrize("data", [b"", b"x", b"\xff", b"64", b"-1", b"little", b"big"])
def test_what_the_small_files_hold_is_judged_as_torch_does(name: str, method: int, data: bytes) -> None:
    raw = packed({**RECORDS, name: data}, method)
    assert loads(raw) is torch_loads(raw)


def test_a_file_that_is_not_there_is_none() -> None:
    for name in RECORDS:
        raw = packed({key: data for key, data in RECORDS.items() if key != name})
        assert loads(raw) is torch_loads(raw) is (name not in ("data/0", "version"))


@pytest.mark.parametrize("bits", [1, 1 << 5, 1 << 6, 1 << 13])
@pytest.mark.parametrize("name", ["notes.txt", "byteorder", "data/0"])
def test_an_encrypted_file_matters_only_where_it_is_opened(name: str, bits: int) -> None:
    at = WHOLE.index(f"archive/{name}".encode(), WHOLE.index(b"PK\1\2")) - 46
    raw = changed(WHOLE, at + 8, struct.pack("<H", bits))
    assert loads(raw) is torch_loads(raw) is (name == "notes.txt" and bits != 1 << 13)


CASES = ["data.pkl", "DATA.PKL", "Data.Pkl"]


@pytest.mark.parametrize("name", OPENED)
def test_names_in_another_case(name: str) -> None:
    raw = WHOLE.replace(f"archive/{name}".encode(), f"archive/{name.swapcase()}".encode())
    assert raw != WHOLE or not name.strip("./0123456789")
    header = read_pickle(Memory(raw, "m.bin"))
    assert header.problems == () and [t.name for t in header.tensors] == ["w"]
    assert torch_loads(raw)


@pytest.mark.parametrize("name", ["archive/constants.pkl", "archive/CONSTANTS.PKL", "ARCHIVE/notes.txt", "notes.txt"])
def test_names_whose_case_counts(name: str) -> None:
    raw = WHOLE.replace(b"archive/notes.txt", name.encode())
    stream = io.BytesIO(WHOLE)
    with zipfile.ZipFile(stream, "a") as file:
        file.writestr(name, b"x")
    raw = stream.getvalue()
    assert loads(raw) is torch_loads(raw) is (name == "archive/CONSTANTS.PKL")


def test_letters_that_are_not_of_ascii_have_no_case() -> None:
    stream = io.BytesIO(WHOLE)
    with zipfile.ZipFile(stream, "a") as file:
        file.writestr("archive/\u00e9", b"x")
        file.writestr("archive/\u00c9", b"x")
    assert said(stream.getvalue()) == [] and torch_loads(stream.getvalue())


def test_names_that_are_no_text() -> None:
    at = WHOLE.index(b"archive/notes.txt", WHOLE.index(b"PK\1\2"))
    raw = changed(WHOLE, at + 8, b"\xff")
    (message,) = said(raw)
    assert "no UTF-8" in message and not torch_loads(raw)


def twice(names: list[str]) -> bytes:
    """An archive with several files of the name data.pkl; each of their pickles has the number of its turn as a key."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as file:
        warnings.simplefilter("ignore")
        for number, name in enumerate(names):
            storage = Storage("FloatStorage", "0", 4)
            data = state({f"t{number}": tensor(storage, (4,), (1,))})
            file.writestr(f"archive/{name}", data if name.lower() == "data.pkl" else RECORDS.get(name, b"x"))
    return stream.getvalue()


@pytest.mark.parametrize("seed", range(12))
def test_of_two_files_of_one_name_the_one_is_read_that_torch_reads(seed: int) -> None:
    rng = random.Random(seed)
    names = [*RECORDS, *rng.choices(CASES, k=rng.randint(2, 4)), *(f"x{n}" for n in range(rng.randint(0, 9)))]
    rng.shuffle(names)
    raw = twice(names)
    header = read_pickle(Memory(raw, "m.bin"))
    (problem,) = header.problems
    assert problem.trouble is Trouble.CORRUPT and not problem.stops and "two files called" in problem.message
    torch = pytest.importorskip("torch")
    assert [t.name for t in header.tensors] == list(torch.load(io.BytesIO(raw), weights_only=True))


@pytest.mark.parametrize("held", [8, 12, 15, 16, 17, 20, 32])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_storage_has_as_many_bytes_as_the_pickle_says(held: int, method: int) -> None:
    raw = archive(STATE, {"0": bytes(held)}, method=method)
    assert loads(raw) is torch_loads(raw) is (held == 16)


def test_a_storage_counts_as_it_is_first_mentioned() -> None:
    one, two = (tensor(Storage("FloatStorage", "0", n), (n,), (1,)) for n in (2, 4))
    for first, second in ((one, two), (two, one)):
        for held in (8, 16):
            raw = archive(state({"a": first, "b": second}), {"0": bytes(held)})
            assert loads(raw) is torch_loads(raw) is (first is two and held == 16)


END = WHOLE.rindex(b"PK\5\6")
LONG = packed({**RECORDS, "data/1": bytes(200_000)})
LONG_END = LONG.rindex(b"PK\5\6")


@pytest.mark.parametrize("base", ["short", "long"])
@pytest.mark.parametrize("length", [0, 1, 5, 22, 100, 3000, 4072, 4096, 8200, 65000, 65513, 65535])
@pytest.mark.parametrize("there", ["all of it", "none", "half", "more"])
def test_a_comment_and_what_lies_behind_the_end(base: str, length: int, there: str) -> None:
    raw, end = (WHOLE, END) if base == "short" else (LONG, LONG_END)
    follows = {"all of it": length, "none": 0, "half": length // 2, "more": length + 9}[there]
    raw = changed(raw, end + 20, struct.pack("<H", length)) + b"c" * follows
    problems = read_pickle(Memory(raw, "m.bin")).problems
    assert loads(raw) is torch_loads(raw)
    if loads(raw):
        far = follows > 65535  # further than zipfile looks
        odd = [(Trouble.CORRUPT if far else Trouble.ODD, False)]
        assert [(p.trouble, p.stops) for p in problems] == ([] if follows == length else odd)
    assert loads(raw) or base == "short"


@pytest.mark.parametrize("length", [*range(65530, 65560, 3), 66000, 69000, 70000, 200_000])
@pytest.mark.parametrize("base", ["short", "long"])
def test_how_far_back_the_end_is_looked_for(base: str, length: int) -> None:
    raw = (WHOLE if base == "short" else LONG) + bytes(length)
    assert loads(raw) is torch_loads(raw)


END_FIELDS = {
    "the number of the disk": (4, b"\1\0"),
    "the disk of the directory": (6, b"\1\0"),
    "both": (4, b"\1\0\1\0"),
    "another disk for both": (4, b"\2\0\2\0"),
    "files here": (8, b"\1\0"),
    "files": (10, b"\1\0"),
    "fewer files": (8, b"\7\0\7\0"),
    "more files": (8, b"\x0a\0\x0a\0"),
    "a short directory": (12, b"\x20\0\0\0"),
    "a long directory": (12, b"\xff\xff\0\0"),
}


@pytest.mark.parametrize("field", END_FIELDS)
def test_the_fields_of_the_end(field: str) -> None:
    at, new = END_FIELDS[field]
    raw = changed(WHOLE, END + at, new)
    assert loads(raw) is torch_loads(raw)
    assert said(raw) != []


def test_extra_fields_that_others_take_for_a_name_or_refuse() -> None:
    """Of the directory: one that names the file anew, and one that is cut off; torch looks at neither."""
    for extra in (struct.pack("<2HBI", 0x7075, 9, 1, 0) + b"else", b"\1\0\xff\xff"):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as file:
            for name, data in {"data.pkl": STATE, **RECORDS}.items():
                file.writestr(f"archive/{name}", data)
            file.filelist[-1].extra = extra
        assert loads(stream.getvalue()) is torch_loads(stream.getvalue()) is True
