"""Write torch checkpoints without torch: a zip whose pickle is put together opcode by opcode."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

from weights import Weights

STORAGE = {
    "BF16": "BFloat16Storage",
    "F16": "HalfStorage",
    "F32": "FloatStorage",
    "I64": "LongStorage",
    "BOOL": "BoolStorage",
}


def text(value: str) -> bytes:
    """The pickle opcode of a short string."""
    raw = value.encode()
    return pickle.BINUNICODE + len(raw).to_bytes(4, "little") + raw


def number(value: int) -> bytes:
    """The pickle opcode of a number of up to 31 bits."""
    return pickle.BININT + value.to_bytes(4, "little")


def numbers(values: tuple[int, ...]) -> bytes:
    """The pickle opcodes of a tuple."""
    return pickle.MARK + b"".join(map(number, values)) + pickle.TUPLE


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    steps: list[int] = []
    step = 1
    for dimension in reversed(shape):
        steps.insert(0, step)
        step *= dimension
    return tuple(steps)


def pickled_tensor(key: str, dtype: str, shape: tuple[int, ...], numel: int) -> bytes:
    """The opcodes by which torch rebuilds one tensor from the storage ``key``."""
    storage = f"ctorch\n{STORAGE[dtype]}\n".encode()
    place = pickle.MARK + text("storage") + storage + text(key) + text("cpu") + number(numel) + pickle.TUPLE
    hooks = b"ccollections\nOrderedDict\n" + pickle.EMPTY_TUPLE + pickle.REDUCE
    rest = number(0) + numbers(shape) + numbers(strides(shape)) + pickle.NEWFALSE + hooks
    call = b"ctorch._utils\n_rebuild_tensor_v2\n"
    return call + pickle.MARK + place + pickle.BINPERSID + rest + pickle.TUPLE + pickle.REDUCE


def write_torch(path: Path, tensors: Weights, before: bytes = b"", after: bytes = b"") -> None:
    """Write a checkpoint as ``torch.save`` does, without torch.

    ``before`` are further opcodes, run first; ``after`` those of further items of the dict.
    """
    body = bytearray(pickle.PROTO + b"\x02" + before + pickle.EMPTY_DICT + pickle.MARK)
    stored: dict[str, bytes] = {}
    for position, (name, tensor) in enumerate(tensors.items()):
        raw = tensor.raw
        numel = 1
        for dimension in tensor.shape:
            numel *= dimension
        body += text(name) + pickled_tensor(str(position), tensor.dtype, tensor.shape, numel)
        stored[f"data/{position}"] = raw
    body += after + pickle.SETITEMS + pickle.STOP
    write_zip(path, {"data.pkl": bytes(body), "byteorder": b"little", **stored, "version": b"3\n"})


def write_zip(path: Path, members: dict[str, bytes]) -> None:
    """A stored zip of fixed dates, every member under ``archive/``."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), content)
