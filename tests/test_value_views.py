"""``--values`` on tensors of PyTorch files that are views with steps: slices, transposes, repeated rows."""

from __future__ import annotations

import io
import math
import random
import struct
import zipfile
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED

import numpy as np
import pytest
from test_values import check, fresh, spoken
from variants import healthy
from weightfiles import Storage, archive, legacy, state, tensor

from drafcheck.checkpoint import WeightFile
from drafcheck.source import LocalFile, bytes_read
from drafcheck.tensor import View
from drafcheck.valuescan import packed as unpacking
from drafcheck.valuescan.model import Values
from drafcheck.valuescan.scan import CHUNK, scan, total
from drafcheck.valuescan.views import row_of, windows

BASE = np.arange(1, 4 * 5 * 6 + 1, dtype=np.float32)
VIEWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "columns": ((20, 3), (6, 1), 2),
    "every other column": ((20, 3), (6, 2), 0),
    "every other row": ((10, 6), (12, 1), 6),
    "one column": ((20, 1), (6, 1), 5),
    "a column": ((20,), (6,), 5),
    "transposed": ((6, 20), (1, 6), 0),
    "columns transposed": ((3, 20), (1, 6), 1),
    "three sides": ((4, 2, 3), (30, 6, 1), 7),
    "three sides, turned": ((3, 4, 2), (1, 30, 6), 7),
    "three sides, the last two whole": ((2, 5, 6), (60, 6, 1), 0),
    "repeated rows": ((7, 6), (0, 1), 6),
    "one value repeated": ((7, 6), (0, 0), 6),
    "repeated columns": ((20, 4), (6, 0), 3),
    "a side of one": ((20, 1, 3), (6, 99, 1), 2),
}


def values_of(
    path: Path, view: str, base: np.ndarray[Any, Any] = BASE, share: float = 1.0, form: str = "zip"
) -> Values:
    shape, stride, offset = VIEWS[view]
    data = state({"t": tensor(Storage("FloatStorage", "0", base.size), shape, stride, offset)})
    raw = base.tobytes()
    made = {
        "zip": lambda: archive(data, {"0": raw}),
        "packed": lambda: archive(data, {"0": raw}, method=ZIP_DEFLATED),
        "legacy": lambda: legacy(data, {"0": (base.size, raw)}),
    }
    path.write_bytes(made[form]())
    file = WeightFile(LocalFile(path))
    assert not file.header.problems
    return scan([file])


def expected(view: str, base: np.ndarray[Any, Any] = BASE) -> np.ndarray[Any, Any]:
    shape, stride, offset = VIEWS[view]
    steps = [4 * step for step in stride]
    return np.lib.stride_tricks.as_strided(base[offset:], shape, steps).copy()


@pytest.mark.parametrize("form", ["zip", "legacy", "packed"])
@pytest.mark.parametrize("view", VIEWS)
def test_the_values_are_those_of_the_view(tmp_path: Path, view: str, form: str) -> None:
    (values,) = values_of(tmp_path / "x.bin", view, form=form).tensors
    wanted = expected(view)
    assert values.whole and values.seen == wanted.size and not values.bad
    assert values.absmax == wanted.max()
    assert not values.even or wanted.max() == wanted.min()


@pytest.mark.parametrize("form", ["zip", "packed"])
@pytest.mark.parametrize("view", VIEWS)
def test_one_value_that_is_none_counts_where_it_is_the_views_own(tmp_path: Path, view: str, form: str) -> None:
    shape, stride, _ = VIEWS[view]
    for at in range(0, BASE.size, 7):
        base = BASE.copy()
        base[at] = math.nan
        (values,) = values_of(tmp_path / "x.bin", view, base, form).tensors
        bad = np.flatnonzero(np.isnan(expected(view, base)).ravel())
        distinct = math.prod(n for n, step in zip(shape, stride, strict=True) if step or n == 1)
        assert values.bad == len(bad) * distinct // math.prod(shape)
        if len(bad) and not values.scattered:
            assert values.first == bad[0]


def test_rows_of_zeros_of_columns_are_counted(tmp_path: Path) -> None:
    base = BASE.copy().reshape(20, 6)
    base[3, 2:5] = 0  # a row of the view, but not of the storage
    (values,) = values_of(tmp_path / "x.bin", "columns", base.ravel()).tensors
    assert (values.rows, values.empty.count, values.empty.first, values.scattered) == (20, 1, 3, False)


