"""Python's own unpickler as the judge: whatever it would look up, drafcheck tells. It looks nothing up here."""

from __future__ import annotations

import io
import pickle
import warnings
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from malicious import BARE, GOOD, HEALTHY, VALUES, ZEROS, beside
from malicious_calls import FRAMED, FRAMED_DICT, FRAMED_TWICE, NAMES
from weightfiles import archive, text

from drafcheck.pickle_globals import HARMLESS, resolved
from drafcheck.pickle_opcodes import Budget, operations
from drafcheck.source import Memory
from drafcheck.tensor import Trouble
from drafcheck.torch_pickle import read_pickle

FAST = settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


class Found(Exception):
    """A name that no state dict needs is looked up."""


class Nothing:
    """What every name and every storage is: it takes whatever is done to it."""

    def __call__(self, *_: Any, **__: Any) -> Nothing:
        return Nothing()

    def __setitem__(self, _: Any, __: Any) -> None: ...

    def __setstate__(self, _: Any) -> None: ...

    def append(self, _: Any) -> None: ...

    def extend(self, _: Any) -> None: ...

    def add(self, _: Any) -> None: ...


class Judge(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in HARMLESS and resolved(module, name) not in HARMLESS:
            raise Found(f"{module}.{name}")
        return Nothing()

    def persistent_load(self, _: Any) -> Any:
        return Nothing()


def is_small(data: bytes) -> bool:
    """Whether Python's unpickler takes little memory for it: a place far in its memo it makes room for."""
    with suppress(ValueError):
        for opcode, argument, _ in operations(io.BytesIO(data), Budget()):
            if opcode.name == "BYTEARRAY8" or (opcode.name == "LONG_BINPUT" and argument > 1 << 16):
                return False
    return True


def looked_up(data: bytes) -> str | None:
    """The first foreign name that Python's unpickler, the one in C, asks for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            Judge(io.BytesIO(data)).load()
        except Found as found:
            return str(found)
        except Exception:
            return None
    return None


FORMS = {
    "archive": lambda data: archive(data, {"0": ZEROS}),
    "bare": lambda data: data,
    "beside": lambda data: beside("a/x.pkl", data),
    "behind": lambda data: archive(GOOD + data, {"0": ZEROS}),
}

before = st.sampled_from(
    [
        b"(", b"0", b"1", b"2", b"N", b"}", b"]", b")", b"l", b"d", b"t", b"\x85", b"\x86", b"\x88", b"\x8f", b"\x94",
        b"K\x05", b"q\x01", b"h\x01", b"p1\n", b"g1\n", b"I12\n", b"I01\n", b"I0x10\n", b"L12L\n", b"L12\n", b"F1.5\n",
        b"Fnan\n", b"V\\ud800\n", b"V\\u12\n", b"S'\\x'\n", b"S''\n", b"U\x01\xe9", b"T\1\0\0\0\xff", b"C\x01x",
        b"\x80\x04", b"\x80\x05", b"\x95" + bytes(8), b"\x95\3" + bytes(7), b"\x95\x0c" + bytes(7), b"\x8a\x00",
        b"\x8b\0\0\0\0",
        b"\x97", b"\x98",
        b"ctorch\nSize\n", b"ccollections\nOrderedDict\n)R", b"Pid\n", b"Q", b"a", b"e", b"s", b"u", b"b", b"R",
        b"\x81",
        text("os"), text("system"), HEALTHY, b"r\x01\x00\x00\x00", b"j\x01\x00\x00\x00",
    ]
)  # fmt: skip
values = st.sampled_from([*VALUES.values(), *NAMES.values()])


@FAST
@example(parts=[], value=VALUES["os.system"], cut=0, turned=0, form="archive")
@given(
    parts=st.lists(before, max_size=8),
    value=values,
    cut=st.integers(0, 12),
    turned=st.integers(0, 255).filter(lambda byte: byte not in b"r\x96"),
    form=st.sampled_from(sorted(FORMS)),
)
def test_what_the_unpickler_would_look_up_is_told(
    parts: list[bytes], value: bytes, cut: int, turned: int, form: str
) -> None:
    made = bytearray(value[: len(value) - cut] or value)
    if turned:
        made[turned % len(made)] = turned
    data = b"\x80\x02" + b"".join(parts) + bytes(made) + b"."
    name = looked_up(data) if is_small(data) else None
    if name is not None:
        problems = read_pickle(Memory(FORMS[form](data), "x.bin")).problems
        assert [p.trouble for p in problems] == [Trouble.UNSAFE_PICKLE], (name, data)


def test_the_judge_judges() -> None:
    assert looked_up(BARE) == "os.system"
    assert looked_up(GOOD) is None
    assert [looked_up(data) for data in (FRAMED, FRAMED_DICT, FRAMED_TWICE)] == ["os.system"] * 3
    assert looked_up(b"\x80\x02" + VALUES["stack global"] + b".") == "os.system"
