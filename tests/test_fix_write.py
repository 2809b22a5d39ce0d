"""Writing a mended checkpoint: whole or not at all, whatever the disk, the user and other programs do meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import mending
import pytest
from mending import contents, fine
from weights import read_safetensors

from drafcheck import lint
from drafcheck.errors import UsageError
from drafcheck.fix.inplace import Replaced, finish, replace
from drafcheck.fix.staging import Meter
from drafcheck.fix.write import Delivered, deliver
from drafcheck.place import LocalPlace


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
    before = contents(old)
    files, removed = mending.mended(old)
    shown: list[dict[str, str]] = []
    done = deliver(
        LocalPlace(old),
        files,
        removed,
        tmp_path / "new",
        check=lambda folder: shown.append(contents(folder)),
        progress=Meter(),
    )
    after = contents(tmp_path / "new")
    assert done == Delivered(tmp_path / "new", ("original",))
    assert shown == [after] and contents(old) == before
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
    before, held = contents(old), tensors(old)
    files, removed = mending.mended(old)
    shown: list[dict[str, str]] = []
    done = replace(
        LocalPlace(old),
        files,
        removed,
        check=lambda folder: shown.append(contents(folder)),
        progress=Meter(),
    )
    after = contents(old)
    assert done == Replaced("config.json.orig", ())
    assert after["config.json.orig"] == before["config.json"]
    assert shown == [after]
    assert set(before) - set(after) == {mending.EXTRA}
    assert tensors(old) == held


STEPS, DELAYS = 60, 10


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the repair of the broken draft holds, without the old config."""
    room = tmp_path_factory.mktemp("whole")
    old = mending.broken(room / "draft")
    files, removed = mending.mended(old)
    deliver(LocalPlace(old), files, removed, room / "goal", check=fine, progress=Meter())
    return contents(room / "goal")


def killed(room: Path, mode: str) -> list[Path]:
    """A folder for each run that was killed, with the draft in it and what the run made of it."""
    mending.broken(room / "0" / "draft")
    for name in ("counted-0", "counted-1", "timed", *range(1, STEPS + DELAYS)):
        shutil.copytree(room / "0", room / str(name))
    script = str(Path(__file__).with_name("killing.py"))
    tools = str(Path(__file__).parent.parent / "tools")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([tools, *sys.path])}
    command = [sys.executable, script, mode, str(room), str(STEPS), str(DELAYS)]
    subprocess.run(command, env=environment, check=True, stdin=subprocess.DEVNULL)
    return [room / str(number) for number in range(STEPS + DELAYS)]


def test_a_run_that_is_killed_leaves_the_source_alone_and_no_half_result(tmp_path: Path, whole: dict[str, str]) -> None:
    rooms = killed(tmp_path, "new")
    before = contents(mending.broken(tmp_path / "again"))
    came_far = Counter[bool]()
    for room in rooms:
        assert contents(room / "draft") == before
        came_far[(room / "goal").exists()] += 1
        if (room / "goal").exists():
            assert contents(room / "goal") == whole
        files, removed = mending.mended(room / "draft")
        try:  # the next run, which also clears up
            deliver(LocalPlace(room / "draft"), files, removed, room / "goal", check=fine, progress=Meter())
        except UsageError as error:
            assert str(error) == f"{room / 'goal'} is there already and is no empty folder: nothing was written"
        assert contents(room / "goal") == whole and contents(room / "draft") == before
        assert sorted(entry.name for entry in room.iterdir()) == ["draft", "goal"]
    assert came_far[True] and came_far[False]


def test_in_place_a_run_that_is_killed_leaves_the_old_files_or_what_completes_the_new_ones(
    tmp_path: Path, whole: dict[str, str]
) -> None:
    rooms = [room / "draft" for room in killed(tmp_path, "in-place")]
    before = contents(mending.broken(tmp_path / "again"))
    after = whole | {"config.json.orig": before["config.json"]}
    came_far = Counter[str]()
    for folder in rooms:
        there = contents(folder)
        assert all(there[name] in (before.get(name), after.get(name), "no file") for name in there)
        state = "half" if ".drafcheck-fix.complete" in there else "old" if mending.EXTRA in there else "new"
        came_far[state] += 1
        visible = {name: held for name, held in there.items() if not name.startswith(".drafcheck")}
        if state == "half":
            with pytest.raises(UsageError, match="cut off half-way here: `drafcheck fix --in-place "):
                lint(folder, engine="sglang==0.5.15")
        else:
            assert visible == (before if state == "old" else after)
            lint(folder, engine="sglang==0.5.15")
        assert finish(folder) is (state == "half")  # the next run, which begins with this
        if state == "old":
            assert contents(folder) == before
            files, removed = mending.mended(folder)
            replace(LocalPlace(folder), files, removed, check=fine, progress=Meter())
        assert contents(folder) == after
    assert all(came_far[state] for state in ("old", "half", "new")), came_far
