"""``--values`` on files that change while they are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scaling import LINEAR, growth
from test_values import VALUES, check
from variants import healthy
from weights import Weight, write_safetensors

from drafcheck.checkpoint import open_folder
from drafcheck.finding import Severity
from drafcheck.place import LocalPlace
from drafcheck.report.model import CheckpointReport, FailOn
from drafcheck.valuescan import scan as scanning
from drafcheck.valuescan.scan import scan


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def grown(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"more")


def removed(file: Path) -> None:
    file.unlink()


def replaced(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"x" * 100)
    other.replace(file)


def overwritten(file: Path) -> None:
    now = file.stat()
    with file.open("r+b") as opened:
        opened.seek(-2, os.SEEK_END)
        opened.write(b"\xff\xff")
    os.utime(file, ns=(now.st_atime_ns, now.st_mtime_ns + 1))  # a clock too coarse to tell would not show the writing


def read_only(file: Path) -> None:
    """Looked at by somebody else, moved away and back, and allowed to fewer: its bytes are the same."""
    file.read_bytes()
    file.rename(file.with_name("away"))
    file.with_name("away").rename(file)
    file.chmod(0o400)


def reading(folder: Path, work: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> CheckpointReport:
    """The report of a checkpoint with whose file ``work`` is done before the third stretch is read."""
    file, read, parts = folder / "model.safetensors", scanning._read, [0]

    def then(part: Any, buffer: memoryview) -> memoryview:
        parts[0] += 1
        if parts[0] == 3:
            work(file)
        return read(part, buffer)

    monkeypatch.setattr(scanning, "_read", then)
    monkeypatch.setattr(scanning, "THREADS", 1)
    return check(folder)


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (cut, " bytes, and had "),
        (grown, " bytes, and had "),
        (removed, "model.safetensors is not there"),
        (replaced, "model.safetensors has 100 bytes, and had "),
    ],
)
def test_a_file_that_is_another_at_the_end_is_an_error(
    tmp_path: Path, work: Callable[[Path], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = reading(healthy().write(tmp_path / "ckpt"), work, monkeypatch)
    [finding] = [f for f in report.findings if f.severity is not Severity.NOTE]
    assert finding.rule == "DC012" and said in finding.message and "its values are not judged" in finding.message
    assert report.values == 0 and report.exit_code() == 1
    assert {s.rule for s in report.skipped if s.asked} >= set(VALUES)  # and what reads rows of the file later


def test_a_file_that_was_written_to_is_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = reading(healthy().write(tmp_path / "ckpt"), overwritten, monkeypatch)
    [finding] = [f for f in report.findings if f.rule == "DC012"]
    assert finding.severity is Severity.NOTE and "was written to" in finding.message
    assert not [f for f in report.findings if f.rule in VALUES]  # the NaN is of the other file
    assert (report.values, report.outcome.value, report.exit_code(FailOn.WARNING)) == (0, "incomplete", 1)


def test_a_file_that_others_read_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = reading(healthy().write(tmp_path / "ckpt"), read_only, monkeypatch)
    assert not [f for f in report.findings if f.rule == "DC012"]
    assert (report.values, report.outcome.value) == (1, "clean")


def test_other_shards_are_judged_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Weight("BF16", (2,), b"\xc0\x7f\xc0\x7f")
    for name in ("a", "b"):
        write_safetensors(tmp_path / f"{name}.safetensors", {name: bad})
    files = open_folder("ckpt", LocalPlace(tmp_path)).files
    assert all(file.header.tensors for file in files)
    overwritten(tmp_path / "a.safetensors")
    found = scan(files)
    assert [(v.tensor.name, v.bad) for v in found.tensors] == [("b", 2)]
    assert [u.tensor.name for u in found.unread] == ["a"] and [c.file for c in found.changed] == ["a.safetensors"]


def test_every_tensor_of_a_cut_file_is_named_in_linear_time(tmp_path: Path) -> None:
    def work(many: int) -> None:
        weight = Weight("BF16", (2,), np.ones(2, np.uint16).tobytes())
        file = tmp_path / str(many) / "model.safetensors"
        file.parent.mkdir(exist_ok=True)
        write_safetensors(file, {f"x{n}": weight for n in range(many)})
        files = open_folder("ckpt", LocalPlace(file.parent)).files
        assert len(files[0].header.tensors) == many
        os.truncate(file, files[0].size - 4 * many)
        assert len(scan(files).unread) == many

    assert growth(work, 2000) < 3 * LINEAR
