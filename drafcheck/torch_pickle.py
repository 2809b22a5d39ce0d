"""PyTorch checkpoints (.bin, .pt) without PyTorch: names, shapes, dtypes and places of tensors.

Nothing in the file is imported, called or built: see ``drafcheck.pickle_machine``. Both formats are read, the zip
archives of torch 1.6 and later and the bare pickles of before. As a loader does, only the items of the top-level
dict are taken; tensors deeper inside are reported, as no engine looks for them there.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from drafcheck.finding import Location
from drafcheck.header import Header
from drafcheck.header_json import DTYPE_BITS
from drafcheck.lfs import POINTER_LIMIT, lfs_pointer
from drafcheck.pickle_machine import Machine, PickleError
from drafcheck.pickle_records import Storage, Table, TensorRecord, as_text
from drafcheck.source import Source, SourceError, SourceStream
from drafcheck.tensor import Problem, Tensor, Trouble

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

PICKLE_LIMIT = 64 << 20
"""The longest pickle in bytes that is read; that of a state dict of 10,000 tensors has about 2 MB."""

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_ZIP = b"PK\x03\x04"
_CONVERT = (
    "write the weights again: torch.load(path, weights_only=True), then safetensors.torch.save_file(tensors, "
    '"model.safetensors")'
)

Finder = Callable[[Storage], "tuple[int, int] | None"]
Places = dict[str, tuple[int, int]]
"""Where the bytes of each storage lie: (start, stop) in the file, start -1 when they cannot be addressed."""


class _UnreadableError(Exception):
    """The file is well-formed but its tensors cannot be had. The message continues the file's name."""


def read_pickle(source: Source) -> Header:
    """The tensors of a PyTorch checkpoint. Never raises on content: whatever is wrong is in ``problems``."""
    try:
        return _read(source)
    except SourceError as error:
        return _failed(source, error.trouble, error.message)
    except PickleError as error:
        trouble = Trouble.UNSAFE_PICKLE if error.unsafe else Trouble.CORRUPT
        return _failed(source, trouble, f"{source.name} {error.message}")
    except _UnreadableError as error:
        return _failed(source, Trouble.UNREADABLE, f"{source.name} {error}")


def is_legacy(source: Source) -> bool:
    """Whether the file is in torch's format of before 1.6 (no zip archive). Raises SourceError."""
    return source.read(0, 4) != _ZIP


def _failed(source: Source, trouble: Trouble, message: str) -> Header:
    helps = {
        Trouble.UNSAFE_PICKLE: "do not load this file; ask its author for safetensors",
        Trouble.CORRUPT: "download the file again",
        Trouble.UNREADABLE: _CONVERT,
    }
    return Header(problems=(Problem(trouble, message, Location(file=source.name), helps[trouble]),))


def _read(source: Source) -> Header:
    size = source.size()
    head = source.read(0, POINTER_LIMIT)
    pointer = lfs_pointer(head, size, source.name)
    if pointer:
        return Header(problems=(pointer,))
    if not head:
        raise PickleError("is empty")
    if head.startswith(_ZIP):
        return _read_zip(source)
    if head[257:262] == b"ustar":
        raise _UnreadableError("is a tar archive, torch's format of before 2018, which current loaders refuse")
    return _read_legacy(source)


# The zip format: {name}/data.pkl, and one stored file {name}/data/{key} for each storage.


