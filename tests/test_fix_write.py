"""Writing a mended checkpoint: whole or not at all, whatever the disk, the user and other programs do meanwhile."""

from __future__ import annotations

from pathlib import Path

import mending
from weights import read_safetensors

from drafcheck.fix.inplace import Replaced, replace
from drafcheck.fix.staging import Meter
from drafcheck.fix.write import Delivered, deliver
from drafcheck.place import LocalPlace


def fine(folder: Path) -> None:
    """A check that has nothing to say."""


def tensors(folder: Path) -> dict[str, bytes]:
    """The bytes of every tensor, the prefix of the broken draft taken off its name."""
    return {
        name.removeprefix("module."): weight.raw
        for file in folder.glob("*.safetensors")
        for name, weight in read_safetensors(file).items()
    }


def test_a_new_folder_holds_what_is_mended_and_the_rest_as_it_was(tmp_path: Path) -> None:
    old = mending.broken(tmp_path / "old")
    (old / "original").mkdir()
    before = mending.contents(old)
    files, removed = mending.mended(old)
    shown: list[dict[str, str]] = []
    done = deliver(
        LocalPlace(old),
        files,
        removed,
        tmp_path / "new",
        check=lambda folder: shown.append(mending.contents(folder)),
        progress=Meter(),
    )
    after = mending.contents(tmp_path / "new")
    assert done == Delivered(tmp_path / "new", ("original",))
    assert shown == [after] and mending.contents(old) == before
    assert set(before) - set(after) == {mending.EXTRA, "original"}
    assert (
        {name for name in after if after[name] != before[name]}
        == set(files)
        == {
            "config.json",
            "model-00001-of-00002.safetensors",
        }
    )
    assert tensors(tmp_path / "new") == tensors(old)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["new", "old"]


def test_in_place_the_same_files_take_the_place_of_the_old_ones(tmp_path: Path) -> None:
    old = mending.broken(tmp_path / "old")
    (old / "original").mkdir()
    before, held = mending.contents(old), tensors(old)
    files, removed = mending.mended(old)
    shown: list[dict[str, str]] = []
    done = replace(
        LocalPlace(old),
        files,
        removed,
        check=lambda folder: shown.append(mending.contents(folder)),
        progress=Meter(),
    )
    after = mending.contents(old)
    assert done == Replaced("config.json.orig", ())
    assert after["config.json.orig"] == before["config.json"]
    assert shown == [after]
    assert set(before) - set(after) == {mending.EXTRA}
    assert tensors(old) == held
