"""PyTorch files that torch itself writes, read without it; and the names that torch allows in them."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from drafcheck.source import LocalFile
from drafcheck.tensor import Trouble
from drafcheck.torch_pickle import read_pickle


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pytorch_model.bin"


torch_kinds = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64",
]  # fmt: skip


@pytest.mark.parametrize("zipped", [True, False])
def test_what_torch_itself_writes(path: Path, zipped: bool) -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.int64).reshape(4, 6)
    items: dict[str, Any] = {k: (torch.arange(12) % 2).reshape(3, 4).to(getattr(torch, k)) for k in torch_kinds}
    items |= {"view": base[1:3], "turned": base.t(), "scalar": torch.tensor(3.5), "none": torch.empty(0, 5)}
    items |= {"parameter": torch.nn.Parameter(torch.ones(2, 3)), "size": torch.Size([2]), "dtype": torch.float16}
    items |= {"device": torch.device("cpu"), "nested": {"a": torch.ones(2)}, "step": 3}
    torch.save(OrderedDict(items), path, _use_new_zipfile_serialization=zipped)
    header = read_pickle(LocalFile(path))
    if zipped:
        assert header.problems == ()
    else:  # fp8 and unsigned integers, which torch writes so and does not read back
        with pytest.raises(AttributeError) as error:
            torch.load(path, weights_only=True)
        (problem,) = header.problems
        assert str(error.value).endswith("UntypedStorage' has no attribute 'dtype'")
        assert problem.message.endswith("UntypedStorage has no attribute 'dtype'")
    assert [t.name for t in header.tensors] == [k for k, v in items.items() if isinstance(v, torch.Tensor)]
    raw = path.read_bytes()
    for found in header.tensors:
        value = items[found.name].detach()
        assert found.shape == tuple(value.shape)
        assert (found.start >= 0) is value.is_contiguous()
        if value.is_contiguous() and value.numel():
            assert raw[found.start : found.stop] == value.flatten().view(torch.uint8).numpy().tobytes()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zipped", [True, False])
def test_what_torch_writes_and_safetensors_can_not_hold_as_it_lies(path: Path, zipped: bool) -> None:
    """Each is told of, and is a plain tensor of the same values once its call is made."""
    torch = pytest.importorskip("torch")
    plain = torch.arange(1.0, 7.0).reshape(2, 3)
    items: dict[str, Any] = {
        "turned": plain.clone().t(),
        "expanded": torch.ones(1).expand(4),
        "negative": torch._neg_view(plain.clone()),
        "imaginary": torch.complex(plain, plain).conj().imag,
        "conjugate": torch.complex(plain, plain).conj(),
        "sparse": plain.to_sparse(),
        "quantised": torch.quantize_per_tensor(plain, 0.5, 0, torch.qint8),
    }
    torch.save(
        {**items, "plain": plain, "wide": plain.to(torch.complex128)}, path, _use_new_zipfile_serialization=zipped
    )
    header = read_pickle(LocalFile(path))
    assert header.problems == () and set(header.uncopied) == {*items, "wide"}
    assert all((t.start >= 0) is (t.name == "plain") for t in header.tensors)
    for name, item in items.items():
        value = item
        for call in header.uncopied[name].call.split("."):
            value = getattr(value, call.removesuffix("()"))()
        value = value.contiguous().clone()
        assert value.layout is torch.strided and not value.is_neg() and not value.is_conj() and not value.is_quantized
        assert torch.equal(value, item.dequantize() if item.is_quantized else item.to_dense())


def test_the_allowed_names_are_torchs() -> None:
    unpickler = pytest.importorskip("torch._weights_only_unpickler")
    from drafcheck.pickle_globals import HARMLESS

    assert set(HARMLESS) <= set(unpickler._get_allowed_globals())


def rezipped(raw: bytes, changed: dict[str, bytes | None], more: dict[str, bytes], first: str = "") -> bytes:
    """The archive with other files in its folder, and more files outside of it."""
    import io
    import zipfile

    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(stream, "w") as new:
        prefix = old.namelist()[0].partition("/")[0] + "/"
        files: dict[str, bytes | None] = {name: old.read(name) for name in old.namelist()}
        files |= {prefix + name: data for name, data in changed.items()}
        for name, data in ([(first, b"")] if first else []) + list(files.items()) + list(more.items()):
            if data is not None:
                new.writestr(name, data)
    return stream.getvalue()


RECORDS: dict[str, tuple[dict[str, bytes | None], dict[str, bytes], str]] = {
    "as it was": ({}, {}, ""),
    "a Mac's own files": ({}, {"__MACOSX/x": b"x"}, ""),
    "another folder": ({}, {"other/file.txt": b"x"}, ""),
    "a file above": ({}, {"file.txt": b"x"}, ""),
    "a file above, first": ({}, {}, "file.txt"),
    "another folder, first": ({}, {}, "a/file.txt"),
    "a folder whose name goes on": ({}, {"archive2/x": b"x"}, ""),
    "a file more in the folder": ({"note.txt": b"x"}, {}, ""),
    "TorchScript": ({"constants.pkl": b"\x80\x02)."}, {}, ""),
    **{
        f"version {text!r}": ({"version": text, ".data/version": None}, {}, "")
        for text in (b"0", b"1", b"10\n", b"11", b"99", b"abc", b"", b" 3", b"+3", b"-3", b"3abc", b"3.7", b"1e9")
    },
    "no version": ({"version": None, ".data/version": None}, {}, ""),
    "another alignment": ({".storage_alignment": b"0"}, {}, ""),
    "another format version": ({".format_version": b"9"}, {}, ""),
}


@pytest.mark.parametrize("name", RECORDS)
def test_the_files_of_the_archive_are_judged_as_torch_does(tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "pytorch_model.bin"
    torch.save({"t": torch.ones(2)}, path)
    path.write_bytes(rezipped(path.read_bytes(), *RECORDS[name]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.load(path, weights_only=True)
            loads = True
        except RuntimeError:
            loads = False
    problems = read_pickle(LocalFile(path)).problems
    assert bool(problems) is not loads, problems
    assert all(problem.trouble in (Trouble.CORRUPT, Trouble.UNREADABLE) for problem in problems)
