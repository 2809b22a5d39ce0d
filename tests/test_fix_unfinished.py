"""Repairs in place that were cut off: who says so, what completes them, and what is not trusted on the way."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mending
import pytest
from mending import contents, fine, listing

from drafcheck import lint
from drafcheck.checkpoint import UNFINISHED
from drafcheck.cli import run
from drafcheck.errors import UsageError
from drafcheck.fix import staging
from drafcheck.fix.inplace import finish, replace
from drafcheck.fix.staging import STAGING, Bar, Meter
from drafcheck.fix.write import deliver
from drafcheck.place import LocalPlace

ENGINE = ["--engine", "sglang==0.5.15"]


def mend(old: Path, check: Callable[[Path], None] = fine) -> None:
    """Repair the broken draft in ``old`` where it is."""
    files, removed = mending.mended(old)
    replace(LocalPlace(old), files, removed, check=check, progress=Meter())


def halted(old: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the repair of ``old`` stop after so many files were replaced, and answer what is said about it."""
    real, done = Path.replace, [0]

    def failing(self: Path, goal: Path) -> Path:
        if done[0] == after:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        done[0] += 1
        return real(self, goal)

    with monkeypatch.context() as context, pytest.raises(UsageError) as error:
        context.setattr(Path, "replace", failing)
        mend(old)
    return str(error.value)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The broken draft, in a folder of its own."""
    return mending.broken(tmp_path / "old")


@pytest.fixture
def goal(tmp_path: Path) -> dict[str, str]:
    """What it will hold once it is repaired in place."""
    twin = mending.broken(tmp_path / "twin")
    mend(twin)
    return contents(twin)


def test_a_repair_whose_first_file_can_not_be_replaced_is_taken_back(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(old)
    said = halted(old, 0, monkeypatch)
    name = old / "model-00001-of-00002.safetensors"
    assert said == f"{name} can not be replaced: input/output error; nothing was changed"
    assert contents(old) == before


@pytest.mark.parametrize("after", [1, 2])
def test_a_repair_that_stops_half_way_is_completed_by_the_next_run(
    old: Path, goal: dict[str, str], after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = halted(old, after, monkeypatch)
    name = ("config.json", "config.json.orig")[after - 1]
    half = f"the repair is half done, drafcheck fix --in-place {old} completes it"
    assert said == f"{old / name} can not be replaced: input/output error; {half}"
    assert UNFINISHED in listing(old)
    assert finish(old) and contents(old) == goal
    assert not finish(old) and contents(old) == goal


def test_every_command_says_that_a_repair_is_unfinished_and_fix_completes_it(
    old: Path, goal: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    halted(old, 1, monkeypatch)
    for path in (old, old / "config.json", old / "model-00001-of-00002.safetensors"):
        for command in ("check", "show"):
            assert run([command, str(path), *ENGINE]) == 2
            said = f"a repair in place was cut off half-way here: `drafcheck fix --in-place {old}` completes it"
            assert said in capsys.readouterr().err
    with pytest.raises(UsageError, match="cut off half-way"):
        lint(old, engine=ENGINE[1])
    run(["fix", "--in-place", str(old), *ENGINE])
    assert "a repair in place that was cut off here is complete now" in capsys.readouterr().err
    assert contents(old) == goal


def test_what_was_left_before_anything_changed_is_in_nobodys_way(old: Path, goal: dict[str, str]) -> None:
    (old / STAGING / "new").mkdir(parents=True)
    (old / STAGING / "new" / "model-00001-of-00002.safetensors").write_bytes(b"half")
    before = lint(mending.broken(old.parent / "same"), engine=ENGINE[1])
    seen = lint(old, engine=ENGINE[1])
    assert [f.rule for f in seen.findings] == [f.rule for f in before.findings]
    assert not finish(old) and STAGING not in listing(old)
    (old / STAGING).mkdir()
    mend(old)
    assert contents(old) == goal


def test_a_file_that_was_put_there_meanwhile_is_not_overwritten(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has repaired it by hand, or downloaded it again."""
    halted(old, 1, monkeypatch)
    (old / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"config\.json has changed since its repair was cut off: remove "):
        finish(old)
    assert (old / "config.json").read_text() == "{}" and UNFINISHED in listing(old)


