"""Folders of a tree that could not be read: they are no strangers, and strangers are not taken for them."""

from __future__ import annotations

import json
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from random import Random

import pytest
from drafts import Draft
from test_tree import ENGINE, whole_model
from weightfiles import POINTER, Storage, archive, state, tensor
from weights import write_safetensors, zeros

from drafcheck.cli import run
from drafcheck.magic import begins_pickle
from drafcheck.tree import only_drafts

PLAIN = tensor(Storage("LongStorage", "0", 2), (2,), (1,))
CODE = b"cos\nsystem\n"


def pickled(folder: Path, name: str, entries: dict[str, bytes], config: str | None = None) -> None:
    """A PyTorch archive whose pickle is a dict of that content."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(archive(state(entries), {"0": bytes(16)}))
    if config is not None:
        (folder / "config.json").write_text(config)


def damaged(folder: Path, kind: str) -> None:
    """A draft that an accident has made one of which nothing can be told."""
    draft = Draft()
    draft.write(folder)
    config, weights = folder / "config.json", folder / "model.safetensors"
    whole, data = config.read_bytes(), weights.read_bytes()
    if kind == "both cut off":
        config.write_bytes(whole[:60])
        weights.write_bytes(data[:300])
    elif kind == "swapped":
        config.write_bytes(data)
        weights.write_bytes(whole)
    elif kind == "empty":
        config.write_bytes(b"")
        weights.write_bytes(b"")
    elif kind == "pointer without a config":
        config.unlink()
        weights.write_bytes(POINTER)
    elif kind == "config cut off, no weights":
        config.write_bytes(whole[: whole.index(b"architectures") + 30])
        weights.unlink()
    elif kind == "links that lead nowhere":
        for file in (config, weights):
            file.unlink()
            file.symlink_to(folder / "gone")
    elif kind == "archive cut off":
        weights.unlink()
        config.unlink()
        pickled(folder, "weights.pt", {"a": PLAIN})
        (folder / "weights.pt").write_bytes((folder / "weights.pt").read_bytes()[:200])
    else:
        weights.unlink()
        config.write_bytes(b"{,")
        pickled(folder, "pytorch_model.bin", {"state_dict": state({"a": PLAIN})[2:-1]})


DAMAGE = {
    "both cut off": {"DC002", "DC004"},
    "swapped": {"DC002", "DC004"},
    "empty": {"DC002", "DC004"},
    "pointer without a config": {"DC002", "DC003"},
    "config cut off, no weights": {"DC002"},
    "links that lead nowhere": {"DC002", "DC012"},
    "archive cut off": {"DC004"},
    "nested": {"DC002", "DC012"},
}


@pytest.mark.parametrize("flags", [[], ["--only-drafts"]])
@pytest.mark.parametrize("kind", DAMAGE)
def test_what_damage_hides_is_no_stranger(
    kind: str, flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Draft().write(tmp_path / "good")
    whole_model(tmp_path / "target")
    damaged(tmp_path / "bad", kind)
    assert run(["check", str(tmp_path), *ENGINE, *flags, "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    bad, good = report["checkpoints"]
    assert DAMAGE[kind] <= {f["rule"] for f in bad["findings"] if f["severity"] == "error"}
    assert (Path(good["path"]).name, good["outcome"]) == ("good", "clean")
    assert [Path(left["path"]).name for left in report["passed_over"]] == ["target"]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("content", [{}, {"a": 1}, [1], 7, "text", ("a", 2.5), b"bytes", OrderedDict(a=1)])
def test_what_python_pickles_begins_as_a_pickle(content: object, protocol: int, tmp_path: Path) -> None:
    whole = pickle.dumps(content, protocol)
    assert begins_pickle(whole)
    (tmp_path / "state.bin").write_bytes(whole[:-1])
    assert only_drafts([str(tmp_path)]).drafts == (str(tmp_path),), "cut off, so that nobody knows what it held"


@pytest.mark.parametrize("start", [bytes((n,)) for n in range(256)] + [bytes((0x80, n)) for n in range(256)])
def test_a_firmware_is_a_stranger_whatever_it_begins_with(start: bytes, tmp_path: Path) -> None:
    """The protocol of a pickle alone makes none: the byte behind it must be one that a pickler writes there."""
    (tmp_path / "firmware.bin").write_bytes(start + b"\0" + Random(start).randbytes(3000))
    assert only_drafts([str(tmp_path)]).drafts == ()


def test_weights_that_lfs_has_not_fetched_are_no_fault_where_that_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_model(tmp_path / "target")
    (tmp_path / "target" / "model.safetensors").write_bytes(POINTER)
    assert run(["check", "--only-drafts", "--lfs", "config-only", str(tmp_path)]) == 0
    assert "Git LFS pointers, and no draft class (LlamaForCausalLM)" in capsys.readouterr().out
    assert run(["check", "--only-drafts", str(tmp_path), *ENGINE]) == 1


@pytest.mark.parametrize(
    ("name", "config"),
    [("pytorch_model.bin", None), ("pytorch_model.bin", '{"architectures": ["LlamaForCausalLM"]}'), ("best.pt", None)],
)
def test_code_in_what_is_no_draft_is_told(
    name: str, config: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Draft().write(tmp_path / "good")
    pickled(tmp_path / "evil", name, {"a": CODE}, config)
    assert run([str(tmp_path), *ENGINE]) == 1
    assert "DC009" in (out := capsys.readouterr().out)
    assert "os.system" in out


def test_code_among_the_files_of_a_whole_model_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Draft().write(tmp_path / "good")
    for n in range(1, 7):
        entry = PLAIN if n != 5 else CODE
        name = f"pytorch_model-0000{n}-of-00006.bin"
        pickled(tmp_path / "model", name, {f"a{n}": entry}, '{"architectures": ["LlamaForCausalLM"]}')
    assert run([str(tmp_path), *ENGINE]) == 1
    assert "DC009" in capsys.readouterr().out


@pytest.mark.parametrize("whole", ["alone", "a config", "seven files"])
@pytest.mark.parametrize(("code", "status"), [(CODE, 1), (b"cultralytics.nn.tasks\nDetectionModel\n", 0)])
def test_code_under_the_name_of_safetensors_is_told(
    code: bytes, status: int, whole: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Draft().write(tmp_path / "good")
    (tmp_path / "other").mkdir()
    if whole != "alone":
        (tmp_path / "other" / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    for n in range(1, 7 if whole == "seven files" else 1):
        shard = tmp_path / "other" / f"model-0000{n}-of-00007.safetensors"
        write_safetensors(shard, {f"a{n}": zeros("BF16", 2)}, None)
    name = "model-00007-of-00007" if whole == "seven files" else "model"
    (tmp_path / "other" / f"{name}.safetensors").write_bytes(b"\x80\x02" + code + b".")
    assert run([str(tmp_path), *ENGINE]) == status
    out = capsys.readouterr().out
    assert ("DC009" in out and "os.system" in out) is bool(status)


@pytest.mark.parametrize(
    ("ends", "status"),
    [((b"", CODE + b")R"), 1), ((b"", b"N"), 0), ((b"cnumpy.core.multiarray\nscalar\n", b"N"), 0)],
)
def test_code_behind_what_is_looked_through_is_told(
    ends: tuple[bytes, bytes],
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long list of numbers alone is data."""
    monkeypatch.setattr("drafcheck.pickle_opcodes.OPCODES_LISTED", 100)
    Draft().write(tmp_path / "good")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "best.pt").write_bytes(b"\x80\x02](" + ends[0] + 200 * b"K\x01" + ends[1] + b"e.")
    assert run([str(tmp_path), *ENGINE]) == status
    assert ("DC009" in capsys.readouterr().out) is bool(status)


