"""A checkpoint with real bytes in it, and what a repair makes of it: for tests of how repairs are written."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from drafts import Draft
from weights import Weights, write_safetensors

from drafcheck.checkpoint import open_checkpoint
from drafcheck.fix.edits import DropFile, Edit, Rename, SetKey, merged
from drafcheck.fix.pieces import Spliced
from drafcheck.fix.state import State, after
from drafcheck.place import LocalPlace

EXTRA = "pytorch_model.bin"
"""A file that the repair leaves out."""


def filled(weights: Weights, seed: int = 0) -> Weights:
    """The same tensors with bytes that are told apart, where there were none."""
    rng = random.Random(seed)
    return {n: w if w.data is not None else replace(w, data=rng.randbytes(w.size)) for n, w in weights.items()}


def broken(folder: Path) -> Path:
    """A draft in two shards whose layer has a prefix too many, with a file too many."""
    draft = Draft()
    weights = filled({name.replace("midlayer.", "module.midlayer."): w for name, w in draft.weights.items()})
    draft.write(folder)
    (folder / "model.safetensors").unlink(missing_ok=True)
    layer = {name: w for name, w in weights.items() if name.startswith("module.")}
    rest = {name: w for name, w in weights.items() if name not in layer}
    write_safetensors(folder / "model-00001-of-00002.safetensors", layer, {"format": "pt"})
    write_safetensors(folder / "model-00002-of-00002.safetensors", rest, {"format": "pt"})
    (folder / EXTRA).write_bytes(b"\x80\x02}q\x00.")
    (folder / "README.md").write_text("a draft\n")
    return folder


def mended(folder: Path) -> tuple[Mapping[str, Spliced], frozenset[str]]:
    """The files that the repair of ``broken`` makes, and those that it leaves out."""
    checkpoint = open_checkpoint(folder)
    tensors = [t for file in checkpoint.files if file.name != EXTRA for t in file.header.tensors]
    edits: list[tuple[str, Edit]] = [
        ("DC101", Rename(t, t.name.removeprefix("module."))) for t in tensors if t.name.startswith("module.")
    ]
    edits += [("DC005", DropFile(EXTRA, "no loader reads it"))]
    edits.append(("DC502", SetKey(("mended",), True)))
    state = after(State(str(folder), LocalPlace(folder)), checkpoint, merged(edits))
    return state.files, state.removed


def contents(folder: Path) -> dict[str, str]:
    """The hash of every file in the folder by name; what is no file is called so."""
    return {
        entry.name: hashlib.sha256(Path(entry).read_bytes()).hexdigest() if entry.is_file() else "no file"
        for entry in os.scandir(folder)
    }


def fine(folder: Path) -> None:
    """A check that has nothing to say."""


def listing(folder: Path) -> list[str]:
    """The names of everything in a folder, hidden things too."""
    return sorted(entry.name for entry in folder.iterdir())
