"""The checksums of compressed storages, and of files at an address: compared while the values are read."""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from fakehub import Hub, Repo
from hypothesis import given
from hypothesis import strategies as st
from pickles import STORAGE
from test_unread import saved
from test_values import check
from variants import TRAINED, Pair, healthy
from weightfiles import Storage, archive, state, tensor

from drafcheck.finding import Finding, Severity
from drafcheck.report.model import CheckpointReport, Outcome
from drafcheck.source import bytes_read
from drafcheck.valuescan.sums import joined

NAME = "pytorch_model.bin"
TARGET = TRAINED / "target"
LARGEST = "embed_tokens.weight"


def directory(raw: bytes, name: str) -> int:
    """Where the directory has a file."""
    return raw.rindex(name.encode() + b"PK") - 46  # the next entry, or the end, follows


def largest(raw: bytes) -> zipfile.ZipInfo:
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        return max(file.infolist(), key=lambda info: info.file_size)


def changed(path: Path, at: int, new: bytes) -> None:
    raw = bytearray(path.read_bytes())
    raw[at : at + len(new)] = new
    path.write_bytes(raw)


def summed_otherwise(path: Path, crc: int = 1) -> None:
    """The directory has another checksum for the largest storage."""
    raw = path.read_bytes()
    changed(path, directory(raw, largest(raw).filename) + 16, struct.pack("<I", crc))


def broken(path: Path) -> None:
    """In the middle of the largest storage the compressed bytes are no more what they were."""
    info = largest(path.read_bytes())
    changed(path, info.header_offset + info.compress_size // 2, bytes([255]) * 400)


def flipped(path: Path) -> None:
    """One bit of the largest storage, which lies there as it is, is another."""
    info = largest(path.read_bytes())
    at = info.header_offset + 30 + len(info.filename) + info.file_size // 2 & ~1
    changed(path, at, bytes([path.read_bytes()[at] ^ 1]))


def found(report: CheckpointReport) -> list[Finding]:
    return [f for f in report.findings if f.rule == "DC004"]


@pytest.mark.parametrize("steps", [{}, {LARGEST: 2}], ids=["dense", "strided"])
def test_a_compressed_storage_with_another_checksum(tmp_path: Path, steps: dict[str, int]) -> None:
    folder = saved(healthy(), tmp_path / "x", steps, zipfile.ZIP_DEFLATED)
    bytes_read.clear()
    assert found(check(folder, target=TARGET)) == []
    assert sum(bytes_read.values()) < 1.5 * (folder / NAME).stat().st_size  # nothing is unpacked twice
    summed_otherwise(folder / NAME)
    [finding] = found(check(folder, target=TARGET))
    assert finding.severity is Severity.WARNING and f"another one at `{LARGEST}`" in finding.message
    assert not found(check(folder, target=TARGET, values=0.1))
    assert not found(check(folder, target=TARGET, values=None))
    summed_otherwise(folder / NAME, 0)  # torch writes it where it was told to sum up nothing
    assert found(check(folder, target=TARGET)) == []


def test_what_does_not_unpack_is_loaded_by_torch_all_the_same(tmp_path: Path) -> None:
    folder = saved(healthy(), tmp_path / "x", method=zipfile.ZIP_DEFLATED)
    broken(folder / NAME)
    report = check(folder, target=TARGET)
    [finding] = found(report)
    assert finding.severity is Severity.ERROR and report.outcome is Outcome.BROKEN
    assert f"do not unpack, of `{LARGEST}`" in finding.message
    torch = pytest.importorskip("torch")
    assert LARGEST in torch.load(folder / NAME, weights_only=True)


def test_what_lies_behind_the_values_of_a_compressed_storage_counts_too(tmp_path: Path) -> None:
    """A tensor of the first half of it: the rest is unpacked for the checksum alone."""
    pair = healthy()
    folder = halved(pair, tmp_path / "x", zipfile.ZIP_DEFLATED)
    assert found(check(folder, target=TARGET)) == []
    summed_otherwise(folder / NAME)
    assert len(found(check(folder, target=TARGET))) == 1


def halved(pair: Pair, folder: Path, method: int = zipfile.ZIP_STORED, *, both: bool = False) -> Path:
    """The largest tensor lies in the first half of a storage; in the other one lies nothing, or a tensor of its own."""
    items, storages = {}, {}
    for key, (name, weight) in enumerate(pair.weights.items()):
        raw = weight.raw * 2 if name == LARGEST else weight.raw
        width = {"BF16": 2, "I64": 8, "BOOL": 1}[weight.dtype]
        place = Storage(STORAGE[weight.dtype], str(key), len(raw) // width)
        strides = (weight.shape[1], 1) if len(weight.shape) == 2 else (1,)
        items[name] = tensor(place, weight.shape, strides)
        if name == LARGEST and both:
            items["other.weight"] = tensor(place, weight.shape, strides, len(weight.raw) // width)
        storages[str(key)] = raw
    pair.weights = {}
    pair.write(folder)
    (folder / "model.safetensors").unlink()
    (folder / NAME).write_bytes(archive(state(items), storages, method=method))
    return folder


@pytest.fixture
def address(hub: Hub, tmp_path: Path) -> tuple[str, Path]:
    """An address, and the folder that lies there."""
    hub.repos["org/draft"] = Repo(tmp_path / "draft")
    return "hf://org/draft", tmp_path / "draft"


def test_a_flipped_bit_at_an_address(address: tuple[str, Path], hub: Hub) -> None:
    place, folder = address
    saved(healthy(), folder)
    assert found(check(place, target=TARGET)) == []
    flipped(folder / NAME)
    sent = hub.sent
    [finding] = found(check(place, target=TARGET))
    assert finding.severity is Severity.WARNING and f"another one at `{LARGEST}`" in finding.message
    assert hub.sent - sent < 1.5 * (folder / NAME).stat().st_size  # nothing is fetched for it
    assert not found(check(place, target=TARGET, values=0.2))


@pytest.mark.parametrize("damage", [summed_otherwise, broken])
def test_compressed_storages_at_an_address(address: tuple[str, Path], damage: object) -> None:
    place, folder = address
    saved(healthy(), folder, method=zipfile.ZIP_DEFLATED)
    assert found(check(place, target=TARGET)) == []
    damage(folder / NAME)  # type: ignore[operator]
    assert [f.severity for f in found(check(place, target=TARGET))] == [
        Severity.ERROR if damage is broken else Severity.WARNING
    ]


@pytest.mark.parametrize("both", [False, True])
def test_a_storage_at_an_address_is_judged_where_all_of_it_was_read(address: tuple[str, Path], both: bool) -> None:
    place, folder = address
    halved(healthy(), folder, both=both)
    assert found(check(place, target=TARGET)) == []
    summed_otherwise(folder / NAME)
    assert bool(found(check(place, target=TARGET))) is both


@given(st.binary(max_size=50), st.integers(0, 5000), st.integers(0, 2**32 - 1))
def test_two_checksums_are_that_of_both_texts(first: bytes, length: int, seed: int) -> None:
    second = random.Random(seed).randbytes(length)
    assert joined(zlib.crc32(first), zlib.crc32(second), length) == zlib.crc32(first + second)
