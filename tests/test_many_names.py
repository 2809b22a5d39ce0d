"""Checkpoints of very many names: what is told of many at once is what is told one by one, and costs no more memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import limits
from test_checks_names import CONFIG, DV, H, head, write

from drafcheck import lint
from drafcheck import tensors as lists
from drafcheck.contract import contract_for, engines, load_toml, releases, resolve_engine
from drafcheck.plan import many, names
from drafcheck.plan.model import Parameter, Parameters
from drafcheck.tensor import Tensor

ENGINES = ("sglang==0.4.9", "sglang==0.5.15", "vllm==0.11.0", "vllm==0.33.0")
FILLERS = {
    "of layers": [f"model.layers.{n}.w" for n in range(60)],
    "of nothing": [f"adapter_{n}.weight" for n in range(60)],
    "of biases": [f"model.layers.{n}.self_attn.x.bias" for n in range(60)],
    "of the class": [
        f"layers.{n}.{end}" for n in range(12) for end in ("mlp.up_proj.weight", "norm.weight", "d2t", "fc")
    ],
    "of the target": [f"model.{part}" for part in ("embed_tokens.weight", "lm_head.weight", "rotary.inv_freq", "t2d")],
}


def said(folder: Path, engine: str) -> list[tuple[Any, ...]]:
    findings = lint(folder, engine=engine).checkpoints[0].findings
    return [(f.rule, f.severity, f.confidence, f.message, f.locations, f.help, f.fixable, f.about) for f in findings]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("filler", FILLERS)
@pytest.mark.parametrize("prefix", ["", "model."])
def test_many_at_once_are_told_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, filler: str, prefix: str
) -> None:
    shapes = {**head(prefix=prefix), **{name: [1, 2] for name in FILLERS[filler]}}
    del shapes[prefix + "norm.weight"]
    folder = write(tmp_path / "draft", shapes)
    one_by_one = said(folder, engine)
    for size in (1, 7):
        monkeypatch.setattr(lists, "AT_ONCE", size)
        monkeypatch.setattr(lists, "_ALIKE", 4 - size / 2)
        assert said(folder, engine) == one_by_one


def contracts() -> list[Any]:
    """Every class of the book in the oldest and the newest release that has it."""
    found = {}
    for engine in engines():
        for release in (releases(engine)[0], releases(engine)[-1]):
            asked = resolve_engine(f"{engine}=={release}")
            drafts = load_toml(engine, "registry.toml").get("draft", {})
            for name in " ".join(drafts.values()).split():
                if (contract := contract_for(asked, name)) is not None:
                    found[engine, str(release), name] = contract
    return list(found.values())


def test_no_name_that_is_passed_over_would_reach_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "AT_ONCE", 1)
    every = [*head(), *head("model.layers.0.", "model."), *(n for listed in FILLERS.values() for n in listed)]
    tensors = lists.Tensors(Tensor(name, "BF16", (H,), "x") for name in every)
    parameters = Parameters(
        {n: Parameter(n, (H,), ("h",), "empty", "plain") for n in head("model.layers.0.", "model.")}
    )
    passed = Counter[str]()
    for contract in contracts():
        for piece, end in many.runs(contract, parameters, tensors):
            for tensor in piece.tensors if end else ():
                passed[end] += 1
                assert names.route(contract, tensor.name, parameters).end == end, (contract.name, tensor.name)
    assert min(passed["unknown"], passed["refused"]) > 100


PEAK = """
import re, sys
from drafcheck import lint
findings = lint(sys.argv[1], engine="sglang==0.5.15").checkpoints[0].findings
print(" ".join(f.rule for f in findings))
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
def test_a_checkpoint_of_a_million_names_keeps_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "draft_vocab_size": DV}))
    limits.many_names(tmp_path / "model.safetensors", 1_000_000)
    code = [sys.executable, "-c", PEAK, str(tmp_path)]
    rules, peak = subprocess.run(code, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "DC101" in rules and "DC203" in rules
    assert int(peak) / 1024 < limits.MEMORY


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
def test_so_does_one_in_several_files_with_an_index(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "draft_vocab_size": DV}))
    limits.sharded(tmp_path, 1_000_000)
    code = [sys.executable, "-c", PEAK, str(tmp_path)]
    rules, peak = subprocess.run(code, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "DC101" in rules and "DC203" in rules and "DC006" not in rules
    assert int(peak) / 1024 < limits.MEMORY


def test_the_names_are_gone_through_a_bounded_number_of_times(tmp_path: Path) -> None:
    """Calls of Python functions for each further name: a count, as times are those of the machine."""
    calls = []
    for number in (2_000, 4_000):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(CONFIG))
        limits.many_names(folder / "model.safetensors", number)
        lint(folder, engine="sglang==0.5.15")  # what is read once and kept is no cost of a name
        count = 0

        def called(_: object, event: str, __: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(called)
        try:
            lint(folder, engine="sglang==0.5.15")
        finally:
            sys.setprofile(None)
        calls.append(count)
    assert (calls[1] - calls[0]) / 2_000 < 45
