"""The header of a safetensors file: tensors and everything that can be wrong with them.

Only the header is read: eight bytes of length and that many bytes of JSON. The verdict is the one of the
safetensors library, with these exceptions, where drafcheck is stricter because readers of the format disagree:
a tensor name or a field of a tensor that is given twice, and a tensor described by a list or with its dtype
as an object. And what no writer makes is refused for the memory that it would take: more than ``DIMENSIONS`` sizes of
a tensor, and an entry longer than ``MEMBER_LIMIT``. Names that are given twice are read differently by every reader
(the library keeps the last one).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter

from drafcheck.collecting import no_collection
from drafcheck.finding import Location
from drafcheck.header_json import DTYPE_BITS, WORD, CorruptError, Parser, Run
from drafcheck.lfs import POINTER_LIMIT, lfs_pointer
from drafcheck.magic import ZIP, begins_pickle
from drafcheck.source import Source, SourceError
from drafcheck.tensor import Entry, Packed, Problem, Summed, Tensor, Trouble, Uncopied, View
from drafcheck.words import are, ends, plural

HEADER_LIMIT = 100_000_000
"""The longest header in bytes that the safetensors library accepts."""


_FEW = 1 << 16
"""Names that are told apart in a set; of more of them the hashes are."""


@dataclass(slots=True)
class Header:
    """What a weight file declares. ``tensors`` are in the order of the file's bytes (a pickle: of its dict).

    ``uncopied`` are the entries of a pickle, tensors or not, that can not be written as safetensors as they lie.
    ``views`` are the places of the tensors of a pickle whose values do not lie in one piece in their order, ``packed``
    those of the ones in compressed files of its archive. ``behind`` are the bytes after the last storage of a pickle of
    before torch 1.6 that belong to none. ``entries`` are what the dict of a pickle holds beside tensors.
    """

    tensors: tuple[Tensor, ...] = ()
    problems: tuple[Problem, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    uncopied: dict[str, Uncopied] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    packed: dict[str, Packed] = field(default_factory=dict)
    sums: tuple[Summed, ...] = ()
    behind: int = 0
    entries: tuple[Entry, ...] = ()

    @property
    def faults(self) -> tuple[Problem, ...]:
        """The problems, without what all readers pass over."""
        return tuple(problem for problem in self.problems if problem.trouble is not Trouble.ODD)

    @property
    def lossy(self) -> bool:
        """Whether a safetensors file of the same tensors would hold less."""
        return bool(self.uncopied) or self.behind > 0


def read_header(source: Source) -> Header:
    """The header of a safetensors file. Never raises on content: whatever is wrong is in ``problems``.

    A header with a problem still lists the tensors that could be understood before it.
    """
    try:
        return _read(source)
    except SourceError as error:
        return Header(problems=(Problem(error.trouble, error.message, Location(file=source.name)),))


def _read(source: Source) -> Header:
    size = source.size()
    head = source.read(0, POINTER_LIMIT)
    pointer = lfs_pointer(head, size, source.name)
    if pointer:
        return Header(problems=(pointer,))
    parser = Parser(source.name)
    try:
        length = _header_length(head, size)
        with no_collection():
            parser.parse(_text(source.read(8, 8 + length)), 8 + length)
            _validate(parser.tensors, parser.runs, 8 + length, size)
    except CorruptError as error:
        if (harm := _harm(source)) is not None:
            return Header(tuple(parser.tensors), (harm,), parser.metadata)
        place = Location(file=source.name, tensor=error.tensor)
        problem = Problem(Trouble.CORRUPT, f"{source.name} {error.message}", place, _help(head))
        return Header(tuple(parser.tensors), (problem,), parser.metadata)
    return Header(tuple(parser.tensors), (), parser.metadata)


def _harm(source: Source) -> Problem | None:
    """What a file asks for that is no safetensors file, before anyone is told to open it as something else."""
    from drafcheck.torch_pickle import posing  # sound files have no need of it

    return posing(source)


def _help(head: bytes) -> str:
    start = head.lstrip()[:15].lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "this is a web page saved under the name of a weight file: download the checkpoint again"
    if head.startswith(ZIP) or begins_pickle(head):
        return "this is a PyTorch pickle under another name: rename it to pytorch_model.bin, or convert it"
    return "download the file again, or write it again with safetensors.torch.save_file"


def _header_length(head: bytes, size: int) -> int:
    if size == 0:
        raise CorruptError("is empty")
    if size < 8:
        raise CorruptError(f"has {plural(size, 'byte')}: too short for the eight bytes that hold the header's length")
    length: int = struct.unpack("<Q", head[:8])[0]
    if length > HEADER_LIMIT:
        raise CorruptError(
            f"declares a header of {plural(length, 'byte')}, more than the {HEADER_LIMIT} that are allowed"
        )
    if 8 + length > size:
        raise CorruptError(
            f"declares a header of {plural(length, 'byte')} but only {plural(size - 8, 'byte')} follow{ends(size - 8)}"
        )
    return length


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError(f"has a header that is not utf-8 (byte {8 + error.start})") from error


def _validate(tensors: list[Tensor], runs: list[Run], base: int, size: int) -> None:
    """Names once, bytes without gap or overlap, sizes that fit, nothing before or after. Raises CorruptError.

    Of ``runs`` only the ends are looked at: what is between them was measured when it was read.
    """
    _unique_names(tensors)
    if not _in_order(tensors, runs, base):  # nearly never: files list their tensors in the order of the bytes
        tensors.sort(key=itemgetter(4, 5))
        runs = []
    end = base
    for few, run in _parts(tensors, runs):
        end = _measure(few, end, base)
        end = run.stop if run is not None else end
    _check_end(end - base, size - base)


def _parts(tensors: list[Tensor], runs: list[Run]) -> Iterator[tuple[list[Tensor], Run | None]]:
    """The tensors before each run, and the run; in the end those after the last one."""
    at = 0
    for run in runs:
        yield tensors[at : run.first], run
        at = run.last
    yield tensors[at:], None


def _in_order(tensors: list[Tensor], runs: list[Run], base: int) -> bool:
    end = base
    for few, run in _parts(tensors, runs):
        for _, _, _, _, start, stop in few:
            if start != end or stop < start:
                return False
            end = stop
        if run is not None:
            if run.start != end:
                return False
            end = run.stop
    return True


def _measure(tensors: list[Tensor], end: int, base: int) -> int:
    """Where the last of the tensors ends, the first of which has to begin at ``end``. Raises CorruptError."""
    for tensor in tensors:
        name, dtype, shape, _, start, stop = tensor
        if start != end or stop < start:
            raise CorruptError(_misplaced(tensor, end, base), name)
        bits = DTYPE_BITS[dtype]
        for dimension in shape:
            bits *= dimension
        if bits != 8 * (stop - start) or bits == 0:
            _check_size(tensor)
        end = stop
    return end


def _unique_names(tensors: list[Tensor]) -> None:
    if all_differ([tensors]):
        return
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise CorruptError("names a tensor twice", tensor.name)
        seen.add(tensor.name)


def all_differ(lists: Sequence[Sequence[Tensor]]) -> bool:
    """Whether all tensors of the lists have different names; of very many, False where that is not sure."""
    count = sum(map(len, lists))
    names = map(itemgetter(0), chain.from_iterable(lists))
    if count <= _FEW:
        return len(set(names)) == count
    from drafcheck.header_bulk import differ  # numpy, which is worth its import for so many

    return differ(names, count)


def _misplaced(tensor: Tensor, end: int, base: int) -> str:
    start, stop, end = tensor.start - base, tensor.stop - base, end - base
    if stop < start:
        return f"gives data_offsets that end before they begin ({start} to {stop})"
    if start < end:
        return f"has overlapping tensors: one starts at {start} where the one before ends at {end}"
    return f"has a hole of {plural(start - end, 'byte')} before the tensor at {start}"


def _check_size(tensor: Tensor) -> None:
    count = 1
    for dimension in tensor.shape:  # in this order, as the library does: [2**40, 2**40, 0] overflows
        count *= dimension
        if count >= WORD:
            raise CorruptError(f"gives the shape {_show(tensor.shape)}, whose size overflows 64 bits", tensor.name)
    bits = count * DTYPE_BITS[tensor.dtype]
    if bits >= WORD:
        raise CorruptError(f"gives the shape {_show(tensor.shape)}, whose size overflows 64 bits", tensor.name)
    held = tensor.stop - tensor.start
    if bits != 8 * held:
        wanted = plural(bits // 8, "byte") if bits % 8 == 0 else f"{bits} bits, not whole bytes"
        said = f"{tensor.dtype} of shape {_show(tensor.shape)}"
        raise CorruptError(f"has a tensor of {plural(held, 'byte')} whose {said} needs {wanted}", tensor.name)


def _show(shape: tuple[int, ...]) -> str:
    inner = ", ".join(map(str, shape[:8]))
    return f"[{inner}, ...]" if len(shape) > 8 else f"[{inner}]"


def _check_end(declared: int, held: int) -> None:
    if declared > held:
        raise CorruptError(f"is truncated: its tensors need {plural(declared, 'byte')} and {held} {are(held)} there")
    if declared < held:
        raise CorruptError(
            f"has {plural(held - declared, 'byte')} after its last tensor that belong{ends(held - declared)} to none"
        )
