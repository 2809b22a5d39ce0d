"""PyTorch checkpoints (.bin, .pt) without PyTorch: names, shapes, dtypes and places of tensors.

Nothing in the file is imported, called or built: see ``drafcheck.pickle_machine``. Both formats are read, the zip
archives of torch 1.6 and later and the bare pickles of before: the latter too without torch, whose own reader has to be
trusted with the file, is slower by the seconds of its import, and says nothing of where the bytes of a tensor lie.
As a loader does, only the items of the top-level dict are taken; tensors deeper inside are reported, as no engine
looks for them there. What else the dict holds is told of, so that nobody takes the tensors for the whole file. What a
file asks for beyond a state dict, anywhere in it, is listed by ``drafcheck.pickle_sweep``.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from drafcheck.finding import Location
from drafcheck.header import HEADER_LIMIT, Header
from drafcheck.lfs import POINTER_LIMIT, lfs_pointer
from drafcheck.magic import ZIP
from drafcheck.pickle_listing import Asked, told
from drafcheck.pickle_machine import ForeignError, Machine, PickleError, refused
from drafcheck.pickle_places import Reader
from drafcheck.pickle_records import Opaque, Storage, Table, TensorRecord, as_text, type_of
from drafcheck.pickle_sweep import STREAM_LIMIT, behind, beside, sweep
from drafcheck.pickle_sweep import posing as sweep_posing
from drafcheck.source import Bounded, Source, SourceError
from drafcheck.tensor import Entry, Problem, Trouble, Uncopied
from drafcheck.torch_records import Places, check_records
from drafcheck.torch_zip import Archive, UnreadableError, as_torch, read_alike

PICKLE_LIMIT = 64 << 20
"""The longest pickle in bytes that is read; that of a state dict of 10,000 tensors has about 2 MB."""

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_BEGINNINGS = (b"\x80", b"L1195")
"""How a pickle begins, and that number in the protocols 0 and 1, which have no beginning of their own."""

SEVEN_ZIP = b"7z\xbc\xaf\x27\x1c"
_CONVERT = (
    "write the weights again: torch.load(path, weights_only=True), then safetensors.torch.save_file(tensors, "
    '"model.safetensors")'
)

_NO_PICKLE = "is a zip archive without data.pkl: not a PyTorch checkpoint"
_PROTOCOL_2 = "save it again with torch.save and its default pickle protocol, 2, or as safetensors"

Spans = dict[str, tuple[int, int]]
"""Where the bytes of each storage lie: (start, stop) in the file, start -1 when they cannot be addressed."""

Found = tuple[list[Asked], "str | None"]
"""What is asked for beyond a state dict, and what was not looked through."""

_UNPLACED = Uncopied("lies behind a storage of unknown size")


def read_pickle(source: Source) -> Header:
    """The tensors of a PyTorch checkpoint. Never raises on content: whatever is wrong is in ``problems``."""
    try:
        return _read(source)
    except SourceError as error:
        return _failed(source, error.trouble, error.message)
    except ForeignError as error:
        header = _suspect(source, Trouble.UNREADABLE, f"{source.name} {error.message}")
        header.problems = tuple(p._replace(help=_PROTOCOL_2) if p.help == _CONVERT else p for p in header.problems)
        return header
    except PickleError as error:
        trouble = Trouble.UNSAFE_PICKLE if error.unsafe else Trouble.CORRUPT
        return _suspect(source, trouble, f"{source.name} {error.message}")
    except UnreadableError as error:
        return _suspect(source, Trouble.UNREADABLE, f"{source.name} {error}")


def _suspect(source: Source, trouble: Trouble, message: str) -> Header:
    """A file that is no plain state dict: what it asks for is said before anything else that is wrong with it."""
    try:
        found, cut = sweep(source)
    except SourceError as error:
        return _failed(source, error.trouble, error.message)
    if found:
        return _failed(source, Trouble.UNSAFE_PICKLE, _asks(source, found))
    return _failed(source, trouble, message) if cut is None or trouble is Trouble.UNSAFE_PICKLE else _cut(source, cut)


def posing(source: Source) -> Problem | None:
    """What a file under the name of another format asks for; None for nothing. Raises SourceError."""
    found, cut = sweep_posing(source)
    if found:
        return _failed(source, Trouble.UNSAFE_PICKLE, _asks(source, found)).problems[0]
    return _cut(source, cut).problems[0] if cut is not None else None


def _cut(source: Source, cut: str) -> Header:
    return _failed(source, Trouble.UNSAFE_PICKLE, f"{source.name} was not looked through to its end for code: {cut}")


def _asks(source: Source, found: list[Asked]) -> str:
    what = "loading it would run code" if _runs_code(found) else f"{_REFUSED}, and other readers {_IMPORTED}"
    return f"{source.name} has a pickle that asks for {told(found)}: {what}"


_REFUSED = "loaders of weights refuse that"
_IMPORTED = "import and call what is named"


def _runs_code(found: list[Asked]) -> bool:
    """Whether one of the names does more than to make a value, or an object of a class of somebody's program."""
    from drafcheck.attacks import is_attack  # rarely needed

    return any(is_attack(asked.path) for asked in found)


