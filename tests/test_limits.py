"""Files made to be large: how many names are counted, and how much memory that takes. Time: benchmarks/limits.py."""

from __future__ import annotations

import struct
import subprocess
import sys
import zipfile
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


def claims_much(path: Path, size: int) -> None:
    """An archive of a few kilobytes on disk whose pickle is said to be packed in so many bytes."""
    import zlib

    from malicious import GOOD

    packed = zlib.compress(GOOD, 9)[2:-4]
    name = b"a/data.pkl"
    told = (zlib.crc32(GOOD), size, len(GOOD), len(name), 0)
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 8, 0, 33, *told, 0, 0, 0, 0, 0) + name
    with path.open("wb") as file:
        file.write(struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 33, *told) + name + packed)
        file.seek(size)
        file.write(entry + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(entry), size, 0))


def many_members(path: Path, count: int) -> None:
    from malicious import GOOD, ZEROS, zipped

    more = [(f"a/x{i}.pkl", b"N0" * 499_000 + b"N.") for i in range(count)]
    path.write_bytes(zipped(("a/data.pkl", GOOD), ("a/data/0", ZEROS), *more, method=zipfile.ZIP_DEFLATED))


def many_opcodes(path: Path, count: int) -> None:
    from malicious import GOOD, ZEROS, zipped

    data = b"\x80\x02" + b"N0" * count + GOOD[2:]
    path.write_bytes(zipped(("a/data.pkl", data), ("a/data/0", ZEROS), method=zipfile.ZIP_DEFLATED))


def many_dicts(path: Path, count: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/version", b"3\n")
        file.writestr("a/data.pkl", b"\x80\x02" + b"}" * count + b".")


def wide_window(path: Path, size: int) -> None:
    """A second pickle packed by lzma, which is said to look back further than there is memory."""
    from malicious import one_packed

    raw = one_packed(zipfile.ZIP_LZMA, b"N.")
    at = raw.index(b"\x05\0\x5d", raw.index(b"a/x.pkl")) + 3
    path.write_bytes(raw[:at] + struct.pack("<I", size) + raw[at + 4 :])


CODE = limits.PICKLE + "count = sum('not looked through to its end' in p.message for p in h.problems)"
BOMBS = {
    "directory that claims much": (claims_much, 3_000_000_000, 0),
    "many members": (many_members, 20, 1),
    "many opcodes": (many_opcodes, 9_900_000, 1),
    "many dicts": (many_dicts, 10_000_000, 1),
    "window of 4 GB": (wide_window, 0xFFFFFFFF, 0),
}


@LINUX
@pytest.mark.parametrize("name", BOMBS)
def test_a_file_has_one_budget(tmp_path: Path, name: str) -> None:
    """Seconds of the processor and 400 MB at the most; and what is not looked at is said."""
    make, size, cut = BOMBS[name]
    make(tmp_path / "x", size)
    code = CODE + "\nimport time; assert time.process_time() < 30, time.process_time()"
    count, peak = counted(code, tmp_path / "x")
    assert count == cut and peak < 400


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
