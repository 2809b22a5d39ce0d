"""Small files for the tests of the readers: safetensors written by hand, zip and legacy pickles opcode by opcode."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 2382319096\n"
)
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


def safetensors(header: Any, body: bytes = b"") -> bytes:
    """A safetensors file with any header, given as an object or as its bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def entry(dtype: str = "BF16", shape: tuple[int, ...] = (2,), start: int = 0, stop: int = 4) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


def write_tensors(path: Path, **shapes: tuple[int, ...]) -> None:
    """A healthy file of zeros in U8."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 1
        for n in shape:
            size *= n
        header[name] = entry("U8", shape, at, at + size)
        at += size
    path.write_bytes(safetensors(header, bytes(at)))


class Storage:
    """What torch's pickler writes as a persistent id."""

    def __init__(self, kind: str, key: str, numel: int) -> None:
        self.kind, self.key, self.numel = kind, key, numel


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


META = b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\nK\x01\x85K\x01\x85\x89tR"
COO = b"ctorch.serialization\n_get_layout\n" + text("torch.sparse_coo") + b"\x85R"
SPARSE = b"ctorch._utils\n_rebuild_sparse_tensor\n(" + COO + META + META + b"K\x03\x85\x87tR"
"""What torch pickles for a sparse tensor without values."""


def integer(value: int) -> bytes:
    return pickle.LONG1 + bytes([9]) + value.to_bytes(9, "little", signed=True)


def sizes(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(integer(v) for v in values) + b"t"


def tensor(
    storage: Storage,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int = 0,
    *,
    more: bytes = b"",
    version: int = 2,
) -> bytes:
    """``_rebuild_tensor_v2(storage, offset, shape, stride, False, OrderedDict())`` as opcodes; ``more`` arguments."""
    pid = b"(" + text("storage") + f"ctorch\n{storage.kind}\n".encode() + text(storage.key) + text("cpu")
    pid += integer(storage.numel) + b"tQ"
    hooks = b"ccollections\nOrderedDict\n)R"
    args = b"(" + pid + integer(offset) + sizes(shape) + sizes(stride) + b"\x89" + hooks + more + b"t"
    return f"ctorch._utils\n_rebuild_tensor_v{version}\n".encode() + args + b"R"


def state(items: dict[str, bytes]) -> bytes:
    """The pickle of a dict whose values are given as opcodes."""
    return b"\x80\x02}(" + b"".join(text(k) + v for k, v in items.items()) + b"u."


def archive(
    data: bytes, storages: dict[str, bytes], *, method: int = zipfile.ZIP_STORED, name: str = "archive"
) -> bytes:
    """A torch zip file around the pickle ``data``."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        file.writestr(f"{name}/data.pkl", data)
        for key, raw in storages.items():
            file.writestr(f"{name}/data/{key}", raw)
        file.writestr(f"{name}/version", b"3\n")
    return stream.getvalue()


def legacy(data: bytes, storages: dict[str, tuple[int, bytes]]) -> bytes:
    """A torch file of before 1.6: magic, protocol, system, the dict, the keys, then number and elements of each.

    Storages in ``data`` are given as those of an archive; here they have one item more, which view they are: None.
    """
    data = data.replace(b"tQ", b"NtQ")
    head = pickle.dumps(LEGACY_MAGIC, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
    keys = pickle.dumps(list(storages), 2)
    body = b"".join(struct.pack("<q", numel) + raw for numel, raw in storages.values())
    return head + data + keys + body
