"""``drafcheck fix`` from its command line: what it prints, writes and answers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from make_fixtures import FIXTURES

from drafcheck.checkpoint import open_checkpoint
from drafcheck.checks.names import lost
from drafcheck.cli import cli
from drafcheck.errors import UsageError
from drafcheck.fix import registry
from drafcheck.fix.edits import Edit, Rename, SetKey
from drafcheck.fix.registry import Known

ENGINE = ("--engine", "sglang==0.5.9")
BROKEN = FIXTURES / "DC101/layers-0.5.9"


def run(*args: str | Path) -> Result:
    """One call, exceptions let through as they are told by ``main``."""
    return CliRunner().invoke(cli, ["fix", *map(str, args)], standalone_mode=False)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A copy of a draft whose decoder layer is called otherwise than this release reads it."""
    return Path(shutil.copytree(BROKEN, tmp_path / "ckpt"))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[Known]]]:
    """Repairs of this test's own, in place of those that are declared."""
    mine: dict[str, list[Known]] = {}
    monkeypatch.setattr("drafcheck.fix.mend.load_repairs", lambda: mine)
    monkeypatch.setattr("drafcheck.fix.text.load_repairs", lambda: mine)
    yield mine
    assert registry.load_repairs() is not mine


def rename(known: dict[str, list[Known]], cost: str | None = None) -> None:
    """Let DC101 be repaired as it should."""

    def work(s: registry.Subject, findings: object, wishes: object) -> Iterator[Edit]:
        del findings, wishes
        yield from (Rename(tensor, wanted.name) for tensor, wanted in lost(s) if wanted is not None)

    known["DC101"] = [Known("DC101", work, cost)]


def wrong(known: dict[str, list[Known]], *edits: Edit) -> None:
    """Let DC101 be repaired by edits that are no repair."""
    known["DC101"] = [Known("DC101", lambda *_: iter(edits), None)]


def test_a_new_folder_is_written_and_the_old_one_left_alone(broken: Path, known: dict[str, list[Known]]) -> None:
    rename(known)
    before = {file.name: file.read_bytes() for file in broken.iterdir()}
    result = run(broken, *ENGINE)
    assert result.return_value == 0
    assert result.output.startswith("repaired[DC101 dropped-weight]: 10 tensors")
    assert "  + 10 tensors renamed: `layers.0.*` to `midlayer.*`\n" in result.output
    assert result.output.endswith("ckpt-fixed: clean: 1 note\n")
    assert {file.name: file.read_bytes() for file in broken.iterdir()} == before
    after = {file.name: file.read_bytes() for file in (broken.parent / "ckpt-fixed").iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"model.safetensors"}
    assert CliRunner().invoke(cli, ["check", f"{broken}-fixed", *ENGINE], standalone_mode=False).return_value == 0


def test_a_repaired_checkpoint_is_not_repaired_again(broken: Path, known: dict[str, list[Known]]) -> None:
    rename(known)
    run(broken, *ENGINE)
    result = run(f"{broken}-fixed", *ENGINE)
    assert (result.return_value, result.output.splitlines()[0]) == (0, "nothing to repair")
    assert sorted(folder.name for folder in broken.parent.iterdir()) == ["ckpt", "ckpt-fixed"]


def test_in_place_keeps_the_old_config_and_leaves_nothing_else(broken: Path, known: dict[str, list[Known]]) -> None:
    known["DC101"] = [Known("DC101", lambda *_: iter([]), None)]
    rename(known)
    names = {file.name for file in broken.iterdir()}
    assert run(broken, *ENGINE, "--in-place", "-q").return_value == 0
    assert {file.name for file in broken.iterdir()} == names
    known["DC406"] = [Known("DC406", lambda *_: iter([SetKey(("eagle_config",), _ids([1, 3, 4]))]), None)]
    config = (broken / "config.json").read_bytes()
    result = run(broken, *ENGINE, "--in-place")
    assert "the old config is kept as config.json.orig\n" in result.output
    assert (broken / "config.json.orig").read_bytes() == config != (broken / "config.json").read_bytes()


def _ids(ids: list[int]) -> dict[str, list[int]]:
    return {"eagle_aux_hidden_state_layer_ids": ids}


def test_diff_shows_every_change_and_writes_nothing(broken: Path, known: dict[str, list[Known]]) -> None:
    rename(known)
    known["DC406"] = [Known("DC406", lambda *_: iter([SetKey(("eagle_config",), _ids([1, 3, 4]))]), None)]
    result = run(broken, *ENGINE, "--diff")
    assert result.return_value == 1
    assert '+  "eagle_config": {\n' in result.output and f"--- {broken}/config.json" in result.output
    assert re.search(
        r"^renamed +layers\.0\.hidden_norm\.weight +midlayer\.hidden_norm\.weight$", result.output, re.MULTILINE
    )
    assert "written anew  model.safetensors\n" in result.output
    assert [folder.name for folder in broken.parent.iterdir()] == ["ckpt"]
    assert run(FIXTURES / "good/healthy", "--diff", "--select", "DC101").return_value == 0


def test_only_the_findings_that_are_chosen_are_repaired(broken: Path, known: dict[str, list[Known]]) -> None:
    rename(known)
    result = run(broken, *ENGINE, "--select", "DC102")
    assert (result.return_value, result.output.splitlines()[0]) == (1, "nothing of the rules chosen can be repaired")
    assert run(broken, *ENGINE, "--ignore", "DC101").return_value == 1
    assert run(broken, *ENGINE, "--select", "dropped-weight").return_value == 0


