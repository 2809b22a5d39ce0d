"""Which files a release loads, and the DC0xx rules that judge them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from drafts import Draft
from helpers import lint_draft, of
from weightfiles import POINTER, Storage, archive, entry, safetensors, state, tensor, text, write_tensors

from drafcheck import lint
from drafcheck.checkpoint import open_checkpoint
from drafcheck.cli import run
from drafcheck.contract import resolve_engine
from drafcheck.finding import Finding, Severity
from drafcheck.plan.files import Selection, select_files

FIXTURES = Path(__file__).parent.parent / "fixtures"
INDEX = "model.safetensors.index.json"
CALL = b"cposix\nsystem\n(" + text("touch ran") + b"tR"


def select(folder: Path, version: str = "0.5.15") -> Selection:
    return select_files(open_checkpoint(folder), resolve_engine(f"sglang=={version}"))


def names(selection: Selection) -> list[str]:
    return [file.name for file in selection.files]


def found(folder: Path, code: str, version: str = "0.5.15") -> list[Finding]:
    report = lint(folder, engine=f"sglang=={version}")
    assert report.checkpoints[0].outcome.value != "internal-error"
    return of(list(report.checkpoints[0].findings), code)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}')
    return tmp_path


def write_index(folder: Path, weight_map: object) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}, indent=1))


def pickle_of(folder: Path, name: str, *keys: str, extra: dict[str, bytes] | None = None) -> None:
    one = {key: tensor(Storage("ByteStorage", "0", 4), (4,), (1,)) for key in keys}
    (folder / name).write_bytes(archive(state({**one, **(extra or {})}), {"0": bytes(4)}))


def test_safetensors_come_sorted_by_name_and_pickles_in_their_order(folder: Path) -> None:
    header = {"z": entry("U8", (1,), 0, 1), "a": entry("U8", (1,), 1, 2)}
    (folder / "x.safetensors").write_bytes(safetensors(header, bytes(2)))
    write_tensors(folder / "b.safetensors", m=(1,))
    assert [t.name for t in select(folder).tensors] == ["m", "a", "z"]
    for path in folder.glob("*.safetensors"):
        path.unlink()
    pickle_of(folder, "x.bin", "z", "a")
    assert [t.name for t in select(folder).tensors] == ["z", "a"]


@pytest.mark.parametrize(
    ("version", "ordered"), [("0.4.5", False), ("0.5.10", False), ("0.5.11", True), ("0.5.23", True)]
)
def test_the_order_of_files_is_certain_since(folder: Path, version: str, ordered: bool) -> None:
    write_tensors(folder / "a.safetensors", a=(1,))
    assert select(folder, version).ordered
    write_tensors(folder / "b.safetensors", b=(1,))
    write_tensors(folder / "c.safetensors", c=(1,))
    assert select(folder, version).ordered is ordered


@pytest.mark.parametrize(("version", "ordered"), [("0.5.6", False), ("0.5.7", True), ("0.5.10", True)])
def test_a_pair_without_an_index_is_sorted_since(folder: Path, version: str, ordered: bool) -> None:
    """As the loader looks whether it is consolidated.safetensors and model.safetensors."""
    write_tensors(folder / "a.safetensors", a=(1,))
    write_tensors(folder / "b.safetensors", b=(1,))
    assert select(folder, version).ordered is ordered
    write_index(folder, {"a": "a.safetensors", "b": "b.safetensors"})
    assert not select(folder, version).ordered


@pytest.mark.parametrize("engine", ["sglang==0.5.12", "sglang==0.5.23", "vllm==0.16.0", "vllm==0.33.0"])
def test_the_order_of_pickles_is_never_certain(folder: Path, engine: str) -> None:
    """SGLang reads them by threads, vLLM as the folder lists them; safetensors are sorted."""
    pickle_of(folder, "a.bin", "a")
    assert select_files(open_checkpoint(folder), resolve_engine(engine)).ordered
    pickle_of(folder, "b.bin", "b")
    assert not select_files(open_checkpoint(folder), resolve_engine(engine)).ordered


@pytest.mark.parametrize(("version", "expected"), [("0.5.6", 2), ("0.5.7", 1), ("0.5.23", 1)])
def test_consolidated_beside_model(folder: Path, version: str, expected: int) -> None:
    write_tensors(folder / "consolidated.safetensors", a=(1,))
    write_tensors(folder / "model.safetensors", a=(1,))
    assert len(names(select(folder, version))) == expected
    write_tensors(folder / "third.safetensors", a=(1,))
    assert len(names(select(folder, version))) == 3


def test_suffixes_have_a_rank(folder: Path) -> None:
    pickle_of(folder, "a.pt", "t")
    assert names(select(folder)) == ["a.pt"]
    pickle_of(folder, "b.bin", "t")
    assert names(select(folder)) == ["b.bin"]
    write_tensors(folder / "c.safetensors", t=(4,))
    selection = select(folder)
    assert names(selection) == ["c.safetensors"]
    assert {name for name, _ in selection.ignored} == {"a.pt", "b.bin"}


def test_training_state_is_passed_over(folder: Path) -> None:
    pickle_of(folder, "my_optimizer.bin", "t")
    assert select(folder).refused is not None
    (finding,) = found(folder, "DC012")
    assert "my_optimizer.bin is passed over" in finding.message


def test_a_config_alone_expects_no_weights(folder: Path) -> None:
    (folder / "config.json").rename(folder / "draft.json")
    assert select(folder / "draft.json") == Selection()
    assert found(folder / "draft.json", "DC012") == []


def test_empty_folder(tmp_path: Path) -> None:
    report = lint(tmp_path, engine="sglang==0.5.15")
    assert report.checkpoints[0].outcome.value == "nothing-to-check"
    (finding,) = report.checkpoints[0].findings
    assert finding.rule == "DC001" and finding.severity is Severity.ERROR


@pytest.mark.parametrize("raw", [b"", b"{", b"\x00\xff\x01", b"[]", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"[" * 100_000])
def test_dc002(folder: Path, raw: bytes) -> None:
    write_tensors(folder / "model.safetensors", a=(1,))
    (folder / "config.json").write_bytes(raw)
    (finding,) = found(folder, "DC002")
    assert finding.severity is Severity.ERROR and finding.locations[0].file == "config.json"


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{", POINTER, None])
def test_engines_stop_at_a_config_that_is_none(tmp_path: Path, raw: bytes | None) -> None:
    Draft().write(tmp_path)
    (tmp_path / "config.json").unlink()
    if raw is not None:
        (tmp_path / "config.json").write_bytes(raw)
    assert lint(tmp_path, engine="sglang==0.5.15").checkpoints[0].outcome.value == "refused"


@pytest.mark.parametrize("change", [('{"a": 1, "a": 2, ', ""), ('{"a": NaN, ', ""), ("{", " " * (17 << 20))])
def test_engines_take_a_config_that_is_read_in_several_ways(tmp_path: Path, change: tuple[str, str]) -> None:
    """And a long one, which is not read here."""
    Draft().write(tmp_path)
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(change[0] + text.removeprefix("{") + change[1])
    report = lint(tmp_path, engine="sglang==0.5.15").checkpoints[0]
    assert report.outcome.value == "broken" and of(list(report.findings), "DC002")


def test_dc003(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(POINTER)
    (finding,) = found(folder, "DC003")
    assert "2382319096" in finding.message
    assert found(folder, "DC004") == [] and found(folder, "DC012") == []


def test_dc004_names_file_and_tensor(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(safetensors({"t": entry()}, bytes(3)))
    (finding,) = found(folder, "DC004")
    assert finding.locations[0].file == "model.safetensors" and "truncated" in finding.message
    assert select(folder).refused is not None and names(select(folder)) == []


def test_dc004_only_of_files_that_are_read(folder: Path) -> None:
    write_tensors(folder / "model.safetensors", a=(1,))
    (folder / "pytorch_model.bin").write_bytes(b"broken")
    assert found(folder, "DC004") == []


def test_dc005_lost(folder: Path) -> None:
    write_tensors(folder / "a.safetensors", a=(1,))
    write_index(folder, {"a": "a.safetensors", "b": "b.safetensors"})
    (finding,) = found(folder, "DC005", "0.5.16")
    assert finding.severity is Severity.ERROR and "1 tensor of the index is lost: `b`" in finding.message
    assert finding.locations[0].key == "weight_map.b" and finding.locations[0].line == 4
    (finding,) = found(folder, "DC005", "0.5.17")
    assert "references 1 shard file(s) missing" in finding.message


def test_dc005_stale_index_beside_complete_files(folder: Path) -> None:
    """Measured harmless on 0.5.15.post1: the file at hand holds everything."""
    write_tensors(folder / "model.safetensors", a=(1,), b=(1,))
    write_index(folder, {"a": "model.safetensors", "b": "b.safetensors"})
    (finding,) = found(folder, "DC005")
    assert finding.severity is Severity.WARNING
    (finding,) = found(folder, "DC005", "0.5.17")
    assert finding.severity is Severity.ERROR


def test_dc005_of_pickles(folder: Path) -> None:
    pickle_of(folder, "a.bin", "a")
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": "a.bin", "b": "b.bin"}}))
    (finding,) = found(folder, "DC005", "0.5.23")
    assert "loads the rest without a word" in finding.message


def test_dc006_file_left_out(folder: Path) -> None:
    write_tensors(folder / "a.safetensors", a=(1,))
    write_tensors(folder / "b.safetensors", b=(1,))
    write_index(folder, {"a": "a.safetensors"})
    (finding,) = found(folder, "DC006")
    assert "leaves out b.safetensors" in finding.message and finding.locations[0].tensor == "b"


def test_dc006_copies_left_out_are_no_fault(folder: Path) -> None:
    write_tensors(folder / "a.safetensors", a=(1,))
    write_tensors(folder / "consolidated.safetensors", a=(1,))
    write_index(folder, {"a": "a.safetensors"})
    assert found(folder, "DC006") == []


def test_dc006_other_shards_than_the_index_says_are_no_fault(folder: Path) -> None:
    """The loader reads whole files and never compares the map with them."""
    write_tensors(folder / "a.safetensors", a=(1,), extra=(1,))
    write_tensors(folder / "b.safetensors", b=(1,))
    write_index(folder, {"a": "b.safetensors", "b": "a.safetensors"})
    assert found(folder, "DC006") == []


def test_dc006_promised(folder: Path) -> None:
    write_tensors(folder / "a.safetensors", a=(1,))
    write_index(folder, {"a": "a.safetensors", "b": "a.safetensors"})
    (finding,) = found(folder, "DC006")
    assert "lists 1 tensor that is in none of its files: `b`" in finding.message


@pytest.mark.parametrize("name", ["/etc/passwd", "../x.safetensors"])
def test_dc006_paths_outside(folder: Path, name: str) -> None:
    write_tensors(folder / "a.safetensors", a=(1,))
    write_index(folder, {"a": "a.safetensors", "b": name})
    (finding,) = found(folder, "DC006")
    assert "outside the checkpoint" in finding.message


def test_index_that_spells_files_otherwise(folder: Path) -> None:
    """The loader compares whole paths: ``./a`` is another file to it."""
    write_tensors(folder / "a.safetensors", a=(1,))
    write_index(folder, {"a": "./a.safetensors"})
    selection = select(folder)
    assert selection.refused is not None and selection.refused.cause == "no-files"
    (finding,) = found(folder, "DC012")
    assert "a.safetensors is passed over" in finding.message


def test_dc007(folder: Path) -> None:
    write_tensors(folder / "a.safetensors", a=(2,), b=(1,))
    write_tensors(folder / "b.safetensors", a=(2,))
    assert found(folder, "DC007") == []
    (folder / "b.safetensors").write_bytes(safetensors({"a": entry("U8", (2,), 0, 2)}, b"\0\1"))
    (finding,) = found(folder, "DC007")
    assert (
        "1 tensor in both a.safetensors and b.safetensors differs, and the one in b.safetensors wins" in finding.message
    )
    (finding,) = found(folder, "DC007", "0.5.6")
    assert "depends on the disk's order" in finding.message


def test_dc007_of_pickles(folder: Path) -> None:
    one = Storage("ByteStorage", "0", 4)
    for name, values in (("a.bin", bytes(4)), ("b.bin", b"\0\1\2\3")):
        (folder / name).write_bytes(archive(state({"a": tensor(one, (4,), (1,))}), {"0": values}))
    (finding,) = found(folder, "DC007")
    assert "which one wins is chance, as several files are read at once" in finding.message
    (finding,) = found(folder, "DC007", "0.5.9")
    assert "which one wins depends on the disk's order" in finding.message


def test_numbers_in_names_count_where_the_loader_counts_them(folder: Path) -> None:
    write_tensors(folder / "m-10.safetensors", a=(1,))
    write_tensors(folder / "m-2.safetensors", a=(1,))
    assert names(select(folder)) == ["m-10.safetensors", "m-2.safetensors"]
    for version in ("0.16.0", "0.33.0"):
        chosen = select_files(open_checkpoint(folder), resolve_engine(f"vllm=={version}"))
        assert chosen.ordered and names(chosen) == ["m-2.safetensors", "m-10.safetensors"]


@pytest.mark.parametrize(("version", "within"), [("0.4.5", "library"), ("0.4.8.post1", "library"), ("0.4.9", "name")])
def test_old_releases_leave_the_order_in_a_file_to_the_library(folder: Path, version: str, within: str) -> None:
    write_tensors(folder / "a.safetensors", b=(1,), a=(1,))
    chosen = select(folder, version)
    assert chosen.within == within and chosen.ordered
    said = chosen.chance(*chosen.tensors)
    assert said == ("depends on the release of the safetensors library" if within == "library" else None)


def test_dc008(folder: Path) -> None:
    write_tensors(folder / "model.safetensors", a=(4,), b=(4,))
    pickle_of(folder, "pytorch_model.bin", "a", "b")
    (finding,) = found(folder, "DC008")
    assert finding.severity is Severity.WARNING and "names, dtypes and shapes agree" in finding.message
    pickle_of(folder, "pytorch_model.bin", "a", "c")
    (finding,) = found(folder, "DC008")
    assert "differ in 2 tensors: `b`, `c`" in finding.message


def test_dc008_not_for_other_pickles(folder: Path) -> None:
    write_tensors(folder / "model.safetensors", a=(4,))
    pickle_of(folder, "optimizer_state_dict.pt", "state")
    pickle_of(folder, "mapping.pt", "d2t")
    assert found(folder, "DC008") == []
    assert [f.locations[0].file for f in found(folder, "DC011")] == ["optimizer_state_dict.pt"]


def test_dc009_and_dc010(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    pickle_of(folder, "pytorch_model.bin", "a")
    assert found(folder, "DC009") == []
    assert [f.severity for f in found(folder, "DC010")] == [Severity.NOTE]
    pickle_of(folder, "pytorch_model.bin", "a", extra={"x": CALL})
    (finding,) = found(folder, "DC009")
    assert "posix.system at byte" in finding.message and finding.severity is Severity.ERROR
    assert found(folder, "DC010") == []
    assert not (folder / "ran").exists()


def test_dc009_of_the_state_of_a_training(folder: Path) -> None:
    write_tensors(folder / "model.safetensors", a=(1,))
    pickle_of(folder, "training_args.bin", extra={"x": CALL})
    assert [f.locations[0].file for f in found(folder, "DC009")] == ["training_args.bin"]
    assert [f.locations[0].file for f in found(folder, "DC011")] == ["training_args.bin"]


def test_dc012_subfolder(folder: Path) -> None:
    (folder / "checkpoint-400").mkdir()
    write_tensors(folder / "checkpoint-400" / "model.safetensors", a=(1,))
    (finding,) = found(folder, "DC012")
    assert "checkpoint-400/model.safetensors" in finding.message and "checkpoint-400" in str(finding.help)


def test_dc012_folder_under_the_name(folder: Path) -> None:
    (folder / "model.safetensors").mkdir()
    (finding,) = found(folder, "DC012")
    assert finding.message == "model.safetensors is a directory, not a regular file"


def test_a_healthy_draft_has_none_of_them(tmp_path: Path) -> None:
    assert [f for f in lint_draft(tmp_path) if f.rule.startswith("DC0")] == []


@pytest.mark.parametrize("engine", ["sglang==0.5.15", "sglang==0.5.23", "vllm==0.33.0", "lmdeploy", "llama.cpp"])
@pytest.mark.parametrize("kind", ["directory", "pipe", "link that leads nowhere", "empty file"])
def test_what_is_no_regular_file_is_no_index(kind: str, engine: str, folder: Path) -> None:
    """Loaders ask os.path.isfile; an empty file is one, and stops them."""
    place = folder / INDEX
    lint_draft(folder)
    if kind == "directory":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "empty file":
        place.write_text("")
    else:
        place.symlink_to(folder / "gone")
    report = lint(folder, engine=engine).checkpoints[0]
    finding, *_ = of(list(report.findings), "DC006")
    goal = folder.parent / f"{folder.name}-mended"
    assert run(["fix", str(folder), "--engine", "sglang==0.5.15", "--output", str(goal)]) == 0
    assert not os.path.lexists(goal / INDEX)
    place.rmdir() if kind == "directory" else place.unlink()
    healthy = lint(folder, engine=engine).checkpoints[0]
    if kind == "empty file":
        assert finding.severity is Severity.ERROR
        return
    assert (finding.severity, finding.locations[0].file) == (Severity.NOTE, INDEX)
    assert "as if there were no index" in finding.message
    assert (report.outcome, report.plan) == (healthy.outcome, healthy.plan)
