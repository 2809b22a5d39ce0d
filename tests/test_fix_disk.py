"""Disks that are full, may only be read or can do less than others: a clear error, nothing lost, nothing left."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mending
import pytest
from mending import contents, fine, listing

from drafcheck.cli import run
from drafcheck.errors import UsageError
from drafcheck.fix import staging, stream
from drafcheck.fix.inplace import replace
from drafcheck.fix.pieces import Span, Spliced
from drafcheck.fix.staging import Meter
from drafcheck.fix.write import deliver
from drafcheck.place import ListedPlace, LocalPlace
from drafcheck.source import LocalFile

ROOT = os.geteuid() == 0
BOTH = pytest.mark.parametrize("in_place", [False, True], ids=["new folder", "in place"])


def write(old: Path, goal: Path, *, in_place: bool) -> None:
    """Write the repair of the broken draft in ``old``."""
    files, removed = mending.mended(old)
    if in_place:
        replace(LocalPlace(old), files, removed, check=fine, progress=Meter())
    else:
        deliver(LocalPlace(old), files, removed, goal, check=fine, progress=Meter())


def refused(old: Path, goal: Path, *, in_place: bool) -> str:
    """Why it can not be written; whatever that is, the old files are as they were and nothing lies beside them."""
    before, beside = contents(old), listing(goal.parent)
    with pytest.raises(UsageError) as error:
        write(old, goal, in_place=in_place)
    assert contents(old) == before and listing(goal.parent) == beside
    return str(error.value)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a small file system of its own with options; skips where that is not allowed."""
    mounted: list[Path] = []

    def work(options: str) -> Path:
        folder = tmp_path / "mounted"
        folder.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if not ROOT or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no file system may be mounted here")
        mounted.append(folder)
        return folder

    yield work
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


@BOTH
def test_a_disk_without_room_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    old = mending.broken(tmp_path / "old")
    disk = os.statvfs(tmp_path)
    full = os.statvfs_result((disk.f_bsize, 512, disk.f_blocks, 3, 3, *disk[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    monkeypatch.setattr(stream.Stream, "write", None)  # not even called
    message = refused(old, tmp_path / "new", in_place=in_place)
    assert message.startswith("the disk is full: ") and message.endswith("1,536 are free; nothing was changed")


@BOTH
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite", "fsync", "open"])
def test_whatever_fails_in_the_middle_is_told_and_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool, number: int, call: str
) -> None:
    """The second time that the system is asked: by then there are files to clear away."""
    old = mending.broken(tmp_path / "old")
    real, calls = getattr(os, call), list[object]()

    def failing(*arguments: Any, **options: Any) -> Any:
        if call != "open" or arguments[1] & os.O_EXCL:
            calls.append(arguments[0])
            if len(calls) == 2:
                raise OSError(number, os.strerror(number))
        return real(*arguments, **options)

    monkeypatch.setattr(os, call, failing)
    if call == "posix_fallocate" and number in (errno.EIO, errno.EROFS):
        write(old, tmp_path / "new", in_place=in_place)  # it is not needed: only a full disk counts
        return
    message = refused(old, tmp_path / "new", in_place=in_place)
    goal = old if in_place else tmp_path / "new"
    words = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EIO: "input/output error",
        errno.EROFS: "the file system is read-only",
    }
    assert message == f"can not write {goal}: {words[number]}; nothing was changed"


@BOTH
def test_a_disk_that_is_really_full_in_the_middle(
    mount: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    """The system promised room and has none: somebody else wrote meanwhile."""
    disk = mount("size=128k")
    old = mending.broken(disk / "old")
    real = os.statvfs
    monkeypatch.setattr(os, "statvfs", lambda folder: real("/"))
    monkeypatch.delattr(os, "posix_fallocate")
    (disk / "ballast").write_bytes(bytes((real(disk).f_bavail - 4) * real(disk).f_frsize))
    assert "the disk is full; nothing was changed" in refused(old, disk / "new", in_place=in_place)


@BOTH
@pytest.mark.parametrize("reserve", [True, False])
def test_a_file_that_may_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool, reserve: bool
) -> None:
    """A limit of the process is such a disk too: the system's own error, in the middle of a file."""
    old = mending.broken(tmp_path / "old")
    if not reserve:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, before[1]))
    try:
        message = refused(old, tmp_path / "new", in_place=in_place)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "the file would be longer than it may be here; nothing was changed" in message


