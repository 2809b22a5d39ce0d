"""Which files vLLM's loader takes: the same patterns, and Mistral's form, an index and an order by release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from weightfiles import write_tensors

from drafcheck.checkpoint import open_checkpoint
from drafcheck.contract import resolve_engine
from drafcheck.plan.files import Selection, select_files


def select(folder: Path, version: str) -> Selection:
    return select_files(open_checkpoint(folder), resolve_engine(f"vllm=={version}"))


def names(selection: Selection) -> list[str]:
    return [file.name for file in selection.files]


def write_index(folder: Path, weight_map: dict[str, str]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("version", ("0.16.0", "0.22.1", "0.33.0"))
def test_mistrals_form_leaves_the_others_unread(folder: Path, version: str) -> None:
    write_tensors(folder / "consolidated-00001.safetensors", a=(1,))
    write_tensors(folder / "model.safetensors", a=(1,))
    write_index(folder, {"a": "model.safetensors"})
    selection = select(folder, version)
    assert names(selection) == ["consolidated-00001.safetensors"]
    assert [name for name, _ in selection.ignored] == ["model.safetensors"]
    assert selection.index is None


@pytest.mark.parametrize("version", ("0.9.2", "0.11.0"))
def test_mistrals_form_is_read_beside_the_others(folder: Path, version: str) -> None:
    write_tensors(folder / "consolidated.safetensors", a=(1,))
    write_tensors(folder / "model.safetensors", a=(1,))
    selection = select(folder, version)
    assert len(names(selection)) == 2
    assert not selection.ordered
    write_index(folder, {"a": "model.safetensors"})
    assert names(select(folder, version)) == ["model.safetensors"]


@pytest.mark.parametrize("version", ("0.9.2", "0.11.0", "0.16.0", "0.22.1", "0.33.0"))
def test_an_index_that_names_an_absent_file(folder: Path, version: str) -> None:
    write_tensors(folder / "model-1.safetensors", a=(1,))
    write_index(folder, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    refused = select(folder, version).refused
    if version == "0.33.0":
        assert refused is not None
        assert refused.error.startswith("FileNotFoundError: Weight files referenced in index but missing")
    else:
        assert refused is None


def test_an_index_without_any_file_that_is_there(folder: Path) -> None:
    write_tensors(folder / "other.safetensors", a=(1,))
    write_index(folder, {"a": "model.safetensors"})
    refused = select(folder, "0.9.2").refused
    assert refused is not None
    assert refused.error.startswith("RuntimeError: Cannot find any model weights with")


def test_the_order_is_certain_since_files_are_sorted(folder: Path) -> None:
    write_tensors(folder / "a.safetensors", a=(1,))
    write_tensors(folder / "b.safetensors", b=(1,))
    assert not select(folder, "0.11.0").ordered
    assert select(folder, "0.16.0").ordered
