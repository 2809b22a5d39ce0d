"""A pickle is written anew as safetensors where nothing of it is lost, and what keeps it from that is said."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from drafts import Draft
from pickles import number, pickled_tensor, text, write_torch
from repairing import checked, mended_draft
from test_fix_files import SGLANG, told
from weightfiles import SPARSE, Storage, legacy, state, tensor

from drafcheck.errors import UsageError
from drafcheck.fix.edits import Convert, merged
from drafcheck.fix.state import State, after
from drafcheck.fix.text import hindrances
from drafcheck.place import LocalPlace

NOT_COPIED = {
    "sparse": (text("x") + SPARSE, "`x` is a sparse tensor"),
    "number": (text("step") + number(7), "`step` is no tensor"),
    "dict": (text("ema") + pickle.EMPTY_DICT, "`ema` is a dict"),
    "key": (number(7) + number(7), "`7` is a key that is no text"),
    "name": (
        text("__metadata__") + pickled_tensor("0", "I64", (1,), 1024),
        "`__metadata__` has a name that safetensors",
    ),
}


def with_entry(folder: Path, entry: bytes, broken: bool = False) -> None:
    """The draft as a pickle that holds one more entry; ``broken``: with names that nothing takes."""
    draft = Draft()
    draft.weight_file = None
    weights = {f"module.{n}" if broken and "midlayer" in n else n: w for n, w in draft.weights.items()}
    draft.writers.append(lambda folder: write_torch(folder / "pytorch_model.bin", weights, after=entry))
    draft.write(folder)


@pytest.mark.parametrize("kind", NOT_COPIED)
def test_a_pickle_is_not_converted_when_something_in_it_would_be_lost(tmp_path: Path, kind: str) -> None:
    entry, words = NOT_COPIED[kind]
    with_entry(tmp_path, entry)
    found, edits = told(tmp_path, "DC010")
    assert edits == [] and words in found[0].message


@pytest.mark.parametrize("entry", [b"", text("_metadata") + pickle.EMPTY_DICT])
def test_a_pickle_of_plain_tensors_is_converted(tmp_path: Path, entry: bytes) -> None:
    with_entry(tmp_path, entry)
    found, edits = told(tmp_path, "DC010")
    assert edits == [Convert("pytorch_model.bin")] and "does not convert" not in found[0].message


@pytest.mark.parametrize("junk", [b"", b"junk"])
def test_bytes_behind_a_file_of_before_1_6_are_not_lost_without_a_word(tmp_path: Path, junk: bytes) -> None:
    raw = legacy(state({"fc.weight": tensor(Storage("LongStorage", "0", 1), (1,), (1,))}), {"0": (1, bytes(8))})
    draft = Draft()
    draft.weight_file = None
    draft.writers.append(lambda folder: (folder / "pytorch_model.bin").write_bytes(raw + junk))
    draft.write(tmp_path)
    found, edits = told(tmp_path, "DC010")
    assert edits == ([] if junk else [Convert("pytorch_model.bin")])
    assert ("has 4 bytes behind its last storage that belong to none" in found[0].message) is bool(junk)


MORE: dict[str, tuple[Callable[[Path], object], str]] = {
    "bytes behind it": (lambda file: file.write_bytes(file.read_bytes() + b"junk"), "4 bytes lie behind its end"),
    "a pickle beside": (lambda file: beside(file, "archive/x.pkl", b"cos\nsystem\n."), "asks for os.system"),
    "a file twice": (lambda file: beside(file, "archive/DATA/0", b""), "two files called"),
    "half of it": (lambda file: file.write_bytes(file.read_bytes()[:900]), "can not be read whole"),
}


def beside(file: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, data)


@pytest.mark.parametrize("kind", MORE)
def test_what_keeps_a_pickle_from_being_written_anew_is_said_as_it_is(tmp_path: Path, kind: str) -> None:
    with_entry(tmp_path, b"", broken=True)
    change, words = MORE[kind]
    change(tmp_path / "pytorch_model.bin")
    state = State(str(tmp_path), LocalPlace(tmp_path))
    with pytest.raises(UsageError) as error:
        after(state, state.opened(), merged([("DC010", Convert("pytorch_model.bin"))]))
    assert words in str(error.value) and "nothing was changed" in str(error.value)
    assert ("read whole" in str(error.value)) is (kind == "half of it")
    done = mended_draft(tmp_path)
    assert not done.state.changed and all(words in one for one in hindrances(done))
    assert bool(hindrances(done)) is (kind != "half of it")


def test_another_repair_is_not_promised_where_it_would_have_to_rewrite_such_a_pickle(tmp_path: Path) -> None:
    with_entry(tmp_path / "lost", text("x") + SPARSE, broken=True)
    found = [f for f in checked(tmp_path / "lost", SGLANG).findings if f.rule == "DC105"]
    assert found and not any(f.fixable for f in found)
    done = mended_draft(tmp_path / "lost")
    assert not done.rounds and not done.state.changed and any(f.rule == "DC105" for f in done.last.findings)
    why = (
        "pytorch_model.bin would have to become safetensors, and `x` is a sparse tensor, which is not copied as it lies"
    )
    assert hindrances(done) == [f"DC105 wrapper-prefix is not repaired: {why}"]
    with_entry(tmp_path / "kept", b"", broken=True)
    assert all(f.fixable for f in told(tmp_path / "kept", "DC105")[0])
    done = mended_draft(tmp_path / "kept")
    assert "DC105" in {one.finding.rule for one in done.repaired} and not hindrances(done)


def test_nothing_is_read_to_see_what_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint may lie far away."""
    with_entry(tmp_path, text("x") + SPARSE, broken=True)
    monkeypatch.setattr("drafcheck.fix.state.open_folder", None)
    assert not any(f.fixable for f in checked(tmp_path, SGLANG).findings)


def test_what_needs_no_such_pickle_is_repaired_all_the_same(tmp_path: Path) -> None:
    """The config, where the names in the pickle stay as they are."""
    with_entry(tmp_path, text("x") + SPARSE, broken=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "torch_dtype": "float16"}))
    done = mended_draft(tmp_path)
    assert [one.finding.rule for one in done.repaired] == ["DC508"]
    assert set(done.state.files) == {"config.json"} and hindrances(done)
