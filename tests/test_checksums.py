"""The checksums of the storages of a PyTorch file: compared where all values are read, and before they are lost."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest
from test_unread import saved
from test_values import check
from variants import TRAINED, healthy

from drafcheck.cli import run
from drafcheck.finding import Confidence, Severity
from drafcheck.report.model import CheckpointReport, Outcome
from drafcheck.source import bytes_read

NAME = "pytorch_model.bin"
ARGS = ("--engine", "sglang==0.5.15", "--target", str(TRAINED / "target"))


def flipped(folder: Path, *, sums: bool = True) -> Path:
    """One byte in the middle of the largest storage is another; without ``sums`` the archive has none (zeros)."""
    raw = bytearray((folder / NAME).read_bytes())
    with zipfile.ZipFile(folder / NAME) as file:
        largest = max(file.infolist(), key=lambda info: info.file_size)
        directory = file.start_dir
    names, extra = struct.unpack("<HH", raw[largest.header_offset + 26 : largest.header_offset + 30])
    raw[largest.header_offset + 30 + names + extra + largest.file_size // 2 & ~1] ^= 1  # the last bit of a mantissa
    if not sums:
        at = raw.find(b"PK\x01\x02", directory)
        while at >= 0:
            raw[at + 16 : at + 20] = bytes(4)
            at = raw.find(b"PK\x01\x02", at + 4)
    (folder / NAME).write_bytes(raw)
    return folder


def corrupt(report: CheckpointReport) -> list[tuple[Severity, Confidence]]:
    return [(f.severity, f.confidence) for f in report.findings if f.rule == "DC004"]


def test_a_flipped_bit_is_told_where_all_values_are_read(tmp_path: Path) -> None:
    folder = flipped(saved(healthy(), tmp_path / "x"))
    report = check(folder, target=TRAINED / "target")
    assert corrupt(report) == [(Severity.WARNING, Confidence.LIKELY)]
    assert report.outcome is Outcome.DEGRADED
    [finding] = [f for f in report.findings if f.rule == "DC004"]
    assert "`embed_tokens.weight`" in finding.message and finding.locations[0].tensor == "embed_tokens.weight"
    assert not corrupt(check(folder, target=TRAINED / "target", values=0.1))  # not all of a storage is read
    assert not corrupt(check(folder, target=TRAINED / "target", values=None))


@pytest.mark.parametrize("steps", [{}, {"lm_head.weight": 2}])
def test_whole_files_and_those_without_checksums_are_quiet(tmp_path: Path, steps: dict[str, int]) -> None:
    whole = saved(healthy(), tmp_path / "whole", steps)
    bytes_read.clear()
    report = check(whole, target=TRAINED / "target")
    assert not corrupt(report) and report.outcome is Outcome.CLEAN
    assert sum(bytes_read.values()) < 2.2 * (whole / NAME).stat().st_size  # once for the values, once for the sums
    without = flipped(saved(healthy(), tmp_path / "without"), sums=False)
    assert not corrupt(check(without, target=TRAINED / "target"))


def test_a_repair_does_not_write_what_is_damaged_as_safetensors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, damaged in (("damaged", True), ("whole", False)):
        folder = saved(healthy(), tmp_path / name)
        if damaged:
            flipped(folder)
        goal = tmp_path / f"{name}-mended"
        code = run(["fix", str(folder), *ARGS, "--output", str(goal)])
        told = capsys.readouterr()
        assert (code, goal.exists()) == ((2, False) if damaged else (0, True)), told
        assert ("checksum of `embed_tokens.weight`" in told.err) is damaged
        assert ("nothing was changed" in told.err) is damaged
