"""The names that a torch state dict may mention, and what each stands for.

They are those that ``torch.load(weights_only=True)`` lets through (torch 2.13, ``_get_allowed_globals``).
Quantised, sparse and nested tensors are among them; they are no tensors that drafcheck lists, as no loader takes them
for weights, but it is told that they are there.
"""

from __future__ import annotations

DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4",
}
"""torch dtypes, each with the name that safetensors has for it."""

QUALIFIED_DTYPES = {f"torch.{name}": dtype for name, dtype in DTYPES.items()}

_STORAGE_TYPES: dict[str, str | None] = {
    "BoolStorage": "BOOL",
    "ByteStorage": "U8",
    "CharStorage": "I8",
    "ShortStorage": "I16",
    "IntStorage": "I32",
    "LongStorage": "I64",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "FloatStorage": "F32",
    "DoubleStorage": "F64",
    "ComplexFloatStorage": "C64",
    "ComplexDoubleStorage": None,
}

UNNAMED_BYTES = {
    "torch.ComplexDoubleStorage": 16,
    "torch.cuda.ComplexDoubleStorage": 16,
    "torch.QInt8Storage": 1,
    "torch.QUInt8Storage": 1,
    "torch.QInt32Storage": 4,
    "torch.QUInt4x2Storage": 1,
    "torch.QUInt2x4Storage": 1,
}
"""The bytes of an element of the storages whose dtype safetensors has no name for."""

UNTYPED = "torch.storage.UntypedStorage"
"""The type of storages of dtypes that have no class of their own: fp8, uint16 and the like."""

STORAGES: dict[str, str | None] = {
    **{f"torch.{name}": dtype for name, dtype in _STORAGE_TYPES.items()},
    **{f"torch.cuda.{name}": dtype for name, dtype in _STORAGE_TYPES.items()},
    **dict.fromkeys(UNNAMED_BYTES),
    UNTYPED: "U8",
    "torch.storage.TypedStorage": "U8",
}
"""Storage types and the dtype of their elements; None when safetensors has no name for it."""

_OTHER_DTYPES = """
    complex32 complex128 bits8 bits16 bits1x8 bits2x4 bits4x2 qint8 qint32 quint8 quint2x4 quint4x2
    int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7
"""

_ELEMENTS = "BFloat16 Byte Char Double Float Half Int Long Short"

_OTHER_TENSORS = """
    torch._utils._rebuild_device_tensor_from_cpu_tensor torch._utils._rebuild_device_tensor_from_numpy
    torch._utils._rebuild_meta_tensor_no_storage torch._utils._rebuild_nested_tensor torch._utils._rebuild_qtensor
    torch._utils._rebuild_sparse_tensor torch._utils._rebuild_wrapper_subclass
"""

_SCHEMES = """
    torch.per_channel_affine torch.per_channel_affine_float_qparams torch.per_channel_symmetric torch.per_tensor_affine
    torch.per_tensor_symmetric
"""

CODECS = ("latin1", "latin-1", "utf-8", "utf8", "ascii")
"""What bytes are written in by a pickle that has no opcode for them; pickle itself writes ``latin1``."""

HARMLESS: dict[str, str] = {
    "collections.OrderedDict": "dict",
    "collections.Counter": "dict",
    "torch.Size": "tuple",
    "torch._utils._rebuild_tensor": "tensor",
    "torch._utils._rebuild_tensor_v2": "tensor",
    "torch._utils._rebuild_tensor_v3": "tensor",
    "torch._utils._rebuild_parameter": "parameter",
    "torch._utils._rebuild_parameter_with_state": "parameter",
    "torch.nn.parameter.Parameter": "parameter",
    "torch._tensor._rebuild_from_type_v2": "typed",
    "torch.Tensor": "opaque",
    "torch.device": "opaque",
    "torch.serialization._get_layout": "opaque",
    "torch.BoolTensor": "opaque",
    "torch.cuda.BoolTensor": "opaque",
    "_codecs.encode": "text",
    "builtins.set": "opaque",
    "builtins.bytearray": "opaque",
    "builtins.complex": "opaque",
    **dict.fromkeys(_OTHER_TENSORS.split(), "special"),
    **dict.fromkeys(_SCHEMES.split(), "dtype"),
    **{
        f"torch.{kind}{name}Tensor": "opaque"
        for kind in ("", "cuda.", "sparse.", "cuda.sparse.")
        for name in _ELEMENTS.split()
    },
    **dict.fromkeys(STORAGES, "storage"),
    **dict.fromkeys(QUALIFIED_DTYPES, "dtype"),
    **{f"torch.{name}": "dtype" for name in _OTHER_DTYPES.split()},
}
"""Every global that does not count as code, with what a call of it gives."""

_KNOWN = """
    MARK STOP PROTO GLOBAL REDUCE NEWOBJ BUILD APPEND APPENDS SETITEM SETITEMS TUPLE TUPLE1 TUPLE2 TUPLE3
    EMPTY_TUPLE EMPTY_LIST EMPTY_DICT EMPTY_SET NONE NEWFALSE NEWTRUE BININT BININT1 BININT2 BINFLOAT
    BINUNICODE SHORT_BINSTRING BINPERSID BINGET LONG_BINGET BINPUT LONG_BINPUT LONG1
"""
WEIGHTS_ONLY = frozenset(_KNOWN.split())
"""The opcodes that ``torch.load(weights_only=True)`` knows; it raises on any other."""

_VALUES = """
    INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES
    SHORT_BINBYTES BINBYTES8 BYTEARRAY8 UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8
"""
LITERALS = frozenset(_VALUES.split())
"""The opcodes that push their own argument."""


def resolved(module: str, name: str) -> str:
    """The dotted path of a global, under its name of Python 3 where Python 2 had another (as unpicklers rename it)."""
    path = f"{module}.{name}"
    if path in HARMLESS:
        return path
    from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING  # what pickle itself maps by; rarely needed

    module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    return f"{module}.{name}"
