"""The mapping to compare with (``--reference``): another checkpoint, or a trainer's own mapping file."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drafcheck.decode import LARGEST, DecodeError, decode
from drafcheck.errors import NothingToCheck, UsageError
from drafcheck.header import Header, read_header
from drafcheck.pickle_machine import Machine, PickleError
from drafcheck.pickle_records import TensorRecord
from drafcheck.place import Place, locate
from drafcheck.plan.vocabulary import HEAD, judge, kept_tokens, named, to_mask, to_targets
from drafcheck.source import Source, SourceError, SourceStream
from drafcheck.tensor import Tensor
from drafcheck.torch_pickle import PICKLE_LIMIT, is_legacy, read_pickle

_NPY = b"\x93NUMPY"
_NPY_LIMIT = 65536
_NPY_DTYPES = {"b1": "BOOL", "u1": "U8", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64", "f4": "F32", "f8": "F64"}

Read = Callable[[Tensor], bytes]


@dataclass(frozen=True, slots=True)
class Reference:
    """A mapping to compare with, which messages call ``name``. ``targets`` holds the target token of each draft id.

    ``t2d`` is one byte a target token (None: not there), ``head_rows`` the rows of its lm_head (None: no head).
    """

    name: str
    targets: list[int]
    t2d: bytes | None = None
    head_rows: int | None = None


def open_reference(path: str | Path) -> Reference:
    """Read a checkpoint folder, a weight file, or a mapping (.pt, .npy, .safetensors); a path or an address.

    A ``.pt`` may hold a dict with d2t, as trainers write it, or a bare list or tensor of target tokens. A ``.npy`` is a
    d2t or a t2d; one named d2t.npy is read with the t2d.npy beside it. Raises UsageError with one sentence.
    """
    try:
        place, name = _located(path)
        found = _from_folder(path, place) if name is None else _from_file(place, name)
    except (DecodeError, SourceError, PickleError) as error:
        raise UsageError(f"--reference {path}: {getattr(error, 'message', error)}") from error
    except NothingToCheck as error:
        raise UsageError(f"--reference {path}: no checkpoint and no mapping there") from error
    except OSError as error:
        raise UsageError(f"--reference {path}: {(error.strerror or 'cannot be read').lower()}") from error
    return replace(found, name=str(path).rstrip("/").rpartition("/")[2] or str(path))


def _located(path: str | Path) -> tuple[Place, str | None]:
    try:
        return locate(path)
    except UsageError as error:
        raise UsageError(f"--reference {error}") from error


def _from_file(place: Place, name: str) -> Reference:
    if name.endswith(".npy"):
        return _from_npy(place, name)
    source = place.source(name)
    if name.endswith((".pt", ".pth", ".bin")):
        return _from_torch(source)
    if not name.endswith(".safetensors"):
        raise DecodeError("not a mapping: known are a checkpoint, .safetensors, .pt, .pth, .bin and .npy")
    return _from_tensors(_sound(read_header(source)), lambda t: source.read(t.start, t.stop))


def _sound(header: Header) -> Sequence[Tensor]:
    if header.problems:
        raise DecodeError(header.problems[0].message)
    return header.tensors


def _from_folder(path: str | Path, place: Place) -> Reference:
    from drafcheck.checkpoint import open_folder

    if place.is_file("d2t.npy"):
        return _from_npy(place, "d2t.npy")
    checkpoint = open_folder(str(path), place)
    tensors = [tensor for file in checkpoint.files for tensor in file.header.tensors]
    return _from_tensors(tensors, checkpoint.read)


def _from_tensors(tensors: Sequence[Tensor], read: Read) -> Reference:
    """The mapping in a checkpoint; without d2t its head must have full vocabulary, so each id is its own token."""
    d2t, t2d, head = (named(tensors, name) for name in ("d2t", "t2d", HEAD))
    rows = head.shape[0] if head is not None and head.shape else None
    mask = to_mask(t2d, read(_small(t2d))) if t2d is not None else None
    if d2t is None and mask is None and rows is not None:
        return Reference("", list(range(min(rows, LARGEST))), None, rows)
    values = decode(d2t.dtype, read(_small(d2t))) if d2t is not None else None
    return _reference(values, mask, rows)


def _small(tensor: Tensor) -> Tensor:
    if tensor.numel > LARGEST:
        raise DecodeError(f"{tensor.name} has {tensor.numel} values, more than any vocabulary")
    if tensor.start < 0:
        raise DecodeError(f"the bytes of {tensor.name} cannot be read in place")
    return tensor


def _reference(values: list[int] | None, mask: bytes | None, rows: int | None = None) -> Reference:
    if values:
        meant, _ = judge(values, mask, len(mask) if mask else None)
        targets = values if meant == "absolute" else to_targets(values, "offset")
    elif mask and 1 in mask:
        targets = kept_tokens(mask)
    else:
        raise DecodeError("no d2t in it")
    return Reference("", targets, mask, rows)


# Mapping files of torch.


def _from_torch(source: Source) -> Reference:
    """A zip file of torch: a state dict, a dict of mappings, or a bare list or tensor of target tokens."""
    import zipfile

    if is_legacy(source):
        return _from_tensors(_sound(read_pickle(source)), lambda t: source.read(t.start, t.stop))
    try:
        with zipfile.ZipFile(io.BufferedReader(SourceStream(source))) as archive:
            return _from_archive(archive.read, archive.getinfo, archive.namelist())
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DecodeError("a broken zip archive") from error


def _from_archive(read: Callable[[str], bytes], info: Callable[[str], Any], names: Sequence[str]) -> Reference:
    pickle = next((name for name in names if name.rpartition("/")[2] == "data.pkl"), None)
    if pickle is None:
        raise DecodeError("a zip archive without data.pkl: not a file of torch.save")
    folder = pickle[: -len("data.pkl")]

    def values(record: object) -> list[int] | None:
        return _values(record, lambda key: _member(read, info, f"{folder}data/{key}"))

    content = Machine(io.BytesIO(_member(read, info, pickle)), pickle).run()
    if not isinstance(content, dict):
        return _token_map(values(content))
    found = {name.rpartition(".")[2]: item for name, item in content.items()}
    flags, head = values(found.get("t2d")), content.get(HEAD)
    mask = bytes(flags) if flags and set(flags) <= {0, 1} else None
    rows = head.shape[0] if isinstance(head, TensorRecord) and head.shape else None
    mapping = values(found.get("d2t"))
    if mapping is None and mask is None and rows is not None:
        return Reference("", list(range(min(rows, LARGEST))), None, rows)
    return _reference(mapping, mask, rows)


def _member(read: Callable[[str], bytes], info: Callable[[str], Any], name: str) -> bytes:
    """A file of the archive; never more than a pickle or a vocabulary may need, packed or not."""
    if info(name).file_size > max(PICKLE_LIMIT, 8 * LARGEST):
        raise DecodeError(f"{name} is larger than any mapping")
    return read(name)


def _token_map(tokens: list[int] | None) -> Reference:
    if not tokens:
        raise DecodeError("neither a dict with d2t nor a list of target tokens")
    return Reference("", tokens)


def _values(record: object, storage: Callable[[str], bytes]) -> list[int] | None:
    """The whole numbers in a list or a tensor of a pickle; None for anything else."""
    if isinstance(record, list):
        whole = all(isinstance(v, int) and not isinstance(v, bool) for v in record)
        return list(record) if whole else None
    if not isinstance(record, TensorRecord):
        return None
    if not record.contiguous or len(record.shape) != 1:
        raise DecodeError(f"a tensor of shape {list(record.shape)} that is no plain row of values")
    all_values = decode(record.dtype, storage(record.storage.key))
    first = record.offset + record.storage.offset
    return all_values[first : first + record.shape[0]]


# Mapping files of numpy: a header that is a Python literal, then the values.


def _from_npy(place: Place, name: str) -> Reference:
    if name == "t2d.npy":
        return _reference(None, bytes(_flags(_read_npy(place.source(name)))))
    paired = name == "d2t.npy" and place.is_file("t2d.npy")
    mask = bytes(_flags(_read_npy(place.source("t2d.npy")))) if paired else None
    return _reference(_read_npy(place.source(name)), mask)


def _flags(values: list[int]) -> list[int]:
    if not set(values) <= {0, 1}:
        raise DecodeError("t2d.npy holds other values than 0 and 1")
    return values


def _read_npy(source: Source) -> list[int]:
    """The values of a one-dimensional .npy file. Raises DecodeError and SourceError."""
    head = source.read(0, 12)
    if len(head) < 12 or not head.startswith(_NPY):
        raise DecodeError(f"{source.name} is no .npy file")
    wide = head[6] > 1
    start = 12 if wide else 10
    stop = start + int.from_bytes(head[8:start], "little")
    facts = _npy_facts(source.read(start, min(stop, _NPY_LIMIT)), source.name)
    shape, order = facts.get("shape"), str(facts.get("descr"))
    if not isinstance(shape, tuple) or len(shape) != 1 or not isinstance(shape[0], int) or shape[0] > LARGEST:
        raise DecodeError(f"{source.name} has the shape {shape}, not one value for each id")
    dtype = _NPY_DTYPES.get(order.lstrip("<|="))
    if dtype is None:
        raise DecodeError(f"{source.name} holds values of type {order:.40}")
    values = decode(dtype, source.read(stop, source.size()))
    if len(values) != shape[0]:
        raise DecodeError(f"{source.name} is truncated: {len(values)} values of {shape[0]}")
    return values


def _npy_facts(text: bytes, name: str) -> dict[str, object]:
    import ast

    try:
        facts = ast.literal_eval(text.decode("latin-1").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise DecodeError(f"{name} has a header that is none") from error
    return facts if isinstance(facts, dict) else {}