def _read_zip(source: Source) -> Header:
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(io.BufferedReader(SourceStream(source))) as archive:
            return _from_archive(source, archive)
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OverflowError, UnicodeError) as error:
        raise PickleError(f"is a broken zip archive: {str(error).lower() or 'truncated'}") from error
    except (NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise PickleError(f"is a zip archive that cannot be read: {str(error).lower()}") from error


def _from_archive(source: Source, archive: ZipFile) -> Header:
    members = _members(archive)
    name = next((n for n in members if n == "data.pkl" or n.endswith("/data.pkl")), None)
    if name is None:
        raise PickleError("is a zip archive without data.pkl: not a PyTorch checkpoint")
    info = members[name]
    if info.file_size > PICKLE_LIMIT:
        raise _UnreadableError(f"has a {name} of {info.file_size} bytes, more than the {PICKLE_LIMIT} that are read")
    with archive.open(info) as stream:
        data = stream.read(PICKLE_LIMIT + 1)  # the size in the directory may lie
    if len(data) > PICKLE_LIMIT:
        raise _UnreadableError(f"has a {name} that unpacks to more than {PICKLE_LIMIT} bytes")
    machine = Machine(io.BytesIO(data), name)
    value = machine.run()
    places = _Places(source, members, name[: -len("data.pkl")], archive)
    return _header(source, value, places.find, machine.foreign)


def _members(archive: ZipFile) -> dict[str, ZipInfo]:
    members: dict[str, ZipInfo] = {}
    for info in archive.infolist():
        if info.filename in members:
            raise PickleError(f"is a zip archive with two files called {info.filename:.200}")
        if info.flag_bits & 1:
            raise _UnreadableError("is an encrypted zip archive")
        members[info.filename] = info
    return members


class _Places:
    """Finds the bytes of storages in an archive; each is looked up once."""

    def __init__(self, source: Source, members: dict[str, ZipInfo], prefix: str, archive: ZipFile) -> None:
        self._source, self._members, self._prefix = source, members, prefix
        self._known: Places = {}
        order = members.get(prefix + "byteorder")
        self._swapped = order is not None and order.file_size < 16 and archive.read(order) == b"big"

    def find(self, storage: Storage) -> tuple[int, int] | None:
        """(start, stop) of a storage, start -1 when it is packed, None when the archive has no such file."""
        name = f"{self._prefix}data/{storage.key}"
        if name not in self._known:
            info = self._members.get(name)
            if info is None:
                return None
            self._known[name] = self._place(info)
        return self._known[name]

    def _place(self, info: ZipInfo) -> tuple[int, int]:
        if info.compress_type != 0 or self._swapped:
            return -1, info.file_size - 1
        # The directory does not say where the data starts: names and extra fields before it vary in length.
        local = self._source.read(info.header_offset, info.header_offset + 30)
        if len(local) < 30 or not local.startswith(_ZIP):
            raise PickleError(f"is a broken zip archive: no file {info.filename:.200} where its directory says")
        names, extra = struct.unpack("<HH", local[26:30])
        start = info.header_offset + 30 + names + extra
        if start + info.file_size > self._source.size():
            raise PickleError(f"is truncated: {info.filename:.200} needs bytes up to {start + info.file_size}")
        return start, start + info.file_size


# The format before 1.6: five pickles (magic, protocol, system, the dict, the keys), then the storages.


class _Bounded(io.BufferedReader):
    """Reads at most PICKLE_LIMIT at once: no room is set aside for what a pickle only claims to hold."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(PICKLE_LIMIT if size is None or size < 0 else min(size, PICKLE_LIMIT))


def _read_legacy(source: Source) -> Header:
    stream = _Bounded(SourceStream(source, PICKLE_LIMIT))
    machine = Machine(stream)
    magic = machine.run()
    if magic != _LEGACY_MAGIC:
        raise _UnreadableError("is a pickle, but not one that torch.save wrote")
    for _ in range(2):
        Machine(stream).run()
    machine = Machine(stream)
    value = machine.run()
    keys = Machine(stream).run()
    places = _legacy_places(source, keys, machine.storages, stream.tell())
    return _header(source, value, lambda storage: places.get(storage.key), machine.foreign)


def _legacy_places(source: Source, keys: Any, dtypes: dict[str, str | None], at: int) -> Places:
    """Each storage is its number of elements (eight bytes) and then the elements, in the order of ``keys``."""
    places: Places = {}
    if not isinstance(keys, list):
        raise PickleError("has no list of storages after its pickle")
    for key in keys:
        name = as_text(key) or ""
        dtype = dtypes.get(name)
        if dtype is None or at < 0:  # unknown length: nor is it known where the storages after it start
            at, places[name] = -1, (-1, 1 << 63)
            continue
        raw = source.read(at, at + 8)
        start = at + 8
        at = start + DTYPE_BITS[dtype] // 8 * int.from_bytes(raw, "little", signed=True)
        if len(raw) < 8 or not start <= at <= source.size():
            raise PickleError(f"is truncated: the storage {name:.60} needs bytes up to {at}")
        places[name] = (start, at)
    return places


# What both formats share.


def _tensors(value: Any) -> list[tuple[str, TensorRecord]]:
    if not isinstance(value, Table):
        return []
    return [(name, item) for name, item in value.items() if isinstance(item, TensorRecord)]


def _header(source: Source, value: Any, find: Finder, foreign: str | None) -> Header:
    if not isinstance(value, Table):
        raise _UnreadableError("does not hold a dict at its top level, which is what loaders take the tensors from")
    tensors = tuple(_tensor(source, name, record, find) for name, record in _tensors(value))
    problem = _nested(source, value) if not tensors else None
    if foreign and problem is None:
        problem = Problem(
            Trouble.UNREADABLE,
            f"{source.name} uses the pickle opcode {foreign}, which torch.load(weights_only=True) refuses",
            Location(file=source.name),
            "save it again with torch.save and its default pickle protocol, 2, or as safetensors",
        )
    return Header(tensors, (problem,) if problem else ())


def _tensor(source: Source, name: str, record: TensorRecord, find: Finder) -> Tensor:
    width = DTYPE_BITS[record.dtype] // 8 or 1
    place = find(record.storage)
    if place is None:
        raise PickleError(f"lacks the storage {record.storage.key:.60} of the tensor {name:.200}")
    first = (record.offset + record.storage.offset) * width
    count = 1
    for dimension in record.shape:
        count *= dimension
    start, stop = place
    if first + _reach(record) * width > stop - start:
        raise PickleError(f"has a tensor {name:.200} that reaches past its storage of {stop - start} bytes")
    if start < 0 or not record.contiguous:
        return Tensor(name, record.dtype, record.shape, source.name)
    return Tensor(name, record.dtype, record.shape, source.name, start + first, start + first + count * width)


def _reach(record: TensorRecord) -> int:
    """How many elements of the storage, counted from the offset, the tensor spans."""
    if 0 in record.shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(record.shape, record.stride, strict=True))


def _nested(source: Source, value: Table) -> Problem | None:
    for key, inner in value.items():
        count = len(_tensors(inner))
        if count:
            return Problem(
                Trouble.UNREADABLE,
                f"{source.name} keeps its {count} tensors inside the key {key!r:.60}; loaders take the top-level items",
                Location(file=source.name, key=key),
                f"save the inner dict alone: torch.save(torch.load(path, weights_only=True)[{key!r:.60}], path)",
            )
    return None
