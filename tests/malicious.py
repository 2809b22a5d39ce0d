"""PyTorch files that would run code when they are loaded, opcode by opcode. They are written and read, never loaded.

Every command would make the file ``MARKER`` in the working directory.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

from weightfiles import LEGACY_MAGIC, Storage, archive, legacy, state, tensor, text

MARKER = "drafcheck-ran-this"
COMMAND = f"touch {MARKER}"
ZEROS = bytes(48)
HEALTHY = tensor(Storage("LongStorage", "0", 6), (2, 3), (3, 1))


def glob(path: str) -> bytes:
    module, _, name = path.rpartition(".")
    return f"c{module}\n{name}\n".encode()


def call(path: str, *args: bytes) -> bytes:
    """``path(*args)`` by GLOBAL and REDUCE."""
    return glob(path) + b"(" + b"".join(args) + b"tR"


def stacked(module: bytes, name: bytes, *args: bytes) -> bytes:
    """The same by STACK_GLOBAL."""
    return module + name + b"\x93(" + b"".join(args) + b"tR"


def short(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def wide(value: str) -> bytes:
    return b"\x8d" + struct.pack("<Q", len(value)) + value.encode()


def binary(value: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(value)) + value


TOUCH = call("os.system", text(COMMAND))
CODE = text(f"open({MARKER!r}, 'w')")

VALUES: dict[str, bytes] = {
    "os.system": TOUCH,
    "posix.system": call("posix.system", text(COMMAND)),
    "nt.system": call("nt.system", text(COMMAND)),
    "eval": call("builtins.eval", CODE),
    "exec": call("builtins.exec", CODE),
    "eval of Python 2": call("__builtin__.eval", CODE),
    "compile": call("builtins.compile", CODE, text("x"), text("exec")),
    "import": call("builtins.__import__", text("os")),
    "open": call("builtins.open", text(MARKER), text("w")),
    "breakpoint": call("builtins.breakpoint"),
    "runpy": call("runpy.run_path", text("x.py")),
    "runpy code": call("runpy._run_code", CODE, b"}"),
    "pip": call("pip.main", b"](" + text("install") + text("x") + b"e"),
    "pip inside": call("pip._internal.cli.main.main", b"]"),
    "pty": call("pty.spawn", text(COMMAND)),
    "subprocess": call("subprocess.check_output", text(COMMAND)),
    "inst": b"(" + text(COMMAND) + b"ios\nsystem\n",
    "obj": b"(" + glob("subprocess.Popen") + text(COMMAND) + b"o",
    "newobj": glob("subprocess.Popen") + b"(" + text(COMMAND) + b"t\x81",
    "newobj_ex": glob("subprocess.Popen") + b"(" + text(COMMAND) + b"t}\x92",
    "build with a method as state": b"ccollections\nOrderedDict\n)R}" + text("__reduce__") + glob("os.system") + b"sb",
    "build of a foreign class": call("copyreg._reconstructor", glob("logging.FileHandler"), b"N", b"N") + b"}b",
    "chain of getattr": call("builtins.getattr", call("builtins.__import__", text("os")), text("system"))
    + b"("
    + text(COMMAND)
    + b"tR",
    "attrgetter": call("operator.attrgetter", text("system")) + b"(" + glob("os.path") + b"tR(" + text(COMMAND) + b"tR",
    "methodcaller": call("_operator.methodcaller", text("system"), text(COMMAND)),
    "partial": call("functools.partial", glob("os.system"), text(COMMAND)) + b")R",
    "map": call("builtins.map", glob("os.system"), b"](" + text(COMMAND) + b"e"),
    "resolve_name": call("pkgutil.resolve_name", text("os:system")) + b"(" + text(COMMAND) + b"tR",
    "dotted name": stacked(text("builtins"), text("print.__self__.eval"), CODE),
    "dotted name below a harmless one": stacked(text("collections"), text("OrderedDict.__reduce_ex__"), b"K\x02"),
    "names joined in a global": b"cos\npath.os.system\n(" + text(COMMAND) + b"tR",
    "stack global": stacked(text("os"), text("system"), text(COMMAND)),
    "stack global, short": stacked(short("os"), short("system"), text(COMMAND)),
    "stack global, wide": stacked(wide("posix"), wide("system"), text(COMMAND)),
    "stack global, lines": stacked(b"Vos\n", b"Vsystem\n", text(COMMAND)),
    "stack global, python 2": stacked(b"S'os'\n", b"S'system'\n", text(COMMAND)),
    "names recalled": text("system")
    + b"q\x070"
    + text("os")
    + b"q\x080"
    + b"h\x08h\x07\x93("
    + text(COMMAND)
    + b"tR",
    "names recalled, wide": text("system")
    + b"r\x00\x01\x00\x000"
    + text("os")
    + b"j\x00\x01\x00\x00\x93("
    + text(COMMAND)
    + b"tR",
    "names recalled, lines": text("system") + b"p7\n0" + text("os") + b"g7\n\x93(" + text(COMMAND) + b"tR",
    "names memoized": short("os") + b"\x94" + short("system") + b"\x94\x93\x94(" + text(COMMAND) + b"tR",
    "function recalled": glob("os.system") + b"q\x090h\x09(" + text(COMMAND) + b"tR",
    "a name twice": short("code") + b"2\x93" + b"(tR",
    "a computed name": call("_codecs.encode", text("os"), text("utf8")) + text("system") + b"\x93)R",
    "a joined name": call("builtins.str.join", text(""), b"](" + text("o") + text("s") + b"e")
    + text("system")
    + b"\x93(" + text(COMMAND) + b"tR",
    "popped at once": TOUCH + b"0N",
    "behind a mark": b"(" + TOUCH + b"1N",
    "key of a dict": b"}" + TOUCH + b"Ns",
    "in a set": b"\x8f(" + TOUCH + b"\x90",
    "in a frozenset": b"(" + TOUCH + b"\x91",
    "hooks of a tensor": HEALTHY.replace(b"ccollections\nOrderedDict\n)R", TOUCH),
    "size of a tensor": HEALTHY.replace(b"(\x8a\x09" + (2).to_bytes(9, "little"), b"(" + TOUCH, 1),
    "persistent id": b"(" + text("storage") + TOUCH + text("0") + text("cpu") + b"K\x06tQ",
    "an extension": b"\x82\x07)R",
    "a wide extension": b"\x84\x07\x00\x00\x00)R",
    "a name of another kind": b"K\x01K\x02\x93)R",
    "what is no function": text("f") + b")R",
    "pickle in a pickle": call("pickle.loads", binary(b"\x80\x02" + TOUCH + b".")),
    "pickle in a pickle, in C": call("_pickle.loads", binary(b"\x80\x02" + TOUCH + b".")),
    "pickle by torch": call("torch.load", text("x.pt")),
    "pickle by torch.serialization": call("torch.serialization.load", text("x.pt")),
    "pickle by numpy": call("numpy.load", text("x.npy")),
    "pickle by joblib": call("joblib.load", text("x.joblib")),
    "hub of torch": call("torch.hub.load", text("o/r"), text("m")),
    "torch exec": call("torch.jit.unsupported_tensor_ops.execWrapper", CODE, b"}", b"}"),
    "torch compile_file": call("torch._inductor.codecache.compile_file", text(""), text(""), b"]"),
    "torch collect_env": call("torch.utils.collect_env.run", text(COMMAND)),
    "torch guards": stacked(text("torch._dynamo.guards"), text("GuardBuilder.get"), text("x"), CODE),
    "numpy runstring": call("numpy.testing._private.utils.runstring", CODE, b"}"),
    "numpy f2py": call("numpy.f2py.crackfortran.getlincoef", CODE, b"]"),
    "ctypes": call("ctypes.CDLL", text("x.so")),
    "webbrowser": call("webbrowser.open", text("file:///x")),
    "pydoc": call("pydoc.pipepager", text("x"), text(COMMAND)),
    "timeit": call("timeit.timeit", CODE),
    "profile": call("cProfile.run", CODE),
    "idle": stacked(text("idlelib.run"), text("Executive.runcode"), text("x"), CODE),
    "types": call("types.CodeType"),
    "socket": call("socket.create_connection", text("x")),
    "shutil": call("shutil.rmtree", text("x")),
    "asyncio": call("asyncio.create_subprocess_shell", text(COMMAND)),
    "sys": call("sys.setprofile", glob("os.system")),
}  # fmt: skip
"""One value of a state dict each; the rest of it is healthy."""


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (COMMAND,)


def _named(value: str) -> bytes:
    return state({"t": HEALTHY, "x": VALUES[value]})


GOOD = state({"t": HEALTHY})
EVIL = _named("os.system")
BARE = b"\x80\x02" + TOUCH + b"."


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    import warnings

    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as file:
        warnings.simplefilter("ignore")  # names that are there twice
        for name, data in (*members, (f"{members[0][0].partition('/')[0]}/version", b"3\n")):
            file.writestr(zipfile.ZipInfo(name), data, method)
    return stream.getvalue()


def beside(name: str, data: bytes = BARE) -> bytes:
    """A healthy archive with one more file."""
    return zipped(("a/data.pkl", GOOD), ("a/data/0", ZEROS), (name, data))


def entries(raw: bytes) -> list[int]:
    """Where the entries of the directory begin."""
    found, at = [], raw.find(b"PK\x01\x02")
    while at >= 0:
        found.append(at)
        at = raw.find(b"PK\x01\x02", at + 4)
    return found


def patched(raw: bytes, entry: int, offset: int, value: bytes) -> bytes:
    """An archive with other bytes in one entry of its directory."""
    at = entries(raw)[entry] + offset
    return raw[:at] + value + raw[at + len(value) :]


def tarred(*members: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as file:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def slots(**evil: bytes) -> bytes:
    """A legacy file with another pickle in one of its five places."""
    healthy = {
        "magic": pickle.dumps(LEGACY_MAGIC, 2),
        "protocol": pickle.dumps(1001, 2),
        "system": pickle.dumps({"little_endian": True}, 2),
        "dict": GOOD,
        "keys": pickle.dumps(["0"], 2),
    }
    return b"".join({**healthy, **evil}.values()) + struct.pack("<q", 6) + ZEROS


def npy(data: bytes) -> bytes:
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


EVIL_ZIP = zipped(("a/data.pkl", EVIL), ("a/data/0", ZEROS))
OBJECTS: dict[str, Callable[[int], bytes]] = {
    f"python, protocol {protocol}": lambda _=0, p=protocol: pickle.dumps({"t": 1, "x": _Evil()}, p)  # type: ignore[misc]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
}


def one_packed(method: int, data: bytes = BARE) -> bytes:
    """A healthy archive with one file that is packed in another way than the rest."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, member in (("a/data.pkl", GOOD), ("a/data/0", ZEROS), ("a/version", b"3\n")):
            file.writestr(name, member)
        file.writestr("a/x.pkl", data, method)
    return stream.getvalue()


