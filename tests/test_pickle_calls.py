"""What a pickle calls and sets, of what torch allows: judged as torch.load(weights_only=True) judges it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from malicious import HEALTHY, ZEROS
from malicious_calls import EMPTY, FILES, FLOATS, NAMES, ORDERED, ORDINARY, REFUSED, attributes, dtype, rebuilt
from variants import healthy
from weightfiles import archive, state, text

from drafcheck import lint
from drafcheck.finding import Severity
from drafcheck.header import Header
from drafcheck.source import LocalFile
from drafcheck.tensor import Trouble
from drafcheck.torch_pickle import read_pickle


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pytorch_model.bin"


def read(path: Path, raw: bytes) -> Header:
    path.write_bytes(raw)
    return read_pickle(LocalFile(path))


def held(path: Path, value: bytes) -> Header:
    return read(path, archive(state({"t": FLOATS, "x": value}), {"0": ZEROS}))


def loaded(path: Path) -> Any:
    """What torch makes of the file; None when it refuses."""
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(path, weights_only=True, map_location="cpu")
        except Exception:
            return None


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused(path: Path, name: str) -> None:
    (problem,) = read(path, REFUSED[name]).problems
    assert problem.trouble in (Trouble.CORRUPT, Trouble.UNREADABLE)
    assert loaded(path) is None


@pytest.mark.parametrize("name", ORDINARY)
def test_what_torch_takes_is_taken(path: Path, name: str) -> None:
    assert read(path, ORDINARY[name]).problems == ()
    assert loaded(path) is not None


def test_what_is_said_of_calls_that_mean_harm(path: Path) -> None:
    said = {
        "attributes of a class": "sets attributes of collections.Counter at byte ",
        "attributes of a function": "sets attributes of torch._utils._rebuild_tensor_v2 at byte ",
        "other entries of a dict": "sets `items` of a dict, so that loaders would call what the file names (at byte ",
        "a text in a secret code": "encodes a text by 'rot13', which hides what it says (at byte ",
        "memory for nothing": "asks for the memory of 1125899906842624 values that it does not hold (at byte ",
    }
    for name, words in said.items():
        (problem,) = held(path, NAMES[name]).problems
        assert (
            f"pytorch_model.bin has a pickle that {words}" in problem.message
            and "of archive/data.pkl" in problem.message
        )


def test_what_lies_behind_a_legacy_file_is_told_with_its_place(path: Path) -> None:
    raw = FILES["a pickle behind a healthy legacy file"]
    (problem,) = read(path, raw).problems
    assert f"os.system at byte {raw.index(b'cos')}:" in problem.message


def test_a_dict_made_anew_holds_nothing(path: Path) -> None:
    """``OrderedDict.__new__`` takes pairs and keeps none, as NEWOBJ calls it."""
    pairs = b"]]" + text("k") + b"a" + FLOATS + b"aa\x85"
    for opcode, names in ((b"R", ["k"]), (b"\x81", [])):
        header = read(path, archive(b"\x80\x02" + ORDERED + pairs + opcode + b".", {"0": ZEROS}))
        assert [t.name for t in header.tensors] == names and not header.problems
        assert list(loaded(path)) == names


def test_a_dict_of_a_dict_holds_the_same(path: Path) -> None:
    data = b"\x80\x02" + ORDERED + state({"t": FLOATS})[2:-1] + b"\x85R."
    assert [t.name for t in read(path, archive(data, {"0": ZEROS})).tensors] == ["t"] == list(loaded(path))


def test_names_of_python_2_are_utf_8(path: Path) -> None:
    raw = archive(b"\x80\x02}U\x02\xc3\xa9" + FLOATS + b"s.", {"0": ZEROS})
    assert [t.name for t in read(path, raw).tensors] == ["\u00e9"] == list(loaded(path))


def test_a_tensor_of_xla_is_the_tensor_that_it_was_written_as(path: Path) -> None:
    for name, why in (("float32", ""), ("bfloat16", "is a tensor of a device of its own, and there of another dtype")):
        moved = rebuilt("device_tensor_from_cpu_tensor", FLOATS, dtype(name), text("cpu"), b"\x89")
        header = held(path, moved)
        assert not header.problems and [t.shape for t in header.tensors] == [(3, 4)] * 2
        assert [u.why for u in header.uncopied.values()] == [why] * bool(why)
        assert str(loaded(path)["x"].dtype) == f"torch.{name}"
        assert (header.tensors[1].start >= 0) is not why and header.tensors[1].dtype == ("BF16" if why else "F32")


def test_attributes_of_a_dict_are_nothing_that_a_loader_reads(path: Path) -> None:
    data = b"\x80\x02" + EMPTY + b"(" + text("t") + HEALTHY + b"u" + attributes(_metadata=b"}", note=b"K\x01") + b"b."
    header = read(path, archive(data, {"0": ZEROS}))
    assert [t.name for t in header.tensors] == ["t"] and not header.problems
    assert list(loaded(path)) == ["t"]


KINDS = {
    "coo": ("F32", "is a sparse tensor", "to_dense()"),
    "csr": ("F32", "is a sparse tensor", "to_dense()"),
    "quantised": ("I8", "is a tensor quantised by torch", "dequantize()"),
    "by channel": ("I8", "is a tensor quantised by torch", "dequantize()"),
    "meta": ("BF16", "is a tensor without values, of the device meta", ""),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_that_are_no_view_of_a_storage_have_dtype_and_shape(path: Path, zipped: bool) -> None:
    torch = pytest.importorskip("torch")
    plain = torch.arange(6.0).reshape(2, 3)
    items = {
        "coo": plain.to_sparse(),
        "csr": plain.to_sparse_csr(),
        "quantised": torch.quantize_per_tensor(plain, 0.5, 0, torch.qint8),
        "by channel": torch.quantize_per_channel(plain, torch.ones(2), torch.zeros(2), 0, torch.quint8),
        "meta": torch.empty(2, 3, dtype=torch.bfloat16, device="meta"),
    }
    torch.save(items, path, _use_new_zipfile_serialization=zipped)
    header = read_pickle(LocalFile(path))
    assert not header.problems
    assert {t.name: (t.dtype, t.shape, t.start) for t in header.tensors} == {
        name: (dtype, (2, 3), -1) for name, (dtype, _, _) in KINDS.items()
    }
    said = {name: (u.why, u.call) for name, u in header.uncopied.items()}
    assert said == {name: kind[1:] for name, kind in KINDS.items()}
    for name, item in torch.load(path, weights_only=True).items():
        with pytest.raises((RuntimeError, NotImplementedError), match=re.escape(header.uncopied[name].stops)):
            torch.nn.Parameter(torch.zeros(2, 3)).data.copy_(item)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["sglang==0.5.15", "vllm==0.33.0", "llama.cpp==2026.6"])
def test_engines_stop_at_what_torch_does_not_copy(tmp_path: Path, engine: str) -> None:
    torch = pytest.importorskip("torch")
    folder = healthy().write(tmp_path / "ckpt")
    [file] = folder.glob("*.safetensors")
    tensors = pytest.importorskip("safetensors.torch").load_file(file)
    file.unlink()
    fc = tensors["fc.weight"]
    made = {
        "is a sparse tensor": fc.to_sparse(),
        "is a tensor quantised by torch": torch.quantize_per_tensor(fc.float(), 0.5, 0, torch.qint8),
        "is a tensor without values, of the device meta": fc.to("meta"),
        "": torch._neg_view(fc),
    }
    for why, value in made.items():
        unread = {} if engine.startswith("llama") else {"rotary_emb.inv_freq": fc.to_sparse()}  # is not copied
        torch.save({**tensors, "fc.weight": value, **unread}, folder / "pytorch_model.bin")
        report = lint(folder, engine=engine).checkpoints[0]
        found = [f for f in report.findings if f.severity is Severity.ERROR]
        assert [f.rule for f in found] == ["DC104"] * bool(why)
        assert [f"stops at `fc.weight`, which {why}" in f.message for f in found] == [True] * bool(why)
        assert ["torch: " in f.message for f in found] == [not engine.startswith("llama")] * bool(why)
        assert report.outcome.value == ("refused" if why else "clean")