@BOTH
@pytest.mark.skipif(ROOT, reason="root may write everywhere")
def test_a_folder_that_may_only_be_read(tmp_path: Path, in_place: bool) -> None:
    room = tmp_path / "room"
    old = mending.broken(room / "old")
    for folder in (old, room):
        folder.chmod(0o555)
    try:
        assert "no permission; nothing was changed" in refused(old, room / "new", in_place=in_place)
    finally:
        for folder in (old, room):
            folder.chmod(0o755)


@BOTH
def test_a_file_system_that_may_only_be_read(mount: Callable[[str], Path], in_place: bool) -> None:
    disk = mount("size=1m")
    old = mending.broken(disk / "old")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert "the file system is read-only; nothing was changed" in refused(old, disk / "new", in_place=in_place)


@BOTH
@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_refuses_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool, number: int
) -> None:
    """The same for whoever may not mount, nor be somebody else."""
    old = mending.broken(tmp_path / "old")

    def refusing(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "mkdir", refusing)
    monkeypatch.setattr(Path, "mkdir", refusing)
    why = {errno.EACCES: "no permission", errno.EROFS: "the file system is read-only"}[number]
    assert f"{why}; nothing was changed" in refused(old, tmp_path / "new", in_place=in_place)


def test_the_command_says_it_in_one_line_and_exits_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = mending.broken(tmp_path / "old")
    before = contents(old)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    for option in (["--output", str(tmp_path / "new")], ["--in-place"]):
        assert run(["fix", str(old), "--engine", "sglang==0.5.15", *option]) == 2
        assert capsys.readouterr().err.splitlines()[-1].endswith("the disk is full; nothing was changed")
    assert contents(old) == before and listing(tmp_path) == ["old"]


HELPLESS = {
    "another file system": errno.EXDEV,
    "a file system that can not": errno.EOPNOTSUPP,
    "odd places": errno.EINVAL,
    "an old kernel": errno.ENOSYS,
    "a sandbox": errno.EPERM,
}


@pytest.mark.parametrize("way", ["absent", "says it is done", "stops half-way", *HELPLESS])
def test_systems_that_do_not_copy_files_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    data = os.urandom(300_000)
    (tmp_path / "file").write_bytes(data)
    monkeypatch.setattr(stream, "LARGE", 1000)
    monkeypatch.setattr(stream, "STEP", 10_000)
    monkeypatch.setattr(stream, "BUFFER", 7_000)
    real = getattr(os, "copy_file_range", None)
    calls: list[int] = []

    def refusing(*arguments: Any) -> int:
        calls.append(1)
        if way == "stops half-way" and len(calls) < 5 and real is not None:
            return int(real(*arguments))
        if way == "says it is done":
            return 0
        number = HELPLESS.get(way, errno.EIO)
        raise OSError(number, os.strerror(number))

    if way == "absent":
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    else:
        monkeypatch.setattr(os, "copy_file_range", refusing, raising=False)
    source = LocalFile(tmp_path / "file")
    pieces = (b"head", Span(source, 5, 200_000), b"middle", Span(source, 100, 900), Span(source, 0, 300_000))
    told: list[int] = []
    assert written(tmp_path / "copy", pieces, told.append) == sum(told)
    expected = b"head" + data[5:200_000] + b"middle" + data[100:900] + data
    assert (tmp_path / "copy").read_bytes() == expected
    assert bool(calls) is (way != "absent")


def written(path: Path, pieces: Any, tick: stream.Tick) -> int:
    """Write pieces into a new file."""
    with path.open("xb") as file, stream.Stream(tick) as out:
        return out.write(pieces, file.fileno())


