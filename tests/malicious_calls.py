"""More of ``malicious``: names that nobody lists, opcodes that readers stumble at, and calls of what torch allows.

``REFUSED`` is what names no code and what torch refuses all the same; ``ORDINARY`` is as odd and does nothing.
"""

from __future__ import annotations

import io
import lzma
import pickle
import struct
import zipfile
import zlib
from typing import Any

from malicious import (
    BARE,
    CODE,
    COMMAND,
    EVIL,
    EVIL_ZIP,
    GOOD,
    HEALTHY,
    TOUCH,
    ZEROS,
    beside,
    binary,
    call,
    entries,
    npy,
    one_packed,
    patched,
    stacked,
    zipped,
)
from weightfiles import Storage as Bytes
from weightfiles import archive, integer, legacy, state, tensor, text

ORDERED = b"ccollections\nOrderedDict\n"
EMPTY = ORDERED + b")R"
FLOATS = tensor(Bytes("FloatStorage", "0", 12), (3, 4), (4, 1))


def rebuilt(name: str, *args: bytes) -> bytes:
    return call(f"torch._utils._rebuild_{name}", *args)


def attributes(**values: bytes) -> bytes:
    return b"}(" + b"".join(text(name) + value for name, value in values.items()) + b"u"


def dtype(name: str) -> bytes:
    return f"ctorch\n{name}\n".encode()


LAYOUT = call("torch.serialization._get_layout", text("torch.sparse_coo"))
SIZE = call("torch.Size", b"(K\x03K\x04t")

NAMES: dict[str, bytes] = {
    "capitals": call("Builtins.eval", CODE),
    "a letter that looks alike": call("\uff4fs.system", text(COMMAND)),
    "a carriage return in the name": b"cos\r\nsystem\r\n(" + text(COMMAND) + b"tR",
    "a blank in the name": b"cos \nsystem\n(" + text(COMMAND) + b"tR",
    "no module": b"c\nsystem\n)R",
    "no name": b"cos\n\n)R",
    "names of bytes": b"C\x02osC\x06system\x93(" + text(COMMAND) + b"tR",
    "a pickle of torch's storages": call("torch.storage._load_from_bytes", binary(BARE)),
    "objects of numpy": call("numpy.core.multiarray._reconstruct", b"cnumpy\nndarray\n", b"K\x00\x85", b"C\x01b"),
    "what belongs to a dtype": stacked(text("torch"), text("float32.__class__")),
    "what belongs to a tensor": stacked(text("torch"), text("Tensor.__reduce_ex__")),
    "what belongs to a size": b"ctorch.Size\n__new__\n)R",
    "what belongs to a dict": b"ccollections.OrderedDict\nfromkeys\n)R",
    "an extension of torch": call("torch.utils.cpp_extension.load", text("x"), text("y")),
    "TorchScript": call("torch.jit.load", text("x")),
    "TorchScript, in C": call("torch._C.import_ir_module", text("x")),
    "a package of torch": call("torch.package.PackageImporter", text("x")),
    "a library of torch": call("torch.ops.load_library", text("x")),
    "a call elsewhere": call("torch.distributed.rpc.rpc_sync", text("x")),
    "a graph of torch": call("torch.fx.graph_module._exec_with_source", CODE),
    "a name swapped in the memo": b"ctorch\nSize\nq\x01cos\nsystem\nq\x010h\x01(" + text(COMMAND) + b"tR",
    "an allowed name left below": b"ctorch\nSize\ncos\nsystem\n0)R",
    "a frame too short": b"\x95" + struct.pack("<Q", 3) + b"N0" + TOUCH,
    "a frame too long": b"\x95" + b"\xff" * 8 + TOUCH,
    "a buffer": b"\x97" + TOUCH,
    "a protocol that there is not": b"\x80\xff" + TOUCH,
    "a long number of Python 2": b"I1L\n0" + TOUCH,
    "a number with a line": b"F1_0\n0" + TOUCH,
    "a string that is no literal": b"S'\\x'\n0" + TOUCH,
    "a text that is no literal": b"V\\u12\n0" + TOUCH,
    "a place before the memo": b"Np-1\n0" + TOUCH,
    "recalled from before the memo": b"g-1\n0" + TOUCH,
    "a long place in the memo": b"Np" + b"0" * 5000 + b"1\n0" + TOUCH,
    "recalled from a long place": b"g" + b"0" * 5000 + b"1\n0" + TOUCH,
    "far in the memo": b"Nr\xff\xff\xff\xff0" + TOUCH,
    "marks": b"(((((" + TOUCH + b"1111N",
    "a mark that is popped": b"(0" + TOUCH,
    "attributes of a class": b"ccollections\nCounter\n(N}" + text("update") + b"ctorch\nTensor\nstb",
    "attributes of a function": b"ctorch._utils\n_rebuild_tensor_v2\n}" + text("x") + b"K\x01sb",
    "other entries of a dict": EMPTY + attributes(items=b"ctorch\nSize\n") + b"b",
    "another class of a dict": EMPTY + attributes(__class__=b"ctorch\nTensor\n") + b"b",
    "a text in a secret code": call("_codecs.encode", text("bf.flfgrz"), text("rot13")),
    "memory for nothing": call("builtins.bytearray", integer(1 << 50)),
    "memory for a tensor": call("torch.FloatTensor", integer(1 << 50)),
    "memory for a storage": call("torch.storage.UntypedStorage", integer(1 << 50)),
}
"""One value of a state dict each, as ``malicious.VALUES``."""