def test_what_is_whole_and_no_draft_stays_a_stranger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data sets, programs, other people's formats and the state of a training are no damage."""
    Draft().write(tmp_path / "good")
    encoder = '{"architectures": ["BertModel"]}'
    pickled(tmp_path / "states", "data_0.pt", {"hidden": PLAIN})
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "data_0.pt").write_bytes(archive(b"\x80\x02](" + PLAIN + b"e.", {"0": bytes(16)}))
    pickled(tmp_path / "detector", "best.pt", {"model": b"cultralytics.nn.tasks\nDetectionModel\n"})
    pickled(tmp_path / "args", "old.pt", {"a": b"cargparse\nNamespace\n", "p": b"cpathlib\nPosixPath\n"})
    (tmp_path / "encoder").mkdir()
    write_safetensors(tmp_path / "encoder" / "model.safetensors", {"encoder.x": zeros("BF16", 2)}, None)
    pickled(tmp_path / "encoder", "training_args.bin", {"a": b"ctransformers.training_args\nX\n"}, encoder)
    (tmp_path / "ctranslate").mkdir()
    (tmp_path / "ctranslate" / "config.json").write_text('{"suppress_ids": []}')
    (tmp_path / "ctranslate" / "model.bin").write_bytes(b"\x06\0\0\0\x0dWhisperSpec\0" + bytes(300))
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "config.json").write_text('{"port": 1, // where to listen\n}')
    (tmp_path / "docs" / "model.bin").mkdir(parents=True)
    (tmp_path / "docs" / "model.bin" / "index.md").write_text("a page")
    assert run([str(tmp_path), *ENGINE, "-v"]) == 0
    out = capsys.readouterr().out
    names = ["app", "args", "ctranslate", "detector", "docs", "encoder", "list", "states"]
    assert [Path(line.split(": ")[1]).name for line in out.splitlines() if line.startswith("passed over")] == names
    assert "app: no weights, and config.json is not json" in out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_may_not_be_read_are_no_strangers(tmp_path: Path) -> None:
    Draft().write(tmp_path / "draft")
    for file in (tmp_path / "draft").iterdir():
        file.chmod(0)
    assert run([str(tmp_path), *ENGINE]) == 1


@pytest.mark.parametrize("page", ["<!DOCTYPE html><html><title>404</title></html>", " \n<html>log in</html>"])
def test_a_web_page_in_the_place_of_a_config_is_called_one(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Draft().write(tmp_path)
    for text, page_said in ((page, True), ("{", False)):
        (tmp_path / "config.json").write_text(text)
        assert run([str(tmp_path), *ENGINE]) == 1
        out = capsys.readouterr().out
        assert ("this is a web page: download" in out, "json.dump" in out) == (page_said, not page_said)


@pytest.mark.parametrize(("value", "said"), [(5, "is 5, which is no name"), (None, "has no model_type")])
def test_a_model_type_that_is_no_text_is_shown(
    value: object, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = Draft()
    draft.set(model_type=value)
    draft.write(tmp_path)
    run([str(tmp_path), *ENGINE])
    assert said in capsys.readouterr().out
