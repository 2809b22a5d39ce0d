"""PyTorch files read without PyTorch: shapes, places, and a refusal of everything that would run code."""

from __future__ import annotations

import os
import pickle
import random
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from weightfiles import POINTER, Storage, archive, legacy, state, tensor, text

from drafcheck.attacks import is_attack
from drafcheck.header import Header
from drafcheck.source import LocalFile
from drafcheck.tensor import Entry, Trouble
from drafcheck.torch_pickle import is_legacy, read_pickle

LONGS = struct.pack("<6q", *range(6))


def header_of(path: Path, raw: bytes) -> Header:
    path.write_bytes(raw)
    return read_pickle(LocalFile(path))


def trouble_of(path: Path, raw: bytes) -> tuple[Trouble, str]:
    (problem,) = header_of(path, raw).problems
    assert problem.message.startswith("pytorch_model.bin ") and problem.location.file == "pytorch_model.bin"
    return problem.trouble, problem.message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pytorch_model.bin"


def longs(shape: tuple[int, ...] = (2, 3), stride: tuple[int, ...] = (3, 1), offset: int = 0, numel: int = 6) -> bytes:
    return tensor(Storage("LongStorage", "0", numel), shape, stride, offset)


def test_zip(path: Path) -> None:
    header = header_of(path, archive(state({"d2t": longs(), "row": longs((3,), (1,), 3)}), {"0": LONGS}))
    assert header.problems == ()
    first, second = header.tensors
    assert (first.name, first.dtype, first.shape, first.file) == ("d2t", "I64", (2, 3), "pytorch_model.bin")
    assert path.read_bytes()[first.start : first.stop] == LONGS
    assert path.read_bytes()[second.start : second.stop] == LONGS[24:]
    assert not is_legacy(LocalFile(path))


def test_legacy(path: Path) -> None:
    raw = legacy(state({"d2t": longs(), "row": longs((3,), (1,), 3)}), {"0": (6, LONGS)})
    header = header_of(path, raw)
    assert header.problems == ()
    assert [raw[t.start : t.stop] for t in header.tensors] == [LONGS, LONGS[24:]]
    assert is_legacy(LocalFile(path))


@pytest.mark.parametrize(
    ("shape", "stride", "addressed"),
    [((3, 2), (1, 3), False), ((2,), (3,), False), ((1, 6), (99, 1), True), ((0, 5), (5, 1), True), ((), (), True)],
)
def test_bytes_only_of_contiguous_tensors(path: Path, shape: Any, stride: Any, addressed: bool) -> None:
    (found,) = header_of(path, archive(state({"t": longs(shape, stride)}), {"0": LONGS})).tensors
    assert found.shape == shape
    assert (found.start >= 0) is addressed
    if addressed:
        assert found.stop - found.start == 8 * found.numel


def test_packed_storages_have_no_address(path: Path) -> None:
    raw = archive(state({"t": longs()}), {"0": LONGS}, method=zipfile.ZIP_DEFLATED)
    (found,) = header_of(path, raw).tensors
    assert (found.shape, found.start, found.stop) == ((2, 3), -1, -1)


def test_other_values_are_no_tensors(path: Path) -> None:
    items = {"step": b"K\x05", "t": longs(), "name": text("x"), "ok": b"\x88", "list": b"](K\x01K\x02e"}
    header = header_of(path, archive(state(items), {"0": LONGS}))
    assert [t.name for t in header.tensors] == ["t"] and header.problems == ()


def test_parameter_and_odd_keys(path: Path) -> None:
    parameter = b"ctorch._utils\n_rebuild_parameter\n(" + longs() + b"\x89ccollections\nOrderedDict\n)RtR"
    data = b"\x80\x02}(" + text("p") + parameter + b"K\x07" + longs() + b"u."
    header = header_of(path, archive(data, {"0": LONGS}))
    assert [t.name for t in header.tensors] == ["p"] and header.problems == ()


