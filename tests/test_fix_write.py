"""Writing a mended checkpoint: whole or not at all, whatever the disk, the user and other programs do meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import mending
import pytest
from mending import contents, fine, listing
from weights import read_safetensors

from drafcheck import lint
from drafcheck.errors import UsageError
from drafcheck.fix.inplace import Replaced, finish, replace
from drafcheck.fix.staging import Meter, Watch
from drafcheck.fix.stream import Tick
from drafcheck.fix.write import Check, Delivered, deliver
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
            assert str(error).startswith(f"{room / 'goal'} is there already and is no empty folder: ")
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


BOTH = pytest.mark.parametrize("in_place", [False, True], ids=["new folder", "in place"])


def written(
    old: Path, goal: Path, *, in_place: bool, check: Check = fine, progress: Meter | None = None
) -> Delivered | Replaced:
    """Write the repair of the broken draft in ``old``: to ``goal``, or where it is."""
    files, removed = mending.mended(old)
    how = {"check": check, "progress": progress or Meter()}
    if in_place:
        return replace(LocalPlace(old), files, removed, **how)
    return deliver(LocalPlace(old), files, removed, goal, **how)


class Interrupting(Meter):
    """Ctrl-C while the bytes are written."""

    def over(self, total: int) -> AbstractContextManager[Tick]:
        def tick(count: int) -> None:
            signal.raise_signal(signal.SIGINT)

        return nullcontext(tick)


@BOTH
def test_ctrl_c_leaves_nothing(tmp_path: Path, in_place: bool) -> None:
    old = mending.broken(tmp_path / "old")
    before = contents(old)
    with pytest.raises(KeyboardInterrupt):
        written(old, tmp_path / "new", in_place=in_place, progress=Interrupting())
    assert contents(old) == before and listing(tmp_path) == ["old"]


def test_ctrl_c_while_files_are_replaced_waits_until_they_are(
    tmp_path: Path, whole: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = mending.broken(tmp_path / "old")
    before = contents(old)
    real = Path.replace

    def interrupted(self: Path, goal: Path) -> Path:
        signal.raise_signal(signal.SIGINT)
        return real(self, goal)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written(old, tmp_path / "new", in_place=True)
    assert contents(old) == whole | {"config.json.orig": before["config.json"]}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@BOTH
def test_a_result_that_does_not_pass_is_not_delivered(tmp_path: Path, in_place: bool) -> None:
    old = mending.broken(tmp_path / "old")
    before = contents(old)

    def refuse(folder: Path) -> None:
        assert set(contents(folder)) >= {"config.json", "README.md"}
        raise UsageError("not good enough")

    with pytest.raises(UsageError, match="not good enough"):
        written(old, tmp_path / "new", in_place=in_place, check=refuse)
    assert contents(old) == before and listing(tmp_path) == ["old"]


@BOTH
@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "README.md"])
def test_a_source_that_changes_meanwhile_is_refused(tmp_path: Path, in_place: bool, name: str) -> None:
    """Also a file that is copied as it is, or stays: the result would belong to two states of the checkpoint."""
    old = mending.broken(tmp_path / "old")

    def change(folder: Path) -> None:
        (old / name).write_bytes((old / name).read_bytes()[::-1])

    with pytest.raises(UsageError, match=f"{name} has changed while it was read"):
        written(old, tmp_path / "new", in_place=in_place, check=change)
    assert listing(tmp_path) == ["old"] and "config.json.orig" not in listing(old)


@BOTH
def test_a_source_that_changed_since_it_was_checked_is_refused(tmp_path: Path, in_place: bool) -> None:
    old = mending.broken(tmp_path / "old")
    place, watch = LocalPlace(old), Watch(LocalPlace(old))
    files, removed = mending.mended(old)
    os.utime(old / "model-00001-of-00002.safetensors", (1, 1))
    with pytest.raises(UsageError, match="has changed while it was read"):
        if in_place:
            replace(place, files, removed, check=fine, progress=Meter(), watch=watch)
        else:
            deliver(place, files, removed, tmp_path / "new", check=fine, progress=Meter(), watch=watch)
    assert listing(tmp_path) == ["old"]


def test_a_goal_that_is_there_is_refused(tmp_path: Path, whole: dict[str, str]) -> None:
    old = mending.broken(tmp_path / "old")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full" / "inside").mkdir(parents=True)
    (tmp_path / "broken link").symlink_to("nowhere/at/all")
    for name in ("file", "full", "old", "broken link"):
        before = listing(tmp_path)
        with pytest.raises(UsageError):
            written(old, tmp_path / name, in_place=False)
        assert listing(tmp_path) == before and (tmp_path / "file").read_text() == "mine"
    for name in ("nowhere/new", "null\0byte", "x" * 300):
        with pytest.raises(UsageError, match="can not write "):
            written(old, tmp_path / name, in_place=False)


def test_an_empty_folder_is_taken_with_its_permissions(tmp_path: Path, whole: dict[str, str]) -> None:
    old = mending.broken(tmp_path / "old")
    (tmp_path / "empty").mkdir(mode=0o750)
    (tmp_path / "link").symlink_to("empty")
    written(old, tmp_path / "link", in_place=False)
    assert contents(tmp_path / "empty") == whole and (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((tmp_path / "empty").stat().st_mode) == 0o750


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "a [odd] (name).*", " "])
def test_goals_with_odd_names(tmp_path: Path, whole: dict[str, str], name: str) -> None:
    old = mending.broken(tmp_path / "old")
    written(old, tmp_path / name, in_place=False)
    assert contents(tmp_path / name) == whole and listing(tmp_path) == sorted(["old", name])


def test_a_goal_that_somebody_makes_meanwhile_is_left_to_them(tmp_path: Path) -> None:
    old = mending.broken(tmp_path / "old")

    def make(folder: Path) -> None:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "theirs").touch()

    with pytest.raises(UsageError, match="somebody else has made it meanwhile"):
        written(old, tmp_path / "new", in_place=False, check=make)
    assert listing(tmp_path) == ["new", "old"] and listing(tmp_path / "new") == ["theirs"]


def test_what_is_no_file_is_named_and_not_taken_along(tmp_path: Path) -> None:
    old = mending.broken(tmp_path / "old")
    (old / ".cache").mkdir()
    os.mkfifo(old / "pipe")
    (old / "broken link").symlink_to("nowhere")
    (old / "link").symlink_to("README.md")
    done = written(old, tmp_path / "new", in_place=False)
    assert done == Delivered(tmp_path / "new", (".cache", "broken link", "pipe"))
    assert (tmp_path / "new" / "link").read_text() == "a draft\n" and not (tmp_path / "new" / "link").is_symlink()


def test_another_run_in_the_same_folder_is_a_clear_error(tmp_path: Path) -> None:
    old = mending.broken(tmp_path / "old")

    def meet(folder: Path) -> None:
        for clash in (lambda: written(old, tmp_path / "new", in_place=True), lambda: finish(old)):
            with pytest.raises(UsageError, match="another run is repairing it at this moment"):
                clash()
        (Path(f"{tmp_path}/.new.drafcheck-00000000") / "new").mkdir(parents=True)  # was left by one that was killed
        written(old, tmp_path / "new", in_place=False)

    written(old, tmp_path / "new", in_place=True, check=meet)
    assert listing(tmp_path) == ["new", "old"]


def test_two_runs_to_one_goal_leave_each_other_alone(tmp_path: Path, whole: dict[str, str]) -> None:
    old = mending.broken(tmp_path / "old")

    def meet(folder: Path) -> None:
        written(old, tmp_path / "new", in_place=False)
        assert contents(folder) == whole

    with pytest.raises(UsageError, match="somebody else has made it meanwhile"):
        written(old, tmp_path / "new", in_place=False, check=meet)
    assert contents(tmp_path / "new") == whole and listing(tmp_path) == ["new", "old"]


def test_permissions_and_owners_stay(tmp_path: Path) -> None:
    old = mending.broken(tmp_path / "old")
    name = "model-00001-of-00002.safetensors"
    (old / name).chmod(0o640)
    (old / "config.json").chmod(0o444)
    (old / "README.md").chmod(0o755)
    if os.geteuid() == 0:
        os.chown(old / name, 1234, 5678)
    owner = (old / name).stat().st_uid, (old / name).stat().st_gid
    written(old, tmp_path / "new", in_place=False)
    written(old, tmp_path / "new", in_place=True)
    modes = {name: 0o640, "config.json": 0o444, "README.md": 0o755}
    for folder in (old, tmp_path / "new"):
        for file, mode in modes.items():
            assert stat.S_IMODE((folder / file).stat().st_mode) == mode
    assert ((old / name).stat().st_uid, (old / name).stat().st_gid) == owner
    assert stat.S_IMODE((old / "config.json.orig").stat().st_mode) == 0o444


def test_an_older_copy_of_the_config_is_not_overwritten(tmp_path: Path) -> None:
    old = mending.broken(tmp_path / "old")
    config = (old / "config.json").read_bytes()
    for name in ("config.json.orig", "config.json.orig.1"):
        (old / name).write_text(name)
    assert written(old, tmp_path / "new", in_place=True) == Replaced("config.json.orig.2", ())
    assert (old / "config.json.orig").read_text() == "config.json.orig"
    assert (old / "config.json.orig.2").read_bytes() == config


def test_links_of_a_hub_cache_become_files_and_the_blobs_stay(tmp_path: Path, whole: dict[str, str]) -> None:
    """Other revisions share them; a repair of one must not change what they hold."""
    blobs, old = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    real = mending.broken(tmp_path / "real")
    blobs.mkdir()
    old.mkdir(parents=True)
    for number, name in enumerate(listing(real)):
        (real / name).rename(blobs / str(number))
        (old / name).symlink_to(Path("..", "..", "blobs", str(number)))
    before, held = contents(old), contents(blobs)
    done = written(old, tmp_path / "new", in_place=True)
    assert done == Replaced("config.json.orig", ("model-00001-of-00002.safetensors", "config.json"))
    assert contents(blobs) == held
    assert contents(old) == whole | {"config.json.orig": before["config.json"]}
    assert (old / "README.md").is_symlink() and not (old / "config.json").is_symlink()


def test_hard_links_elsewhere_keep_the_old_bytes(tmp_path: Path) -> None:
    old = mending.broken(tmp_path / "old")
    for name in ("config.json", "model-00001-of-00002.safetensors", mending.EXTRA):
        os.link(old / name, tmp_path / name)
    before = {name: held for name, held in contents(tmp_path).items() if held != "no file"}
    written(old, tmp_path / "new", in_place=True)
    assert {name: held for name, held in contents(tmp_path).items() if held != "no file"} == before