def test_rows_of_a_head_are_gathered_and_not_written_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32,000 rows in an order that no two neighbours keep: as many reads, and few writes."""
    rows, width = 32_000, 256
    data = os.urandom(rows * width)
    (tmp_path / "file").write_bytes(data)
    source = LocalFile(tmp_path / "file")
    order = [(row * 7919) % rows for row in range(rows)]
    file = Spliced("head", [Span(source, row * width, (row + 1) * width) for row in order])
    writes, opens = [0], [0]
    real_write, real_open = os.pwrite, os.open

    def counting_write(*arguments: Any) -> int:
        writes[0] += 1
        return real_write(*arguments)

    def counting_open(*arguments: Any, **options: Any) -> int:
        opens[0] += 1
        return real_open(*arguments, **options)

    monkeypatch.setattr(os, "pwrite", counting_write)
    monkeypatch.setattr(os, "open", counting_open)
    written(tmp_path / "copy", file.pieces, lambda _: None)
    monkeypatch.undo()
    assert (tmp_path / "copy").read_bytes() == b"".join(data[row * width : (row + 1) * width] for row in order)
    assert writes[0] <= 1 + rows * width // stream.BUFFER and opens[0] <= 2


def test_more_sources_than_may_be_open_at_once(tmp_path: Path) -> None:
    """Rows from a target in a hundred shards, to and fro."""
    for number in range(100):
        (tmp_path / f"shard-{number}").write_bytes(bytes([number]) * 10)
    sources = [LocalFile(tmp_path / f"shard-{number}") for number in range(100)]
    pieces = [Span(source, 2, 5) for source in sources * 2]
    there = open_files()
    written(tmp_path / "copy", pieces, lambda _: None)
    assert (tmp_path / "copy").read_bytes() == b"".join(bytes([number]) * 3 for number in range(100)) * 2
    for source in sources:
        source.close()
    assert open_files() == there


def open_files() -> int:
    """How many files this process holds open; 0 where the system does not tell."""
    return len(listing(Path("/proc/self/fd"))) if Path("/proc/self/fd").is_dir() else 0


class Far:
    """The bytes of a file that is nowhere on this machine; ``short`` of them are missing."""

    def __init__(self, name: str, data: bytes, short: int = 0) -> None:
        self.name, self._data, self._short = name, data, short
        self.asked: list[int] = []

    def size(self) -> int:
        return len(self._data)

    def read(self, start: int, stop: int) -> bytes:
        self.asked.append(stop - start)
        return self._data[start : min(stop, len(self._data) - self._short)]

    def expect(self, spans: object) -> None: ...

    def close(self) -> None: ...


def test_a_checkpoint_far_away_is_written_in_small_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "REMOTE", 1000)
    data = os.urandom(5500)
    far = {name: Far(name, data) for name in ("model.safetensors", "..", "a/b", "config.json")}
    place = ListedPlace("hf://org/name", dict.fromkeys(far, 5500), far.__getitem__)
    files = {"config.json": Spliced("config.json", [b"{", Span(far["config.json"], 10, 20)])}
    done = deliver(place, files, [], tmp_path / "new", check=fine, progress=Meter())
    assert listing(tmp_path) == ["new"] and done.left_out == ("..", "a")
    assert (tmp_path / "new" / "model.safetensors").read_bytes() == data
    assert (tmp_path / "new" / "config.json").read_bytes() == b"{" + data[10:20]
    assert max(far["model.safetensors"].asked) == 1000
    far["model.safetensors"]._short = 1
    with pytest.raises(UsageError, match=r"model\.safetensors has fewer bytes than it had"):
        deliver(place, files, [], tmp_path / "other", check=fine, progress=Meter())
    assert listing(tmp_path) == ["new"]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="not on this system")
def test_room_is_taken_before_a_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(bytes(5000))
    sizes: list[int] = []
    real = stream.Stream.write

    def noting(self: stream.Stream, pieces: Any, goal: int) -> int:
        sizes.append(os.fstat(goal).st_size)
        return real(self, pieces, goal)

    monkeypatch.setattr(stream.Stream, "write", noting)
    (tmp_path / "goal").mkdir()
    made = staging.Made("new", (Span(LocalFile(tmp_path / "file"), 0, 5000),), 0o640)
    staging.make([made], tmp_path / "goal", Meter())
    assert sizes == [5000]
    assert stat.S_IMODE((tmp_path / "goal" / "new").stat().st_mode) == 0o640
