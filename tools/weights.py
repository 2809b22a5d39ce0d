"""Write and read weight files without torch or numpy, for the scripts that make fixtures and for the tests.

A tensor whose bytes are not given is zeros and is written as a hole, so that a file of gigabytes costs no disk.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ITEM = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "BF16": 2,
    "F16": 2,
    "I16": 2,
    "I32": 4,
    "F32": 4,
    "I64": 8,
    "F64": 8,
    "F8_E5M2": 1,
    "F8_E4M3FNUZ": 1,
    "F8_E5M2FNUZ": 1,
    "F8_E8M0": 1,
    "U16": 2,
    "U32": 4,
    "U64": 8,
    "C64": 8,
}
"""Bytes of one element, by safetensors dtype."""

FLOATS = ("F8_E4M3", "BF16", "F16", "F32", "F64")
"""The dtypes whose values fixtures do without."""


@dataclass(frozen=True)
class Weight:
    """One tensor to write; ``data`` is None for zeros."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | None = None

    @property
    def size(self) -> int:
        """How many bytes the tensor takes in the file."""
        size = ITEM[self.dtype]
        for dimension in self.shape:
            size *= dimension
        return size

    @property
    def raw(self) -> bytes:
        """The bytes, zeros included."""
        return bytes(self.size) if self.data is None else self.data

    def with_shape(self, *shape: int) -> Weight:
        """The same dtype in another shape, zeros."""
        return replace(self, shape=shape, data=None)


Weights = dict[str, Weight]


def zeros(dtype: str, *shape: int) -> Weight:
    """A tensor of zeros."""
    return Weight(dtype, shape)


def integers(values: Iterable[int], dtype: str = "I64") -> Weight:
    """A vector of whole numbers (I64 or I32)."""
    packed = array("q" if dtype == "I64" else "i", values)
    return Weight(dtype, (len(packed),), packed.tobytes())


def mask(length: int, kept: Iterable[int]) -> Weight:
    """A vector of booleans, true at the places in ``kept``."""
    flags = bytearray(length)
    for place in kept:
        flags[place] = 1
    return Weight("BOOL", (length,), bytes(flags))


def offsets(targets: Iterable[int]) -> Weight:
    """The d2t tensor that sends draft id i to ``targets[i]``: stored as offsets, I64."""
    return integers(target - draft for draft, target in enumerate(targets))


def spread(draft_vocab: int, target_vocab: int, salt: int = 0) -> list[int]:
    """A plausible choice of ``draft_vocab`` target ids, sorted; another ``salt``, another choice.

    Deterministic. The low ids are all kept, as frequency tables keep them, the rest is drawn evenly.
    """
    kept = draft_vocab // 4
    state = 0x9E3779B9 + salt
    chosen = set(range(kept))
    while len(chosen) < draft_vocab:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        chosen.add(kept + (state >> 33) % (target_vocab - kept))
    return sorted(chosen)


def encode_header(tensors: Mapping[str, Weight], metadata: Mapping[str, str] | None = None) -> bytes:
    """The safetensors header of ``tensors``, its length included, padded to 8 bytes."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, at + tensor.size]}
        at += tensor.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_safetensors(path: Path, tensors: Mapping[str, Weight], metadata: Mapping[str, str] | None = None) -> None:
    """Write ``tensors`` in their order; those of zeros become holes."""
    with path.open("wb") as file:
        file.write(encode_header(tensors, metadata))
        for tensor in tensors.values():
            if tensor.data is None:
                file.seek(tensor.size, 1)
            else:
                file.write(tensor.data)
        file.truncate(file.tell())


def read_safetensors(path: Path) -> Weights:
    """Every tensor of a file with its bytes."""
    blob = path.read_bytes()
    start = 8 + struct.unpack("<Q", blob[:8])[0]
    found: Weights = {}
    for name, entry in json.loads(blob[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = Weight(entry["dtype"], tuple(entry["shape"]), blob[start + begin : start + end])
    return found


def zero_floats(path: Path) -> None:
    """Overwrite the float weights of a safetensors file with zeros; header and integer tensors stay as they are."""
    blob = bytearray(path.read_bytes())
    start = 8 + struct.unpack("<Q", blob[:8])[0]
    for name, entry in json.loads(blob[8:start]).items():
        if name != "__metadata__" and entry["dtype"] in FLOATS:
            begin, end = entry["data_offsets"]
            blob[start + begin : start + end] = bytes(end - begin)
    path.write_bytes(bytes(blob))
