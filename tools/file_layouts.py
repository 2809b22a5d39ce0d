"""Folders of weight files that ask a loader one question each: which files does it take, in which order, who wins?

Every file has its own number in all of its tensors, so that what a loader yields tells where it was read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pickles import write_torch
from weights import Weight, Weights, write_safetensors, zeros

Layout = Mapping[str, Any]
"""By file name: the names of its tensors, or its text where it is an index. Names may lead into a subfolder."""

FILLER = "filler"
"""A tensor of this name is so large that its file takes longer to read than others."""

_LARGE = (3 << 22,)
INDEX = "model.safetensors.index.json"
PICKLE_INDEX = "pytorch_model.bin.index.json"


def _index(**files: str) -> str:
    """An index of tensors, each in a file that is named without its dots: ``w="a.safetensors"``."""
    return json.dumps({"metadata": {}, "weight_map": files})


def _pair(ending: str, large: int | None = None) -> dict[str, list[str]]:
    """Two files with a tensor of the same name and one of their own; ``large``: which of them takes longer."""
    files = {f"{name}{ending}": ["w", f"only_{name}"] for name in "ab"}
    if large is not None:
        list(files.values())[large].insert(0, FILLER)
    return files


ST = "model.safetensors"
LAYOUTS: dict[str, Layout] = {
    "one bin": {"pytorch_model.bin": ["w", "b", "a"]},
    "one pt": {"model.pt": ["w", "b", "a"]},
    "one safetensors": {ST: ["w", "b", "a"]},
    "names of capitals and digits": {ST: ["b", "B", "a10", "a2", "a.b", "a_b"]},
    "all three": {ST: ["w"], "pytorch_model.bin": ["w"], "model.pt": ["w"]},
    "bin and pt": {"pytorch_model.bin": ["w"], "model.pt": ["w"]},
    "adapter beside bin": {"adapter_model.safetensors": ["w"], "pytorch_model.bin": ["w", "b"]},
    "other endings": {"model.pth": ["w"], "model.ckpt": ["w"], "model.npz": ["w"]},
    "capital ending": {"model.BIN": ["w"], "model.SAFETENSORS": ["w"]},
    "hidden bin": {".hidden.bin": ["w"], "pytorch_model.bin": ["w"]},
    "hidden safetensors": {".hidden.safetensors": ["w"], ST: ["w"]},
    "hidden safetensors beside bin": {".hidden.safetensors": ["w"], "pytorch_model.bin": ["w"]},
    "subfolder": {"sub/pytorch_model.bin": ["w"], "sub/model.safetensors": ["w"]},
    "subfolder beside bin": {"sub/model.safetensors": ["w"], "pytorch_model.bin": ["w"]},
    "nothing": {"README.txt": "a draft"},
    "two bins": _pair(".bin"),
    "two bins, a large": _pair(".bin", 0),
    "two bins, b large": _pair(".bin", 1),
    "two pts": _pair(".pt"),
    "two pts, a large": _pair(".pt", 0),
    "two safetensors": _pair(".safetensors"),
    "two safetensors, a large": _pair(".safetensors", 0),
    "two safetensors, b large": _pair(".safetensors", 1),
    "ten and two": {"m-10.safetensors": ["w", "t"], "m-2.safetensors": ["w", "t"]},
    "ten and two bins": {"m-10.bin": ["w", "t"], "m-2.bin": ["w", "t"]},
    "capital and small": {"B.safetensors": ["w"], "a.safetensors": ["w"]},
    "leading zeros": {"m-010.safetensors": ["w"], "m-9.safetensors": ["w"], "m.safetensors": ["w"]},
    "three shards of bin": {f"pytorch_model-0000{n}-of-00003.bin": [f"t{n}"] for n in (1, 2, 3)},
    "three shards": {f"model-0000{n}-of-00003.safetensors": [f"t{n}"] for n in (1, 2, 3)},
    "bin index of one": {**_pair(".bin"), PICKLE_INDEX: _index(w="a.bin", only_a="a.bin")},
    "bin index of a lost one": {"a.bin": ["w"], PICKLE_INDEX: _index(w="a.bin", v="lost.bin")},
    "index of one": {**_pair(".safetensors"), INDEX: _index(w="a.safetensors", only_a="a.safetensors")},
    "index of the other": {**_pair(".safetensors"), INDEX: _index(w="b.safetensors", only_b="b.safetensors")},
    "index of both": {
        **_pair(".safetensors"),
        INDEX: _index(w="a.safetensors", only_a="a.safetensors", only_b="b.safetensors"),
    },
    "index of a lost one": {"a.safetensors": ["w"], INDEX: _index(w="a.safetensors", v="lost.safetensors")},
    "index of lost ones": {"a.safetensors": ["w"], INDEX: _index(w="lost.safetensors")},
    "index without a table": {"a.safetensors": ["w"], INDEX: "{}"},
    "index that is no JSON": {"a.safetensors": ["w"], INDEX: "{"},
    "index beside bins": {**_pair(".bin"), INDEX: _index(w="a.safetensors")},
    "leftovers": {
        "pytorch_model.bin": ["w"],
        **{f"{name}.bin": ["w"] for name in ("training_args", "optimizer", "my_optimizer", "optimizer.bin")},
    },
    "leftovers of pt": {"model.pt": ["w"], **{f"{name}.pt": ["w"] for name in ("optimizer", "scheduler", "scaler")}},
    "leftovers alone": {"training_args.bin": ["w"], "optimizer.pt": ["w"]},
    "leftover bin beside pt": {"training_args.bin": ["w"], "model.pt": ["w"]},
    "optimizer in safetensors": {"optimizer.safetensors": ["w"], ST: ["w"]},
    "consolidated": {"consolidated.safetensors": ["w"]},
    "consolidated beside model": {"consolidated.safetensors": ["w", "only_c"], ST: ["w"]},
    "consolidated beside shards": {"consolidated.safetensors": ["w"], "a.safetensors": ["w"], ST: ["w"]},
    "consolidated beside an index": {"consolidated.safetensors": ["w"], ST: ["w"], INDEX: _index(w=ST)},
    "consolidated beside bin": {"consolidated.safetensors": ["w"], "pytorch_model.bin": ["w", "b"]},
    "consolidated in parts": {"consolidated.00.safetensors": ["w"], ST: ["w"]},
}


def write(layout: Layout, folder: Path, *, backwards: bool = False, large: bool = True) -> None:
    """Make the files, ``backwards`` the last one first; without ``large`` a filler is as small as any other tensor."""
    numbered = list(enumerate(layout.items(), 1))
    for number, (name, content) in reversed(numbered) if backwards else numbered:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        elif name.lower().endswith(".safetensors"):
            write_safetensors(path, _tensors(content, number, large))
        else:
            write_torch(path, _tensors(content, number, large))


def _tensors(names: list[str], number: int, large: bool) -> Weights:
    one = Weight("F32", (1,), struct.pack("<f", number))
    return {name: zeros("F32", *_LARGE) if name == FILLER and large else one for name in names}


def file_of(layout: Layout, number: float) -> str:
    """The file whose tensors hold this number."""
    return list(layout)[int(number) - 1]