def _objects(data: bytes) -> bytes:
    """A numpy file whose elements have a field of objects."""
    header = b"{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    return npy(b"")[:8] + struct.pack("<H", len(header)) + header + data


def _at_the_end_of_its_storage() -> bytes:
    return legacy(
        state({"t": tensor(Bytes("ByteStorage", "0", len(EVIL_ZIP)), (4,), (1,))}), {"0": (len(EVIL_ZIP), EVIL_ZIP)}
    )


def framed(length: int, data: bytes) -> bytes:
    return b"\x95" + struct.pack("<Q", length) + data


# A text of ten bytes of which the frame holds five: C's unpickler drops these and takes ten behind the frame. What it
# does then lies in a longer text to others, which does not end, or is followed by a healthy dict.
_AFTER = b"0" + TOUCH + b"."
_SKIPS = framed(10, b"X\n\0\0\0-----") + b"NNNNNX"
FRAMED = b"\x80\x04" + _SKIPS + b"\x7f\x7f\x7f\x7f" + _AFTER
FRAMED_DICT = b"\x80\x02" + _SKIPS + struct.pack("<I", len(_AFTER)) + _AFTER + b"0" + GOOD[2:]
FRAMED_TWICE = b"\x80\x04" + framed(12, framed(9, b"N.N")) + b"N0N0N0N0N" + TOUCH + b"."
HEALTHY_ZIP = archive(GOOD, {"0": ZEROS})
LINES = b"cos\nsystem\n(S'touch x'\ntR."
FILES: dict[str, bytes] = {
    "a second pickle of text": beside("a/extra", LINES),
    "a second pickle of text as code": beside("a/code/__torch__.py", LINES),
    "a second pickle of text, packed": beside("a/x", zlib.compress(LINES)),
    "zlib in zip": beside("a/x.z", zlib.compress(BARE)),
    "zlib in zip as joblib": beside("a/x.joblib", zlib.compress(BARE)),
    "zlib": zlib.compress(EVIL),
    "lzma in zip": beside("a/x.lzma", lzma.compress(BARE, format=lzma.FORMAT_ALONE)),
    "lz4 in zip": beside("a/x.lz4", b"\x04\x22\x4d\x18" + bytes(64)),
    "fields of objects of numpy": beside("a/x.npy", _objects(BARE)),
    "an archive behind a healthy legacy file": legacy(GOOD, {"0": (6, ZEROS)}) + EVIL_ZIP,
    "an archive at the end of a legacy file's storage": _at_the_end_of_its_storage(),
    "a pickle behind a healthy legacy file": legacy(GOOD, {"0": (6, ZEROS)}) + BARE,
    "a pickle of text behind a healthy legacy file": legacy(GOOD, {"0": (6, ZEROS)}) + LINES,
    "a pickle behind an archive": HEALTHY_ZIP + BARE,
    "a pickle of text behind an archive": HEALTHY_ZIP + LINES,
    "a pickle behind an archive in an archive": beside("a/x.bin", HEALTHY_ZIP + BARE),
    "an archive without its end": EVIL_ZIP[:-22],
    "an archive that was cut in its storages": EVIL_ZIP[: EVIL_ZIP.index(ZEROS) + 8],
    "an archive that was cut in its pickle": EVIL_ZIP[: EVIL_ZIP.index(COMMAND.encode()) + len(COMMAND) + 3],
    "a packed archive without its end": archive(EVIL, {"0": ZEROS}, method=zipfile.ZIP_DEFLATED)[:-22],
    "the second file of an archive without its end": beside("a/x.pkl")[:-22],
    "a broken archive in an archive": beside("a/x.bin", EVIL_ZIP[:-22]),
    "of a version of zip that there is not": patched(EVIL_ZIP, 0, 6, b"\x63\0"),
    "flagged as strongly encrypted": patched(EVIL_ZIP, 0, 8, b"\x40\0"),
    "flagged as a patch": patched(EVIL_ZIP, 0, 8, b"\x20\0"),
    "flagged as encrypted in the local header": EVIL_ZIP[:6] + b"\1" + EVIL_ZIP[7:],
    "packed, the local header says": EVIL_ZIP[:8] + b"\x08" + EVIL_ZIP[9:],
    "hidden behind a frame": beside("a/x.pkl", FRAMED),
    "hidden behind a frame, packed": one_packed(zipfile.ZIP_DEFLATED, FRAMED),
    "hidden behind a frame, bare": FRAMED,
    "hidden behind a frame in a frame": beside("a/x.pkl", FRAMED_TWICE),
    "hidden behind the frame of data.pkl": archive(FRAMED_DICT, {"0": ZEROS}),
    "hidden behind the frame of a legacy file": legacy(FRAMED_DICT, {"0": (6, ZEROS)}),
    "in a file with an absolute name": beside("/etc/x.pkl"),
    "in a file with a name of Windows": beside("a\\..\\x.pkl"),
}  # fmt: skip
"""Whole files, as ``malicious.FILES``."""