def is_legacy(source: Source) -> bool:
    """Whether the file is in torch's format of before 1.6 (no zip archive). Raises SourceError."""
    return source.read(0, 4) != ZIP


def _warned(source: Source, header: Header, asked: list[Asked], cut: str | None) -> Header:
    """The tensors of a file that torch loads, with what is asked for elsewhere in it before anything else."""
    if any(problem.stops for problem in header.problems):  # torch refuses it, so that others may read it otherwise
        if asked:
            return _failed(source, Trouble.UNSAFE_PICKLE, _asks(source, asked))
        return header if cut is None else _cut(source, cut)
    if asked:
        message = f"{source.name} holds, beside its tensors, a pickle that asks for {told(asked)}"
        outcome = "run code" if _runs_code(asked) else _IMPORTED
        message += f": engines pass over it, and whoever loads it would {outcome}"
        header.problems = (_problem(source, Trouble.UNSAFE_PICKLE, message, stops=False), *header.problems)
    elif cut is not None:
        header.problems = (_cut(source, cut).problems[0]._replace(stops=False), *header.problems)
    return header


def _failed(source: Source, trouble: Trouble, message: str) -> Header:
    return Header(problems=(_problem(source, trouble, message),))


def _problem(source: Source, trouble: Trouble, message: str, *, stops: bool = True) -> Problem:
    helps = {
        Trouble.UNSAFE_PICKLE: "do not load this file; ask its author for safetensors",
        Trouble.CORRUPT: "download the file again",
        Trouble.ODD: "compare its size with that of the original",
        Trouble.UNREADABLE: _CONVERT,
    }
    return Problem(trouble, message, Location(file=source.name), helps[trouble], stops)


def _read(source: Source) -> Header:
    size = source.size()
    head = source.read(0, POINTER_LIMIT)
    pointer = lfs_pointer(head, size, source.name)
    if pointer:
        return Header(problems=(pointer,))
    if not head:
        raise PickleError("is empty")
    if head.startswith(SEVEN_ZIP):
        raise PickleError("is a 7z archive: no loader opens one, and scanners do not look into it", unsafe=True)
    if head.startswith(ZIP):
        return _read_zip(source)
    if _is_safetensors(head, size):
        return Header(problems=(posing(source) or _misnamed(source),))
    if head[257:262] == b"ustar":
        raise UnreadableError("is a tar archive, torch's format of before 2018, which current loaders refuse")
    return _read_legacy(source)


def _is_safetensors(head: bytes, size: int) -> bool:
    """Whether a file begins as safetensors do: eight bytes of length, then an object of JSON."""
    return head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= min(size - 8, HEADER_LIMIT)


def _misnamed(source: Source) -> Problem:
    return Problem(
        Trouble.CORRUPT,
        f"{source.name} is a safetensors file under another name: no loader opens it as a PyTorch file",
        Location(file=source.name),
        "rename it to model.safetensors",
    )


# The zip format: {name}/data.pkl, and one stored file {name}/data/{key} for each storage.


def _read_zip(source: Source) -> Header:
    with as_torch(source) as archive:
        header, found = _from_archive(source, archive)
    if archive.odd is None:
        return _warned(source, header, *found)
    header = _warned(source, header, *sweep(source))
    if not header.problems:
        header.problems = (_oddity(source, archive, archive.odd),)
    return header


def _oddity(source: Source, archive: Archive, odd: str) -> Problem:
    """What is odd about an archive that torch takes: an error where others may take something else."""
    if archive.doubled or not read_alike(source, archive):
        message = f"{source.name} is a zip archive that readers take for different ones: {odd}"
        return _problem(source, Trouble.CORRUPT, message, stops=False)
    message = f"{source.name} is a zip archive with something odd about it that readers pass over: {odd}"
    return _problem(source, Trouble.ODD, message, stops=False)


def _from_archive(source: Source, archive: Archive) -> tuple[Header, Found]:
    """The tensors, and what is asked for beside their pickle."""
    if not archive.has_pickle:
        raise PickleError(_NO_PICKLE)
    check_records(archive)
    info = archive.named("data.pkl")
    if info is None:
        raise PickleError(_NO_PICKLE)
    places = Places(archive)
    name, size = info.filename, info.file_size
    if size > PICKLE_LIMIT:
        raise UnreadableError(f"has a {name} of {size} bytes, more than the {PICKLE_LIMIT} that are read")
    stream = io.BytesIO(archive.content(info, PICKLE_LIMIT))
    machine = Machine(stream, name)
    value = machine.run()
    if machine.foreign is not None:  # its opcodes are not those that torch writes: other readers may see others
        stream.seek(0)
    found = beside(archive, stream, name) if machine.foreign is None else sweep(source)
    reader = Reader(source, places.find, places.hidden, places.packed, places.summed)
    return _header(source, value, reader, machine.foreign), found


# The format before 1.6: five pickles (magic, protocol, system, the dict, the keys), then the storages.


