"""What files made to be large cost to read: time and memory of a process of its own for each.

    python benchmarks/limits.py [--names 1000000]

Goals: a million names in under 3 seconds and 400 MB, with or without an index, on a quiet machine (on a busy one the
processor time tells); a header of 100 MB is the longest that is read, as in the safetensors library; JSON is as deep as
its reader allows, and no deeper. tests/test_limits.py holds counts and memory. Prints a table; exits 0 always.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from cold_start import ENVIRONMENT, row, run

ROOT = Path(__file__).parent.parent
SECONDS, MEMORY = 3.0, 381
"""Goals: seconds and MiB (400,000,000 bytes) for a million names, also of the whole command."""
TIMES = 3
"""How often the processor time of the reader of a header alone the whole command may take."""
SHARDS = 8

READ = "import sys; from pathlib import Path; from drafcheck.source import LocalFile; "
HEADER = READ + "from drafcheck.header import read_header; h = read_header(LocalFile(Path(sys.argv[1]))); "
PICKLE = READ + "from drafcheck.torch_pickle import read_pickle; h = read_pickle(LocalFile(Path(sys.argv[1]))); "
INDEX = (
    READ + "from drafcheck.checkpoint import INDEX_LIMIT, parse_index; from drafcheck.jsonpos import read_document; "
    "i = parse_index(read_document(LocalFile(Path(sys.argv[1])), limit=INDEX_LIMIT)); "
)
HOLDS = "sys.exit(len(h.tensors) != int(sys.argv[2]) or bool(h.problems))"
CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    **{"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
    **{"num_hidden_layers": 1, "vocab_size": 256, "draft_vocab_size": 128, "torch_dtype": "bfloat16"},
}
LISTS = "sys.exit(len(i.weight_map) != int(sys.argv[2]))"
HEALTHY = "sys.exit(bool(h.problems))"
REFUSES = "sys.exit(not h.problems)"


def many_names(path: Path, names: int, first: int = 0) -> None:
    """A safetensors file of tensors of four bytes, the body a hole; the numbers in the names from ``first`` on."""
    form = '"model.layers.{0}.w":{{"dtype":"BF16","shape":[1,2],"data_offsets":[{1},{2}]}}'
    with path.open("wb") as file:
        file.write(bytes(8) + b"{")
        for i in range(names):
            file.write(b"," * (i > 0) + form.format(first + i, 4 * i, 4 * i + 4).encode())
        file.write(b"}")
        length = file.tell() - 8
        file.truncate(8 + length + 4 * names)
        file.seek(0)
        file.write(struct.pack("<Q", length))


def padded(path: Path, length: int) -> None:
    """A file without tensors whose header has so many bytes."""
    with path.open("wb") as file:
        file.write(struct.pack("<Q", length) + b"{}")
        for at in range(2, length, 1 << 20):
            file.write(b" " * min(1 << 20, length - at))


def deep(path: Path, depth: int) -> None:
    """A header with one field that is nested."""
    field = b"[" * depth + b"]" * depth
    text = b'{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":' + field + b"}}"
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def many_entries(path: Path, names: int) -> None:
    """An index of so many tensors in one file."""
    with path.open("w") as file:
        file.write('{"weight_map": {')
        for i in range(names):
            file.write("," * (i > 0) + f'"model.layers.{i}.w": "model.safetensors"')
        file.write("}}")


def deep_pickle(path: Path, depth: int) -> None:
    """A pickle of nested tuples in an archive."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/version", b"3\n")
        archive.writestr("a/data.pkl", b"\x80\x02}X\x01\x00\x00\x00x)" + b"\x85" * depth + b"s.")


def bomb(path: Path, size: int) -> None:
    """An archive whose pickle unpacks to so many zeros."""
    archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("a/data.pkl", "w", force_zip64=True) as member:
        for _ in range(0, size, 1 << 20):
            member.write(bytes(1 << 20))