def test_what_overlaps_itself_is_not_read(tmp_path: Path) -> None:
    """A window that glides over a storage could ask for as many reads as its square."""
    data = state({"t": tensor(Storage("FloatStorage", "0", 120), (100, 20), (1, 1))})
    (tmp_path / "x.bin").write_bytes(archive(data, {"0": BASE.tobytes()}))
    found = scan([WeightFile(LocalFile(tmp_path / "x.bin"))])
    assert not found.tensors
    assert [u.why for u in found.unread] == ["it does not lie in one piece in the order of its values"]


def test_the_same_for_any_view(tmp_path: Path) -> None:
    """Windows of a few bytes: what they pick out is every value once."""
    rng = random.Random(5)
    for _ in range(300):
        sides, step = [], rng.choice((1, 1, 2, 3))
        for _ in range(rng.randrange(1, 5)):
            size = rng.randrange(1, 6)
            sides.append((size, step))
            step = step * size + rng.randrange(3)
        rng.shuffle(sides)
        sizes, steps = zip(*sides, strict=True)
        data = np.arange(4 + step, dtype=np.uint16)
        view = View(8, sizes, tuple(2 * n for n in steps), 2)
        raw = memoryview(data.tobytes())
        most = rng.choice((2, 10, 40, 10_000))
        cut = [*windows(view, most)]
        assert all(w.length <= most for w in cut) and sum(w.length for w in cut) <= view.reach
        found = np.concatenate([np.frombuffer(w.picked(raw[w.start : w.start + w.length]), np.uint16) for w in cut])
        strided = np.lib.stride_tricks.as_strided(data[4:], sizes, view.steps)
        assert sorted(found) == sorted(strided.ravel())
        row = row_of(view, most)
        if row is not None:
            assert list(found) == list(strided.ravel()) and all(w.held % row == 0 for w in cut)


def test_wide_columns_are_read_in_bounded_pieces(tmp_path: Path) -> None:
    """Of 9 million values each third column: the file is read about once, whatever the share of the columns."""
    base = np.ones(9_000_000, np.float32)
    base[4_500_002] = math.inf
    data = state({"t": tensor(Storage("FloatStorage", "0", base.size), (3000, 1000), (3000, 3), 2)})
    path = tmp_path / "x.bin"
    path.write_bytes(archive(data, {"0": base.tobytes()}))
    file = WeightFile(LocalFile(path))
    bytes_read.clear()
    told: list[int] = []
    (values,) = scan([file], progress=told.append).tensors
    assert (values.seen, values.bad, values.first) == (3_000_000, 1, 1_500_000)
    assert sum(bytes_read.values()) <= base.nbytes + 10 * CHUNK
    assert sum(told) <= total([file]) <= base.nbytes
    (part,) = scan([file], share=0.3).tensors
    assert 0 < part.seen < 1_500_000


def taken_out(folder: Path) -> dict[str, Any]:
    """The tensors of a draft, whose file is gone then."""
    [file] = folder.glob("*.safetensors")
    tensors: dict[str, Any] = pytest.importorskip("safetensors.torch").load_file(file)
    file.unlink()
    return tensors


def test_slices_of_one_matrix_are_a_healthy_draft(tmp_path: Path) -> None:
    """As a trainer keeps q, k and v in one matrix, and saves its parts."""
    torch = pytest.importorskip("torch", reason="writes the pickle")
    folder = healthy().write(tmp_path / "ckpt")
    tensors = taken_out(folder)
    for bad in (False, True):
        fc = tensors["fc.weight"].clone()
        wide = torch.full((fc.shape[0], fc.shape[1] + 8), math.nan, dtype=fc.dtype)  # not its own: not looked at
        wide[:, 4:-4] = fc
        if bad:
            wide[3, 9] = math.inf
        torch.save({**tensors, "fc.weight": wide[:, 4:-4]}, folder / "pytorch_model.bin")
        report = check(folder)
        assert report.values == 1 and not [s for s in report.skipped if s.asked]
        said = ["`fc.weight` holds 1 value that is Inf or NaN, the first at [3, 5]"] if bad else []
        assert [f.message for f in spoken(report)] == said


def test_a_head_that_nobody_trained_with_a_matrix_that_is_turned_ends_no_rule(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="writes the pickle")
    fresh("uniform").write(tmp_path)
    tensors = taken_out(tmp_path)
    tensors["fc.weight"] = tensors["fc.weight"].T.contiguous().T
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    assert "DC999" not in {f.rule for f in check(tmp_path).findings}
    zipped_again(tmp_path / "pytorch_model.bin")
    assert "DC999" not in {f.rule for f in check(tmp_path).findings}


