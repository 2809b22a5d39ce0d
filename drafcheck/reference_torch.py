"""Mappings in files of torch.save, read without running anything."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

from drafcheck.checkpoint import WeightFile
from drafcheck.decode import LARGEST, DecodeError, decode
from drafcheck.pickle_machine import Machine, PickleError
from drafcheck.pickle_records import TensorRecord
from drafcheck.plan.vocabulary import HEAD
from drafcheck.reference import Reference, bare, combine, from_tensors, sound
from drafcheck.source import Source, SourceStream
from drafcheck.torch_pickle import PICKLE_LIMIT, is_legacy
from drafcheck.words import plural


def read_torch(source: Source) -> Reference:
    """The mapping in a file of torch.save: a state dict, a dict of mappings, or a bare list or tensor.

    Raises DecodeError and SourceError.
    """
    try:
        if is_legacy(source):
            file = WeightFile(source)
            return from_tensors(sound(file.header), file.values)
        with zipfile.ZipFile(io.BufferedReader(SourceStream(source))) as archive:
            return _from_archive(archive.read, archive.getinfo, archive.namelist())
    except PickleError as error:
        raise DecodeError(error.message) from error
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DecodeError("a broken zip archive") from error


def _from_archive(read: Callable[[str], bytes], info: Callable[[str], Any], names: Sequence[str]) -> Reference:
    pickle = next((name for name in names if name.rpartition("/")[2] == "data.pkl"), None)
    if pickle is None:
        raise DecodeError("a zip archive without data.pkl: not a file of torch.save")
    folder = pickle[: -len("data.pkl")]
    if f"{folder}byteorder" in names and _member(read, info, f"{folder}byteorder") == b"big":
        raise DecodeError("a file with big-endian bytes")

    def values(record: object) -> list[int] | None:
        return _values(record, lambda key: _member(read, info, f"{folder}data/{key}"))

    content = Machine(io.BytesIO(_member(read, info, pickle)), pickle).run()
    if not isinstance(content, dict):
        return _bare(content, values(content))
    found = {str(name).rpartition(".")[2]: item for name, item in content.items()}
    flags, head = values(found.get("t2d")), content.get(HEAD)
    mask = bytes(flags) if flags and set(flags) <= {0, 1} else None
    rows = head.shape[0] if isinstance(head, TensorRecord) and head.shape else None
    return combine(values(found.get("d2t")), mask, rows)


def _member(read: Callable[[str], bytes], info: Callable[[str], Any], name: str) -> bytes:
    """A file of the archive; never more than a pickle or a vocabulary may need, packed or not."""
    if info(name).file_size > max(PICKLE_LIMIT, 8 * LARGEST):
        raise DecodeError(f"{name} is larger than any mapping")
    return read(name)


def _bare(content: object, values: list[int] | None) -> Reference:
    """A list or tensor by itself."""
    if not values:
        raise DecodeError("neither a dict with d2t nor a list of target tokens")
    first = content[0] if isinstance(content, list) else None
    return bare(values, isinstance(first, bool) or (isinstance(content, TensorRecord) and content.dtype == "BOOL"))


def _values(record: object, storage: Callable[[str], bytes]) -> list[int] | None:
    """The whole numbers in a list or a tensor of a pickle; None for anything else."""
    if isinstance(record, list):
        kinds = set(map(type, record))
        return list(map(int, record)) if kinds in ({int}, {bool}) else None
    if not isinstance(record, TensorRecord):
        return None
    if record.altered is not None:
        raise DecodeError(f"a tensor that {record.altered.why}")
    if len(record.shape) != 1 or record.shape[0] > LARGEST:
        raise DecodeError(f"a tensor of shape {list(record.shape)} that is no plain row of values")
    all_values = decode(record.dtype, storage(record.storage.key))
    (count,), (step,) = record.shape, record.stride
    first = record.offset + record.storage.offset
    if count and first + (count - 1) * step >= len(all_values):
        raise DecodeError(f"a tensor of {plural(count, 'value')} that reaches past its storage of {len(all_values)}")
    return [all_values[first + i * step] for i in range(count)]