def measured(what: str, code: str, write: Callable[[Path, int], None], size: int, goal: str = "") -> None:
    """Write a file, read it in a process of its own, and print what that cost beside an empty one."""
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "model.file"
        write(path, size)
        cost = run([sys.executable, "-c", code, str(path), str(size)])
    outcome = "as expected" if cost.code == 0 else f"UNEXPECTED (exit code {cost.code})"
    figures = f"{cost.seconds:5.2f} s {cost.busy:5.2f} s {cost.peak / 1024:4.0f} MiB"
    row(what, figures, f"{outcome}{f', {goal}' if goal else ''}")


def sharded(folder: Path, names: int) -> None:
    """The same names in several files, and the index of them all."""
    with (folder / "model.safetensors.index.json").open(
        "w"
    ) as index:  # line by line: a child's peak counts what we hold
        index.write('{"metadata": {}, "weight_map": {')
        for shard in range(SHARDS):
            path, first = folder / f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors", shard * names // SHARDS
            last = (shard + 1) * names // SHARDS
            many_names(path, last - first, first)
            for i in range(first, last):
                index.write("," * (i > 0) + f'\n    "model.layers.{i}.w": "{path.name}"')
        index.write("}}\n")


def whole(names: int) -> None:
    """The whole command on checkpoints of so many names beside the reader of a header alone, in the same run."""
    with tempfile.TemporaryDirectory() as room, tempfile.TemporaryDirectory() as parts:
        weights = Path(room) / "model.safetensors"
        many_names(weights, names)
        sharded(Path(parts), names)
        for folder in (room, parts):
            (Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        alone = run([sys.executable, "-c", HEADER + HOLDS, str(weights), str(names)]).busy
        goal = f"{SECONDS:g} s and {MEMORY} MiB"
        for engine in ("sglang", "vllm"):
            what = f"drafcheck on {names:,} names in a header, {engine}"
            _command(what, room, ["--engine", engine], alone, f", goal {TIMES} times, {goal}")
            what = f"the same in {SHARDS} files with an index, {engine}"
            _command(what, parts, ["--engine", engine], alone, f", goal {goal}")
        _command("a tenth of them, --values --format json", _tenth(room, names), VALUES, alone, "")


VALUES = ["--engine", "sglang", "--values", "--format", "json"]


def _tenth(room: str, names: int) -> str:
    many_names(Path(room) / "model.safetensors", names // 10)
    return room


def _command(what: str, folder: str, options: list[str], alone: float, goal: str) -> None:
    cost = run([sys.executable, "-m", "drafcheck", "--no-config", folder, *options])
    figures = f"{cost.seconds:5.2f} s {cost.busy:5.2f} s {cost.peak / 1024:4.0f} MiB"
    outcome = "as expected" if cost.code == 1 else f"UNEXPECTED (exit code {cost.code})"
    row(what, figures, f"{outcome}, {cost.busy / alone:.1f} times the reader's processor time{goal}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", type=int, default=1_000_000)
    names = parser.parse_args().names
    ENVIRONMENT["PYTHONPATH"] = os.pathsep.join([str(ROOT), ENVIRONMENT.get("PYTHONPATH", "")])
    goal = f"goal {SECONDS:g} s and {MEMORY} MiB"
    row("", "time, processor, peak", "")
    measured("an empty header", HEADER + HEALTHY, padded, 2)
    measured(f"{names:,} names in a header", HEADER + HOLDS, many_names, names, goal)
    measured(
        f"{names:,} names in an index", INDEX + "sys.exit(len(i.weight_map) != int(sys.argv[2]))", many_entries, names
    )
    whole(names)
    measured("a header of 100,000,000 bytes is read", HEADER + HEALTHY, padded, 100_000_000)
    measured("a header of 100,000,001 bytes is refused", HEADER + REFUSES, padded, 100_000_001)
    measured("125 levels of JSON are read", HEADER + HEALTHY, deep, 125)
    measured("126 levels of JSON are refused", HEADER + REFUSES, deep, 126)
    measured("1,000,000 levels of JSON are refused", HEADER + REFUSES, deep, 1_000_000)
    measured("1,000,000 levels of a pickle", PICKLE + HEALTHY, deep_pickle, 1_000_000)
    measured("a pickle of 1 GB in a packed archive", PICKLE + REFUSES, bomb, 1 << 30)


if __name__ == "__main__":
    main()
