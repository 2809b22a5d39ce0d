"""What may not be read: it is said to be that, once, and not to be missing."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft

from drafcheck.cli import run

ENGINE = ("--engine", "sglang==0.5.15")
_VERSION_3 = 0x20080522
_ABOVE_MODES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
INDEX = "model.safetensors.index.json"


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder with the draft `draft`."""
    folder = Path(tempfile.mkdtemp(prefix="drafcheck-"))
    Draft().write(folder / "draft")
    yield folder
    for path in folder.iterdir():
        path.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def nobody() -> Iterator[None]:
    """As somebody who may read what the modes of his files allow and no more: root without what sets root above them.

    Another user would not do: the suite may lie where only its own user may read, drafcheck's rules with it.
    """
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, before = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, before) == 0, os.strerror(ctypes.get_errno())
    less = (ctypes.c_uint32 * 6)(*before)
    less[0] &= ~_ABOVE_MODES  # of the capabilities in effect; those permitted stay, to come back
    assert libc.capset(header, less) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0, os.strerror(ctypes.get_errno())


def told(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    """What is said to somebody who may not read everything; run once before, as whoever runs the tests."""
    words = [*map(str, args), *ENGINE]
    run(words)
    capsys.readouterr()
    with nobody():
        code = run(words)
    return (code, *capsys.readouterr())


def report(capsys: pytest.CaptureFixture[str], folder: Path, *args: str) -> dict[str, Any]:
    _, out, _ = told(capsys, folder, *args, "--format", "json")
    checkpoint: dict[str, Any] = json.loads(out)["checkpoints"][0]
    return checkpoint


def test_a_folder_that_may_be_listed_and_not_entered(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = room / "draft"
    draft.chmod(0o444)
    for command in ([], ["show"], ["fix"]):
        assert told(capsys, *command, draft) == (2, "", f"error: {draft}: the folder may not be read\n")
    Draft().write(room / "good")
    for option in ("--reference", "--target-weights", "--tokenizer", "--contracts"):
        code, _, err = told(capsys, room / "good", option, draft)
        assert (code, "may not be read" in err) == (2, True), err
    draft.chmod(0o555)
    assert told(capsys, draft)[0] == 0


def test_one_among_others(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Draft().write(room / "good")
    for mode in (0o444, 0o111):
        (room / "draft").chmod(mode)
        code, out, _ = told(capsys, room)
        assert (code, out.count("the folder may not be read")) == (2, 1)
        assert f"not checked: {room}/draft: the folder may not be read\n" in out
    (room / "draft").chmod(0o555)
    code, out, _ = told(capsys, room)
    assert (code, "2 checkpoints: " in out) == (0, True)


def test_an_index_that_may_not_be_read_is_told_once(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = room / "draft" / INDEX
    index.write_text('{"weight_map": {}}')
    index.chmod(0)
    seen = report(capsys, room / "draft")
    assert [(f["rule"], f["locations"][0]["file"]) for f in seen["findings"] if f["severity"] == "error"] == [
        ("DC012", INDEX)
    ]
    index.unlink()
    assert report(capsys, room / "draft")["outcome"] == "clean"


@pytest.mark.parametrize("text", ['{"weight_map": ', "[]", "{}", '{"weight_map": {"a": 3}}'])
def test_an_index_that_is_broken_is_told_once(text: str, room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (room / "draft" / INDEX).write_text(text)
    errors = [f for f in report(capsys, room / "draft")["findings"] if f["severity"] == "error"]
    assert [(f["rule"], f["locations"][0]["file"]) for f in errors] == [("DC006", INDEX)]


def test_values_are_asked_for_only_where_they_can_be_read(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def needed() -> set[str]:
        return {s["why"] for s in report(capsys, room / "draft")["skipped"] if s["rule"].startswith("DC80")}

    assert "needs --values" in needed()
    weights = room / "draft" / "model.safetensors"
    weights.chmod(0)
    assert "needs readable weight files" in needed()
    assert "needs --values" not in needed()
    weights.chmod(0o644)
    weights.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    assert not any("--values" in why for why in needed())


def test_values_that_were_asked_for_in_vain(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (room / "draft" / "model.safetensors").chmod(0)
    seen = report(capsys, room / "draft", "--values")
    assert not [s for s in seen["skipped"] if "--values" in s["why"]]
