"""What a pickle's values become: plain records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from drafcheck.header_json import DTYPE_BITS
from drafcheck.pickle_globals import STORAGES, UNNAMED_BYTES
from drafcheck.tensor import Uncopied

DIMENSION_LIMIT = 64
"""Tensors with more dimensions are taken for nonsense, as torch does."""


class Global(NamedTuple):
    """A name that the pickle asks for; never looked up."""

    path: str


class Storage(NamedTuple):
    """A block of ``numel`` elements of ``width`` bytes, called ``key``.

    ``dtype`` is None when safetensors has no such one. ``offset`` is the element at which a view of it starts, which
    only legacy files have; ``numel`` then ends with the view.
    """

    key: str
    dtype: str | None
    numel: int
    offset: int = 0
    width: int = 1


class TensorRecord(NamedTuple):
    """A tensor that the pickle rebuilds: a view of a storage. ``offset`` and ``stride`` count elements.

    ``altered`` is set when the bytes of the storage are not the values, or not all that there is to it.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    altered: Uncopied | None = None

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie one after the other in row-major order."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size == 0:
                return True
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    @property
    def apart(self) -> bool:
        """Whether no two elements share a place in the storage, but those of a side that is repeated (stride 0)."""
        reach = 0
        for stride, size in sorted(zip(self.stride, self.shape, strict=True)):
            if size != 1 and stride and stride <= reach:
                return False
            reach += (size - 1) * stride
        return 0 not in self.shape


class Table(dict[str, Any]):
    """A dict of the pickle; ``odd`` describes the first key that is not a string. Such items are not kept.

    ``kind`` is the name of its class: ``dict``, ``OrderedDict`` or ``Counter``. ``odd_kinds`` has the first key of each
    type that is no text, by the name of the type ("" of one that is not told apart), and how many items that are kept
    come before it.
    """

    __slots__ = ("kind", "odd", "odd_kinds")

    def __init__(self, kind: str = "dict") -> None:
        """An empty one."""
        super().__init__()
        self.kind = kind
        self.odd: str | None = None
        self.odd_kinds: dict[str, tuple[str, int]] = {}

    def take(self, key: Any, value: Any) -> None:
        """Set an item, if its key is text. Raises ValueError for what can be no key."""
        if isinstance(key, (list, dict)):
            raise ValueError("a key that is a list or a dict")
        if isinstance(key, str):
            self[key] = value
        else:
            said = repr(key) if type(key) in (int, float, bool, type(None)) else "?"
            self.odd = said if self.odd is None else self.odd
            self.odd_kinds.setdefault(type_of(key), (said, len(self)))


NO_TENSOR = Uncopied("is no tensor")


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that no check looks at (a set, a number of another kind, the result of a harmless call).

    ``dtype`` and ``shape`` are those of a tensor whose values do not lie in one storage: torch loads it as one.
    ``kind`` is the name of its type, where that is told apart.
    """

    about: Uncopied = NO_TENSOR
    dtype: str = ""
    shape: tuple[int, ...] = ()
    kind: str = ""

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor of which dtype and shape are known."""
        return bool(self.dtype)


OPAQUE = Opaque()
BYTES, FOREIGN_BYTES = Opaque(kind="bytes"), Opaque(Uncopied("is no tensor, but bytes beyond ASCII"), kind="bytes")
"""What a pickle of the protocol 2 makes of a text by a call; of the second not every byte is of ASCII."""

_TYPES = (int, float, bool, str, bytes, list, tuple, type(None))


def type_of(value: Any) -> str:
    """The name that Python has for the type of what the pickle made; "" where that is not told apart."""
    if isinstance(value, (Table, Opaque)):
        return value.kind
    return type(value).__name__ if type(value) in _TYPES else ""


def storage_of(pid: Any, *, legacy: bool = False) -> Storage:
    """``('storage', type, key, location, numel)``, and in ``legacy`` files the view. Raises ValueError.

    torch takes neither more items nor fewer (torch/serialization.py 2.13, both ``persistent_load``). What the location
    says does not count, as engines load with ``map_location="cpu"``; only bytes have to be of ASCII.
    """
    if not isinstance(pid, tuple) or len(pid) != (6 if legacy else 5) or as_text(pid[0]) != "storage":
        raise ValueError("a persistent id that is not a storage")
    kind, key, location, numel = pid[1], as_text(pid[2]), pid[3], pid[4]
    if location is FOREIGN_BYTES:
        raise ValueError("a location of bytes beyond ASCII")
    if not isinstance(kind, Global) or kind.path not in STORAGES or key is None or not whole(numel):
        raise ValueError("a storage of an unknown type")
    dtype = STORAGES[kind.path]
    width = DTYPE_BITS[dtype] // 8 if dtype is not None else UNNAMED_BYTES[kind.path]
    view = pid[5] if legacy else None
    if isinstance(view, tuple) and len(view) == 3 and whole(view[1]) and whole(view[2]):
        return Storage(key, dtype, min(numel, view[1] + view[2]), view[1], width)
    return Storage(key, dtype, numel, width=width)


def sizes(value: Any) -> tuple[int, ...]:
    """The sizes or strides of a tensor. Raises ValueError for anything else."""
    # The cap keeps a short pickle from copying one long list a million times.
    if not isinstance(value, (tuple, list)) or len(value) > DIMENSION_LIMIT or not all(map(whole, value)):
        raise ValueError("a tensor whose size is not a list of counts")
    return tuple(value)


def whole(value: Any) -> bool:
    """Whether it is a count: an integer that is not negative and fits into 63 bits."""
    return type(value) is int and 0 <= value < 1 << 63


def as_text(value: Any) -> str | None:
    """A text of the pickle, also one that Python 2 wrote as bytes; None for anything else."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else None