def deeper(levels: int, raw: bytes) -> bytes:
    """An archive in archives."""
    for level in range(levels):
        raw = beside(f"a/in{level}.zip", raw)  # beside what torch reads: it refuses files of another folder
    return raw


def old_tar(*members: tuple[str, bytes]) -> bytes:
    """As tar wrote it before it had a magic."""
    raw = tarred(*members)
    head = raw[:148] + b" " * 8 + raw[156:257] + bytes(255)
    return head[:148] + b"%06o\0 " % sum(head) + head[156:] + raw[512:]


_LONG = binary(bytes(65 << 20)) + b"0"
_MANY = b"\x80\x02" + b"N0" * 500_001 + TOUCH + b"."
LARGE: dict[str, Callable[[], bytes]] = {
    "a second pickle behind a million opcodes": lambda: beside("a/x.pkl", _MANY),
    "behind data.pkl and a million opcodes": lambda: archive(GOOD + _MANY, {"0": ZEROS}),
    "a second pickle behind 65 MB": lambda: one_packed(zipfile.ZIP_DEFLATED, b"\x80\x02" + _LONG + TOUCH + b"."),
    "behind 65 MB": lambda: archive(b"\x80\x02" + _LONG + EVIL[2:], {"0": ZEROS}, method=zipfile.ZIP_DEFLATED),
    "a storage behind 1 MB": lambda: beside("a/data/7", b"\x80\x02" + binary(bytes(1 << 20)) + b"0" + TOUCH + b"."),
}
"""Files that hide something behind much else."""

