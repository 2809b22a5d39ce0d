"""Repairs of files: the index anew, copies left out, pickles as safetensors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases_files import LAYER_FILE, ones, sharded
from drafts import HIDDEN, VOCAB, Draft
from make_fixtures import FIXTURES
from pickles import text, write_torch
from repairing import checked, contents, edits_for, hashed, mended, mended_draft, options_of
from weightfiles import SPARSE
from weights import Weight, read_safetensors, write_safetensors, zeros

from drafcheck.finding import Finding
from drafcheck.fix.edits import Convert, DropFile, Edit, Reindex
from drafcheck.fix.text import repairs
from drafcheck.report.style import Style
from drafcheck.session import Options

SGLANG = Options(engine="sglang==0.5.15")

MENDED: dict[str, list[Edit]] = {
    "DC005/stale-index": [Reindex()],
    "DC005/stale-index-refused": [Reindex()],
    "DC006/file-left-out": [Reindex()],
    "DC008/alike": [DropFile("pytorch_model.bin", "a copy of what the safetensors files hold")],
    "DC010/bin-only": [Convert("pytorch_model.bin")],
}

LEFT = (
    "DC006/tensor-not-there",
    "DC002/duplicate-key",
    "DC003/weights",
    "DC004/truncated",
    "DC005/missing-shard",
    "DC005/missing-shard-refused",
    "DC007/two-files",
    "DC008/differ",
    "DC009/calls-a-command",
    "DC011/optimizer-and-state",
    "DC012/in-a-subfolder",
)


def told(folder: Path | str, code: str, options: Options = SGLANG) -> tuple[list[Finding], list[Edit]]:
    """The findings of one rule and what they lead to."""
    seen = checked(folder, options)
    found = [f for f in seen.findings if f.rule == code]
    assert found
    edits = [edit for finding in found for edit in edits_for(seen, finding)]
    assert any(f.fixable for f in found) == bool(edits)
    return found, edits


@pytest.mark.parametrize("case", MENDED)
def test_files_are_mended(case: str) -> None:
    code = case.partition("/")[0]
    assert told(FIXTURES / case, code, options_of(case))[1] == MENDED[case]
    done = mended(FIXTURES / case, options_of(case))
    assert contents(done) == hashed(done.first)
    assert code not in {f.rule for f in done.last.findings}


@pytest.mark.parametrize("case", LEFT)
def test_files_that_nothing_mends_are_left(case: str) -> None:
    assert told(FIXTURES / case, case.partition("/")[0], options_of(case))[1] == []


def test_an_index_of_one_file_goes(tmp_path: Path) -> None:
    """Whatever it says: without an index the one file is read."""
    draft = Draft()
    draft.files["model.safetensors.index.json"] = b"{"
    draft.write(tmp_path)
    assert set(told(tmp_path, "DC006")[1]) == {Reindex()}
    done = mended_draft(tmp_path)
    assert done.last.subject is not None and done.last.subject.checkpoint.index is None
    assert "DC006" not in {f.rule for f in done.last.findings}


def test_a_broken_index_of_two_shards_is_written_anew(tmp_path: Path) -> None:
    draft = Draft()
    places = sharded(draft)
    draft.files["model.safetensors.index.json"] = json.dumps({"weight_map": {**places, "norm.weight": 3}}).encode()
    draft.write(tmp_path)
    done = mended_draft(tmp_path)
    assert done.last.subject is not None and done.last.subject.checkpoint.index is not None
    assert done.last.subject.checkpoint.index.weight_map == places


def test_a_broken_index_beside_copies_that_differ_is_left(tmp_path: Path) -> None:
    """Without an index both files are read, and the last one wins."""
    draft = Draft()
    other = {"norm.weight": ones(draft.weights["norm.weight"])}
    draft.writers.append(lambda folder: write_safetensors(folder / "old.safetensors", other))
    draft.files["model.safetensors.index.json"] = b"[]"
    draft.write(tmp_path)
    assert told(tmp_path, "DC006")[1] == []


def test_a_file_of_another_model_is_not_indexed(tmp_path: Path) -> None:
    """It lies beside an index that rightly leaves it out, and a tensor of the draft is nowhere."""
    draft = Draft()
    places = sharded(draft)
    draft.index({n: f for n, f in places.items() if n != "fc.weight"})
    shard = {n: w for n, w in draft.weights.items() if n != "fc.weight"}
    draft.weights = shard
    adapter = {"lora_A.weight": zeros("BF16", 8, HIDDEN)}
    draft.writers.append(lambda folder: write_safetensors(folder / "adapter.safetensors", adapter))
    draft.write(tmp_path)
    assert told(tmp_path, "DC006")[1] == []


def test_an_older_copy_that_fills_the_same_places_is_not_indexed(tmp_path: Path) -> None:
    """The embedding is left out, and beside it lies a norm that the shard in use has already, with other values."""
    draft = Draft()
    draft.index(dict.fromkeys(draft.weights, "model.safetensors"))
    other = {"norm.weight": ones(draft.weights["norm.weight"]), "extra.weight": zeros("BF16", 2)}
    draft.writers.append(lambda folder: write_safetensors(folder / "old.safetensors", other))
    draft.write(tmp_path)
    assert told(tmp_path, "DC006")[1] == []


def test_an_index_that_names_no_file_at_hand_is_written_anew(tmp_path: Path) -> None:
    """The shards were merged and the index stayed: no file that it names is there."""
    draft = Draft()
    draft.index({n: LAYER_FILE if "midlayer" in n else "model-00001-of-00002.safetensors" for n in draft.weights})
    draft.write(tmp_path)
    assert told(tmp_path, "DC012")[1] == [Reindex()]
    done = mended_draft(tmp_path)
    assert not {"DC005", "DC006", "DC012"} & {f.rule for f in done.last.findings}


def test_a_shard_that_is_lost_stays_lost(tmp_path: Path) -> None:
    draft = Draft()
    sharded(draft)
    draft.writers.append(lambda folder: (folder / LAYER_FILE).unlink())
    draft.write(tmp_path)
    assert told(tmp_path, "DC005")[1] == []


def test_a_copy_with_other_values_is_kept(tmp_path: Path) -> None:
    """Names, dtypes and shapes agree: only the bytes tell."""
    draft = Draft()
    same = {**draft.weights, "norm.weight": ones(draft.weights["norm.weight"])}
    draft.writers.append(lambda folder: write_torch(folder / "pytorch_model.bin", same))
    draft.write(tmp_path)
    assert told(tmp_path, "DC008")[1] == []


def test_a_copy_of_a_part_is_left_out(tmp_path: Path) -> None:
    draft = Draft()
    part = {"norm.weight": draft.weights["norm.weight"], "d2t": draft.weights["d2t"]}
    draft.writers.append(lambda folder: write_torch(folder / "pytorch_model.bin", part))
    draft.write(tmp_path)
    assert told(tmp_path, "DC008")[1] == [DropFile("pytorch_model.bin", "a copy of what the safetensors files hold")]


def test_the_index_of_a_copy_goes_with_it(tmp_path: Path) -> None:
    draft = Draft()
    same = dict(draft.weights)
    index = {"metadata": {}, "weight_map": dict.fromkeys(same, "pytorch_model.bin")}
    draft.files["pytorch_model.bin.index.json"] = json.dumps(index).encode()
    draft.writers.append(lambda folder: write_torch(folder / "pytorch_model.bin", same))
    draft.write(tmp_path)
    done = mended_draft(tmp_path)
    assert done.last.subject is not None
    left = set(done.last.subject.checkpoint.place.names() or [])
    assert not left & {"pytorch_model.bin", "pytorch_model.bin.index.json"}


def test_pickles_with_two_names_for_one_place_stay(tmp_path: Path) -> None:
    """The one that is read last wins, and in safetensors that is another one."""
    draft = Draft()
    draft.weight_file = None
    both = {"model.norm.weight": ones(draft.weights["norm.weight"]), **draft.weights}
    draft.writers.append(lambda folder: write_torch(folder / "pytorch_model.bin", both))
    draft.write(tmp_path)
    found, edits = told(tmp_path, "DC010")
    assert edits == [] and not found[0].fixable


def test_weights_in_a_form_that_the_release_does_not_look_for(tmp_path: Path) -> None:
    draft = Draft()
    draft.weight_file = None
    draft.full_vocabulary()
    draft.weights["d2t"] = Weight("I64", (VOCAB,))
    draft.writers.append(lambda folder: write_torch(folder / "model.pt", draft.weights))
    draft.write(tmp_path)
    engine = Options(engine="lmdeploy==0.16.0")
    assert told(tmp_path, "DC012", engine)[1] == [Convert("model.pt")]
    done = mended(tmp_path, engine)
    assert not {"DC010", "DC012"} & {f.rule for f in done.last.findings}
    assert set(contents(done)) == set(draft.weights)


def test_a_copy_that_holds_more_is_no_copy(tmp_path: Path) -> None:
    draft = Draft()
    same = dict(draft.weights)
    draft.writers.append(lambda folder: write_torch(folder / "pytorch_model.bin", same, after=text("x") + SPARSE))
    draft.write(tmp_path)
    assert told(tmp_path, "DC008")[1] == []


def test_of_two_states_none_is_chosen(tmp_path: Path) -> None:
    draft = Draft()
    draft.weight_file = None
    for name in ("epoch_1.pt", "epoch_2.pt"):
        draft.writers.append(lambda folder, name=name: write_torch(folder / name, draft.weights))  # type: ignore[misc]
    draft.write(tmp_path)
    assert told(tmp_path, "DC012", Options(engine="lmdeploy==0.16.0"))[1] == []


def halved(tmp_path: Path, second: str) -> tuple[Draft, dict[str, str]]:
    """A draft of two shards, of which the index looks for the second one elsewhere, and what it lists."""
    draft = Draft()
    names = sorted(draft.weights)
    first = {n: draft.weights.pop(n) for n in names[: len(names) // 2]}
    rest = dict(draft.weights)
    draft.weights.clear()
    table = {n: SHARD if n in first else second for n in names}
    index = {"metadata": {"total_size": 7, "who": "me"}, "weight_map": table, "more": {"a": 1}}
    draft.files[INDEX] = json.dumps(index).encode()
    goal = tmp_path / "ckpt" / second

    def write(folder: Path) -> None:
        (folder / "model.safetensors").unlink(missing_ok=True)
        write_safetensors(folder / SHARD, first)
        goal.parent.mkdir(exist_ok=True)
        write_safetensors(goal, rest)

    draft.writers.append(write)
    return draft, table


SHARD, INDEX = "model-00001-of-00002.safetensors", "model.safetensors.index.json"
SECOND = "model-00002-of-00002.safetensors"


@pytest.mark.parametrize("second", [f"../outside/{SECOND}", f"sub/{SECOND}"])
def test_an_index_that_alone_tells_of_weights_is_kept(tmp_path: Path, second: str) -> None:
    draft, _ = halved(tmp_path, second)
    draft.write(tmp_path / "ckpt")
    assert told(tmp_path / "ckpt", "DC006")[1] == []
    assert not mended_draft(tmp_path / "ckpt").rounds


@pytest.mark.parametrize("second", [f"../outside/{SECOND}", f"sub/{SECOND}", SECOND])
def test_a_rename_keeps_what_the_index_lists(tmp_path: Path, second: str) -> None:
    """Entries of tensors that are nowhere too, spelt as the others now; and what nobody knows."""
    draft, table = halved(tmp_path, second)
    draft.write(tmp_path / "ckpt")
    for file in (tmp_path / "ckpt").glob("*.safetensors"):
        kept = {n.replace("midlayer.", "layers.0."): w for n, w in read_safetensors(file).items()}
        write_safetensors(file, kept)
    old = json.loads((tmp_path / "ckpt" / INDEX).read_text())
    old["weight_map"] = {n.replace("midlayer.", "layers.0."): f for n, f in table.items()}
    (tmp_path / "ckpt" / INDEX).write_text(json.dumps(old))
    done = mended_draft(tmp_path / "ckpt", engine="sglang==0.5.9")
    assert done.rounds
    index = json.loads(done.state.files[INDEX].read(0, done.state.files[INDEX].size()))
    assert index["weight_map"] == table and index["more"] == {"a": 1} and index["metadata"]["who"] == "me"
    assert (index["metadata"]["total_size"] == 7) is (second != SECOND)


def test_one_name_with_two_contents_keeps_the_others_from_nothing(tmp_path: Path) -> None:
    """Which of the two is meant is not known: both stay, and what is told of them; the others get their names."""
    draft, table = halved(tmp_path, SECOND)
    draft.write(tmp_path / "ckpt")
    twice = "midlayer.self_attn.q_proj.weight"
    files = {file: read_safetensors(file) for file in (tmp_path / "ckpt").glob("*.safetensors")}
    weight = next(weights[twice] for weights in files.values() if twice in weights)
    other = Weight(weight.dtype, weight.shape, b"\1" * len(weight.raw))
    for file, weights in files.items():
        both = weights if twice in weights else {twice: other, **weights}
        write_safetensors(file, {n.replace("midlayer.", "layers.0."): w for n, w in both.items()})
    old = {n.replace("midlayer.", "layers.0."): f for n, f in table.items()}
    (tmp_path / "ckpt" / INDEX).write_text(json.dumps({"weight_map": old}))
    done = mended_draft(tmp_path / "ckpt", engine="sglang==0.5.9")
    assert [one.finding.rule for one in done.repaired] == ["DC101"]
    assert {"DC007", "DC103"} <= {f.rule for f in done.last.findings}
    assert {n for n in contents(done) if n.startswith("layers.0.")} == {"layers.0.self_attn.q_proj.weight"}
    assert "DC101" not in {f.rule for f in done.last.findings if f.fixable}


def test_what_mends_several_findings_is_said_once(tmp_path: Path) -> None:
    """An index whose every entry is of a wrong type, of one file: many findings, one edit."""
    draft = Draft()
    draft.files[INDEX] = json.dumps({"weight_map": dict.fromkeys(draft.weights, 1)}).encode()
    draft.write(tmp_path)
    lines = repairs(mended_draft(tmp_path), Style()).splitlines()
    assert sum(line.startswith("repaired[DC006") for line in lines) > 1
    assert sum("the index written anew" in line for line in lines) == 1
    assert [line for line in lines if line.startswith("  +")][1:] == ["  + as above"] * (len(lines) // 2 - 1)


def test_a_copy_in_another_file_is_told_by_its_file(tmp_path: Path) -> None:
    draft, table = halved(tmp_path, SECOND)
    draft.write(tmp_path / "ckpt")
    twice = "midlayer.self_attn.q_proj.weight"
    files = {file: read_safetensors(file) for file in sorted((tmp_path / "ckpt").glob("*.safetensors"))}
    weight = next(weights[twice] for weights in files.values() if twice in weights)
    for file, weights in files.items():
        both = {twice: weight, **weights}
        write_safetensors(file, {n.replace("midlayer.", "layers.0."): w for n, w in both.items()})
    old = {n.replace("midlayer.", "layers.0."): f for n, f in table.items()}
    (tmp_path / "ckpt" / INDEX).write_text(json.dumps({"weight_map": old}))
    name = "`layers.0.self_attn.q_proj.weight`"
    said = repairs(mended_draft(tmp_path / "ckpt", engine="sglang==0.5.9"), Style())
    assert f"{name} of {SECOND} left out: the same as {name} of {SHARD}" in said
