"""Nested configs in vLLM: what the trainer wrote counts, though the engine's flat config has lost it."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from helpers import codes, of

from drafcheck import lint
from drafcheck.finding import Finding, Severity

PRODUCERS = Path(__file__).parent.parent / "fixtures" / "producers" / "producers.tar.xz"
SERVE = (
    'vllm serve ../Llama --speculative-config \'{"method": "eagle3", "model": ".", "num_speculative_tokens": %d}\'\n'
)


@pytest.fixture(scope="module")
def producers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("nested")
    with tarfile.open(PRODUCERS) as archive:
        archive.extractall(room, filter="data")
    return room


def edited(producers: Path, name: str, room: Path, **keys: Any) -> Path:
    """A copy of a trainer's checkpoint with other keys at the top level; None takes one out."""
    folder = room / name
    shutil.copytree(producers / name, folder)
    config = {**json.loads((folder / "config.json").read_text()), **keys}
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return folder


def said(folder: Path, engine: str, **options: Any) -> list[Finding]:
    return list(lint(folder, engine=engine, **options).checkpoints[0].findings)


@pytest.mark.parametrize("engine", ("vllm==0.11.0", "vllm==0.16.0", "vllm==0.22.1", "vllm==0.33.0", "sglang==0.5.15"))
@pytest.mark.parametrize(("target", "other"), (("Kimi-K2.5", True), ("Kimi-K2-Instruct", False)))
def test_the_verifier_is_compared_with_the_target(
    producers: Path, tmp_path: Path, engine: str, target: str, other: bool
) -> None:
    name = "speculators-eagle3"
    told = json.loads((producers / name / "config.json").read_text())["speculators_config"]
    told["verifier"]["name_or_path"] = "moonshotai/Kimi-K2-Instruct"
    folder = edited(producers, name, tmp_path, speculators_config=told)
    (tmp_path / target).mkdir()
    shutil.copy(folder / "target_config.json", tmp_path / target / "config.json")
    found = of(said(folder, engine, target=str(tmp_path / target)), "DC602")
    assert [f.severity for f in found] == [Severity.WARNING] * other
    if other:
        assert "`moonshotai/Kimi-K2-Instruct`" in found[0].message and found[0].locations[0].line


@pytest.mark.parametrize("version", ("0.16.0", "0.22.1", "0.33.0"))
@pytest.mark.parametrize(("asked", "deep"), ((16, True), (3, False)))
def test_depth_of_the_proposal(producers: Path, tmp_path: Path, version: str, asked: int, deep: bool) -> None:
    folder = edited(producers, "speculators-eagle3", tmp_path)
    line = folder / "serve.sh"
    line.write_text(SERVE % asked)
    found = of(said(folder, f"vllm=={version}", launch=str(line)), "DC704")
    assert [f.message for f in found] == ['"num_speculative_tokens" is 16, and the head was trained for 3 steps'] * deep


@pytest.mark.parametrize(("ids", "ignored"), (([1, 3, 5], True), ([2, 4, 5], False)))
def test_ids_that_the_conversion_loses(producers: Path, tmp_path: Path, ids: list[int], ignored: bool) -> None:
    """0.11.0 takes no layer ids over, and feeds the usual three layers."""
    folder = edited(producers, "speculators-eagle3", tmp_path, eagle_aux_hidden_state_layer_ids=ids)
    assert ("DC405" in codes(said(folder, "vllm==0.11.0"))) is ignored
    assert "DC405" not in codes(said(folder, "vllm==0.33.0"))


def test_norms_without_their_flag_where_the_loader_is_loud(producers: Path, tmp_path: Path) -> None:
    folder = edited(producers, "speculators-eagle3.1", tmp_path, fc_norm=None)
    found = said(folder, "vllm==0.33.0")
    assert codes(found) == {"DC407"}
    [finding] = of(found, "DC407")
    assert "refused (ValueError" in finding.message and finding.help == "set `fc_norm` to true in config.json"
    assert not codes(said(producers / "speculators-eagle3.1", "vllm==0.33.0"))


@pytest.mark.parametrize(
    ("flag", "help_"),
    (
        (True, "serve with vllm >= 0.33.0, which takes it as it is"),
        (None, "serve with a release from 0.33.0 on, and set `fc_norm` to true in config.json"),
    ),
)
def test_a_flag_that_the_conversion_loses_is_no_help(
    producers: Path, tmp_path: Path, flag: bool | None, help_: str
) -> None:
    """0.22.1's class has the norm, and its conversion does not hand the flag over."""
    folder = edited(producers, "speculators-eagle3.1", tmp_path, fc_norm=flag)
    found = said(folder, "vllm==0.22.1")
    assert codes(found) == {"DC104"} and of(found, "DC104")[0].help == help_


@pytest.mark.parametrize("name", ("modelopt-dflash", "specforge-dflash-hf"))
def test_unread_ids_are_one_finding(producers: Path, name: str) -> None:
    """The width that follows from them is no finding of its own."""
    assert codes(said(producers / name, "vllm==0.22.1")) == {"DC405"}
    assert not codes(said(producers / name, "vllm==0.33.0"))


def test_a_width_that_the_ids_do_not_explain(producers: Path, tmp_path: Path) -> None:
    """Without ids the width is all there is to say."""
    told = json.loads((producers / "modelopt-dflash" / "config.json").read_text())["dflash_config"]
    del told["target_layer_ids"]
    folder = edited(producers, "modelopt-dflash", tmp_path, dflash_config=told)
    assert "DC401" in codes(said(folder, "vllm==0.22.1"))


@pytest.mark.parametrize("version", ("0.11.0", "0.16.0", "0.22.1", "0.33.0"))
@pytest.mark.parametrize(("both", "stated"), ((True, "both forms"), (False, "rope_parameters alone")))
def test_theta_as_each_release_reads_it(producers: Path, tmp_path: Path, version: str, both: bool, stated: str) -> None:
    """Releases before 0.22.1 take rope_theta, or the class's own, before that of rope_parameters."""
    theta = {"rope_theta": 500000.0}
    keys = {"rope_parameters": {"rope_type": "default", **theta}, "rope_theta": theta["rope_theta"] if both else None}
    found = of(said(edited(producers, "specforge-eagle3-hf", tmp_path, **keys), f"vllm=={version}"), "DC506")
    lost = not both and version in {"0.11.0", "0.16.0"}
    assert [f.severity for f in found] == [Severity.WARNING] * lost, (stated, found)
    if lost:
        assert f"vllm {version} takes 10000, the default of llama" in found[0].message


@pytest.mark.parametrize(
    ("name", "engine"),
    (("speculators-eagle3", "vllm==0.33.0"), ("modelopt-dflash", "vllm==0.33.0"), ("angelslim-eagle3", "vllm==0.9.2")),
)
def test_where_the_rope_is_not_known_it_says_so(producers: Path, name: str, engine: str) -> None:
    skipped = {s.rule: s.why for s in lint(producers / name, engine=engine).checkpoints[0].skipped}
    assert skipped["DC506"] == "needs rope facts for this draft class and release"
    known = lint(producers / "specforge-eagle3-hf", engine="vllm==0.33.0").checkpoints[0]
    assert "DC506" not in {s.rule for s in known.skipped}