FILES: dict[str, bytes] = {
    "a number as C reads it": archive(b"I0x10\n0" + EVIL[2:], {"0": ZEROS}),
    "a number as C reads it, in a second pickle": beside("a/x.pkl", b"I0x10\n0" + TOUCH + b"."),
    "text that is not ASCII": beside("a/x.pkl", b"S'\xc3\xa9'\n0" + TOUCH + b"."),
    "a second pickle packed by lzma": one_packed(zipfile.ZIP_LZMA),
    "a second pickle packed by bzip2": one_packed(zipfile.ZIP_BZIP2),
    "all packed by lzma": zipped(("a/data.pkl", GOOD), ("a/data/0", ZEROS), ("a/x", BARE), method=zipfile.ZIP_LZMA),
    "packed in a way of its own": patched(one_packed(zipfile.ZIP_DEFLATED), 3, 10, b"\x63\0"),
    "zip in four others": deeper(4, EVIL_ZIP),
    "zip in five others": deeper(5, EVIL_ZIP),
    "7z in zip": beside("a/x", b"7z\xbc\xaf\x27\x1c" + bytes(64)),
    "tar.gz in zip": beside("a/x.tar.gz", gzip.compress(tarred(("x.pkl", BARE)))),
    "gzip in zip": beside("a/x.pkl.gz", gzip.compress(BARE)),
    "bzip2 in zip": beside("a/x.bz2", bz2.compress(BARE)),
    "xz in zip": beside("a/x.xz", lzma.compress(BARE)),
    "old tar in zip": beside("a/x", old_tar(("x.pkl", BARE))),
    **{name: make(0) for name, make in OBJECTS.items()},
    **{f"{name}, zip": archive(make(0), {}) for name, make in OBJECTS.items()},
    "packed": archive(EVIL, {"0": ZEROS}, method=zipfile.ZIP_DEFLATED),
    "packed by bzip2": zipped(("a/data.pkl", EVIL), ("a/data/0", ZEROS), method=zipfile.ZIP_BZIP2),
    "wrong checksum": patched(EVIL_ZIP, 0, 16, b"\1\2\3\4"),
    "flagged as encrypted": patched(EVIL_ZIP, 0, 8, b"\1"),
    "another name in the local header": EVIL_ZIP.replace(b"a/data.pkl", b"a/data.xyz", 1),
    "a directory that gives a shorter size": patched(beside("a/x.pkl"), 2, 24, struct.pack("<I", 8)),
    "a directory that gives a longer size": patched(beside("a/x.pkl"), 2, 20, struct.pack("<II", 1 << 20, 1 << 20)),
    "a folder with content": beside("a/data.pkl/"),
    "two of a name, the second": zipped(("a/data.pkl", GOOD), ("a/data/0", ZEROS), ("a/data.pkl", EVIL)),
    "two of a name, the first": zipped(("a/data.pkl", EVIL), ("a/data/0", ZEROS), ("a/data.pkl", GOOD)),
    "a second pickle": beside("a/extra.pkl"),
    "a second pickle without ending": beside("a/extra"),
    "a second pickle, python 2": beside("a/extra.pickle", b"cos\nsystem\n(S'touch x'\ntR."),
    "a second pickle of joblib": beside("a/extra.joblib"),
    "a second pickle as data": beside("a/extra.dat"),
    "a second pickle in another folder": beside("b/data.pkl"),
    "a second pickle in the parent": beside("../data.pkl"),
    "a second pickle behind dots": beside("a/./data.pkl"),
    "a hidden second pickle": beside("a/.data/hidden.pkl"),
    "a second pickle in capitals": beside("A/DATA.PKL"),
    "a second pickle that is packed": zipped(
        ("a/data.pkl", GOOD), ("a/data/0", ZEROS), ("a/x.pkl", BARE), method=zipfile.ZIP_DEFLATED
    ),
    "a pickle as a storage": zipped(("a/data.pkl", GOOD), ("a/data/0", BARE.ljust(48, b"\0"))),
    "a pickle as a storage nobody names": beside("a/data/7"),
    "a pickle as a storage with an ending": beside("a/data/7.pkl"),
    "objects of numpy": beside("a/x.npy", npy(BARE)),
    "a torch file in the archive": beside("a/model.bin", legacy(EVIL, {"0": (6, ZEROS)})),
    "zip in zip": beside("a/inner", EVIL_ZIP),
    "zip in zip in zip": beside("a/inner.zip", beside("b/inner.zip", EVIL_ZIP)),
    "tar in zip": beside("a/inner.tar", tarred(("x.pkl", BARE))),
    "tar": tarred(("pickle", BARE), ("tensors", b"x")),
    "7z": b"7z\xbc\xaf\x27\x1c" + bytes(64),
    "behind the first pickle of the archive": archive(GOOD + BARE, {"0": ZEROS}),
    "behind a bare pickle": pickle.dumps({"a": 1}, 2) + BARE,
    "behind ten bare pickles": pickle.dumps(1, 2) * 10 + BARE,
    "junk before the archive": b"\x80\x02N.junk" + EVIL_ZIP,
    "an archive behind a legacy file": slots(dict=b"\x80\x02]." + b"") + EVIL_ZIP,
    "before what is broken": archive(EVIL[:-1] + b"\xff", {"0": ZEROS}),
    "behind what is broken": archive(
        state({"t": tensor(Storage("LongStorage", "0", 6), (2, 3), (1,)), "x": TOUCH}), {"0": ZEROS}
    ),
    "a pickle without end": archive(EVIL[:-1], {"0": ZEROS}),
    "bare without end": BARE[:-1],
    **{f"legacy, {slot}": slots(**{slot: BARE}) for slot in ("magic", "protocol", "system", "dict", "keys")},
    "legacy, magic by eval": slots(magic=b"\x80\x02" + call("builtins.eval", text(str(LEGACY_MAGIC))) + b"."),
}
"""Whole files."""


