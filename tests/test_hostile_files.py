"""Files made to break a reader: the answer is a finding, soon, within little memory, and nothing is run or followed."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weightfiles import Storage, archive, entry, legacy, safetensors, state, tensor, text, write_tensors

from drafcheck import lint
from drafcheck.checkpoint import open_checkpoint
from drafcheck.config import DraftConfig, TargetConfig
from drafcheck.contract import resolve_engine
from drafcheck.header import read_header
from drafcheck.jsonpos import read_document
from drafcheck.plan.files import select_files
from drafcheck.source import LocalFile
from drafcheck.torch_pickle import read_pickle

FAST = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CONFIG = '{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}'


def outcome(folder: Path) -> tuple[str, set[str]]:
    checkpoint = lint(folder, engine="sglang==0.5.15").checkpoints[0]
    return checkpoint.outcome.value, {f.rule for f in checkpoint.findings}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(CONFIG)
    return tmp_path


NAMES = ("\x1b[31mred\x07", "a\nb", "x" * 1_000_000, "\u202etxt", "", "\U0001f600", "-", "../../x", "\x00")


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:12])
def test_names_of_tensors(folder: Path, name: str) -> None:
    raw = safetensors({name: entry("U8", (1,), 0, 1)}, b"\0")
    (folder / "model.safetensors").write_bytes(raw)
    found, codes = outcome(folder)
    assert found != "internal-error" and not codes & {"DC004", "DC012"}


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, 100_000_001, 0])
def test_lengths_of_the_header(folder: Path, length: int) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + b"{}" + bytes(100))
    assert outcome(folder) == ("refused", {"DC004", *outcome(folder)[1]})
    assert "DC004" in outcome(folder)[1]


def test_zero_size_tensors(folder: Path) -> None:
    write_tensors(folder / "model.safetensors", fc=(0, 3), norm=(0,), x=())
    found, codes = outcome(folder)
    assert found != "internal-error" and "DC004" not in codes


def test_a_config_of_200_megabytes(folder: Path) -> None:
    write_tensors(folder / "model.safetensors", a=(1,))
    os.truncate(folder / "config.json", 200_000_000)
    assert "DC002" in outcome(folder)[1]


@pytest.mark.parametrize(
    "name", ["model.safetensors", "pytorch_model.bin", "config.json", "model.safetensors.index.json"]
)
@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "broken link", "device"])
def test_odd_things(folder: Path, name: str, kind: str) -> None:
    (folder / name).unlink(missing_ok=True)
    makers = {
        "folder": Path.mkdir,
        "pipe": os.mkfifo,
        "loop": lambda path: path.symlink_to(name),
        "broken link": lambda path: path.symlink_to("nowhere"),
        "device": lambda path: path.symlink_to("/dev/zero"),
    }
    makers[kind](folder / name)  # type: ignore[operator]
    found, codes = outcome(folder)
    assert found != "internal-error"
    assert codes & {"DC002", "DC006", "DC012"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_files_without_permission(folder: Path, name: str) -> None:
    write_tensors(folder / "model.safetensors", a=(1,))
    (folder / name).chmod(0)
    assert outcome(folder)[1] & {"DC002", "DC012"}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_files_that_the_system_refuses(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for root: the system call itself answers no."""
    write_tensors(folder / "model.safetensors", a=(1,))
    really = os.open

    def refuse(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied")
        return really(path, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    found, codes = outcome(folder)
    assert found != "internal-error"
    assert codes & {"DC002", "DC012"}


def test_a_pickle_that_calls_a_command_runs_nothing(folder: Path) -> None:
    """The whole program, in a process of its own, with torch beside it."""
    call = b"cposix\nsystem\n(" + text(f"touch {folder / 'ran'}") + b"tR"
    (folder / "pytorch_model.bin").write_bytes(archive(state({"x": call}), {}))
    done = subprocess.run(
        [sys.executable, "-m", "drafcheck", str(folder), "--format", "concise", "--engine", "sglang==0.5.15"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "DC009" in done.stdout and "Traceback" not in done.stderr
    assert not (folder / "ran").exists()


def test_file_names_that_are_not_text(folder: Path) -> None:
    raw = os.fsencode(folder) + b"/m\xff\x1b[0m.safetensors"
    with open(raw, "wb") as file:  # noqa: PTH123
        file.write(safetensors({"t": entry()}, bytes(3)))
    found, codes = outcome(folder)
    assert found == "refused" and "DC004" in codes


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
offsets = st.lists(st.integers(-2, 40) | st.sampled_from([1 << 63, 1 << 64, True, None]), max_size=3)
entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["U8", "BF16", "F4", "F6_E2M3", "I64", "NOPE", "", None, 3]),
        "shape": offsets,
        "data_offsets": offsets,
        "x": values,
    },
)
headers = st.dictionaries(st.text(max_size=6) | st.just("__metadata__"), entries | values, max_size=4)


@FAST
@given(
    raw=headers.map(json.dumps).map(str.encode) | st.binary(max_size=60), body=st.integers(0, 60), cut=st.integers(0, 9)
)
def test_any_header(tmp_path: Path, raw: bytes, body: int, cut: int) -> None:
    path = tmp_path / "model.safetensors"
    whole = safetensors(raw, bytes(body))
    path.write_bytes(whole[: len(whole) - cut])
    header = read_header(LocalFile(path))
    if not header.problems:
        assert all(8 <= t.start <= t.stop <= path.stat().st_size for t in header.tensors)


@FAST
@given(data=values | st.dictionaries(st.sampled_from(["weight_map", "metadata"]), values, max_size=2))
def test_any_index(folder: Path, data: Any) -> None:
    write_tensors(folder / "a.safetensors", a=(1,))
    (folder / "model.safetensors.index.json").write_text(json.dumps(data))
    checkpoint = open_checkpoint(folder)
    for version in ("0.5.15", "0.5.23"):
        select_files(checkpoint, resolve_engine(f"sglang=={version}"))
    assert checkpoint.index is not None
    assert all(".." not in file.split("/") and not file.startswith("/") for file in checkpoint.index.files)


places = st.lists(st.sampled_from(["a", "text_config", "hidden_size", "weight_map"]) | st.integers(0, 3), max_size=4)
keys = st.sampled_from(
    ["architectures", "text_config", "llm_config", "thinker_config", "hidden_size", "model_type", "a"]
)


@FAST
@given(
    data=values | st.dictionaries(keys, values, max_size=5),
    noise=st.binary(max_size=3),
    at=st.integers(0, 200),
    place=places,
)
def test_any_config(tmp_path: Path, data: Any, noise: bytes, at: int, place: list[str | int]) -> None:
    raw = json.dumps(data, indent=1).encode()
    path = tmp_path / "config.json"
    path.write_bytes(raw[:at] + noise + raw[at:])
    document = read_document(LocalFile(path))
    assert (document.data is None) <= bool(document.problems)
    where = document.at(*place)
    if where.line is not None and where.column is not None and isinstance(place[-1], str):
        line = document.text.split("\n")[where.line - 1]
        assert where.key is not None and where.column <= len(line)
    config, target = DraftConfig(document), TargetConfig(document)
    _ = config.architectures, config.model_type, config.integer("hidden_size"), config.text("a", "b"), config.flag("a")
    _ = target.hidden_size, target.vocab_size, target.num_hidden_layers, target.text_architecture, target.dtype


opcodes = st.sampled_from(
    [
        b"(", b"t", b"\x85", b"\x86", b"\x87", b"}", b"]", b")", b"u", b"s", b"e", b"a", b"R", b"b", b"Q", b"0", b"1",
        b"2", b"N", b"\x88", b"K\x05", b"q\x01", b"h\x01", b"\x94", b"\x81", b"\x92", b"\x93", b"\x8f", b"\x90",
        b"\x91",
        b"ctorch\nSize\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n", b"cos\nsystem\n",
        b"ctorch\nLongStorage\n", text("storage"), text("0"), b"I12\n", b"L12L\n", b"F1.5\n", b"V\\ud800\n",
        b"S'\\x'\n",
        tensor(Storage("LongStorage", "0", 2), (2,), (1,)), b"\x80\x04", b"l", b"d", b"o", b"\x82\x01", b"Pid\n", b".",
    ]
)  # fmt: skip


@FAST
@given(
    program=st.lists(opcodes, max_size=25).map(b"".join),
    wrap=st.sampled_from(["zip", "legacy", "bare"]),
    cut=st.integers(0, 40),
)
def test_any_pickle(tmp_path: Path, program: bytes, wrap: str, cut: int) -> None:
    data = b"\x80\x02" + program + b"."
    whole = {"zip": archive(data, {"0": bytes(16)}), "legacy": legacy(data, {"0": (2, bytes(16))}), "bare": data}[wrap]
    path = tmp_path / "x.bin"
    path.write_bytes(whole[: len(whole) - cut] if cut > 30 else whole)
    header = read_pickle(LocalFile(path))
    for found in header.tensors:
        assert found.start == -1 or 0 <= found.start <= found.stop <= path.stat().st_size


def test_an_archive_of_many_disks(tmp_path: Path) -> None:
    """Found by fuzzing: the end of a zip64 archive that says so behind something else."""
    end = b"PK\x06\x07" + struct.pack("<LQL", 0, 0, 2) + b"PK\x05\x06" + bytes(18)
    path = tmp_path / "x.bin"
    path.write_bytes(b"PK" + bytes(40) + end)
    (problem,) = read_pickle(LocalFile(path)).problems
    assert problem.message.startswith("x.bin ")