def test_the_place_is_counted_from_the_views_start(tmp_path: Path) -> None:
    raw = archive(
        state({"t": tensor(Storage("LongStorage", "0", 6), (3,), (2,), 1)}), {"0": struct.pack("<6q", *range(6))}
    )
    (tmp_path / "x.bin").write_bytes(raw)
    view = WeightFile(LocalFile(tmp_path / "x.bin")).header.views["t"]
    assert struct.unpack("<q", raw[view.start : view.start + 8]) == (1,)
    assert (view.shape, view.steps, view.width, view.reach) == ((3,), (16,), 8, 40)


def zipped_again(path: Path) -> None:
    """Compress the files of an archive."""
    raw = io.BytesIO(path.read_bytes())
    with zipfile.ZipFile(raw) as old, zipfile.ZipFile(path, "w", ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))


def packed(data: np.ndarray[Any, Any], shape: tuple[int, ...]) -> bytes:
    """An archive of one compressed tensor."""
    stride = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    pickled = state({"t": tensor(Storage("FloatStorage", "0", data.size), shape, stride)})
    return archive(pickled, {"0": data.tobytes()}, method=ZIP_DEFLATED)


def test_a_compressed_tensor_of_many_parts(tmp_path: Path) -> None:
    base = np.random.default_rng(1).random((3000, 1000), np.float32)
    base[1234] = 0
    base[2000, 7] = math.nan
    (tmp_path / "x.bin").write_bytes(packed(base, base.shape))
    file = WeightFile(LocalFile(tmp_path / "x.bin"))
    told: list[int] = []
    (values,) = scan([file], progress=told.append).tensors
    assert (values.seen, values.rows, values.empty.count, values.empty.first) == (3_000_000, 3000, 1, 1234)
    assert (values.bad, values.first) == (1, 2_000_007) and not values.scattered
    assert sum(told) == total([file]) == base.nbytes
    (part,) = scan([file], share=0.3).tensors
    assert 0 < part.seen < 2_000_000


def test_compressed_bytes_that_are_broken_are_said(tmp_path: Path) -> None:
    raw = bytearray(packed(BASE, (120,)))
    place = WeightFile(_written(tmp_path, bytes(raw))).header.packed["t"]
    assert place.size == BASE.nbytes and place.view == View(0, (120,), (4,), 4)
    raw[place.start : place.stop] = bytes(place.stop - place.start)
    found = scan([WeightFile(_written(tmp_path, bytes(raw)))])
    assert [u.why for u in found.unread] == ["x.bin has compressed bytes that are broken or too few"]
    assert not found.tensors


def _written(folder: Path, raw: bytes) -> LocalFile:
    (folder / "x.bin").write_bytes(raw)
    return LocalFile(folder / "x.bin")


@pytest.mark.parametrize("least", [1 << 20, 1 << 28])
def test_a_bomb_is_not_unpacked(tmp_path: Path, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros in a thousandth of their bytes: weights that compress so well are small."""
    monkeypatch.setattr(unpacking, "SIZE", least)
    file = WeightFile(_written(tmp_path, packed(np.zeros(1_000_000, np.float32), (1_000_000,))))
    found = scan([file])
    if least > 4_000_000:
        assert found.tensors[0].zero and not found.unread
    else:
        assert [u.why.partition(" bytes say that they ")[2] for u in found.unread] == ["unpack to 4,000,000"]
        assert not found.tensors


def test_a_draft_that_was_zipped_again_is_a_healthy_draft(tmp_path: Path) -> None:
    """torch loads an archive whose files are compressed; so do engines."""
    torch = pytest.importorskip("torch", reason="writes the pickle")
    folder = healthy().write(tmp_path / "ckpt")
    tensors = taken_out(folder)
    for bad in (False, True):
        if bad:
            tensors["fc.weight"][3, 5] = math.inf
        path = folder / "pytorch_model.bin"
        torch.save(tensors, path)
        zipped_again(path)
        assert torch.equal(torch.load(path, weights_only=True)["fc.weight"], tensors["fc.weight"])
        report = check(folder)
        assert report.values == 1 and not [s for s in report.skipped if s.asked]
        said = ["`fc.weight` holds 1 value that is Inf or NaN, the first at [3, 5]"] if bad else []
        assert [f.message for f in spoken(report)] == said
