"""``--values``: what is kept of a tensor does not grow with its rows, and narrow rows cost no more than wide ones."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaling import growth
from test_values import check, seen, spoken
from variants import healthy
from weights import Weight, write_safetensors

from drafcheck.checkpoint import open_folder
from drafcheck.place import LocalPlace
from drafcheck.source import bytes_read
from drafcheck.valuescan import scan as scanning
from drafcheck.valuescan.kernels import look
from drafcheck.valuescan.model import EmptyRows
from drafcheck.valuescan.scan import scan


def peak(work: object) -> int:
    """The most bytes that Python and numpy held while ``work`` was called."""
    assert callable(work)
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", ["U8", "F8_E4M3", "BF16"])
def test_memory_does_not_grow_with_the_rows_of_zeros(tmp_path: Path, dtype: str) -> None:
    rows = 6_000_000 if dtype != "BF16" else 3_000_000
    write_safetensors(tmp_path / "model.safetensors", {"x": Weight(dtype, (rows, 1), bytes(6_000_000))})
    seen(tmp_path)  # what the first call imports is not counted
    told = []
    assert peak(lambda: told.append(seen(tmp_path)["x"])) < 16 << 20
    [x] = told
    assert (x.rows, x.empty.count, x.empty.first, x.empty.last, x.zero) == (rows, rows, 0, rows, True)


@pytest.mark.parametrize("bits", [0x0000, 0x8000, 0x3F80])
def test_narrow_rows_take_no_step_each(bits: int) -> None:
    """Zeros, negative zeros and ones, as rows of 16 values and of 4."""
    data = memoryview(np.full(1 << 18, bits, np.uint16).tobytes())

    def work(rows: int) -> None:
        for _ in range(8):
            look("BF16", data, len(data) // rows)

    # A step for each row made it 2.8 and more; without one it is 1.5, and on a busy machine now and then 2.
    assert min(growth(work, 1 << 14) for _ in range(2)) < 2.5


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=6), st.randoms())
def test_rows_are_counted_the_same_in_any_order_of_the_stretches(parts: list[list[bool]], random: object) -> None:
    """True: the row holds something."""
    rows = [row for part in parts for row in part]
    places, at = [], 0
    for part in parts:
        places.append((at, bytes(part)))
        at += len(part)
    random.shuffle(places)  # type: ignore[attr-defined]
    empty = EmptyRows()
    for first, part in places:
        empty.add(first, look("F8_E5M2", memoryview(part), 1).empty)
    held = max((n for n, row in enumerate(rows) if row), default=-1)
    first = rows.index(False) if False in rows else -1
    assert (empty.count, empty.first, empty.last) == (rows.count(False), first, len(rows) - 1 - held)


def test_negative_zeros_in_narrow_rows_are_rows_of_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = healthy()
    head = pair.weights["lm_head.weight"]
    monkeypatch.setattr(scanning, "CHUNK", 10 * 512)
    for name, value in (("zeros", b"\0\x80"), ("numbers", b"\0\x81")):
        raw = head.raw[: 40 * 512] + value * 256 * 25 + head.raw[65 * 512 :]
        pair.weights["lm_head.weight"] = Weight("BF16", head.shape, raw)
        found = [f.message for f in spoken(check(pair.write(tmp_path / name)))]
        if name == "numbers":
            assert not found
        else:
            assert [m[:36] for m in found] == ["25 rows of 1,024 of `lm_head.weight`"] and "such as row 40" in found[0]


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_a_part_of_small_tensors_is_read_as_asked_and_told_as_read(tmp_path: Path, share: float) -> None:
    """Matrices, vectors, and one that is too small to be cut."""
    tensors = {f"m{n}": Weight("BF16", (1000, 1024), bytes(2_048_000)) for n in range(4)}
    tensors["long"] = Weight("F32", (300_000,), bytes(1_200_000))
    tensors["norm"] = Weight("BF16", (256,), bytes(512))
    write_safetensors(tmp_path / "model.safetensors", tensors)
    files = open_folder("ckpt", LocalPlace(tmp_path)).files
    assert files[0].header.tensors
    bytes_read.clear()
    found = scan(files, share)
    assert sum(bytes_read.values()) == sum(v.read for v in found.tensors)
    assert found.read == sum(bytes_read.values()) / sum(v.length for v in found.tensors)
    assert share / 2 <= found.read <= 2 * share
    for v in found.tensors:
        assert v.whole is (v.tensor.name == "norm")
        assert v.whole or share / 2 <= v.seen / v.tensor.numel <= 2 * share


def test_a_sample_is_spread_over_a_small_tensor(tmp_path: Path) -> None:
    """Of 64 pieces of 16 rows 8 are read: a last half that was lost shows, and the rows of a whole one are no zeros."""
    ones = np.full((1024, 128), 0x3F80, np.uint16)
    lost = ones.copy()
    lost[512:] = 0
    tensors = {name: Weight("BF16", x.shape, x.tobytes()) for name, x in (("whole", ones), ("lost", lost))}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    found = seen(tmp_path, 0.125)
    assert [(found[n].rows, found[n].empty.count, found[n].empty.last) for n in tensors] == [(128, 0, 0), (128, 64, 64)]
    assert found["lost"].empty.first == 512


def test_all_of_a_tensor_of_six_bits_a_value_is_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches that hold no whole number of values."""
    monkeypatch.setattr(scanning, "CHUNK", 4000)
    header = json.dumps({"x": {"dtype": "F6_E2M3", "shape": [20_000], "data_offsets": [0, 15_000]}}).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(15_000))
    x = seen(tmp_path)["x"]
    assert x.whole and x.seen == 20_000
    assert not seen(tmp_path, 0.3)["x"].whole


def test_files_are_open_no_longer_than_they_are_read(tmp_path: Path) -> None:
    """A checkpoint has more shards than a process may have open files."""
    resource = pytest.importorskip("resource", reason="limits the open files")
    for n in range(80):
        write_safetensors(tmp_path / f"model-{n:02}.safetensors", {f"x{n}": Weight("BF16", (2,), b"\x80?\x80?")})
    files = open_folder("ckpt", LocalPlace(tmp_path)).files
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        found = scan(files)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(found.tensors) == 80 and not found.unread
