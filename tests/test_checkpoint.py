"""Opening checkpoints: folders, single files, indexes; what is no checkpoint at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from weightfiles import POINTER, write_tensors

from drafcheck.checkpoint import Checkpoint, open_checkpoint, open_target
from drafcheck.errors import NothingToCheck, UsageError
from drafcheck.source import SourceError
from drafcheck.tensor import Tensor, Trouble

INDEX = "model.safetensors.index.json"


def make(folder: Path, **files: tuple[int, ...]) -> Path:
    (folder / "config.json").write_text("{}")
    write_tensors(folder / "model.safetensors", **(files or {"fc": (2, 3)}))
    return folder


def index(folder: Path, weight_map: Any) -> Checkpoint:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return open_checkpoint(folder)


def test_folder(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / ".hidden.safetensors").write_bytes(b"x")
    (tmp_path / "notes.md").write_text("x")
    (tmp_path / "original").mkdir()
    write_tensors(tmp_path / "original" / "b.safetensors", x=(1,))
    found = open_checkpoint(tmp_path)
    assert [f.name for f in found.files] == ["model.safetensors"]
    assert found.config is not None and found.index is None and found.problems == []
    assert found.other == (".hidden.safetensors", "config.json", "notes.md", "original")
    assert found.weights_below == ("original/b.safetensors",)
    (tensor,) = found.files[0].header.tensors
    assert found.read(tensor) == bytes(6)
    assert (
        found.files[0].format == "safetensors"
        and found.files[0].size == (tmp_path / "model.safetensors").stat().st_size
    )


def test_bytes_that_cannot_be_read(tmp_path: Path) -> None:
    found = open_checkpoint(make(tmp_path))
    for tensor in (
        Tensor("x", "U8", (1,), "model.safetensors"),
        Tensor("x", "U8", (1,), "elsewhere.safetensors", 0, 1),
        Tensor("x", "U8", (1,), "model.safetensors", 0, 1 << 40),
    ):
        with pytest.raises(SourceError):
            found.read(tensor)


def test_single_weight_file(tmp_path: Path) -> None:
    make(tmp_path)
    write_tensors(tmp_path / "other.safetensors", a=(1,))
    found = open_checkpoint(tmp_path / "other.safetensors")
    assert [f.name for f in found.files] == ["other.safetensors"]
    assert found.config is not None and found.place.address("x") == str(tmp_path / "x")


def test_config_alone(tmp_path: Path) -> None:
    (tmp_path / "draft.json").write_text('{"hidden_size": 64}')
    found = open_checkpoint(tmp_path / "draft.json")
    assert found.config_only and found.files == ()
    assert found.config is not None and found.config.integer("hidden_size") == 64
    assert found.config.at("hidden_size").file == "draft.json"


def test_config_or_index_with_weights_beside_it(tmp_path: Path) -> None:
    index(make(tmp_path), {"fc": "model.safetensors"})
    for name in ("config.json", INDEX):
        found = open_checkpoint(tmp_path / name)
        assert [f.name for f in found.files] == ["model.safetensors"] and not found.config_only


def test_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(NothingToCheck, match=r"holds no config\.json"):
        open_checkpoint(tmp_path)
    (tmp_path / "README.md").write_text("x")
    with pytest.raises(NothingToCheck):
        open_checkpoint(tmp_path)
    with pytest.raises(NothingToCheck):
        open_checkpoint(tmp_path / "README.md")


def test_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("absent", "loop", "a\0b", "x" * 5000):
        with pytest.raises(UsageError):
            open_checkpoint(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    try:
        with pytest.raises(UsageError, match="may not be read"):
            open_checkpoint(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_folder_that_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for root: the system call itself answers no."""

    def refuse(_: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(UsageError, match="may not be read"):
        open_checkpoint(tmp_path)


def test_missing_config(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", a=(1,))
    found = open_checkpoint(tmp_path)
    assert found.config is None
    assert [p.trouble for p in found.problems] == [Trouble.NO_CONFIG]


def test_cache_of_the_hub(tmp_path: Path) -> None:
    """Files are links into a folder of blobs: normal."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    make(blobs)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    found = open_checkpoint(snapshot)
    assert found.config is not None and found.problems == []
    assert found.files[0].header.problems == ()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make_it", [Path.mkdir, _pipe, _loop])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "config.json", INDEX])
def test_odd_things_under_the_usual_names(tmp_path: Path, make_it: Any, name: str) -> None:
    """A folder, a pipe or a loop of links: told, never waited for."""
    make_it(tmp_path / name)
    if name != "config.json":
        (tmp_path / "config.json").write_text("{}")
    found = open_checkpoint(tmp_path)
    problems = [*found.problems, *found.no_index, *(p for f in found.files for p in f.header.problems)]
    problems += found.index.problems if found.index is not None else ()
    assert [p.trouble for p in problems] == [Trouble.UNREADABLE]
    assert name in problems[0].message
    assert all(f.format and f.size == 0 for f in found.files)


def test_index(tmp_path: Path) -> None:
    found = index(make(tmp_path), {"fc": "model.safetensors", "d2t": "b.safetensors"}).index
    assert found is not None and found.refused is None and found.problems == ()
    assert found.files == ("b.safetensors", "model.safetensors")


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up.safetensors", "a/../../b.safetensors", "\\\\host\\x", "", "a\0b"]
)
def test_index_never_leads_outside(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    really = os.open

    def watch(path: Any, *args: Any, **options: Any) -> int:
        opened.append(str(path))
        return really(path, *args, **options)

    monkeypatch.setattr(os, "open", watch)
    found = index(make(tmp_path), {"fc": "model.safetensors", "x": name}).index
    assert found is not None and found.weight_map == {"fc": "model.safetensors"}
    (problem,) = found.problems
    assert problem.trouble is Trouble.BAD_INDEX and problem.location.key == "weight_map.x"
    assert all(path.startswith(str(tmp_path)) and ".." not in path for path in opened)


@pytest.mark.parametrize("value", [None, 3, True, ["model.safetensors"], {}])
def test_index_with_entries_of_wrong_types(tmp_path: Path, value: Any) -> None:
    found = index(make(tmp_path), {"fc": "model.safetensors", "x": value}).index
    assert found is not None and found.refused is not None
    assert [p.trouble for p in found.problems] == [Trouble.BAD_INDEX]


@pytest.mark.parametrize("value", [None, 3, "x", ["a"]])
def test_index_without_a_map(tmp_path: Path, value: Any) -> None:
    found = index(make(tmp_path), value).index
    assert found is not None and found.files == ()
    assert found.refused == "model.safetensors.index.json has no weight_map that is an object"


@pytest.mark.parametrize(
    ("raw", "trouble"), [(b"", Trouble.BAD_INDEX), (b"[]", Trouble.BAD_INDEX), (POINTER, Trouble.LFS_POINTER)]
)
def test_index_that_is_none(tmp_path: Path, raw: bytes, trouble: Trouble) -> None:
    make(tmp_path)
    (tmp_path / INDEX).write_bytes(raw)
    found = open_checkpoint(tmp_path).index
    assert found is not None and found.refused is not None
    assert [p.trouble for p in found.problems] == [trouble]


def test_thousands_of_wrong_entries_are_told_briefly(tmp_path: Path) -> None:
    found = index(make(tmp_path), {f"t{i}": "../x" for i in range(5000)}).index
    assert found is not None and 1 <= len(found.problems) <= 10


def test_ten_thousand_files(tmp_path: Path) -> None:
    make(tmp_path)
    for i in range(10_000):
        (tmp_path / f"m{i}.safetensors").touch()
    assert len(open_checkpoint(tmp_path).files) == 10_001


def test_more_shards_than_open_files(tmp_path: Path) -> None:
    import resource

    make(tmp_path)
    for i in range(150):
        write_tensors(tmp_path / f"m{i}.safetensors", **{f"t{i}": (1,)})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 100), hard))
    try:
        assert all(not f.header.problems for f in open_checkpoint(tmp_path).files)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_target(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')
    assert open_target(tmp_path).hidden_size == 64
    assert open_target(tmp_path / "config.json").hidden_size == 64
    for path in (tmp_path / "absent", tmp_path / "x.json"):
        with pytest.raises(UsageError):
            open_target(path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UsageError, match="the target's config cannot be read"):
        open_target(tmp_path)
