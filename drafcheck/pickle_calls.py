"""What the calls of a pickle give, as records: nothing is called.

The functions are those of ``drafcheck.pickle_globals.HARMLESS``. What torch.load(weights_only=True) raises at is an
error here too, as far as a state dict can hold it (torch/_weights_only_unpickler.py and torch/_utils.py 2.13).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from drafcheck.pickle_globals import CODECS, HARMLESS, QUALIFIED_DTYPES
from drafcheck.pickle_records import (
    BYTES,
    FOREIGN_BYTES,
    OPAQUE,
    Global,
    Opaque,
    Storage,
    Table,
    TensorRecord,
    sizes,
    type_of,
    whole,
)
from drafcheck.tensor import Uncopied
from drafcheck.words import plural

_MADE = Opaque(Uncopied("is a tensor or a storage that a call makes, with no bytes in the file"))
_UNNAMED = Opaque(Uncopied("is a tensor of a dtype that safetensors does not know"))
_COMPLEX = Uncopied("is a tensor of a dtype that safetensors does not know, of complex numbers")
_SPARSE = Uncopied("is a sparse tensor", "to_dense()", "copy_() between dense and sparse Tensors is not implemented!")
_COMPRESSED = Uncopied(
    "is a sparse tensor",
    "to_dense()",
    "copy_sparse_compressed_ expected sparse compressed tensor layout but got Strided",
)
_QUANTISED = Uncopied(
    "is a tensor quantised by torch",
    "dequantize()",
    "Copying from quantized Tensor to non-quantized Tensor is not allowed",
)
_NESTED = Opaque(Uncopied("is a nested tensor", "to_padded_tensor(0)"))
_META = Uncopied("is a tensor without values, of the device meta", stops="Cannot copy out of meta tensor; no data!")
_CAST = Uncopied("is a tensor of a device of its own, and there of another dtype", "cpu()")
_MORE = Uncopied("has attributes that hold tensors")
_PLAIN = ("torch.Tensor", "torch.nn.parameter.Parameter")

_ARGUMENTS = {
    "_rebuild_tensor": (4, 4),
    "_rebuild_tensor_v2": (6, 7),
    "_rebuild_tensor_v3": (7, 8),
    "_rebuild_parameter": (3, 3),
    "_rebuild_parameter_with_state": (4, 4),
    "_rebuild_from_type_v2": (4, 4),
    "_rebuild_wrapper_subclass": (8, 8),
    "_rebuild_sparse_tensor": (2, 2),
    "_rebuild_qtensor": (7, 7),
    "_rebuild_nested_tensor": (4, 4),
    "_rebuild_meta_tensor_no_storage": (4, 4),
    "_rebuild_device_tensor_from_cpu_tensor": (4, 4),
    "_rebuild_device_tensor_from_numpy": (4, 4),
    "_get_layout": (1, 1),
    "OrderedDict": (0, 1),
    "Counter": (0, 1),
    "Size": (0, 1),
    "Parameter": (0, 2),
    "device": (1, 2),
    "encode": (1, 3),
    "bytearray": (0, 3),
    "set": (0, 1),
    "complex": (0, 2),
}
"""How many arguments these take."""

_FUNCTIONS = ("torch.serialization._get_layout", "_codecs.encode")
_DIFFERENTIABLE = ("F", "BF", "C")  # how the dtypes begin that can require gradients
_ROOM = 1 << 24  # more elements than what honest files make by a call: nothing
_TABLE = frozenset(dir(OrderedDict))


class HostileError(Exception):
    """Nothing is called that torch does not allow, and still the file means harm. The message says how."""


def call(path: str, args: tuple[Any, ...]) -> Any:
    """What a harmless call gives, as a record. Raises ValueError where torch raises."""
    fewest, most = _ARGUMENTS.get(path.rpartition(".")[2], (0, len(args)))
    if not fewest <= len(args) <= most:
        raise ValueError(f"{path} called with {plural(len(args), 'argument')}")
    return _CALLS[HARMLESS[path]](path, args)


def made(path: str, args: tuple[Any, ...]) -> Any:
    """What ``cls.__new__(cls, *args)`` gives, without ``__init__``: dicts and sets are empty. Raises ValueError."""
    kind = HARMLESS[path]
    if kind == "dict":
        return Table(path.rpartition(".")[2])
    if path.startswith("torch._") or path in _FUNCTIONS:
        raise ValueError(f"{path} is no class")
    if path in ("builtins.set", "builtins.bytearray"):
        return OPAQUE
    return call(path, args)


def build(target: Any, state: Any) -> None:
    """Set the state of an object, as BUILD does. Raises ValueError where torch raises or it were other contents, and
    HostileError for a dict that would not give loaders what it holds."""
    if isinstance(target, (TensorRecord, Storage)):
        raise ValueError("other contents for a tensor")
    if not isinstance(target, Table) or target.kind == "dict":
        raise ValueError("attributes of what has none")
    if isinstance(state, Table):
        over = next((name for name in state if name in _TABLE), None)
        if over is not None:  # that of the instance goes before that of its class
            raise HostileError(f"sets `{over}` of a dict, so that loaders would call what the file names")
    elif state not in ((), []):
        raise ValueError("attributes that are no dict")


def _ordered(path: str, args: tuple[Any, ...]) -> Table:
    table = Table(path.rpartition(".")[2])
    given = args[0] if args else ()
    if isinstance(given, Table):
        table.update(given)
        table.odd, table.odd_kinds = given.odd, dict(given.odd_kinds)
    elif not isinstance(given, (list, tuple)):
        if not isinstance(given, Opaque) or given.is_tensor or table.kind != "Counter":
            raise ValueError(f"{path} of what is no dict")
    elif table.kind == "OrderedDict":
        for item in given:
            if not (isinstance(item, (list, tuple)) and len(item) == 2):
                raise ValueError("a dict of what are no pairs")
            table.take(*item)
    elif given:
        table.odd = "?"  # counts what it is given
    return table


def _size(_: str, args: tuple[Any, ...]) -> Any:
    return sizes(args[0]) if args else ()


def _parameter(path: str, args: tuple[Any, ...]) -> Any:
    value = args[0] if args else _MADE
    if not isinstance(value, (TensorRecord, Opaque)):
        raise ValueError("a parameter that is no tensor")
    _with_gradient(value, args[1] if len(args) > 1 else True)
    return _with_state(value, args[3:]) if "_rebuild" in path else value


def _rebuilt(path: str, args: tuple[Any, ...]) -> Any:
    third = path.endswith("_v3")
    value = _tensor(args, args[6] if third else None, args[7 if third else 6 :])
    return _with_gradient(value, args[4] if len(args) > 4 else False)


def _with_gradient(value: Any, wanted: Any) -> Any:
    """A tensor that may require gradients. Raises ValueError where it cannot, as torch does."""
    if type(wanted) is not bool:
        raise ValueError("a tensor that neither requires gradients nor does not")
    if wanted and isinstance(value, TensorRecord) and not value.dtype.startswith(_DIFFERENTIABLE):
        raise ValueError(f"a tensor of {value.dtype} that requires gradients")
    return value


def _typed(path: str, args: tuple[Any, ...]) -> Any:
    """``_rebuild_from_type_v2(function, class, arguments, state)``: as torch writes a tensor with attributes."""
    if not (isinstance(args[0], Global) and isinstance(args[1], Global) and type(args[2]) is tuple):
        raise ValueError("a tensor of a class that is not named")
    function = args[0].path
    if HARMLESS[function] not in ("tensor", "parameter", "special") or path == function:
        raise ValueError(f"a tensor that {function} makes")
    value = call(function, args[2])
    if args[1].path not in _PLAIN:
        raise ValueError(f"a tensor of the class {args[1].path}")
    return _with_state(value, args[3:])


def _with_state(value: Any, states: Iterable[Any]) -> Any:
    """A tensor once its attributes are set. Those that are tensors may be its values: ``data`` is one of them."""
    for state in states:
        for part in state if type(state) is tuple else (state,):
            if not isinstance(part, Table):
                continue
            if "__class__" in part:
                raise ValueError("another class for a tensor")
            held = any(isinstance(v, (TensorRecord, Opaque)) for v in part.values())
            if held and isinstance(value, TensorRecord):
                return value._replace(altered=_MORE)
    return value


def _tensor(args: tuple[Any, ...], dtype: Any, metadata: tuple[Any, ...]) -> TensorRecord | Opaque:
    """``_rebuild_tensor*(storage, offset, size, stride, ...)``. Raises ValueError for other arguments."""
    storage, offset, shape, stride = args[:4]
    if not isinstance(storage, Storage) or not whole(offset):
        raise ValueError("a tensor that is not a view of a storage")
    lengths, steps = sizes(shape), sizes(stride)
    if len(lengths) != len(steps):
        raise ValueError(f"a tensor with {plural(len(lengths), 'size')} and {plural(len(steps), 'stride')}")
    named = QUALIFIED_DTYPES.get(dtype.path) if isinstance(dtype, Global) else storage.dtype
    if named is None:
        # C64 stands for complex numbers of whatever width: torch copies them into real ones all the same.
        said = dtype.path if isinstance(dtype, Global) else "torch.complex128" if storage.width == 16 else ""
        return Opaque(_COMPLEX, "C64", lengths) if said.startswith("torch.complex") else _UNNAMED
    return TensorRecord(storage, offset, lengths, steps, named, _altered(metadata))


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


def _special(path: str, args: tuple[Any, ...]) -> Any:
    """Tensors that are no view of one storage. Engines stop at most of them (``Uncopied.stops``)."""
    name = path.rpartition(".")[2]
    if name == "_rebuild_sparse_tensor":
        return _sparse(args[1])
    if name == "_rebuild_qtensor":
        record = _tensor((*args[:4],), Global("torch.int8"), ())
        dtype = "I32" if isinstance(args[0], Storage) and args[0].width == 4 else "I8"
        return Opaque(_QUANTISED, dtype, record.shape)
    if name == "_rebuild_meta_tensor_no_storage":
        dtype = QUALIFIED_DTYPES.get(args[0].path, "") if isinstance(args[0], Global) else ""
        return Opaque(_META, dtype, sizes(args[1]))
    if name == "_rebuild_device_tensor_from_cpu_tensor":
        return _moved(args[0], args[1])
    if name == "_rebuild_nested_tensor":
        return _NESTED
    # Of the classes that a wrapper can be made of torch lets none through, nor the arrays of numpy.
    raise ValueError(f"{path}, which torch can not call with what it lets through")


def _sparse(data: Any) -> Opaque:
    """``(indices, values, size)``, then whether it is coalesced; or two lists of indices, values and size."""
    if not isinstance(data, tuple) or len(data) not in (3, 4):
        raise ValueError("a sparse tensor without its parts")
    compressed = isinstance(data[-1], tuple) and len(data) == 4
    values, size = data[2:4] if compressed else data[1:3]
    if not isinstance(values, (TensorRecord, Opaque)):
        raise ValueError("a sparse tensor without values")
    return Opaque(_COMPRESSED if compressed else _SPARSE, values.dtype, sizes(size))


def _moved(data: Any, dtype: Any) -> Any:
    """A tensor of XLA or another device that has no storages of its own: written as one of the processor."""
    if not isinstance(data, (TensorRecord, Opaque)) or not isinstance(dtype, Global):
        raise ValueError("a tensor of a device, made of what is none")
    named = QUALIFIED_DTYPES.get(dtype.path, "")
    return data if named == data.dtype else Opaque(_CAST, named, data.shape)


def _encoded(_: str, args: tuple[Any, ...]) -> Any:
    """Bytes, as pickles of the protocol 2 write them: ``_codecs.encode(text, "latin1")``."""
    codec = args[1] if len(args) > 1 else "utf-8"
    if not isinstance(args[0], str) or not isinstance(codec, str):
        raise ValueError("encodes what is no text")
    if codec not in CODECS:
        raise HostileError(f"encodes a text by {codec!r:.60}, which hides what it says")
    return BYTES if args[0].isascii() else FOREIGN_BYTES


def _opaque(path: str, args: tuple[Any, ...]) -> Any:
    if path == "builtins.set" and args and not isinstance(args[0], (list, tuple, Table, Opaque, str, bytes)):
        raise ValueError("a set of what is no list")
    most = max((arg for arg in args if type(arg) is int), default=0)
    if most > _ROOM:
        raise HostileError(f"asks for the memory of {most} values that it does not hold")
    if path == "torch.device" and (not isinstance(args[0], (str, int, Opaque)) or type_of(args[0]) == "bytes"):
        raise ValueError("a device without a name")
    return _MADE if path.endswith("Tensor") else OPAQUE


def _never(path: str, _: tuple[Any, ...]) -> Any:
    raise ValueError(f"{path} is called, which is no function")


def _storage(path: str, args: tuple[Any, ...]) -> Any:
    if not path.startswith("torch.storage."):
        return _never(path, args)
    _opaque(path, args)
    return _MADE


_CALLS: dict[str, Callable[[str, tuple[Any, ...]], Any]] = {
    "dict": _ordered,
    "tuple": _size,
    "tensor": _rebuilt,
    "parameter": _parameter,
    "typed": _typed,
    "special": _special,
    "text": _encoded,
    "opaque": _opaque,
    "dtype": _never,
    "storage": _storage,
}
