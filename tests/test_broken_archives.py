"""What lies in archives that nobody opens any more, behind archives, and under the name of another format."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from malicious import BARE, EVIL, EVIL_ZIP, GOOD, ZEROS, beside, tarred
from malicious_calls import HEALTHY_ZIP, LINES
from weightfiles import archive, entry, legacy, safetensors

from drafcheck import lint
from drafcheck.header import Header, read_header
from drafcheck.source import LocalFile
from drafcheck.tensor import Problem, Trouble
from drafcheck.torch_pickle import read_pickle
from drafcheck.zip_fronts import REACH, fronts


def problem(folder: Path, raw: bytes, name: str = "pytorch_model.bin") -> Problem:
    (found,) = header(folder, raw, name).problems
    return found


def header(folder: Path, raw: bytes, name: str = "pytorch_model.bin") -> Header:
    path = folder / name
    path.write_bytes(raw)
    return read_header(LocalFile(path)) if name.endswith(".safetensors") else read_pickle(LocalFile(path))


@pytest.mark.parametrize("cut", [22, 60, 200, 320])
def test_code_in_an_archive_that_was_cut_is_told_with_its_place(tmp_path: Path, cut: int) -> None:
    found = problem(tmp_path, EVIL_ZIP[:-cut])
    assert found.trouble is Trouble.UNSAFE_PICKLE
    assert f"os.system at byte {EVIL.index(b'cos')} of a/data.pkl" in found.message


@pytest.mark.parametrize("cut", [*range(1, len(HEALTHY_ZIP) - 4, 7)])
def test_an_archive_that_was_cut_is_only_broken(tmp_path: Path, cut: int) -> None:
    assert problem(tmp_path, HEALTHY_ZIP[:-cut]).trouble is Trouble.CORRUPT


def test_what_lies_behind_an_archive_is_told_with_its_place(tmp_path: Path) -> None:
    found = problem(tmp_path, HEALTHY_ZIP + BARE)
    assert f"os.system at byte {len(HEALTHY_ZIP) + BARE.index(b'cos')}:" in found.message
    assert problem(tmp_path, HEALTHY_ZIP + b"cut here\nand there\n").trouble is Trouble.ODD


def test_values_that_begin_like_a_file_of_an_archive_are_none(tmp_path: Path) -> None:
    odd = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 99, 0, 0, 0, 0, 0, 4, 0) + b"abcd" + BARE
    broken = archive(GOOD, {"0": odd.ljust(256, b"\0")})[:-22]
    assert problem(tmp_path, broken).trouble is Trouble.CORRUPT
    names = [info.filename for info in fronts(LocalFile(tmp_path / "pytorch_model.bin"))]
    assert names == ["archive/data.pkl", "archive/data/0", "archive/version"]


def test_no_more_than_the_front_of_a_file_is_searched(tmp_path: Path) -> None:
    raw = archive(GOOD, {"0": bytes(REACH)})[:-22]
    (tmp_path / "x").write_bytes(raw)
    assert [info.filename for info in fronts(LocalFile(tmp_path / "x"))] == ["archive/data.pkl", "archive/data/0"]


POSING = {
    "an archive": EVIL_ZIP,
    "a broken archive": EVIL_ZIP[:-22],
    "a bare pickle": BARE,
    "a pickle of text": LINES,
    "a file of before 1.6": legacy(EVIL, {"0": (6, ZEROS)}),
    "a tar": tarred(("pickle", BARE)),
    "an archive behind tensors": safetensors({"t": entry()}, bytes(4)) + EVIL_ZIP,
}
HONEST = {
    "an archive": (HEALTHY_ZIP, "rename it to pytorch_model.bin"),
    "a file of before 1.6": (legacy(GOOD, {"0": (6, ZEROS)}), "rename it to pytorch_model.bin"),
    "bytes behind tensors": (safetensors({"t": entry()}, bytes(9)), "download the file again"),
    "half of it": (safetensors({"t": entry(stop=4)}, bytes(2)), "download the file again"),
    "words": (b"(import os, then call\nos\nsystem\n)R.", "download the file again"),
}


@pytest.mark.parametrize("name", POSING)
def test_code_under_the_name_of_safetensors_is_told_before_any_advice(tmp_path: Path, name: str) -> None:
    found = problem(tmp_path, POSING[name], "model.safetensors")
    assert found.trouble is Trouble.UNSAFE_PICKLE and "os.system" in found.message
    assert found.help is not None and "do not load" in found.help


@pytest.mark.parametrize("name", HONEST)
def test_what_asks_for_no_code_is_broken_as_before(tmp_path: Path, name: str) -> None:
    raw, words = HONEST[name]
    found = problem(tmp_path, raw, "model.safetensors")
    assert found.trouble is Trouble.CORRUPT and found.help is not None and words in found.help


def test_safetensors_under_the_name_of_a_pickle(tmp_path: Path) -> None:
    sound = safetensors({"t": entry()}, bytes(4))
    found = problem(tmp_path, sound)
    assert found.trouble is Trouble.CORRUPT and "is a safetensors file under another name" in found.message
    assert found.help == "rename it to model.safetensors"
    assert problem(tmp_path, sound + EVIL_ZIP).trouble is Trouble.UNSAFE_PICKLE
    assert "another name" not in problem(tmp_path, sound[:40]).message


def test_a_draft_whose_safetensors_are_a_pickle_with_code(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"]}')
    (tmp_path / "model.safetensors").write_bytes(EVIL_ZIP)
    rules = {f.rule for f in lint(tmp_path, engine="sglang==0.5.15").findings}
    assert "DC009" in rules and "DC004" not in rules


BESIDE = {
    "behind an archive": archive(GOOD, {"0": ZEROS}) + BARE,
    "in an archive": beside("a/x.pkl"),
    "behind a file of before 1.6": legacy(GOOD, {"0": (6, ZEROS)}) + BARE,
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_torch_takes_is_not_said_to_be_refused(tmp_path: Path, name: str) -> None:
    found = header(tmp_path, BESIDE[name])
    (harm,) = found.problems
    assert harm.trouble is Trouble.UNSAFE_PICKLE and not harm.stops and "os.system at byte" in harm.message
    assert [t.name for t in found.tensors] == ["t"]
    torch = pytest.importorskip("torch")
    assert list(torch.load(tmp_path / "pytorch_model.bin", weights_only=True)) == ["t"]


def test_what_torch_refuses_is_said_to_be_refused(tmp_path: Path) -> None:
    for raw in (EVIL_ZIP, EVIL_ZIP[:-22], legacy(EVIL, {"0": (6, ZEROS)})):
        harm = problem(tmp_path, raw)
        assert harm.trouble is Trouble.UNSAFE_PICKLE and harm.stops


@pytest.mark.parametrize("junk", [b"", b"junk"])
def test_junk_behind_an_archive_is_told_and_loaded(tmp_path: Path, junk: bytes) -> None:
    found = header(tmp_path, archive(GOOD, {"0": ZEROS}) + junk)
    assert [t.name for t in found.tensors] == ["t"]
    assert [(p.trouble, p.stops) for p in found.problems] == ([(Trouble.ODD, False)] if junk else [])
