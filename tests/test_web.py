"""Checkpoints on a plain web server, and in buckets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fakehub
import pytest
from drafts import Draft

from drafcheck import cli, lint
from drafcheck.errors import UsageError

ENGINE = "sglang==0.5.15"


class Files(fakehub.Handler):
    """A web server with the files of a folder."""

    which = "web"
    folder: Path

    def answer(self, path: str) -> None:
        file = self.folder / path
        if file.is_file():
            self.file(file)
        else:
            self.reply(404)


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """A small healthy draft in a folder with a space in its name."""
    folder = tmp_path / "my models" / "draft"
    Draft().write(folder)
    return folder


@pytest.fixture
def web(hub: fakehub.Hub, draft: Path, tmp_path: Path) -> Iterator[str]:
    """The address of the folder that holds the drafts."""
    Files.folder = tmp_path
    with fakehub.serving(Files, hub) as address:
        yield address + "/my%20models"


def said(path: str) -> str:
    """The one sentence in which a lint ends."""
    with pytest.raises(UsageError) as caught:
        lint(path, engine=ENGINE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_folders_and_files(web: str, draft: Path, hub: fakehub.Hub) -> None:
    local = lint(draft, engine=ENGINE).findings
    for address in ("draft", "draft/", "draft/config.json", "draft/model.safetensors"):
        hub.seen.clear()
        report = lint(f"{web}/{address}", engine=ENGINE)
        assert report.findings == local, address
        assert len(hub.paths()) == len(set(hub.paths())) + hub.paths().count("model.safetensors") <= 8
        assert report.checkpoints[0].target == f"{web}/draft/target_config.json"
        assert not any("authorization" in s.headers for s in hub.seen)
    assert lint(draft, engine=ENGINE, target=f"{web}/draft/target_config.json").findings == local


def test_no_token_for_other_servers(web: str, hub: fakehub.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", fakehub.TOKEN)
    lint(f"{web}/draft", engine=ENGINE)
    assert hub.seen and not any(fakehub.TOKEN in str(s.headers) for s in hub.seen)


def test_odd_names_by_their_address(web: str, draft: Path) -> None:
    (draft / "model.safetensors").rename(draft / "eagle3 head.safetensors")
    assert lint(f"{web}/draft/eagle3%20head.safetensors", engine=ENGINE).ok


def test_shards_by_the_index(web: str, draft: Path) -> None:
    (draft / "model.safetensors").rename(draft / "model-1.safetensors")
    names = {"fc.weight": "model-1.safetensors", "gone": "model-2.safetensors", "evil": "../../x.safetensors"}
    (draft / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    remote = lint(f"{web}/draft", engine=ENGINE)
    assert remote.findings == lint(draft, engine=ENGINE).findings
    assert {"DC005", "DC006"} <= {f.rule for f in remote.findings}


def test_an_index_without_end_is_not_followed(web: str, draft: Path, hub: fakehub.Hub) -> None:
    names = {str(i): f"{i}.safetensors" for i in range(2000)}
    (draft / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert "names 2000 files" in said(f"{web}/draft")
    assert len(hub.seen) < 5


def test_what_is_not_there(web: str, draft: Path, hub: fakehub.Hub) -> None:
    assert "there is no config.json, no model.safetensors" in said(f"{web}/elsewhere/")
    assert "there is no such file (status 404)" in said(f"{web}/draft/other.safetensors")
    hub.misbehave(fakehub.status(403), "config.json")
    assert "does not let it be read without a login" in said(f"{web}/draft")
    (draft / "model.safetensors").write_bytes(b"")
    hub.faults.clear()
    assert lint(f"{web}/draft", engine=ENGINE).findings == lint(draft, engine=ENGINE).findings
    assert lint(f"{web}/draft/config.json", engine=ENGINE, target=f"{web}/draft/target_config.json").exit_code == 1


def test_a_server_that_refuses_what_is_not_there(web: str, draft: Path, hub: fakehub.Hub) -> None:
    for name in ("index.json", "target_config.json", "pytorch_model.bin"):
        hub.misbehave(fakehub.status(403), name)
    (draft / "target_config.json").unlink()
    assert lint(f"{web}/draft", engine=ENGINE).findings == lint(draft, engine=ENGINE).findings
    hub.misbehave(fakehub.status(403), "model.safetensors")
    assert "does not let it be read" in said(f"{web}/draft/model.safetensors")


def test_a_refusal_by_another_host_names_it(web: str, draft: Path, hub: fakehub.Hub) -> None:
    hub.misbehave(fakehub.moved(hub.store + "/away"), "model.safetensors", "web")
    hub.misbehave(fakehub.status(403), server="store")
    host = hub.store.removeprefix("http://")
    refusal = f"{host}, to which the server redirects, does not let it be read without a login (status 403)"
    assert said(f"{web}/draft/model.safetensors").endswith(refusal)


def test_a_json_of_unknown_length(web: str, draft: Path, hub: fakehub.Hub) -> None:
    def chunked(handler: fakehub.Handler) -> bool:
        handler.send_response(200)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        body = (draft / "config.json").read_bytes()
        handler.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        return True

    hub.misbehave(chunked, "/config.json")
    assert lint(f"{web}/draft", engine=ENGINE).findings == lint(draft, engine=ENGINE).findings


def test_a_config_class_that_may_be_there(web: str, draft: Path) -> None:
    config = json.loads((draft / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "configuration_own.Own"}}
    (draft / "config.json").write_text(json.dumps(config))
    found = {f.rule for f in lint(draft, engine=ENGINE).findings}
    assert "DC502" in found
    assert {f.rule for f in lint(f"{web}/draft", engine=ENGINE).findings} == found - {"DC502"}


@pytest.mark.parametrize(
    "address", ["https://", "https:///x", "http://[::1/x", "http://h:99999999/x", "https://u:pw@127.0.0.1/x", "http://127.0.0.1/?k=pw"]
)  # fmt: skip
def test_addresses_that_are_none(hub: fakehub.Hub, address: str) -> None:
    sentence = said(address)
    assert "pw" not in sentence and hub.seen == []


def test_a_terminal_is_not_made_to_obey(web: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([f"{web}/\x1b[31mred"]) == 2
    assert "\x1b" not in capsys.readouterr().err


# Buckets, through fsspec's file system in memory.


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, draft: Path) -> Any:
    """What both schemes of buckets reach."""
    fsspec = pytest.importorskip("fsspec")
    from fsspec.implementations.memory import MemoryFileSystem

    class Memory(MemoryFileSystem):
        protocol = ("s3", "gs")
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]

    fsspec.register_implementation("s3", Memory, clobber=True)
    fsspec.register_implementation("gs", Memory, clobber=True)
    system = fsspec.filesystem("s3")
    for file in draft.iterdir():
        system.pipe_file(f"/bucket/models/draft/{file.name}", file.read_bytes())
    return system


def test_buckets(bucket: Any, draft: Path) -> None:
    local = lint(draft, engine=ENGINE)
    for address in (
        "s3://bucket/models/draft",
        "gs://bucket/models/draft/",
        "s3://bucket/models/draft/model.safetensors",
    ):
        report = lint(address, engine=ENGINE)
        assert report.findings == local.findings and report.checkpoints[0].path == address
    assert report.checkpoints[0].target == "s3://bucket/models/draft/target_config.json"
    assert lint(draft, engine=ENGINE, target="gs://bucket/models/draft/target_config.json").findings == local.findings
    assert "there is nothing" in said("s3://bucket/elsewhere")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError("x"), "may not be read with the credentials at hand"),
        (FileNotFoundError("x"), "there is nothing"),
        (RuntimeError("first\nsecond"), "cannot be read (RuntimeError: first)"),
        (KeyError(), "cannot be read (KeyError)"),
    ],
)
def test_buckets_that_refuse(bucket: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(type(bucket), "cat_file", fail)
    assert said("s3://bucket/models/draft").endswith(words)
    monkeypatch.setattr(type(bucket), "find", fail)
    assert said("s3://bucket/models/draft").endswith(words)


def test_a_short_answer_is_no_answer(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(bucket), "cat_file", lambda *_, **__: b"{")
    assert "1 byte came where" in said("s3://bucket/models/draft")


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert "s3fs" in said("s3://bucket/x") and "[gs]" in said("gs://bucket/x")