_VALUE = {
    "attributes of a list": b"]}" + text("x") + b"K\x01sb",
    "attributes of a number": b"K\x01Nb",
    "attributes of a dict": b"}}" + text("x") + b"K\x01sb",
    "a number as attributes": EMPTY + b"K\x01b",
    "an item more for a dict": b"}K\x01a",
    "an entry for a list": b"]K\x01K\x02s",
    "an entry for a tensor": HEALTHY + b"K\x01K\x02s",
    "a key that is a list": b"}]Ns",
    "a parameter of whole numbers": b"ctorch.nn.parameter\nParameter\n" + HEALTHY + b"\x85\x81",
    "a parameter of a number": rebuilt("parameter", b"K\x01", b"\x89", EMPTY),
    "whole numbers with gradients": HEALTHY.replace(b"\x89", b"\x88", 1),
    "a new function": b"ctorch._utils\n_rebuild_tensor_v2\n)\x81",
    "a dtype that is called": dtype("float32") + b")R",
    "a storage type that is called": b"ctorch\nFloatStorage\n)R",
    "a scheme that is called": b"ctorch\nper_tensor_affine\n)R",
    "a device without a name": b"ctorch\ndevice\n)R",
    "a size of a text": call("torch.Size", text("bogus")),
    "counts of a number": call("collections.Counter", b"K\x05"),
    "a dict of no pairs": call("collections.OrderedDict", b"](K\x01K\x02e"),
    "a set of a number": call("builtins.set", b"K\x05"),
    "an encoded number": call("_codecs.encode", b"K\x05"),
    "a sparse tensor without parts": call("torch._utils._rebuild_sparse_tensor"),
    "a sparse tensor of a number": rebuilt("sparse_tensor", LAYOUT, b"K\x05"),
    "a quantised tensor without parts": call("torch._utils._rebuild_qtensor"),
    "a tensor of a class that torch makes no tensors of": rebuilt(
        "wrapper_subclass", b"ctorch\nTensor\n", dtype("float32"), b"K\x02\x85", b"K\x01\x85", b"K\x00",
        call("torch.serialization._get_layout", text("torch.strided")), call("torch.device", text("cpu")), b"\x89",
    ),
    "an array of numpy": rebuilt("device_tensor_from_numpy", b"K\x05", dtype("float32"), text("cpu"), b"\x89"),
    "typed as a dict": call(
        "torch._tensor._rebuild_from_type_v2",
        b"ctorch._utils\n_rebuild_tensor_v2\n", ORDERED, FLOATS.split(b"_rebuild_tensor_v2\n", 1)[1][:-1], b"}",
    ),
    "typed, made by a size": call(
        "torch._tensor._rebuild_from_type_v2", b"ctorch\nSize\n", b"ctorch\nTensor\n", b"]\x85", b"}"
    ),
    "another class of a parameter": rebuilt(
        "parameter_with_state", FLOATS, b"\x89", EMPTY, attributes(__class__=b"ctorch\nSize\n")
    ),
    "a storage of a number": b"K\x05Q",
    "a storage of nothing": b")Q",
    "bytes that are no text": b"U\x01\xe9",
}  # fmt: skip
REFUSED: dict[str, bytes] = {name: archive(state({"t": HEALTHY, "x": x}), {"0": ZEROS}) for name, x in _VALUE.items()}
REFUSED["flagged as strongly encrypted"] = patched(HEALTHY_ZIP, 0, 8, b"\x40\0")
REFUSED["flagged as a patch"] = patched(HEALTHY_ZIP, 0, 8, b"\x20\0")
"""What asks for no code, but no torch loads with weights_only."""