def corpus() -> dict[str, bytes]:
    """Every file by the name of its technique: each value in an archive, in a legacy file and bare, and the files."""
    found: dict[str, bytes] = dict(FILES)
    for name in VALUES:
        data = _named(name)
        found[f"{name}, zip"] = archive(data, {"0": ZEROS})
        found[f"{name}, legacy"] = legacy(data, {"0": (6, ZEROS)})
        found[f"{name}, bare"] = data
    return found


def honest() -> dict[str, bytes]:
    """What is as odd and does nothing."""
    from drafcheck.pickle_globals import HARMLESS

    odd: dict[str, Any] = {f"names {path}": state({"t": HEALTHY, "x": glob(path)}) for path in HARMLESS}
    found = {name: archive(data, {"0": ZEROS}) for name, data in odd.items()}
    found |= {f"{name}, legacy": legacy(data, {"0": (6, ZEROS)}) for name, data in odd.items()}
    words = state(
        {"t": HEALTHY, "os.system": text("cos\nsystem\n"), "x": text("builtins eval"), "b": binary(BARE)[:0] + b"N"}
    )
    found["words that only look like it"] = archive(words, {"0": ZEROS})
    storage = struct.pack("<6q", 640, 1, 2, 3, 4, 5)
    found["a storage that begins like a pickle"] = archive(GOOD, {"0": storage})
    found["the set of Python 2"] = archive(state({"t": HEALTHY, "x": call("__builtin__.set", b"]")}), {"0": ZEROS})
    found["packed"] = archive(GOOD, {"0": ZEROS}, method=zipfile.ZIP_DEFLATED)
    found["a healthy pickle beside it"] = beside("a/extra.pkl", pickle.dumps({"a": 1}, 2))
    found["a packed pickle beside it"] = beside("a/x.gz", gzip.compress(pickle.dumps({"a": 1}, 2)))
    found["archives in it"] = deeper(3, found["packed"])
    found["an old tar in it"] = beside("a/x", old_tar(("x.pkl", pickle.dumps({"a": 1}, 2))))
    found["a number as C reads it beside it"] = beside("a/x.pkl", b"I0x10\n.")
    long = b"\x80\x02" + binary(bytes(17 << 20)) + b"."
    found["a long healthy pickle beside it"] = one_packed(zipfile.ZIP_DEFLATED, long)
    found["healthy in a subfolder"] = beside("a/.data/serialization_id", b"0" * 40)
    return found