def test_what_is_unsafe_waits_to_be_asked_for(broken: Path, known: dict[str, list[Known]]) -> None:
    rename(known, cost="the names change")
    result = run(broken, *ENGINE)
    assert result.return_value == 1
    assert "--unsafe may repair DC101 dropped-weight: the names change\n" in result.output
    result = run(broken, *ENGINE, "--unsafe")
    assert result.return_value == 0 and "  = unsafe: the names change\n" in result.output


def test_a_repair_that_does_not_hold_delivers_nothing(broken: Path, known: dict[str, list[Known]]) -> None:
    for edits, said in (
        ([*_renamed(), SetKey(("draft_vocab_size",), 64)], r"once DC101 is repaired, DC\d+ shows: "),
        ([SetKey(("comment",), "x")], "the repair of DC101 did not help"),
    ):
        wrong(known, *edits)
        with pytest.raises(UsageError, match=said):
            run_raising(broken, *ENGINE)
        assert [folder.name for folder in broken.parent.iterdir()] == ["ckpt"]


def _renamed() -> list[Edit]:
    """What the repair should be."""
    tensors = open_checkpoint(BROKEN).files[0].header.tensors
    inner = [t for t in tensors if t.name.startswith("layers.0.")]
    return [Rename(t, t.name.replace("layers.0.", "midlayer.")) for t in inner]


def run_raising(*args: str | Path) -> None:
    """One call whose error is raised."""
    result = run(*args)
    if result.exception is not None:
        raise result.exception


def test_what_can_not_go_together_is_refused(broken: Path, tmp_path: Path) -> None:
    for args, said in (
        (["--in-place", "--output", "x"], "do not go together"),
        (["--target-weights", "x"], "--target-weights x"),
        (["--engine", "all"], "one engine"),
    ):
        with pytest.raises(UsageError, match=said):
            run_raising(broken, *args)
    with pytest.raises(UsageError, match="give its folder"):
        run_raising(_alone(broken, tmp_path / "alone"), *ENGINE)
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "empty", *ENGINE).return_value == 3


def _alone(broken: Path, folder: Path) -> Path:
    folder.mkdir()
    return Path(shutil.copy(broken / "model.safetensors", folder))


def test_output_says_where_and_a_folder_with_something_in_it_is_refused(
    broken: Path, tmp_path: Path, known: dict[str, list[Known]]
) -> None:
    rename(known)
    goal = tmp_path / "deep"
    goal.mkdir()
    assert run(broken, *ENGINE, "--output", goal).return_value == 0
    assert json.loads((goal / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(UsageError, match="no empty folder"):
        run_raising(broken, *ENGINE, "--output", goal)


def test_a_named_folder_is_written_even_if_nothing_is_to_be_repaired(tmp_path: Path) -> None:
    result = run(FIXTURES / "good/healthy", "--engine", "sglang==0.5.15", "--output", tmp_path / "copy")
    assert result.return_value == 0 and result.output.startswith("nothing to repair: copied as it is\n")
    names = {file.name for file in (FIXTURES / "good/healthy").iterdir()}
    assert {file.name for file in (tmp_path / "copy").iterdir()} == names
    assert run(FIXTURES / "DC401/one-state", *ENGINE, "--output", tmp_path / "no").return_value == 1
    assert not (tmp_path / "no").exists()


def test_diff_never_writes_not_even_to_complete_what_was_cut_off(broken: Path) -> None:
    (broken / ".drafcheck-fix").mkdir()
    before = sorted(broken.rglob("*"))
    assert run(broken, *ENGINE, "--in-place", "--diff").return_value == 1
    assert sorted(broken.rglob("*")) == before


def test_folders_that_stay_behind_are_named(broken: Path, tmp_path: Path) -> None:
    (broken / "logs").mkdir()
    line = "not taken along, as it is no file: logs\n"
    assert run(broken, *ENGINE, "--diff").output.endswith(line)
    assert line in run(broken, *ENGINE, "--output", tmp_path / "new").output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--output", "s3:x"], "an address is none"),
        (["--output", "hf://org/name"], "an address is none"),
        (["--output", ""], "is empty"),
        (["--max-missing-rows", "3"], "--unsafe"),
    ],
)
def test_options_that_mean_nothing_are_refused(broken: Path, args: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run_raising(broken, *ENGINE, *args)


def test_a_cache_of_the_hub_is_no_place_for_a_new_folder(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(BROKEN, tmp_path / "snapshots" / "abc"))
    with pytest.raises(UsageError, match="cache of the Hub"):
        run_raising(folder, *ENGINE)
    assert run(folder, *ENGINE, "--output", tmp_path / "new").return_value == 0


def test_what_an_unsafe_repair_needs_is_said() -> None:

    case = min((FIXTURES / "DC309").iterdir())
    engine = (case / "args.txt").read_text(encoding="utf-8").split()
    offer = "--unsafe with --target-weights may repair DC309 missing-lm-head"
    assert offer in run(case, *engine).output
    assert "--target-weights is needed to repair DC309 missing-lm-head" in run(case, *engine, "--unsafe").output
