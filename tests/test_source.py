"""Bytes at a place: regular files only, counted, never blocking."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from drafcheck import source
from drafcheck.source import LocalFile, SourceError


def test_reads_a_range_and_counts_it(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(range(100)))
    before = source.bytes_read.get(str(path), 0)
    file = LocalFile(path)
    assert file.size() == 100
    assert file.read(10, 13) == bytes([10, 11, 12])
    assert file.read(98, 200) == bytes([98, 99])
    assert file.read(100, 200) == b""
    assert source.bytes_read[str(path)] - before == 5


def test_opens_again_after_close(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"abc")
    file = LocalFile(path)
    assert file.read(0, 1) == b"a"
    file.close()
    assert file.read(1, 3) == b"bc"


def test_follows_a_link_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"abc")
    (tmp_path / "model.safetensors").symlink_to("blob")
    assert LocalFile(tmp_path / "model.safetensors").read(0, 3) == b"abc"


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _broken_link(path: Path) -> None:
    path.symlink_to("nowhere")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Path.mkdir, "is a directory"),
        (_pipe, "is a named pipe"),
        (_loop, "leads back to itself"),
        (_broken_link, "is not there"),
        (_socket, "is not a regular file"),
    ],
)
def test_what_is_no_regular_file(tmp_path: Path, make: object, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets must be short
    path = Path("x")
    make(path)  # type: ignore[operator]
    with pytest.raises(SourceError) as caught:
        LocalFile(path, "model.safetensors").size()
    assert caught.value.message.startswith("model.safetensors ")
    assert words in caught.value.message


def test_character_device() -> None:
    with pytest.raises(SourceError, match="is a character device, not a regular file"):
        LocalFile(Path("/dev/null")).read(0, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(SourceError, match="no permission"):
        LocalFile(path).size()


def test_permission_error_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for root: the system call itself answers no."""

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SourceError, match=r"^m may not be read \(no permission\)$"):
        LocalFile(tmp_path / "m").size()


def test_names_that_no_file_system_takes(tmp_path: Path) -> None:
    for name in ("a\0b", "x" * 5000):
        with pytest.raises(SourceError):
            LocalFile(tmp_path / name, "f").size()
