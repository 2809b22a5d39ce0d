"""What a pickle's calls and values become: plain records, made without calling anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from drafcheck.header_json import DTYPE_BITS
from drafcheck.pickle_globals import HARMLESS, QUALIFIED_DTYPES, STORAGES, UNNAMED_BYTES
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
    def dense(self) -> bool:
        """Whether the elements fill a stretch of the storage without a gap or a double, in whatever order."""
        step = 1
        for stride, size in sorted(zip(self.stride, self.shape, strict=True)):
            if size != 1 and stride != step:
                return False
            step *= size
        return True


class Table(dict[str, Any]):
    """A dict of the pickle; ``odd`` describes the first key that is not a string. Such items are not kept."""

    odd: str | None = None

    def take(self, key: Any, value: Any) -> None:
        """Set an item, if its key is text."""
        if isinstance(key, str):
            self[key] = value
        elif self.odd is None:
            self.odd = repr(key) if type(key) in (int, float, bool, type(None)) else "?"


NO_TENSOR = Uncopied("is no tensor")


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that no check looks at (a set, a number of another kind, the result of a harmless call)."""

    about: Uncopied = NO_TENSOR


OPAQUE = Opaque()

_SUBCLASS = Opaque(Uncopied("is a tensor of a class of its own"))
_UNNAMED = Opaque(Uncopied("is a tensor of a dtype that safetensors does not know"))
_TENSORS = {
    "_rebuild_sparse_tensor": Opaque(Uncopied("is a sparse tensor", "to_dense()")),
    "_rebuild_qtensor": Opaque(Uncopied("is a tensor quantised by torch", "dequantize()")),
    "_rebuild_nested_tensor": Opaque(Uncopied("is a nested tensor", "to_padded_tensor(0)")),
    "_rebuild_meta_tensor_no_storage": Opaque(Uncopied("is a tensor without values, of the device meta")),
    "_rebuild_wrapper_subclass": _SUBCLASS,
    "_rebuild_from_type_v2": _SUBCLASS,
    "_rebuild_device_tensor_from_cpu_tensor": Opaque(Uncopied("is a tensor of a device of its own", "cpu()")),
    "_rebuild_device_tensor_from_numpy": Opaque(Uncopied("is a tensor of a device of its own", "cpu()")),
}
_MORE = Uncopied("has attributes that hold tensors")
_PLAIN = ("torch.Tensor", "torch.nn.parameter.Parameter")


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
        third = path.endswith("_v3")
        return _tensor(args, args[6] if third and len(args) > 6 else None, args[7 if third else 6 :])
    if kind == "parameter":
        return _with_state(args[0] if args else OPAQUE, args[3:])
    if kind == "typed":
        return _typed(args)
    return _TENSORS.get(path.rpartition(".")[2], OPAQUE)


def _typed(args: tuple[Any, ...]) -> Any:
    """``_rebuild_from_type_v2(function, class, arguments, state)``: as torch writes a tensor with attributes."""
    if len(args) < 4 or not (isinstance(args[0], Global) and isinstance(args[1], Global) and type(args[2]) is tuple):
        raise ValueError("a tensor of a class that is not named")
    if args[1].path not in _PLAIN or HARMLESS[args[0].path] not in ("tensor", "parameter"):
        return _SUBCLASS
    return _with_state(call(args[0].path, args[2]), args[3:])


def _with_state(value: Any, states: Iterable[Any]) -> Any:
    """A tensor once its attributes are set. Those that are tensors may be its values: ``data`` is one of them."""
    if isinstance(value, TensorRecord):
        for state in states:
            for part in state if type(state) is tuple else (state,):
                if isinstance(part, Table) and any(isinstance(v, (TensorRecord, Opaque)) for v in part.values()):
                    return value._replace(altered=_MORE)
    return value


def _pairs(items: list[Any]) -> Table:
    """A dict made from a list of pairs, as Python 2 wrote it."""
    table = Table()
    for item in items:
        if isinstance(item, (list, tuple)) and len(item) == 2:
            table.take(*item)
    return table


def _tensor(args: tuple[Any, ...], dtype: Any, metadata: tuple[Any, ...]) -> TensorRecord | Opaque:
    """``_rebuild_tensor*(storage, offset, size, stride, ...)``. Raises ValueError for other arguments."""
    storage, offset, shape, stride = args[:4]
    if not isinstance(storage, Storage) or not _count(offset):
        raise ValueError("a tensor that is not a view of a storage")
    sizes, steps = _sizes(shape), _sizes(stride)
    if len(sizes) != len(steps):
        raise ValueError(f"a tensor with {len(sizes)} sizes and {len(steps)} strides")
    named = QUALIFIED_DTYPES.get(dtype.path) if isinstance(dtype, Global) else storage.dtype
    if named is None:
        return _UNNAMED
    return TensorRecord(storage, offset, sizes, steps, named, _altered(metadata))


def _altered(metadata: tuple[Any, ...]) -> Uncopied | None:
    """What torch's bits of a tensor make of its bytes (``torch._utils.set_tensor_metadata``): a view may be negated."""
    said = metadata[0] if metadata else None
    if not said and not (isinstance(said, Table) and said.odd is not None):
        return None
    if not isinstance(said, Table) or said.odd is not None or said.keys() - {"conj", "neg"}:
        return Uncopied("has metadata that say that its bytes are something else")
    bits = [bit for bit in ("conj", "neg") if said.get(bit, False) is not False]
    if not bits:
        return None
    means = " and ".join({"conj": "conjugates", "neg": "negatives"}[bit] for bit in bits)
    return Uncopied(f"is stored as the {means} of its values", ".".join(f"resolve_{bit}()" for bit in bits))


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
    dtype = STORAGES[kind.path]
    width = DTYPE_BITS[dtype] // 8 if dtype is not None else UNNAMED_BYTES[kind.path]
    view = pid[5] if legacy else None
    if isinstance(view, tuple) and len(view) == 3 and _count(view[1]) and _count(view[2]):
        return Storage(key, dtype, min(numel, view[1] + view[2]), view[1], width)
    return Storage(key, dtype, numel, width=width)


def as_text(value: Any) -> str | None:
    """A text of the pickle, also one that Python 2 wrote as bytes; None for anything else."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else None
