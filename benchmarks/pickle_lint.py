"""What a header-only lint costs on PyTorch files, beside the same lint on safetensors, in one run.

    python benchmarks/pickle_lint.py [--gb 1.0] [--runs 9]

The same draft is written three times: as safetensors, as a zip archive of torch and in torch's format of before 1.6;
one matrix in it makes it large. Every figure is of a whole process. torch is not needed, and no lint imports it. Prints
a table; exits 0 always.
"""

from __future__ import annotations

import argparse
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cold_start import ENVIRONMENT, interleaved, median_ms, peak_mib, row

if TYPE_CHECKING:
    from drafcheck.tensor import Tensor

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT)]

GOAL = 1.3
"""The whole process on a PyTorch file may take so many times that on safetensors."""

ENGINE = "sglang==0.5.15"


def write_safetensors(folder: Path, size: int) -> None:
    """A healthy draft and one more matrix of ``size`` bytes that no engine needs."""
    import json

    from drafts import Draft

    Draft().write(folder)
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    end = len(body) + size // 2 * 2
    header["t2d_spare"] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [len(body), end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)
        file.truncate(8 + len(text) + end)


def as_pickle(folder: Path, source: Path, *, zipped: bool) -> None:
    """The tensors of ``source`` as torch.save writes them, each with a storage of its own."""
    from pickles import pickled_tensor, text

    from drafcheck.header import read_header
    from drafcheck.source import LocalFile

    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    path = source / "model.safetensors"
    tensors = read_header(LocalFile(path)).tensors
    items = (text(t.name) + pickled_tensor(str(n), t.dtype, t.shape, t.numel) for n, t in enumerate(tensors))
    data = b"\x80\x02}(" + b"".join(items) + b"u."
    with (folder / "pytorch_model.bin").open("wb") as file, path.open("rb") as weights:
        (_write_zip if zipped else _write_legacy)(file, weights, data, tensors)


def _write_zip(file: IO[bytes], weights: IO[bytes], data: bytes, tensors: tuple[Tensor, ...]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        for number, one in enumerate(tensors):
            with archive.open(zipfile.ZipInfo(f"archive/data/{number}"), "w", force_zip64=True) as member:
                _copy(member, weights, one)
        archive.writestr("archive/version", b"3\n")


def _write_legacy(file: IO[bytes], weights: IO[bytes], data: bytes, tensors: tuple[Tensor, ...]) -> None:
    for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):  # the magic number of torch, its protocol
        file.write(pickle.dumps(value, 2))
    data = data.replace(b"tQ", b"NtQ")  # a storage says here which view it is: none
    file.write(data + pickle.dumps(list(map(str, range(len(tensors)))), 2))
    for one in tensors:
        file.write(struct.pack("<q", one.numel))
        _copy(file, weights, one)


def _copy(file: IO[bytes], weights: IO[bytes], one: Tensor) -> None:
    weights.seek(one.start)
    for at in range(one.start, one.stop, 1 << 22):
        file.write(weights.read(min(1 << 22, one.stop - at)))


def imports_torch(folder: Path) -> bool:
    """Whether the lint of a folder imports torch."""
    code = (
        f"import sys, drafcheck; drafcheck.lint({str(folder)!r}, engine={ENGINE!r}); sys.exit('torch' in sys.modules)"
    )
    return subprocess.run([sys.executable, "-c", code], check=False, env=ENVIRONMENT).returncode != 0


def main() -> None:
    """Measure and print."""
    from drafcheck import source

    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=9)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        ENVIRONMENT["PYTHONPYCACHEPREFIX"] = str(Path(room) / "bytecode")
        folders = {name: Path(room) / name for name in ("safetensors", "zip", "legacy")}
        write_safetensors(folders["safetensors"], int(asked.gb * 1e9))
        for name in ("zip", "legacy"):
            as_pickle(folders[name], folders["safetensors"], zipped=name == "zip")
        lint = [sys.executable, "-m", "drafcheck", "--engine", ENGINE, "--fail-on", "never"]
        costs = interleaved({name: [*lint, str(folder)] for name, folder in folders.items()}, asked.runs)
        torch = sorted(name for name, folder in folders.items() if imports_torch(folder))
        read = {}
        for name, folder in folders.items():
            from drafcheck import lint as check

            source.bytes_read.clear()
            check(folder, engine=ENGINE)
            read[name] = sum(n for path, n in source.bytes_read.items() if path.endswith((".bin", ".safetensors")))
    base = median_ms(costs["safetensors"])
    for name, found in costs.items():
        goal = "" if name == "safetensors" else f"ratio {median_ms(found) / base:.2f}, goal {GOAL} or less"
        row(f"lint of {asked.gb:g} GB, {name}", f"{median_ms(found):.0f} ms", goal)
    for name, found in costs.items():
        row(f"peak memory, {name}", f"{peak_mib(found):.1f} MiB", f"{read[name]:,} bytes of the weight file read")
    row("lints that import torch", str(len(torch)), ", ".join(torch) or "none expected")


if __name__ == "__main__":
    main()
