"""Where the tensors of a pickle lie in its file, and which of them are their bytes as they lie."""

from __future__ import annotations

from collections.abc import Callable

from drafcheck.header_json import DTYPE_BITS, METADATA
from drafcheck.pickle_machine import PickleError
from drafcheck.pickle_records import Opaque, Storage, TensorRecord
from drafcheck.source import Source
from drafcheck.tensor import Packed, Summed, Tensor, Uncopied, View
from drafcheck.words import plural

Finder = Callable[[Storage], "tuple[int, int] | None"]
"""(start, stop) of a storage in the file, start -1 when it cannot be addressed; None when it is not there."""

Packs = Callable[[Storage], "tuple[int, int, int] | None"]
"""(start, stop) of a compressed storage in the file, and its length unpacked; None for any other."""

Sum = tuple[int, int, int, bool]
"""(start, stop) of a storage in the file, its CRC-32, and whether it is compressed there."""

Sums = Callable[[Storage], "Sum | None"]
"""Where a storage lies and its checksum; None where there is none."""


class Reader:
    """Finds the bytes of tensors. ``uncopied`` are those that it could not find, or that are not their values."""

    def __init__(
        self,
        source: Source,
        find: Finder,
        hidden: Uncopied,
        packed: Packs = lambda _: None,
        summed: Sums = lambda _: None,
    ) -> None:
        """``find`` and ``packed`` give the places of storages, ``hidden`` why those cannot be addressed that cannot."""
        self._source = source
        self._find, self._packed, self._summed = find, packed, summed
        self._hidden = hidden
        self.uncopied: dict[str, Uncopied] = {}
        self.views: dict[str, View] = {}
        self.packed: dict[str, Packed] = {}
        self.sums: dict[str, Summed] = {}

    def tensor(self, name: str, record: TensorRecord | Opaque) -> Tensor:
        """A tensor and its place. Raises PickleError when its storage is not there or too short."""
        if isinstance(record, Opaque):
            self.uncopied[name] = record.about
            return Tensor(name, record.dtype, record.shape, self._source.name)
        start, stop = self._place(name, record)
        self._sum(name, record.storage)
        why = _not_plain(name, record) or (self._hidden if start < 0 else None)
        if why is not None:
            self.uncopied[name] = why
        if record.altered is None and record.apart and DTYPE_BITS[record.dtype] >= 8:
            self._view(name, record, start)
        if start < 0 or record.altered is not None or not record.contiguous:
            start = stop = -1
        return Tensor(name, record.dtype, record.shape, self._source.name, start, stop)

    def _sum(self, name: str, storage: Storage) -> None:
        """Keep the checksum of a storage, once."""
        if storage.key not in self.sums and (told := self._summed(storage)) is not None:
            self.sums[storage.key] = Summed(*told, name)

    def _view(self, name: str, record: TensorRecord, start: int) -> None:
        """Keep the places of the values where they can be had, and not by ``start`` alone."""
        width = DTYPE_BITS[record.dtype] // 8
        steps = tuple(stride * width for stride in record.stride)
        if start >= 0 and not record.contiguous:
            self.views[name] = View(start, record.shape, steps, width)
        elif start < 0 and (place := self._packed(record.storage)) is not None:
            view = View(_first(record), record.shape, steps, width)
            self.packed[name] = Packed(*place, view)

    def _place(self, name: str, record: TensorRecord) -> tuple[int, int]:
        storage, width = record.storage, DTYPE_BITS[record.dtype] // 8 or 1
        place = self._find(storage)
        if place is None:
            raise PickleError(f"lacks the storage {storage.key:.60} of the tensor {name:.200}")
        start, stop = place
        first = _first(record)
        held = min(stop - start, storage.numel * storage.width)
        if 0 in record.shape:  # torch looks at the place of no tensor without elements
            first = min(first, held)
        elif first + _reach(record) * width > held:
            raise PickleError(f"has a tensor {name:.200} that reaches past its storage of {plural(held, 'byte')}")
        count = 1
        for dimension in record.shape:
            count *= dimension
        return (start + first, start + first + count * width) if start >= 0 else (-1, -1)


def _first(record: TensorRecord) -> int:
    """The byte of the storage at which the first element lies."""
    width = DTYPE_BITS[record.dtype] // 8 or 1
    return record.offset * width + record.storage.offset * record.storage.width


def _not_plain(name: str, record: TensorRecord) -> Uncopied | None:
    """Why a tensor can not be written as safetensors by a copy of its bytes; None when nothing speaks against it."""
    if name == METADATA:
        return Uncopied("has a name that safetensors keeps for itself")
    if not _is_text(name):
        return Uncopied("has a name that is no text")
    if record.altered is not None:
        return record.altered
    if not record.contiguous:
        return Uncopied("does not lie in one piece in the order of its values", "contiguous()")
    if DTYPE_BITS[record.dtype] < 8:
        return Uncopied("has several values in a byte, which safetensors counts otherwise")
    return None


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _reach(record: TensorRecord) -> int:
    """How many elements of the storage, counted from the offset, the tensor spans."""
    if 0 in record.shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(record.shape, record.stride, strict=True))
