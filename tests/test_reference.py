"""Mappings to compare with: every file format a trainer keeps one in, and everything that is none."""

from __future__ import annotations

import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from drafts import DRAFT_VOCAB, VOCAB, Draft
from pickles import pickled_tensor, text, write_torch
from weights import Weight, integers, mask, offsets, spread, write_safetensors, zeros

from drafcheck.errors import UsageError
from drafcheck.reference import open_reference

KEPT = spread(DRAFT_VOCAB, VOCAB)
MAPPING = {"d2t": offsets(KEPT), "t2d": mask(VOCAB, KEPT)}


def npy(path: Path, weight: Weight, code: str, version: int = 1) -> Path:
    header = f"{{'descr': '{code}', 'fortran_order': False, 'shape': ({weight.shape[0]},), }}".encode()
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    path.write_bytes(b"\x93NUMPY" + bytes((version, 0)) + size + header + weight.raw)
    return path


def saved(path: Path, body: bytes, storages: dict[str, bytes]) -> Path:
    """A file of torch.save whose pickle is ``body``."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", b"\x80\x02" + body + b".")
        for key, data in storages.items():
            archive.writestr(f"x/data/{key}", data)
    return path


def test_safetensors_mapping(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", MAPPING)
    found = open_reference(tmp_path / "m.safetensors")
    assert (found.targets, found.t2d, found.head_rows, found.name) == (KEPT, MAPPING["t2d"].raw, None, "m.safetensors")


def test_checkpoint_folder_and_file(tmp_path: Path) -> None:
    Draft().write(tmp_path / "draft")
    for place in (tmp_path / "draft", tmp_path / "draft" / "model.safetensors"):
        found = open_reference(place)
        assert (found.targets, found.head_rows) == (KEPT, DRAFT_VOCAB)


def test_checkpoint_of_full_vocabulary(tmp_path: Path) -> None:
    draft = Draft()
    draft.full_vocabulary()
    draft.write(tmp_path / "draft")
    assert open_reference(tmp_path / "draft").targets == list(range(VOCAB))


def test_torch_mapping(tmp_path: Path) -> None:
    """SpecForge keeps d2t and t2d in a dict."""
    write_torch(tmp_path / "m.pt", MAPPING)
    found = open_reference(tmp_path / "m.pt")
    assert (found.targets, found.t2d) == (KEPT, MAPPING["t2d"].raw)


def test_torch_token_map_as_list(tmp_path: Path) -> None:
    path = saved(tmp_path / "map.pt", pickle.dumps(KEPT, protocol=2)[2:-1], {})
    assert open_reference(path).targets == KEPT


def test_torch_token_map_as_tensor(tmp_path: Path) -> None:
    path = saved(tmp_path / "map.pt", pickled_tensor("0", "I64", (len(KEPT),), len(KEPT)), {"0": integers(KEPT).raw})
    assert open_reference(path).targets == KEPT


def test_torch_without_torch_is_what_torch_writes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"d2t": torch.tensor([2, 3, 5]), "t2d": torch.zeros(9, dtype=torch.bool)}, tmp_path / "dict.pt")
    torch.save(torch.tensor([4, 2, 8], dtype=torch.int32), tmp_path / "bare.pt")
    assert open_reference(tmp_path / "dict.pt").targets == [2, 4, 7]
    assert open_reference(tmp_path / "bare.pt").targets == [4, 2, 8]


def test_numpy_pair(tmp_path: Path) -> None:
    """speculators keeps d2t.npy and t2d.npy side by side; the folder, or either file, will do."""
    npy(tmp_path / "d2t.npy", MAPPING["d2t"], "<i8")
    npy(tmp_path / "t2d.npy", MAPPING["t2d"], "|b1", version=2)
    for place in (tmp_path, tmp_path / "d2t.npy", tmp_path / "t2d.npy"):
        found = open_reference(place)
        assert (found.targets, found.t2d) == (KEPT, MAPPING["t2d"].raw)


def test_numpy_writes_what_is_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    numpy.save(tmp_path / "any.npy", numpy.array([5, 5, 6], dtype=numpy.int32))
    assert open_reference(tmp_path / "any.npy").targets == [5, 6, 8]


def test_absolute_values_are_understood(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", {"d2t": integers(KEPT), "t2d": MAPPING["t2d"]})
    assert open_reference(tmp_path / "m.safetensors").targets == KEPT


def test_mask_alone(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", {"t2d": MAPPING["t2d"]})
    assert open_reference(tmp_path / "m.safetensors").targets == KEPT


def test_mask_alone_has_no_order(tmp_path: Path) -> None:
    """A t2d beside a d2t that was never filled is all there is to go by."""
    write_safetensors(tmp_path / "zeros.safetensors", {"d2t": zeros("I64", DRAFT_VOCAB), "t2d": MAPPING["t2d"]})
    write_safetensors(tmp_path / "alone.safetensors", {"t2d": MAPPING["t2d"]})
    write_safetensors(tmp_path / "both.safetensors", MAPPING)
    write_safetensors(tmp_path / "first.safetensors", {"d2t": zeros("I64", 4), "t2d": mask(9, range(4))})
    found = {name: open_reference(tmp_path / f"{name}.safetensors") for name in ("zeros", "alone", "both", "first")}
    assert {name: one.ordered for name, one in found.items()} == {
        "zeros": False,
        "alone": False,
        "both": True,
        "first": True,
    }
    assert found["zeros"].targets == KEPT
    assert found["first"].targets == [0, 1, 2, 3]


def test_torch_bare_tensors(tmp_path: Path) -> None:
    """A boolean one is a t2d; values that repeat are offsets, as no map reaches a token twice."""
    flags = pickled_tensor("0", "BOOL", (VOCAB,), VOCAB)
    saved(tmp_path / "t2d.pt", flags, {"0": MAPPING["t2d"].raw})
    saved(tmp_path / "d2t.pt", pickled_tensor("0", "I64", (DRAFT_VOCAB,), DRAFT_VOCAB), {"0": MAPPING["d2t"].raw})
    assert (open_reference(tmp_path / "t2d.pt").targets, open_reference(tmp_path / "t2d.pt").ordered) == (KEPT, False)
    assert open_reference(tmp_path / "d2t.pt").targets == KEPT


def test_torch_mask_alone(tmp_path: Path) -> None:
    write_torch(tmp_path / "m.pt", {"t2d": MAPPING["t2d"]})
    assert (open_reference(tmp_path / "m.pt").targets, open_reference(tmp_path / "m.pt").ordered) == (KEPT, False)


def test_folder_of_one_torch_mapping(tmp_path: Path) -> None:
    """SpecForge's cache folder, with one mapping in it; with two it is not known which one is meant."""
    write_torch(tmp_path / "0123.pt", MAPPING)
    assert open_reference(tmp_path).targets == KEPT
    write_torch(tmp_path / "4567.pt", MAPPING)
    with pytest.raises(UsageError, match=r"several files hold a d2t, name one of them: `0123.pt`, `4567.pt`"):
        open_reference(tmp_path)


