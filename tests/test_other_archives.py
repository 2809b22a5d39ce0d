"""Zip archives that are no weights under the names of weights: programs, documents, what torch itself writes."""

from __future__ import annotations

import importlib
import io
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from drafts import Draft
from malicious import EVIL
from test_tree import ENGINE
from test_unjudged import CODE, PLAIN
from weightfiles import archive, state

from drafcheck.attacks import is_attack
from drafcheck.cli import run
from drafcheck.pickle_sweep import sweep
from drafcheck.source import LocalFile

ARRAY = (
    b"\x93NUMPY\x01\0\x76\0" + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n\0\0\0\0"
)


def zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return stream.getvalue()


STRANGERS = {
    "jar": zipped({"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\n", "a/B.class": b"\xca\xfe\xba\xbe\0\0\0\x3d"}),
    "docx": zipped({"[Content_Types].xml": b"<Types/>", "word/document.xml": b"<document/>"}),
    "npz": zipped({"a.npy": ARRAY}),
    "apk": zipped({"classes.dex": b"dex\n035\0", "assets/table.bin": Random(1).randbytes(3000)}),
    "export": zipped({"export/models/model.json": b"{}", "export/archive_version": b"0", "export/data/weights/0": b""}),
}


def told(tree: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code for a folder with a good draft in it too, and what is said."""
    if not (tree / "good").exists():
        Draft().write(tree / "good")
    code = run([str(tree), *ENGINE])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("name", ["data.bin", "model.pt"])
@pytest.mark.parametrize("kind", STRANGERS)
def test_another_archive_is_a_stranger(
    kind: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / name).write_bytes(STRANGERS[kind])
    code, out = told(tmp_path, capsys)
    assert (code, "error" in out) == (0, False)
    assert f"other: {name} is a zip archive without data.pkl: not a PyTorch checkpoint" in out


def test_what_random_bytes_in_another_archive_look_like_is_no_attack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of so many files some look like a pickle that computes the name it asks for."""
    numbers = Random(1)
    assets = zipped({f"assets/{n}.bin": numbers.randbytes(1000) for n in range(100)})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "app.bin").write_bytes(assets)
    (tmp_path / "other" / "config.json").write_text('{"port": 1}')
    assert sweep(LocalFile(tmp_path / "other" / "app.bin"))[0]
    code, out = told(tmp_path, capsys)
    assert (code, "error" in out) == (0, False)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("pytorch_model.bin", None),
        ("data.bin", '{"architectures": ["LlamaForCausalLM"]}'),
        ("data.bin", '{"hidden_size": 32}'),
        ("data.bin", '{"hidden_'),
    ],
)
def test_another_archive_in_the_place_of_weights_is_a_fault(
    name: str, config: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / name).write_bytes(STRANGERS["jar"])
    if config is not None:
        (tmp_path / "other" / "config.json").write_text(config)
    code, out = told(tmp_path, capsys)
    assert code == 1 and "error[DC004" in out


@pytest.mark.parametrize("member", ["a/data.pkx", "payload.pkl", "word/document.xml"])
def test_code_in_another_archive_is_told(member: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.bin").write_bytes(zipped({"a/b": b"x", member: EVIL}))
    code, out = told(tmp_path, capsys)
    assert code == 1 and "error[DC009" in out


TORCHS = archive(state({"a": PLAIN}), {"0": bytes(16)})


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-30],
        lambda raw: raw[: raw.index(b"PK\x01\x02")],
        lambda raw: raw.replace(b"PK\x01\x02", b"PK\x01\x03"),
        lambda raw: (b"data.pkx").join(raw.rsplit(b"data.pkl", 1)),
        lambda raw: raw.replace(b"data.pkl", b"Data.PKL").replace(b"/version", b"/versio_"),
    ],
    ids=["no end", "no directory", "no entries", "one name", "no version"],
)
def test_a_damaged_archive_of_torch_is_no_stranger(
    damage: Callable[[bytes], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "best.pt").write_bytes(damage(TORCHS))
    code, out = told(tmp_path, capsys)
    assert code == 1 and "error[DC004" in out


def written_by_torch(torch: Any, folder: Path) -> None:
    """Honest files of each kind that torch writes for whole programs."""
    from torch.package import PackageExporter, package_exporter

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
            self.sizes, self.floats, self.flags, self.tensors = [1, 2], [1.5], [True], [torch.ones(2)]
            self.table = {"a": 1}

        def forward(self, x: Any) -> Any:
            return self.norm(self.linear(x)) * 2 + 1

    net = Net().eval()
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    traced = torch.jit.trace(net, torch.ones(1, 4))
    traced.save(str(folder / "traced.pt"))
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3), torch.nn.ReLU()).eval())
    scripted.save(str(folder / "scripted.pt"))
    torch.jit.freeze(scripted).save(str(folder / "frozen.pt"))
    scripted._save_for_lite_interpreter(str(folder / "lite.pt"))
    torch.jit.save(torch.jit.script(torch.ao.quantization.quantize_dynamic(net.linear)), str(folder / "quantised.pt"))
    torch.export.save(torch.export.export(net, (torch.ones(1, 4),)), str(folder / "exported.pt2"))
    (folder / "exported.pt2").rename(folder / "exported.pt")
    with pytest.MonkeyPatch.context() as patch, PackageExporter(folder / "package.pt") as package:
        patch.setattr(package_exporter, "_gate_torchscript_serialization", False)
        package.extern("torch.**")
        package.save_pickle("net", "net.pkl", {"net": torch.nn.Linear(2, 2), "script": scripted})
        package.save_source_string("program", "import os\nos.system('ls')\n")


def test_honest_programs_of_torch_are_strangers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written_by_torch(torch, tmp_path)
    files = sorted(tmp_path.glob("*.pt"))
    assert len(files) == 7
    lists = [
        name for name in vars(importlib.import_module("torch.jit._pickle")) if name.startswith(("build_", "restore_"))
    ]
    assert len(lists) > 5 and not any(is_attack(f"torch.jit._pickle.{name}") for name in lists)
    asked = {found.path for file in files for found in sweep(LocalFile(file))[0]}
    assert {path for path in asked if is_attack(path)} == set()
    assert {"torch.jit._pickle.build_intlist", "torch.jit._script.unpackage_script_module"} <= asked
    assert any(path.startswith("__torch__.") for path in asked)
    for file in files:
        (tmp_path / file.stem).mkdir()
        file.rename(tmp_path / file.stem / "model.pt")
    code, out = told(tmp_path, capsys)
    assert (code, out.count("passed over"), "error" in out) == (0, 7, False)


@pytest.mark.parametrize("path", ["torch.jit._pickle.other", "torch.jit.load", "torch.jit.unsupported_tensor_ops.x"])
def test_what_else_lies_there_is_an_attack(path: str) -> None:
    assert is_attack(path)


def test_code_in_a_torchscript_archive_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").mkdir()
    for code in (b"c__torch__.M\nNet\n", CODE):
        lists = b"ctorch.jit._pickle\nbuild_intlist\n(](K\x01ee\x85R"
        whole = archive(state({"a": lists, "b": code}), {"../constants.pkl": b"\x80\x02)."})
        (tmp_path / "other" / "model.pt").write_bytes(whole)
        assert told(tmp_path, capsys)[0] == int(code is CODE)