def test_a_file_that_was_to_go_and_is_another_now_stays(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halted(old, 2, monkeypatch)
    (old / mending.EXTRA).write_bytes(b"something else")
    with pytest.raises(UsageError, match="has changed since its repair was cut off"):
        finish(old)
    assert (old / mending.EXTRA).read_bytes() == b"something else"


@pytest.mark.parametrize(
    "plan",
    [
        "no json",
        "7",
        "[7]",
        '[["a"]]',
        json.dumps([["../outside", True, None]]),
        json.dumps([["../outside", False, [4, 0]]]),
        json.dumps([["", False, None]]),
        json.dumps([[["x"], False, None]]),
        "[" * 100_000,
        "",
    ],
)
def test_a_plan_that_came_with_the_checkpoint_moves_and_removes_nothing_elsewhere(old: Path, plan: str) -> None:
    (old.parent / "outside").write_text("mine")
    os.utime(old.parent / "outside", ns=(0, 0))
    (old / UNFINISHED / "new").mkdir(parents=True)
    (old / UNFINISHED / "plan.json").write_text(plan)
    before = contents(old)
    with pytest.raises(UsageError, match="does not say how to complete the repair"):
        finish(old)
    assert contents(old) == before and (old.parent / "outside").read_text() == "mine"


def test_a_plan_that_is_a_pipe_is_not_waited_for(old: Path) -> None:
    (old / UNFINISHED / "new").mkdir(parents=True)
    os.mkfifo(old / UNFINISHED / "plan.json")
    with pytest.raises(UsageError, match="a named pipe, not a regular file"):
        finish(old)


def test_links_that_came_with_the_checkpoint_are_not_followed(old: Path) -> None:
    """Else a repair would move what they lead to into the checkpoint, or remove it."""
    mine = old.parent / "mine"
    mine.mkdir()
    (mine / "id_rsa").write_text("secret")
    plan = json.dumps([["id_rsa", True, None]])
    (old / UNFINISHED).mkdir()
    (old / UNFINISHED / "plan.json").write_text(plan)
    (old / UNFINISHED / "new").symlink_to(mine)
    with pytest.raises(UsageError, match="does not say how to complete the repair"):
        finish(old)
    (old / UNFINISHED / "new").unlink()
    (mine / "plan.json").write_text(plan)
    (mine / "new").mkdir()
    (old / UNFINISHED).rename(old.parent / "aside")
    (old / UNFINISHED).symlink_to(mine)
    with pytest.raises(UsageError, match="can not write"):
        finish(old)
    (old / UNFINISHED).unlink()
    (old / STAGING).symlink_to(mine)
    with pytest.raises(UsageError):
        mend(old)
    assert listing(mine) == ["id_rsa", "new", "plan.json"]


def test_a_name_that_a_folder_has_is_refused_before_anything_changes(old: Path) -> None:
    files, _ = mending.mended(old)
    (old / "taken").mkdir()
    before = contents(old)
    taken = {**files, "taken": files["config.json"]}
    for names, removed in ((taken, []), ({**files, "../config.json": files["config.json"]}, []), (files, ["taken"])):
        with pytest.raises(UsageError, match="is not the name of a file in"):
            replace(LocalPlace(old), names, removed, check=fine, progress=Meter())
        assert contents(old) == before


def test_file_systems_without_links(old: Path, goal: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    shown: list[dict[str, str]] = []
    (old / "original").mkdir()
    with monkeypatch.context() as context:
        context.setattr(os, "symlink", refusing)
        context.setattr(Path, "symlink_to", refusing)
        mend(old, check=lambda folder: shown.append(contents(folder)))
    (old / "original").rmdir()
    assert contents(old) == goal and shown == [goal]


def test_file_systems_without_locks(old: Path, goal: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was left there may be at work: only the user knows. What is half done is completed all the same."""

    def refusing(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refusing)
    halted(old, 1, monkeypatch)
    assert finish(old) and contents(old) == goal
    (old / STAGING).mkdir()
    with pytest.raises(UsageError, match=r"was left by a run that was cut off, or one is still at work"):
        mend(old)
    files, removed = mending.mended(old)
    deliver(LocalPlace(old), files, removed, old.parent / "new", check=fine, progress=Meter())
    assert (old.parent / "new" / "README.md").is_file()


class Terminal(io.StringIO):
    """Somebody is looking."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "most", "shown"),
    [(Terminal(), 0, True), (Terminal(), staging.SHOWN, False), (io.StringIO(), 0, False), (None, 0, False)],
)
def test_progress_is_for_terminals_and_large_files(
    old: Path, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None, most: int, shown: bool
) -> None:
    files, removed = mending.mended(old)
    monkeypatch.setattr(staging, "SHOWN", most)
    monkeypatch.setattr(sys, "stderr", stream)
    deliver(LocalPlace(old), files, removed, old.parent / "new", check=fine, progress=Bar())
    text = stream.getvalue() if stream is not None else ""
    assert ("writing" in text and "100%" in text) is shown and bool(text) is shown
