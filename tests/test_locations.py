"""Where a storage says that it was saved: engines load with map_location="cpu", for which torch never asks."""

from __future__ import annotations

import io
import warnings

import pytest
from weightfiles import archive, integer, legacy, sizes, state, text

from drafcheck.source import Memory
from drafcheck.torch_pickle import read_pickle

ENCODED = b"c_codecs\nencode\n"
LOCATIONS = {
    "cpu": text("cpu"),
    "cuda:0": text("cuda:0"),
    "cuda:99": text("cuda:99"),
    "madeup": text("madeup"),
    "meta": text("meta"),
    "hpu:0": text("hpu:0"),
    "nothing": text(""),
    "beyond ASCII": text("\u00e9"),
    "None": b"N",
    "a number": b"K\5",
    "a list": b"]",
    "a type": b"ctorch\nFloatStorage\n",
    "a device": b"ctorch\ndevice\n" + text("cuda:7") + b"\x85R",
    "text of Python 2": b"U\6cuda:3",
    "bytes": ENCODED + text("cpu") + text("latin1") + b"\x86R",
    "bytes of another device": ENCODED + text("madeup:1") + text("latin1") + b"\x86R",
    "bytes beyond ASCII": ENCODED + text("cp\u00e9") + text("latin1") + b"\x86R",
}
REFUSED = ("bytes beyond ASCII",)


def located(location: bytes) -> bytes:
    """The pickle of one tensor whose storage was saved there."""
    pid = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + location + integer(4) + b"tQ"
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    return state(
        {"w": b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + integer(0) + sizes((4,)) + sizes((1,)) + hooks + b"tR"}
    )


FORMS = {
    "zip": lambda data: archive(data, {"0": bytes(16)}),
    "before 1.6": lambda data: legacy(data, {"0": (4, bytes(16))}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LOCATIONS)
def test_no_location_keeps_a_tensor_from_being_loaded(name: str, form: str) -> None:
    raw = FORMS[form](located(LOCATIONS[name]))
    header = read_pickle(Memory(raw, "m.bin"))
    assert bool(header.problems) is (name in REFUSED)
    assert [t.name for t in header.tensors] == ([] if name in REFUSED else ["w"])
    torch = pytest.importorskip("torch")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.load(io.BytesIO(raw), weights_only=True, map_location="cpu")
        loads = True
    except Exception:
        loads = False
    assert loads is not bool(header.problems)


@pytest.mark.parametrize("data", [b"abc", b"\xff"])
def test_bytes_are_told_as_such(data: bytes) -> None:
    value = ENCODED + text(data.decode("latin-1")) + text("latin1") + b"\x86R"
    header = read_pickle(Memory(archive(state({"x": value}), {}), "m.bin"))
    assert [(e.key, e.kind) for e in header.entries] == [("x", "bytes")]
    header = read_pickle(Memory(archive(b"\x80\x02}(" + value + b"K\1u.", {}), "m.bin"))
    assert [e.odd for e in header.entries] == ["bytes"]
