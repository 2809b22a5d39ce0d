"""Archives that two readers read differently: what torch would load is looked at, and the file is an error."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from malicious import EVIL, EVIL_ZIP, GOOD, ZEROS
from two_archives import doubled, end, laid, plain
from weightfiles import archive

from drafcheck.source import LocalFile
from drafcheck.tensor import Problem, Trouble
from drafcheck.torch_pickle import read_pickle

SOUND = [("a/data.pkl", GOOD), ("a/data/0", ZEROS), ("a/version", b"3\n")]
BAD = [("a/data.pkl", EVIL), ("a/data/0", ZEROS), ("a/version", b"3\n")]


def problems(folder: Path, raw: bytes) -> tuple[Problem, ...]:
    path = folder / "pytorch_model.bin"
    path.write_bytes(raw)
    return read_pickle(LocalFile(path)).problems


@pytest.mark.parametrize("name", doubled(BAD, SOUND))
@pytest.mark.parametrize("turned", [False, True])
def test_code_in_either_of_two_archives(tmp_path: Path, name: str, turned: bool) -> None:
    raw = doubled(SOUND, BAD)[name] if turned else doubled(BAD, SOUND)[name]
    (problem,) = problems(tmp_path, raw)
    if not turned:
        assert problem.trouble is Trouble.UNSAFE_PICKLE and "os.system" in problem.message, problem
    assert problem.trouble in (Trouble.UNSAFE_PICKLE, Trouble.CORRUPT)


@pytest.mark.parametrize("name", doubled(SOUND, SOUND))
def test_two_sound_archives_are_refused_too(tmp_path: Path, name: str) -> None:
    (problem,) = problems(tmp_path, doubled(SOUND, SOUND)[name])
    assert problem.trouble is Trouble.CORRUPT and "take for different ones" in problem.message


@pytest.mark.parametrize("name", doubled(BAD, SOUND))
def test_torch_really_reads_the_first(tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.bin"
    path.write_bytes(doubled(SOUND, BAD)[name])
    assert list(torch.load(path, weights_only=True)) == ["t"]
    path.write_bytes(doubled(BAD, SOUND)[name])
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(path, weights_only=True)


SOUND_RAW = plain(SOUND)
BODY, ENTRIES = laid(SOUND, 0)
ODD = {
    "a gap before the end": BODY + ENTRIES + bytes(9) + end(3, len(ENTRIES), len(BODY)),
    "a gap before the directory": BODY + ENTRIES + end(3, len(ENTRIES), len(BODY) - 9),
    "fewer files than the directory has": BODY + ENTRIES + end(2, len(ENTRIES), len(BODY)),
    "a name that is cut": plain([*SOUND, ("a/x\0.pkl", b"")]),
    "names that differ in case": plain([*SOUND, ("a/Data.pkl", GOOD)]),
    "cut": SOUND_RAW[:-1],
    "no end": SOUND_RAW[:-22],
}


@pytest.mark.parametrize("name", ODD)
def test_oddities_are_refused(tmp_path: Path, name: str) -> None:
    (problem,) = problems(tmp_path, ODD[name])
    assert problem.trouble is Trouble.CORRUPT, problem


def _written(**options: bool) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, data in SOUND:
            with file.open(name, "w", **options) as member:  # type: ignore[call-overload]
                member.write(data)
    return stream.getvalue()


HONEST = {
    "by hand": SOUND_RAW,
    "with the records of large archives": plain(SOUND, large=True),
    "with a comment": plain(SOUND, comment=b"made by hand"),
    "by zipfile": archive(GOOD, {"0": ZEROS}),
    "with large sizes": _written(force_zip64=True),
}


@pytest.mark.parametrize("name", HONEST)
def test_what_is_read_alike_is_taken(tmp_path: Path, name: str) -> None:
    assert problems(tmp_path, HONEST[name]) == ()


def test_what_torch_writes_is_taken(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for count in (1, 3000):
        path = tmp_path / f"{count}.bin"
        torch.save({f"t{i}": torch.ones(2) for i in range(count)}, path)
        assert read_pickle(LocalFile(path)).problems == ()


def test_an_archive_with_something_before_it(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, b"PK\3\4" + EVIL_ZIP)
    assert problem.trouble is Trouble.UNSAFE_PICKLE
