"""``--target-weights`` and ``--reference``: why nothing can be taken from what was named."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from test_unread import saved
from variants import TRAINED, healthy
from weightfiles import POINTER
from weights import Weight, write_safetensors

from drafcheck.errors import UsageError
from drafcheck.runner import lint

WHOLE = (TRAINED / "draft" / "model.safetensors").read_bytes()
NAME = "model.safetensors"


def _zipped(folder: Path) -> None:
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02cos\nsystem\nU\x02idq\x00\x85R.")
        file.writestr("archive/version", b"3\n")


CAUSES: dict[str, tuple[Callable[[Path], object], str]] = {
    "code": (_zipped, "asks for os.system at byte 2"),
    "pointer": (lambda folder: (folder / NAME).write_bytes(POINTER), "is a git lfs pointer of"),
    "page": (lambda folder: (folder / NAME).write_bytes(b"<!DOCTYPE html><p>no such file"), "this is a web page saved"),
    "pipe": (lambda folder: os.mkfifo(folder / NAME), "is a named pipe, not a regular file"),
    "empty": (lambda folder: (folder / NAME).write_bytes(b""), "is empty"),
    "header cut off": (lambda folder: (folder / NAME).write_bytes(WHOLE[:1000]), "but only 992 bytes follow"),
    "cut off": (lambda folder: (folder / NAME).write_bytes(WHOLE[:5000]), "is truncated|ends before byte"),
}


def refused(**more: str) -> str:
    with pytest.raises(UsageError) as caught:
        lint(TRAINED / "draft", engine="sglang==0.5.15", target=TRAINED / "target", **more)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize("option", ["target_weights", "reference"])
@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_is_named(tmp_path: Path, cause: str, option: str) -> None:
    make, words = CAUSES[cause]
    make(tmp_path)
    text = refused(**{option: str(tmp_path)})
    assert text.startswith(f"--{option.replace('_', '-')} {tmp_path}: ")
    assert any(word in text for word in words.split("|"))


def test_a_shard_that_is_not_there_is_named(tmp_path: Path) -> None:
    there, missing = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    write_safetensors(tmp_path / there, {"norm.weight": Weight("BF16", (2,), bytes(4))})
    index = {"weight_map": {"norm.weight": there, "lm_head.weight": missing}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert refused(target_weights=str(tmp_path)).endswith(f": the index says {missing}, which is not there")


def test_a_dtype_and_a_packing_that_are_not_compared_are_named(tmp_path: Path) -> None:
    write_safetensors(tmp_path / NAME, {"lm_head.weight": Weight("F8_E4M3", (2048, 4), bytes(8192))})
    assert refused(target_weights=str(tmp_path)).endswith(": lm_head.weight is F8_E4M3")
    folder = saved(healthy(), tmp_path / "x", method=zipfile.ZIP_DEFLATED)
    assert refused(target_weights=str(folder)).endswith(": lm_head.weight is compressed")


def test_nothing_more_is_said_where_nothing_is_in_the_way(tmp_path: Path) -> None:
    """Healthy files without what was looked for; and those that have it are taken."""
    write_safetensors(tmp_path / NAME, {"norm.weight": Weight("BF16", (2,), bytes(4))})
    assert refused(target_weights=str(tmp_path)).endswith("of which rows can be compared")
    assert refused(reference=str(tmp_path)).endswith(": no d2t in it")
    for option, path in (("target_weights", TRAINED / "target-head"), ("reference", TRAINED / "draft")):
        lint(TRAINED / "draft", engine="sglang==0.5.15", target=TRAINED / "target", **{option: path})  # type: ignore[arg-type]