def _read_legacy(source: Source) -> Header:
    stream = Bounded(source, STREAM_LIMIT, PICKLE_LIMIT)
    machine = Machine(stream)
    try:
        magic = machine.run()
    except PickleError as error:
        if error.unsafe or source.read(0, 5).startswith(_BEGINNINGS):
            raise
        raise PickleError("is no PyTorch file: neither a zip archive nor a pickle") from error
    if magic != _LEGACY_MAGIC:
        raise UnreadableError("is a pickle, but not one that torch.save wrote")
    for _ in range(2):
        machine = Machine(stream, most=machine.left)
        machine.run()
    machine = Machine(stream, legacy=True, most=machine.left)
    value = machine.run()
    keys = Machine(stream, most=machine.left).run()
    places, end = _legacy_places(source, keys, machine.storages, stream.tell())
    found: Found = behind(source, end) if end >= 0 else ([], None)
    if machine.foreign is not None:
        found = sweep(source)
    reader = Reader(source, lambda storage: places.get(storage.key), _UNPLACED)
    header = _header(source, value, reader, machine.foreign)
    if machine.untyped:
        header.problems = (*header.problems, _untyped(source))
    header.behind = source.size() - end if end >= 0 else 0
    return _warned(source, header, *found)


def _untyped(source: Source) -> Problem:
    """torch.save writes the format before 1.6 so where asked to, and torch.load 2.13 does not read it back."""
    return Problem(
        Trouble.UNREADABLE,
        f"{source.name} has storages without a dtype (as for fp8) in the format before torch 1.6, at which "
        "torch.load stops: UntypedStorage has no attribute 'dtype'",
        Location(file=source.name),
        "save it again with torch.save in its default format, or as safetensors",
    )


def _legacy_places(source: Source, keys: Any, storages: dict[str, Storage], at: int) -> tuple[Spans, int]:
    """Each storage is its number of elements (eight bytes) and then the elements, in the order of ``keys``.

    With the place where the last one ends, -1 when that is not known.
    """
    places: Spans = {}
    if not isinstance(keys, list):
        raise PickleError("has no list of storages after its pickle")
    for key in keys:
        name = as_text(key) or ""
        storage = storages.get(name)
        if storage is None or at < 0:  # unknown length: nor is it known where the storages after it start
            at, places[name] = -1, (-1, 1 << 63)
            continue
        raw = source.read(at, at + 8)
        start = at + 8
        at = start + storage.width * int.from_bytes(raw, "little", signed=True)
        if len(raw) < 8 or not start <= at <= source.size():
            raise PickleError(f"is truncated: the storage {name:.60} needs bytes up to {at}")
        places[name] = (start, at)
    return places, at


# What both formats share.


def _tensors(value: Any) -> list[tuple[str, TensorRecord | Opaque]]:
    if not isinstance(value, Table):
        return []
    return [(name, item) for name, item in value.items() if _is_tensor(item)]


def _is_tensor(item: Any) -> bool:
    return isinstance(item, TensorRecord) or (isinstance(item, Opaque) and item.is_tensor)


def _header(source: Source, value: Any, reader: Reader, foreign: str | None) -> Header:
    if not isinstance(value, Table):
        raise UnreadableError("does not hold a dict at its top level, which is what loaders take the tensors from")
    tensors = tuple(reader.tensor(name, record) for name, record in _tensors(value))
    problem = None
    if foreign:
        problem = Problem(
            Trouble.UNREADABLE,
            f"{source.name} {refused(foreign)}",
            Location(file=source.name),
            _PROTOCOL_2,
        )
    return Header(
        tensors,
        (problem,) if problem else (),
        uncopied={**reader.uncopied, **_others(value)},
        views=reader.views,
        packed=reader.packed,
        sums=tuple(reader.sums.values()),
        entries=tuple(_entries(source.name, value)),
    )


def _other(item: Any) -> Uncopied:
    if isinstance(item, Opaque):
        return item.about
    return Uncopied(
        "is a dict" if isinstance(item, Table) else "is a list" if isinstance(item, list) else "is no tensor"
    )


def _others(value: Table) -> dict[str, Uncopied]:
    """What the dict holds beside tensors; an empty `_metadata`, as old exports have it, is nothing."""
    found = {name: _other(item) for name, item in value.items() if not _is_tensor(item)}
    kept = value.get("_metadata")
    if isinstance(kept, Table) and not kept and kept.odd is None:
        del found["_metadata"]
    return found if value.odd is None else {**found, value.odd: Uncopied("is a key that is no text")}


def _entries(file: str, value: Table) -> Iterator[Entry]:
    """What loaders come across beside tensors, in the order of the dict."""
    odd = sorted(((place, key, kind) for kind, (key, place) in value.odd_kinds.items()), key=itemgetter(0))[::-1]
    tensors = 0
    for place, (name, item) in enumerate([*value.items(), ("", None)]):
        while odd and odd[-1][0] <= place:
            _, key, kind = odd.pop()
            yield Entry(key, "", file, kind or "?", before=tensors)
        if place == len(value):
            return
        if _is_tensor(item):
            tensors += 1
        else:
            yield Entry(name, type_of(item), file, inside=len(_tensors(item)), before=tensors)