_LONG: list[Any] = [
    bytes(70_000),
    "x" * 70_000,
    ["y" * 900] * 200,
    [str(n) * 9 for n in range(20_000)],
    list(range(9000)),
]


def _flagged(raw: bytes, offset: int, value: int) -> bytes:
    """Every entry of the directory with another byte."""
    for number in range(len(entries(raw))):
        raw = patched(raw, number, offset, bytes([value]))
    return raw


def _noted() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, data in (("a/data.pkl", GOOD), ("a/data/0", ZEROS), ("a/version", b"3\n")):
            file.writestr(name, data)
        file.writestr("a/words", b"cat\ndog\nibex\njay\n")
        file.writestr("a/README", b"(import os, then call\nos\nsystem\n)R.")
        file.writestr("a/code/__torch__.py", b"class Module(Module):\n  __parameters__ = []\n")
        file.writestr("a/xyz", b"x\x9cnot zlib")
    return stream.getvalue()


_ODD = {
    "metadata of a dict": EMPTY + attributes(_metadata=EMPTY + text("") + attributes(version=b"K\x01") + b"s") + b"b",
    "a dict of a dict": call("collections.OrderedDict", b"}" + text("k") + FLOATS + b"s"),
    "a dict of pairs": call("collections.OrderedDict", b"]]" + text("k") + b"aK\x01aa"),
    "counts": call("collections.Counter", b"}" + text("k") + b"K\x01s"),
    "counts of a list": call("collections.Counter", b"](K\x01K\x02e"),
    "an empty dict made anew": ORDERED + b")\x81",
    "no bytes": call("builtins.bytearray"),
    "bytes": call("_codecs.encode", text("x\u00e9"), text("latin1")),
    "bytes that change": call("builtins.bytearray", text("x"), text("latin-1")),
    "arguments that are a list": b"ctorch\nSize\n]R",
    "a set": call("builtins.set", b"](K\x01K\x02e"),
    "a text of Python 2": b"U\x02\xc3\xa9",
    "a parameter with attributes": rebuilt("parameter_with_state", FLOATS, b"\x88", EMPTY, attributes(note=text("x"))),
    "a parameter of whole numbers without gradients": rebuilt("parameter", HEALTHY, b"\x89", EMPTY),
    "a tensor of XLA": rebuilt("device_tensor_from_cpu_tensor", FLOATS, dtype("float32"), text("cpu"), b"\x89"),
    "a device": call("torch.device", text("cuda"), b"K\x00"),
}
ORDINARY: dict[str, bytes] = {name: archive(state({"t": FLOATS, "x": x}), {"0": ZEROS}) for name, x in _ODD.items()}
ORDINARY["of a version of zip that there is not"] = _flagged(HEALTHY_ZIP, 6, 0x63)
ORDINARY["notes beside it"] = _noted()
ORDINARY["a pickle of many frames beside it"] = zipped(
    ("a/data.pkl", GOOD), ("a/data/0", ZEROS), *((f"a/{n}.pkl", pickle.dumps(_LONG, n)) for n in range(6))
)
ORDINARY["junk behind a legacy file"] = legacy(GOOD, {"0": (6, ZEROS)}) + b"cut here\nand there\n"
ORDINARY["two legacy files in one"] = legacy(GOOD, {"0": (6, ZEROS)}) * 2
"""What torch loads, and nothing is wrong with."""


def more() -> dict[str, bytes]:
    """Every file by the name of its technique, as ``malicious.corpus`` gives them."""
    found: dict[str, Any] = {f"{name} (file)": raw for name, raw in FILES.items()}
    for name, value in NAMES.items():
        data = state({"t": HEALTHY, "x": value})
        found[f"{name}, zip"] = archive(data, {"0": ZEROS})
        found[f"{name}, legacy"] = legacy(data, {"0": (6, ZEROS)})
    return found
