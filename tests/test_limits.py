"""Files made to be large: how many names are counted, and how much memory that takes. Time: benchmarks/limits.py."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import limits

from drafcheck.header import HEADER_LIMIT, read_header
from drafcheck.source import LocalFile

MILLION = 1_000_000
LINUX = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
PEAK = """
import re
print(count, re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


def counted(code: str, path: Path) -> tuple[int, float]:
    """What a process of its own counts in a file, and its peak memory in MiB."""
    done = subprocess.run([sys.executable, "-c", code + PEAK, str(path)], capture_output=True, text=True, check=True)
    count, peak = map(int, done.stdout.split())
    return count, peak / 1024


@LINUX
def test_a_million_names_in_a_header(tmp_path: Path) -> None:
    limits.many_names(tmp_path / "x", MILLION)
    count, peak = counted(limits.HEADER + "count = len(h.tensors) if not h.problems else -1", tmp_path / "x")
    assert count == MILLION and peak < limits.MEMORY


@LINUX
def test_a_million_names_in_an_index(tmp_path: Path) -> None:
    limits.many_entries(tmp_path / "x", MILLION)
    count, peak = counted(limits.INDEX + "count = len(i.weight_map)", tmp_path / "x")
    assert count == MILLION and peak < limits.MEMORY


@LINUX
def test_a_million_levels_of_a_pickle(tmp_path: Path) -> None:
    limits.deep_pickle(tmp_path / "x", MILLION)
    count, peak = counted(limits.PICKLE + "count = len(h.problems)", tmp_path / "x")
    assert count == 0 and peak < limits.MEMORY


@LINUX
def test_a_pickle_that_unpacks_to_a_gigabyte(tmp_path: Path) -> None:
    limits.bomb(tmp_path / "x", 1 << 30)
    count, peak = counted(limits.PICKLE + "count = len(h.problems)", tmp_path / "x")
    assert count == 1 and peak < limits.MEMORY


@pytest.mark.parametrize(("length", "refused"), [(HEADER_LIMIT, False), (HEADER_LIMIT + 1, True)])
def test_the_longest_header_is_the_librarys(tmp_path: Path, length: int, refused: bool) -> None:
    """As the library says it: HeaderTooLarge past 100 MB. The rest of the file is a hole of zeros, no white space."""
    from safetensors import SafetensorError, safe_open

    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", length) + b"{}")
        file.truncate(8 + length)
    (problem,) = read_header(LocalFile(path)).problems
    assert ("more than the 100000000 that are allowed" in problem.message) is refused
    with pytest.raises(SafetensorError) as caught:
        safe_open(path, framework="np")
    assert ("large" in str(caught.value).lower()) is refused, caught.value


@pytest.mark.parametrize(("depth", "refused"), [(125, False), (126, True), (MILLION, True)])
def test_json_is_as_deep_as_the_librarys(tmp_path: Path, depth: int, refused: bool) -> None:
    from safetensors import SafetensorError, safe_open

    limits.deep(tmp_path / "x", depth)
    assert bool(read_header(LocalFile(tmp_path / "x")).problems) is refused
    if refused:
        with pytest.raises(SafetensorError):
            safe_open(tmp_path / "x", framework="np")
    else:
        with safe_open(tmp_path / "x", framework="np") as file:
            assert list(file.keys()) == ["t"]