def test_tensors_one_level_down(path: Path) -> None:
    inner = state({"t": longs()})[2:-1]
    header = header_of(path, archive(state({"state_dict": inner}), {"0": LONGS}))
    assert header.problems == header.tensors == ()
    assert header.entries == (Entry("state_dict", "dict", "pytorch_model.bin", inside=1),)


CALLS = {
    "posix.system": b"cposix\nsystem\n(" + text("touch ran") + b"tR",
    "builtins.eval": b"c__builtin__\neval\n(" + text("1") + b"tR",
    "os.system": b"(" + text("touch ran") + b"ios\nsystem\n",
    "nt.system": text("nt") + text("system") + b"\x93",
    "torch.load": b"ctorch\nload\n(" + text("x") + b"tR",
    "subprocess.Popen": b"(csubprocess\nPopen\n" + text("x") + b"o",
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrap", ["zip", "legacy", "bare"])
def test_code_is_named_and_never_run(path: Path, name: str, wrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    data = state({"t": longs(), "x": CALLS[name]})
    raw = {"zip": archive(data, {"0": LONGS}), "legacy": legacy(data, {"0": (6, LONGS)}), "bare": data}[wrap]
    assert is_attack(name)  # which reads its list
    before = set(sys.modules)
    trouble, message = trouble_of(path, raw)
    assert trouble is Trouble.UNSAFE_PICKLE
    assert f"asks for {name} at byte " in message
    assert not (path.parent / "ran").exists()
    assert set(sys.modules) - before <= {"pickletools", "tarfile", "encodings.cp437", "pydantic.plugin._loader"}


VALUES = {
    "collections.defaultdict": b"ccollections\ndefaultdict\n(c__builtin__\nlist\ntR",
    "_io.BytesIO": b"c_io\nBytesIO\n)R",
    "numpy.core.multiarray._reconstruct": b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR",
    "trainer.Settings": b"ctrainer\nSettings\n)R",
}


@pytest.mark.parametrize("name", [*VALUES, *CALLS])
def test_what_no_attack_asks_for_is_not_said_to_run_code(path: Path, name: str) -> None:
    data = state({"t": longs(), "x": {**VALUES, **CALLS}[name]})
    trouble, message = trouble_of(path, archive(data, {"0": LONGS}))
    assert trouble is Trouble.UNSAFE_PICKLE and f"asks for {name} at byte " in message
    assert message.endswith("loading it would run code") is (name in CALLS)
    assert ("loaders of weights refuse that" in message) is (name in VALUES)


@pytest.mark.parametrize("wrap", [archive, legacy])
def test_other_protocols_are_to_be_saved_again(path: Path, wrap: Any) -> None:
    """In protocol 0 a storage is text; the help is that of the other protocols."""
    helps = set()
    for data in (b"(dp0\nVt\np1\nP('storage', 1)\ns.", pickle.dumps({"a": "b"}, 4)):
        storages = {"0": LONGS} if wrap is archive else {"0": (6, LONGS)}
        (problem,) = header_of(path, wrap(data, storages)).problems
        assert problem.trouble is Trouble.UNREADABLE and "uses the pickle opcode" in problem.message
        helps.add(problem.help)
    assert len(helps) == 1 and "protocol, 2" in helps.pop()


def test_extension_codes_are_unsafe(path: Path) -> None:
    trouble, message = trouble_of(path, archive(state({"x": b"\x82\x07"}), {}))
    assert trouble is Trouble.UNSAFE_PICKLE and "registered extension 7" in message


def test_what_is_called_must_be_a_name(path: Path) -> None:
    trouble, message = trouble_of(path, archive(state({"x": text("f") + b")R"}), {}))
    assert trouble is Trouble.UNSAFE_PICKLE and "calls what is not a function" in message


def test_a_pickle_made_by_python(path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, ("touch ran",)

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        trouble, message = trouble_of(path, pickle.dumps({"x": Evil()}, protocol))
        assert trouble is Trouble.UNSAFE_PICKLE and "posix.system" in message


BROKEN = {
    "is empty": b"",
    "is no PyTorch file: neither a zip archive nor a pickle": b"\xffhello",
    "is no PyTorch file": b"hi",
    "broken at byte 0": b"\x80\x02\xff",
    "not one that torch.save wrote": pickle.dumps({"a": 1}, 2),
    "is a tar archive": b"x" * 257 + b"ustar" + b"x" * 300,
    "is a broken zip archive": archive(state({"t": longs()}), {"0": LONGS})[:200],
    "without data.pkl": archive(b"", {}, name="a").replace(b"data.pkl", b"data.pkx"),
    "has 40 bytes in archive/data/0, where its pickle says 48": archive(state({"t": longs()}), {"0": LONGS[:40]}),
    "says no version": archive(state({"t": longs()}), {"0": LONGS}).replace(b"/version", b"/versio_"),
    "called with 0 arguments": archive(state({"t": b"ctorch._utils\n_rebuild_parameter\n)R"}), {}),
    "a persistent id": archive(state({"t": longs().replace(b"tQ", b"NtQ")}), {"0": LONGS}),
    "lacks the storage 0": archive(state({"t": longs()}), {}),
    "reaches past its storage of 48 bytes": archive(state({"t": longs((3, 3), (3, 1))}), {"0": LONGS}),
    "a tensor with 2 sizes and 1 stride": archive(state({"t": longs((2, 3), (1,))}), {"0": LONGS}),
    "a tensor whose size is not a list of counts": archive(state({"t": longs((-2, 3), (3, 1))}), {"0": LONGS}),
    "exhausted before seeing STOP": archive(state({"t": longs()})[:-1], {"0": LONGS}),
    "takes from an empty stack": archive(b"\x80\x02}0s.", {}),
    "recalls what it never stored": archive(b"\x80\x02h\x05.", {}),
    "looks for a mark": archive(b"\x80\x02t.", {}),
    "a key without a value": archive(b"\x80\x02}(" + text("a") + b"u.", {}),
    "does not hold a dict": archive(b"\x80\x02].", {}),
    "opcode FRAME at byte 2": archive(pickle.dumps({"a": "b"}, 4), {}),
    "opcode PERSID": archive(b"\x80\x02Pabc\n.", {}),
    "a persistent id that is not a storage": archive(b"\x80\x02K\x01Q.", {}),
    "needs bytes up to": legacy(state({"t": longs()}), {"0": (1 << 40, LONGS)}),
    "is truncated: the storage 0": legacy(state({"t": longs()}), {"0": (6, LONGS)})[:-10],
    "lacks the storage 0 of": legacy(state({"t": longs()}), {}),
}


@pytest.mark.parametrize("words", BROKEN)
def test_broken_files(path: Path, words: str) -> None:
    trouble, message = trouble_of(path, BROKEN[words])
    assert trouble in (Trouble.CORRUPT, Trouble.UNREADABLE)
    assert words in message


def test_lfs_pointer(path: Path) -> None:
    assert trouble_of(path, POINTER)[0] is Trouble.LFS_POINTER


def test_two_files_of_one_name(path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", state({}))
        file.writestr("a/data.pkl", state({"t": longs()}))
        file.writestr("a/data/0", LONGS)
        file.writestr("a/version", "3")
    assert "two files called a/data.pkl" in trouble_of(path, path.read_bytes())[1]


def test_encrypted(path: Path) -> None:
    raw = bytearray(archive(state({}), {}))
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    assert "encrypted" in trouble_of(path, bytes(raw))[1]


def test_zip_bomb(path: Path) -> None:
    """80 MB of zeros in 80 kB: not unpacked past the limit."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/data.pkl", bytes(80 << 20))
        file.writestr("a/version", "3")
    trouble, message = trouble_of(path, path.read_bytes())
    assert trouble is Trouble.UNREADABLE and "83886080 bytes, more than the 67108864" in message


def test_deep_nesting_and_shared_lists(path: Path) -> None:
    """A million nested tuples, and a long list handed to a million calls: neither depth nor memory is the file's."""
    header = header_of(path, archive(state({"deep": b")" + b"\x85" * 1_000_000, "t": longs()}), {"0": LONGS}))
    assert [t.name for t in header.tensors] == ["t"] and header.problems == ()
    listed = b"](" + b"K\x01" * 10_000 + b"eq\x01ctorch\nSize\nq\x02"
    calls = b"(" + b"h\x02h\x01\x85R" * 10_000 + b"l"
    assert trouble_of(path, archive(b"\x80\x02" + listed + calls + b".", {}))[0] is Trouble.CORRUPT


@pytest.mark.parametrize("order", ["little", "big", "middle", ""])
def test_the_order_of_bytes(path: Path, order: str) -> None:
    """Bytes that are big-endian have no address, and without a word that torch knows it loads nothing."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", state({"t": longs()}))
        file.writestr("a/version", "3\n")
        file.writestr("a/byteorder", order)
        file.writestr("a/data/0", LONGS)
    header = read_pickle(LocalFile(path))
    assert [t.start < 0 for t in header.tensors] == {"little": [False], "big": [True]}.get(order, [])
    assert [p.trouble for p in header.problems] == ([] if header.tensors else [Trouble.CORRUPT])
    assert [u.why for u in header.uncopied.values()] == (["is big-endian"] if order == "big" else [])


NEG, CONJ = text("neg"), text("conj")
METADATA = {
    b"": "",
    b"N": "",
    b"}": "",
    b"}" + NEG + b"\x89s": "",
    b"}" + NEG + b"\x88s": "is stored as the negatives of its values",
    b"}" + CONJ + b"\x88s": "is stored as the conjugates of its values",
    b"}(" + CONJ + b"\x88" + NEG + b"\x88u": "is stored as the conjugates and negatives of its values",
    b"}" + text("other") + b"\x88s": "has metadata that say that its bytes are something else",
    b"}K\x01\x88s": "has metadata that say that its bytes are something else",
    b"K\x01": "has metadata that say that its bytes are something else",
}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("metadata", METADATA)
def test_bits_that_say_that_bytes_are_not_the_values(path: Path, metadata: bytes, version: int) -> None:
    storage = Storage("LongStorage" if version == 2 else "UntypedStorage", "0", 6 if version == 2 else 48)
    more = metadata if version == 2 else b"ctorch\nint64\n" + metadata
    data = state({"t": tensor(storage, (6,), (1,), 0, more=more, version=version)})
    if version == 3:
        data = data.replace(b"ctorch\nUntyped", b"ctorch.storage\nUntyped")
    for raw in (archive(data, {"0": LONGS}), legacy(data, {"0": (storage.numel, LONGS)})):
        header = header_of(path, raw)
        (found,) = header.tensors
        unread = version == 3 and not raw.startswith(b"PK")  # the old format has no storages without a dtype
        assert (found.dtype, found.shape, len(header.problems)) == ("I64", (6,), int(unread))
        assert [u.why for u in header.uncopied.values()] == [METADATA[metadata]] * bool(METADATA[metadata])
        assert (found.start < 0) is bool(METADATA[metadata])


def test_a_storage_keeps_the_type_that_is_first_said_of_it(path: Path) -> None:
    twice = {"a": longs(), "b": tensor(Storage("IntStorage", "0", 6), (6,), (1,))}
    header = header_of(path, archive(state(twice), {"0": LONGS}))
    assert [(t.name, t.dtype, t.stop - t.start) for t in header.tensors] == [("a", "I64", 48), ("b", "I64", 48)]


def test_storages_of_dtypes_that_safetensors_does_not_know(path: Path) -> None:
    """They are told of, and what lies behind them in a file of before 1.6 is found."""
    items = {"c": tensor(Storage("ComplexDoubleStorage", "1", 2), (2,), (1,)), "t": longs()}
    raw = legacy(state(items), {"1": (2, bytes(32)), "0": (6, LONGS)})
    for file in (raw, archive(state(items), {"1": bytes(32), "0": LONGS})):
        header = header_of(path, file)
        assert header.problems == () and header.uncopied["c"].why.startswith("is a tensor of a dtype")
        other, found = header.tensors
        assert (other.name, other.shape, other.start) == ("c", (2,), -1)
        assert found.name == "t" and file[found.start : found.stop] == LONGS


OTHERS = {
    b"K\x05": "is no tensor",
    b"}": "is a dict",
    b"](K\x01K\x02e": "is a list",
    b"ctorch._utils\n_rebuild_nested_tensor\n(" + longs() * 4 + b"tR": "is a nested tensor",
    b"ctorch\nTensor\n)R": "is a tensor or a storage that a call makes, with no bytes in the file",
    longs((3, 2), (1, 3)): "does not lie in one piece in the order of its values",
}


@pytest.mark.parametrize("value", OTHERS)
def test_what_is_no_plain_tensor_is_told_of(path: Path, value: bytes) -> None:
    header = header_of(path, archive(state({"t": longs(), "x": value}), {"0": LONGS}))
    assert header.problems == ()
    assert [(n, u.why) for n, u in header.uncopied.items()] == [("x", OTHERS[value])]


def test_keys_that_are_no_text_are_told_of_and_metadata_without_content_are_not(path: Path) -> None:
    odd = b"\x80\x02}(" + text("t") + longs() + b"K\x07" + longs() + b"u."
    assert set(header_of(path, archive(odd, {"0": LONGS})).uncopied) == {"7"}
    assert not header_of(path, archive(state({"t": longs(), "_metadata": b"}"}), {"0": LONGS})).uncopied
    held = b"}" + text("") + b"K\x01s"
    assert set(header_of(path, archive(state({"t": longs(), "_metadata": held}), {"0": LONGS})).uncopied) == {
        "_metadata"
    }


def _typed(value: bytes, attributes: bytes, kind: bytes = b"ctorch\nTensor\n") -> bytes:
    function, _, args = value.partition(b"_rebuild_tensor_v2\n")
    start = b"ctorch._tensor\n_rebuild_from_type_v2\n("
    return start + function + b"_rebuild_tensor_v2\n" + kind + args[:-1] + attributes + b"tR"


def test_a_tensor_with_attributes_is_a_tensor_unless_they_are_some_too(path: Path) -> None:
    note = b"}" + text("note") + text("x") + b"s"
    data = b"}" + text("data") + longs() + b"s"
    header = header_of(path, archive(state({"t": _typed(longs(), note), "u": _typed(longs(), data)}), {"0": LONGS}))
    assert [(t.name, t.start >= 0) for t in header.tensors] == [("t", True), ("u", False)]
    assert [(n, u.why) for n, u in header.uncopied.items()] == [("u", "has attributes that hold tensors")]
    other = archive(state({"t": _typed(longs(), note, b"ctorch\nFloatTensor\n")}), {"0": LONGS})
    assert "a tensor of the class torch.FloatTensor" in trouble_of(path, other)[1]


def test_contents_that_are_set_afterwards_are_not_passed_over(path: Path) -> None:
    assert "other contents for a tensor" in trouble_of(path, archive(state({"t": longs() + b")b"}), {"0": LONGS}))[1]


def test_a_tensor_ends_where_its_storage_is_said_to_end(path: Path) -> None:
    raw = archive(state({"t": longs((3,), (1,), 0, 2)}), {"0": LONGS[:16]})
    assert "reaches past its storage of 16 bytes" in trouble_of(path, raw)[1]


def test_mutations_never_raise(path: Path) -> None:
    rng = random.Random(7)
    seeds = [
        archive(state({"d2t": longs(), "n": b"K\x01"}), {"0": LONGS}),
        legacy(state({"d2t": longs(), "n": b"K\x01"}), {"0": (6, LONGS)}),
        state({"d2t": longs(), "x": CALLS["posix.system"]}),
    ]
    for _ in range(1500):
        raw = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        header = header_of(path, bytes(raw))
        for found in header.tensors:
            assert found.start == -1 or 0 <= found.start <= found.stop <= len(raw)
