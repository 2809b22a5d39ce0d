"""What a pickle's calls and values become: plain records, made without calling anything."""

from __future__ import annotations

from typing import Any, NamedTuple

from drafcheck.pickle_globals import HARMLESS, QUALIFIED_DTYPES, STORAGES

DIMENSION_LIMIT = 64
"""Tensors with more dimensions are taken for nonsense, as torch does."""


class Global(NamedTuple):
    """A name that the pickle asks for; never looked up."""

    path: str


class Storage(NamedTuple):
    """A block of elements: ``key`` names it, ``dtype`` is None when safetensors has no such one."""

    key: str
    dtype: str | None
    numel: int
    offset: int = 0  # legacy files: where this view of the storage starts


class TensorRecord(NamedTuple):
    """A tensor that the pickle rebuilds: a view of a storage. ``offset`` and ``stride`` count elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

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


class Table(dict[str, Any]):
    """A dict of the pickle; ``odd`` counts the keys that are not strings, which are not kept."""

    odd = 0


class Opaque:
    """A value that no check looks at (a set, a number of another kind, the result of a harmless call)."""


OPAQUE = Opaque()


_ARGUMENTS = {
    "_rebuild_tensor": (4, 4),
    "_rebuild_tensor_v2": (6, 7),
    "_rebuild_tensor_v3": (7, 8),
    "_rebuild_parameter": (3, 3),
    "_rebuild_parameter_with_state": (4, 4),
}
"""How many arguments these take: torch/_utils.py 2.13."""


def call(path: str, args: tuple[Any, ...]) -> Any:
    """What a harmless call gives, as a record."""
    kind = HARMLESS[path]
    fewest, most = _ARGUMENTS.get(path.rpartition(".")[2], (0, len(args)))
    if not fewest <= len(args) <= most:
        raise ValueError(f"{path} called with {len(args)} arguments")
    if kind == "dict":
        return _pairs(args[0]) if args and isinstance(args[0], list) else Table()
    if kind == "tuple":
        return _sizes(args[0]) if args and isinstance(args[0], (tuple, list)) else ()
    if kind == "tensor":
        return _tensor(args, args[6] if path.endswith("_v3") and len(args) > 6 else None)
    if kind == "parameter":
        return args[0] if args else OPAQUE
    return OPAQUE


def _pairs(items: list[Any]) -> Table:
    """A dict made from a list of pairs, as Python 2 wrote it."""
    table = Table()
    for item in items:
        if isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[0], str):
            table[item[0]] = item[1]
    return table


def _tensor(args: tuple[Any, ...], dtype: Any) -> TensorRecord:
    """``_rebuild_tensor*(storage, offset, size, stride, ...)``. Raises ValueError for other arguments."""
    storage, offset, shape, stride = args[:4]
    if not isinstance(storage, Storage) or not _count(offset):
        raise ValueError("a tensor that is not a view of a storage")
    sizes, steps = _sizes(shape), _sizes(stride)
    if len(sizes) != len(steps):
        raise ValueError(f"a tensor with {len(sizes)} sizes and {len(steps)} strides")
    named = QUALIFIED_DTYPES.get(dtype.path) if isinstance(dtype, Global) else storage.dtype
    if named is None:
        raise ValueError("a tensor of a dtype that safetensors has no name for")
    return TensorRecord(storage, offset, sizes, steps, named)


def _sizes(value: Any) -> tuple[int, ...]:
    # The cap keeps a short pickle from copying one long list a million times.
    if not isinstance(value, (tuple, list)) or len(value) > DIMENSION_LIMIT or not all(map(_count, value)):
        raise ValueError("a tensor whose size is not a list of counts")
    return tuple(value)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def storage_of(pid: Any, *, legacy: bool = False) -> Storage:
    """``('storage', type, key, location, numel)``, and in ``legacy`` files the view. Raises ValueError.

    torch takes neither more items nor fewer (torch/serialization.py 2.13, both ``persistent_load``).
    """
    if not isinstance(pid, tuple) or len(pid) != (6 if legacy else 5) or as_text(pid[0]) != "storage":
        raise ValueError("a persistent id that is not a storage")
    kind, key, numel = pid[1], as_text(pid[2]), pid[4]
    if not isinstance(kind, Global) or kind.path not in STORAGES or key is None or not _count(numel):
        raise ValueError("a storage of an unknown type")
    view = pid[5] if legacy else None
    if isinstance(view, tuple) and len(view) == 3 and _count(view[1]):
        return Storage(key, STORAGES[kind.path], numel, offset=view[1])
    return Storage(key, STORAGES[kind.path], numel)


def as_text(value: Any) -> str | None:
    """A text of the pickle, also one that Python 2 wrote as bytes; None for anything else."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else None
