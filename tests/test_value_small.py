"""``--values`` on small tensors that lie side by side: told together as each of them is told alone."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weights import Weight, write_safetensors

from drafcheck import lint
from drafcheck.checkpoint import WeightFile, open_folder
from drafcheck.place import LocalPlace
from drafcheck.source import LocalFile, Memory
from drafcheck.valuescan import scan as scanning
from drafcheck.valuescan import small
from drafcheck.valuescan.formats import FLOATS
from drafcheck.valuescan.kernels import look
from drafcheck.valuescan.model import Values
from drafcheck.valuescan.scan import scan
from drafcheck.valuescan.small import Small, look_at

WIDTHS = {**{dtype: format_.width for dtype, format_ in FLOATS.items()}, "I64": 8, "U8": 1, "BOOL": 1}
MANY = 600


def some_bytes(rng: random.Random, dtype: str, count: int) -> bytes:
    """Values among which are zeros of both signs, infinities, NaN and equal ones."""
    format_ = FLOATS.get(dtype)
    width = WIDTHS[dtype]
    odd = [0, 1] if format_ is None else [0, format_.sign, format_.one, format_.finite, format_.lone or 0]
    if format_ is not None and rng.random() < 0.3:
        odd.append(min(format_.finite + 1, (1 << 8 * width) - 1))
    if rng.random() < 0.4:
        return rng.choice(odd).to_bytes(width, "little") * count
    values = [rng.choice(odd) if rng.random() < 0.5 else rng.getrandbits(8 * width) for _ in range(count)]
    return b"".join(value.to_bytes(width, "little") for value in values)


@given(st.randoms(use_true_random=False), st.sampled_from(sorted(WIDTHS)))
def test_tensors_of_some_forms_are_told_as_each_alone(rng: random.Random, dtype: str) -> None:
    forms = [(rng.choice([dtype, dtype, "BF16", "U8"]), rng.randrange(1, 4), rng.choice([1, 2, 5, 40])) for _ in "ab"]
    data, tensors = b"", list[Small]()
    for _ in range(rng.randrange(1, 20)):
        data += bytes(rng.choice([0, 0, 0, 3]))
        kind, rows, columns = rng.choice(forms)
        raw = some_bytes(rng, kind, rows * columns)
        tensors.append(Small(kind, len(data), len(raw), columns * WIDTHS[kind]))
        data += raw
    view = memoryview(data)
    assert look_at(view, tensors) == [look(t.dtype, view[t.start : t.start + t.length], t.row) for t in tensors]


def write(folder: Path, rng: random.Random) -> None:
    """Runs of tensors of one shape and of changing ones, some too large to be read with others."""
    tensors: dict[str, Weight] = {}
    shapes = [(), (1,), (3,), (2, 5), (7, 1), (3, 4, 2), (64, 40), (0, 3)]
    kind, shape = "BF16", (3,)
    for number in range(rng.choice([5, 60, MANY])):
        if rng.random() < 0.3:
            kind, shape = rng.choice(sorted(WIDTHS)), rng.choice(shapes)
        name = f"model.layers.{number}.{rng.choice(['norm.weight', 'mlp.up_proj.weight', 'x.bias', 'w'])}"
        tensors[name] = Weight(kind, shape, some_bytes(rng, kind, int(np.prod(shape, dtype=int))))
    write_safetensors(folder / "model.safetensors", tensors)


def said(folder: Path) -> list[str]:
    checked = lint(folder, engine="sglang==0.5.15", values=True).checkpoints[0]
    return [f.model_dump_json() for f in checked.findings]


def told(values: Values) -> dict[str, object]:
    """All that counts, whichever part of a tensor was read last."""
    return {
        v.tensor.name: (
            *(v.read, v.length, v.bad, v.first, v.largest, v.even, v.even and v.value, v.digest),
            *(v.rows, v.empty.count, v.empty.first, v.empty.last),
        )
        for v in values.tensors
    }


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_a_file_is_told_as_tensor_by_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    rng = random.Random(23)
    config = {"architectures": ["Unknown"], "model_type": "llama", "torch_dtype": "float16"}
    config |= {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 256, "draft_vocab_size": 128}))
    rules = set[str]()
    for _ in range(12):
        write(tmp_path, rng)
        files = open_folder("ckpt", LocalPlace(tmp_path)).files
        together = told(scan(files, share)), said(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(scanning, "SMALL", 0)
            patch.setattr(scanning, "_TOGETHER", 1)  # where a part is read
            assert (told(scan(files, share)), said(tmp_path)) == together
        rules |= {f"DC80{n}" for n in (1, 2, 3, 6) if any(f'"DC80{n}"' in line for line in together[1])}
    assert {"DC801", "DC802", "DC803"} <= rules


@pytest.mark.parametrize("cut", [1, 2, 700])
def test_a_file_that_ends_too_early_loses_the_tensors_behind_its_end(tmp_path: Path, cut: int) -> None:
    """As of tensors that are read one by one: those before it are told."""
    write_safetensors(tmp_path / "model.safetensors", {f"x{n}": Weight("BF16", (2,), b"\x80?\0\0") for n in range(300)})
    whole = (tmp_path / "model.safetensors").read_bytes()
    file = WeightFile(Memory(whole, "model.safetensors"))
    assert len(file.header.tensors) == 300
    file.source = Memory(whole[:-cut], "model.safetensors")
    found = scan([file])
    lost = -(-cut // 4)
    assert [u.tensor.name for u in found.unread] == [t.name for t in file.header.tensors[-lost:]]
    assert [u.why for u in found.unread] == [
        f"model.safetensors ends before byte {t.stop}" for t in file.header.tensors[-lost:]
    ]
    assert len(found.tensors) == 300 - lost and all(v.rows == 1 and v.whole and not v.even for v in found.tensors)


def calls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How often a file is read and how often numbers are looked at alone."""
    reads, looks = [], []
    read, alone = LocalFile.read_into, small.look
    with monkeypatch.context() as patch:
        patch.setattr(LocalFile, "read_into", lambda *a: reads.append(1) or read(*a))
        patch.setattr(small, "look", lambda *a: looks.append(1) or alone(*a))
        found = scan(open_folder("ckpt", LocalPlace(folder)).files)
    assert not found.unread
    return len(reads), len(looks)


@pytest.mark.parametrize("shapes", [[(2,)], [(), (3, 1), (4,)]])
def test_small_neighbours_take_no_read_and_no_look_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shapes: list[tuple[int, ...]]
) -> None:
    tensors = {}
    for n in range(9_000):
        shape = shapes[n % len(shapes)]
        tensors[f"x{n:05}"] = Weight("F32", shape, struct.pack("<f", 1 + n) * int(np.prod(shape, dtype=int)))
    write_safetensors(tmp_path / "model.safetensors", tensors)
    assert calls(tmp_path, monkeypatch) == (3, 0)


def test_an_archive_has_something_between_its_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="writes the archive")
    tensors = {f"x{n}": torch.full((2, 3), n % 5.0) for n in range(200)}
    torch.save({**tensors, "again": tensors["x1"], "once more": tensors["x1"]}, tmp_path / "pytorch_model.bin")
    reads, looks = calls(tmp_path, monkeypatch)
    assert reads < 20 and looks == 2  # those that lie before others
    found = scan(open_folder("ckpt", LocalPlace(tmp_path)).files)
    assert [v.absmax for v in found.tensors] == [*(n % 5 for n in range(200)), 1, 1]
    assert [v.tensor.name for v in found.tensors if v.zero] == [f"x{n}" for n in range(0, 200, 5)]
