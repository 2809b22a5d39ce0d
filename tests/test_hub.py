"""Drafts and targets on the Hub: what is asked, what is found, what is said when it cannot be had."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import fakehub
import pytest
from drafts import Draft
from fakehub import COMMIT, TOKEN, Hub, Repo
from weights import write_safetensors

from drafcheck import cli, lint
from drafcheck.errors import UsageError
from drafcheck.hub import parse

ENGINE = "sglang==0.5.15"


@pytest.fixture
def draft(hub: Hub, tmp_path: Path) -> Path:
    """A small healthy draft, which the Hub has as org/draft."""
    folder = tmp_path / "draft"
    Draft().write(folder)
    hub.repos["org/draft"] = Repo(folder)
    return folder


def said(path: str, **options: Any) -> str:
    """The one sentence in which a lint ends."""
    with pytest.raises(UsageError) as caught:
        lint(path, engine=ENGINE, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence and TOKEN not in sentence and "Signature" not in sentence
    return sentence


def as_json(path: str, capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    """The report that the command line prints, with the path taken out."""
    cli.run([path, "--engine", ENGINE, "--format", "json", "--no-config", *args])
    printed = capsys.readouterr().out
    assert json.loads(printed)["checkpoints"][0]["path"] == path
    report: dict[str, Any] = json.loads(printed.replace(path, "CKPT"))
    return report


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_storage_host_that_refuses_is_not_taken_for_the_hub(
    hub: Hub, draft: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = hub.store.removeprefix("http://")
    sentence = (
        "hf://org/draft/model.safetensors: the repository can be read, "
        f"but the storage host {host} refuses the file (status {status})"
    )
    hub.misbehave(lambda handler: handler.reply(status), server="store")
    assert said("hf://org/draft") == sentence
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert said("hf://org/draft") == sentence


def test_a_hub_behind_a_redirect_still_says_why(hub: Hub, draft: Path) -> None:
    hub.misbehave(lambda handler: handler.refuse(403, "GatedRepo"), server="store")
    assert "gated: ask for access" in said("hf://org/draft")


def test_the_token_never_reaches_the_other_host(hub: Hub, draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    lint("hf://org/draft", engine=ENGINE)
    asked = {s.server: [x.headers.get("authorization") for x in hub.seen if x.server == s.server] for s in hub.seen}
    assert set(asked["hub"]) == {f"Bearer {TOKEN}"}
    assert len(asked["store"]) >= 1 and set(asked["store"]) == {None}
    assert not any(TOKEN in str(s.headers) for s in hub.seen if s.server == "store")


def test_the_token_does_not_come_back(hub: Hub, draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    back = f"{hub.endpoint}/org/draft/resolve/{COMMIT}/config.json"
    hub.misbehave(fakehub.moved(hub.store + "/away"), "config.json", "hub", times=1)
    hub.misbehave(fakehub.moved(back), "away", "store")
    lint("hf://org/draft", engine=ENGINE)
    returned = [s for s in hub.seen if s.path.endswith("config.json") and s.server == "hub"]
    assert [s.headers.get("authorization") for s in returned[:2]] == [f"Bearer {TOKEN}", None]


# What is found.


def test_the_findings_are_those_of_the_local_lint(hub: Hub, draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for edit in (lambda: None, lambda: (draft / "config.json").write_text('{"architectures": 3}')):
        edit()
        assert as_json("hf://org/draft", capsys) == as_json(str(draft), capsys)


def test_fixtures_read_alike(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    fixtures = Path(__file__).parent.parent / "fixtures"
    cases = sorted(f for f in fixtures.glob("DC*/*") if f.is_dir() and f.parent.name != "DC313")[::9]
    assert len(cases) > 5  # DC313 compares rows, which are not fetched
    for case in cases:
        hub.repos["org/case"] = Repo(case)
        assert as_json("hf://org/case", capsys) == as_json(str(case), capsys), case


def test_odd_names_subfolders_and_single_files(hub: Hub, draft: Path, tmp_path: Path) -> None:
    (draft / "model.safetensors").rename(draft / "eagle3_head.safetensors")
    shutil.copytree(draft, draft / "sub dir" / "v1")
    local = lint(draft, engine=ENGINE).findings
    assert local == lint("hf://org/draft", engine=ENGINE).findings
    assert local == lint("hf://org/draft/sub dir/v1/", engine=ENGINE).findings
    assert local == lint("hf://org/draft/eagle3_head.safetensors", engine=ENGINE).findings
    assert lint("hf://org/draft/sub dir/v1/config.json", engine=ENGINE).findings == local
    assert lint("hf://org/draft/sub dir", engine=ENGINE).exit_code == 3


def test_pickles_are_read_in_parts(hub: Hub, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    Draft().write(tmp_path / "pt")
    from safetensors.torch import load_file

    torch.save(load_file(tmp_path / "pt" / "model.safetensors"), tmp_path / "pt" / "pytorch_model.bin")
    (tmp_path / "pt" / "model.safetensors").unlink()
    hub.repos["org/pt"] = Repo(tmp_path / "pt")
    assert lint("hf://org/pt", engine=ENGINE).findings == lint(tmp_path / "pt", engine=ENGINE).findings


def test_target_and_reference_may_be_addresses(hub: Hub, draft: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (draft / "target_config.json").rename(tmp_path / "target" / "config.json")
    hub.repos["org/target"] = Repo(tmp_path / "target")
    report = lint("hf://org/draft", engine=ENGINE, target="hf://org/target", reference="hf://org/draft")
    assert report.checkpoints[0].target == "hf://org/target"
    assert {skipped.why for skipped in report.checkpoints[0].skipped} == {
        f"needs --{option}" for option in ("launch", "tp", "values", "target-weights")
    } and report.ok
    assert lint(draft, engine=ENGINE, target="hf://org/target/config.json").ok
    assert "org/none" in said(str(draft), target="hf://org/none")
    assert "--reference" in said(str(draft), target="hf://org/target", reference="hf://org/none")


def test_show_and_the_text_report(hub: Hub, draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["show", "hf://org/draft", "--engine", ENGINE]) == 0
    assert "hf://org/draft on sglang 0.5.15" in capsys.readouterr().out
    (draft / "config.json").write_text("{}")
    assert cli.run(["hf://org/draft@main", "--engine", ENGINE, "--format", "concise"]) == 1
    assert capsys.readouterr().out.startswith("hf://org/draft@main/config.json: ")


# Revisions.


def test_the_revision_is_pinned_to_a_commit(hub: Hub, draft: Path) -> None:
    other = "f" * 40
    hub.repos["org/draft"].revisions = {"main": COMMIT, "refs/pr/7": other, "a/b": other}
    for address in ("hf://org/draft@refs/pr/7", "hf://org/draft@a%2Fb"):
        hub.seen.clear()
        lint(address, engine=ENGINE)
        first, *rest = hub.paths("hub")
        assert first.startswith("/api/models/org/draft/revision/")
        assert rest and all(f"/resolve/{other}/" in path for path in rest)
    assert "there is no revision v9" in said("hf://org/draft@v9")


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("hf://gpt2", ("gpt2", None, "")),
        ("hf://org/name", ("org/name", None, "")),
        ("hf://org/name/", ("org/name", None, "")),
        ("hf://org/name@v1.0/sub/x.bin", ("org/name", "v1.0", "sub/x.bin")),
        ("hf://org/name@refs/pr/12/sub", ("org/name", "refs/pr/12", "sub")),
        ("hf://org/name@feature%2Fx", ("org/name", "feature/x", "")),
        ("hf://org/name/odd@file.bin", ("org/name", None, "odd@file.bin")),
    ],
)
def test_addresses(address: str, parts: tuple[str, str | None, str]) -> None:
    repo = parse(address)
    assert (repo.name, repo.revision, repo.path) == parts


@pytest.mark.parametrize(
    "address",
    ["hf://", "hf:///", "hf://org/", "hf://@main", "hf://org/name@", "hf://datasets/org/name", "hf://org/na me",
     "hf://org/name/../../x", "hf://-/..", "ftp://org/name", "hf://org/" + "n" * 300],
)  # fmt: skip
def test_addresses_that_are_none(hub: Hub, address: str) -> None:
    said(address)
    assert hub.seen == []


def test_pages_of_the_hub_mean_the_repository(hub: Hub, draft: Path) -> None:
    local = lint(draft, engine=ENGINE).findings
    for page in (
        "",
        "/",
        "/tree/main",
        "/blob/main/model.safetensors",
        "/resolve/main/model.safetensors?download=true",
    ):
        assert lint(f"{hub.endpoint}/org/draft{page}", engine=ENGINE).findings == local, page
    assert hub.paths("hub").count("/api/models/org/draft") == 2


# What cannot be had.


def test_private_and_missing(hub: Hub, draft: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    hub.repos["org/draft"].token = TOKEN
    assert "private, or there is none of this name; set HF_TOKEN" in said("hf://org/draft")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "the token may not read it" in said("hf://org/draft")
    assert cli.run(["hf://org/draft"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert lint("hf://org/draft", engine=ENGINE).ok
    hub.misbehave(lambda handler: handler.refuse(401, "", "Invalid credentials in Authorization header"))
    assert "does not take the token" in said("hf://org/draft")


def test_gated(hub: Hub, draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos["org/draft"].gated = True
    assert "gated: ask for access on its page; set HF_TOKEN" in said("hf://org/draft")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert "gated: ask for access on its page; the token may not read it" in said("hf://org/draft")


def test_missing_files(hub: Hub, draft: Path) -> None:
    assert "there is no nothing.bin in the repository" in said("hf://org/draft/nothing.bin")
    hub.misbehave(lambda handler: handler.refuse(404, "EntryNotFound"), "config.json")
    assert "hf://org/draft/config.json: there is no such file" in said("hf://org/draft")


@pytest.mark.parametrize(
    "listing",
    [b"", b"<html>", b"[" * 100_000, [], {}, {"sha": 3}, {"sha": "main", "siblings": []}, {"sha": "../../x"}],
)
def test_an_api_that_talks_nonsense(hub: Hub, draft: Path, listing: Any) -> None:
    hub.listing = listing
    assert said("hf://org/draft").startswith("hf://org/draft: ")


def test_names_that_lead_out_of_the_repository_are_no_files(hub: Hub, draft: Path, tmp_path: Path) -> None:
    names: list[Any] = ["../x.safetensors", "/etc/passwd", "a\\b.bin", "a//b", "", None, 3, "x\0.bin"]
    hub.listing = {"sha": COMMIT, "siblings": [{"rfilename": n, "size": -1} for n in names] + [None, "x", {}]}
    assert lint("hf://org/draft", engine=ENGINE).exit_code == 3
    hub.listing["siblings"].append({"rfilename": "config.json", "size": True})
    assert lint("hf://org/draft/config.json", engine=ENGINE).checkpoints[0].findings == ()


# Offline, and the cache.


def cached(tmp_path: Path, draft: Path, *names: str) -> Path:
    """The cache as huggingface_hub writes it, with these files of the draft."""
    store = tmp_path / "cache" / "models--org--draft"
    snapshot = store / "snapshots" / COMMIT
    snapshot.mkdir(parents=True, exist_ok=True)
    (store / "refs").mkdir(exist_ok=True)
    (store / "refs" / "main").write_text(COMMIT)
    for name in names:
        shutil.copy(draft / name, snapshot / name)
    return store


def test_cached_files_are_read_from_disk(hub: Hub, draft: Path, tmp_path: Path) -> None:
    local = lint(draft, engine=ENGINE).findings
    cached(tmp_path, draft, "model.safetensors", "config.json")
    assert lint("hf://org/draft", engine=ENGINE).findings == local
    assert hub.paths() == ["/api/models/org/draft", f"/org/draft/resolve/{COMMIT}/target_config.json"]
    hub.repos["org/draft"].revisions["main"] = "b" * 40  # the cache is of another commit now
    hub.seen.clear()
    assert lint("hf://org/draft", engine=ENGINE).findings == local
    assert "/org/draft/model.safetensors" in hub.paths("store")


def test_offline_reads_the_cache_alone(hub: Hub, draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set and it is not in the cache" in said("hf://org/draft")
    store = cached(tmp_path, draft, "config.json")
    assert "the cache does not hold the weights" in said("hf://org/draft")
    cached(tmp_path, draft, "model.safetensors", "target_config.json")
    for address in ("hf://org/draft", "hf://org/draft@main", f"hf://org/draft@{COMMIT}"):
        assert lint(address, engine=ENGINE).findings == lint(draft, engine=ENGINE).findings
    (store / "snapshots" / COMMIT / "config.json").unlink()
    assert "the cache does not hold config.json" in said("hf://org/draft")
    (store / ".no_exist" / COMMIT).mkdir(parents=True)
    (store / ".no_exist" / COMMIT / "config.json").touch()
    assert "DC002" in {f.rule for f in lint("hf://org/draft", engine=ENGINE).findings}
    assert "not in the cache" in said("hf://org/draft@..%2F..%2Fx")
    assert hub.seen == []


def test_offline_does_not_take_a_part_of_the_shards_for_all(
    hub: Hub, draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (draft / "model.safetensors.index.json").write_text(json.dumps(index))
    cached(tmp_path, draft, "config.json", "model.safetensors", "model.safetensors.index.json")
    assert "the cache does not hold model-2.safetensors" in said("hf://org/draft")


def test_a_network_that_is_not_there(
    hub: Hub, draft: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    from huggingface_hub import constants

    def no_names(*_: object, **__: object) -> None:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.invalid")
    monkeypatch.setattr(socket, "getaddrinfo", no_names)
    assert said("hf://org/draft") == (
        "hf://org/draft: hub.invalid is not known: its name cannot be resolved (is there a network?)"
    )
    assert waits == []


# The whole program, with the environment that a user sets.


def test_as_a_user_runs_it(hub: Hub, draft: Path, tmp_path: Path) -> None:
    hub.repos["org/draft"].token = TOKEN
    environment = {
        **{k: v for k, v in os.environ.items() if "proxy" not in k.lower() and not k.startswith("HF_")},
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": TOKEN,
    }
    command = [sys.executable, "-m", "drafcheck", "hf://org/draft", "--engine", ENGINE, "--target", "hf://org/target"]

    def run(**changed: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=environment | changed, capture_output=True, text=True, timeout=60, check=False
        )

    (tmp_path / "target").mkdir()
    (draft / "target_config.json").rename(tmp_path / "target" / "config.json")
    hub.repos["org/target"] = Repo(tmp_path / "target")
    done = run()
    assert (done.returncode, done.stderr) == (0, ""), done
    assert len(hub.seen) < 12
    asked = len(hub.seen)
    done = run(HF_HUB_OFFLINE="1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "HF_HUB_OFFLINE is set" in done.stderr and len(hub.seen) == asked
    done = run(HF_TOKEN="hf_wrong")
    assert done.returncode == 2 and "may not read it" in done.stderr and "Traceback" not in done.stderr


def test_a_weight_file_that_is_nothing_but_its_header(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {})
    (folder / "pytorch_model.bin").touch()
    (folder / "config.json").write_text("{}")
    hub.repos["org/tiny"] = Repo(folder)
    assert lint("hf://org/tiny", engine=ENGINE).findings == lint(folder, engine=ENGINE).findings