def evil(path: Path) -> None:
    saved(path, b"cposix\nsystem\n" + text("touch pwned") + b"\x85R", {})


ONE = struct.pack("<f", 1)
BROKEN: dict[str, Callable[[Path], object]] = {
    "absent.safetensors": lambda path: None,
    "empty.safetensors": lambda path: path.write_bytes(b""),
    "garbage.safetensors": lambda path: path.write_bytes(b"\xff" * 64),
    "no-mapping.safetensors": lambda path: write_safetensors(path, {"fc.weight": zeros("BF16", 4, 4)}),
    "fractions.safetensors": lambda path: write_safetensors(path, {"d2t": Weight("F32", (1,), struct.pack("<f", 0.5))}),
    "a-norm.safetensors": lambda path: write_safetensors(path, {"norm.weight": Weight("F32", (2,), 2 * ONE)}),
    "empty.npy": lambda path: npy(path, zeros("I64", 0), "<i8"),
    "empty-row.safetensors": lambda path: write_safetensors(path, {"map": zeros("I64", 0)}),
    "empty-list.pt": lambda path: saved(path, b"]", {}),
    "empty-mask.safetensors": lambda path: write_safetensors(path, {"t2d": zeros("BOOL", 9)}),
    "garbage.pt": lambda path: path.write_bytes(b"\x80\x02garbage"),
    "broken-zip.pt": lambda path: path.write_bytes(b"PK\x03\x04garbage"),
    "no-pickle.pt": lambda path: zipfile.ZipFile(path, "w").close(),
    "number.pt": lambda path: saved(path, b"K\x05", {}),
    "texts.pt": lambda path: saved(path, pickle.dumps(["a"], protocol=2)[2:-1], {}),
    "lost-storage.pt": lambda path: saved(path, pickled_tensor("0", "I64", (3,), 3), {}),
    "evil.pt": evil,
    "garbage.npy": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\x10\x00((((((((((((((((" + b"0" * 9),
    "short.npy": lambda path: path.write_bytes(b"\x93NUM"),
    "objects.npy": lambda path: npy(path, zeros("I64", 3), "|O"),
    "big-endian.npy": lambda path: npy(path, zeros("I64", 3), ">i8"),
    "truncated.npy": lambda path: npy(path, Weight("I64", (3,), b"12345678"), "<i8"),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_no_mapping_is_wrong_usage(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    BROKEN[name](tmp_path / name)
    with pytest.raises(UsageError) as error:
        open_reference(tmp_path / name)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("--reference")
    assert not (tmp_path / "pwned").exists()
