"""Whichever tensors of a healthy draft are called otherwise or missing, lint answers with findings."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weights import Weight, Weights, read_safetensors, write_safetensors

from drafcheck import lint
from drafcheck.finding import Finding

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


def drafts(pattern: str) -> list[str]:
    folders = sorted(path.parent for path in FIXTURES.glob(f"{pattern}/config.json"))
    return [folder.relative_to(FIXTURES).as_posix() for folder in folders if any(folder.glob("*.safetensors"))]


HEALTHY = drafts("good/*")
QUANTISED = [name for name in HEALTHY if '"quant_method"' in (FIXTURES / name / "config.json").read_text()]
QUANTISED += drafts("DC507/*")

ENGINES = (
    *("sglang==0.4.9.post2", "sglang==0.5.9", "sglang==0.5.15", "sglang==0.5.23"),
    *("vllm==0.9.2", "vllm==0.16.0", "vllm==0.22.1", "vllm==0.33.0"),
    *("tensorrt-llm", "lmdeploy", "llama.cpp"),
)

Edit = Callable[[str], "str | None"]
EDITS: dict[str, Edit] = {
    "missing": lambda _: None,
    "elsewhere": lambda name: "mid_layer." + ".".join(name.rsplit(".", 3)[-3:]),
    "wrapped": lambda name: "module." + name,
    "one more layer": lambda name: name.replace("layers.0", "layers.1").replace("midlayer", "layers.1"),
    "neighbour": lambda name: name.replace("q_proj", "k_proj").replace("gate_proj", "up_proj"),
    "fused": lambda name: name.replace("q_proj", "qkv_proj").replace("gate_proj", "gate_up_proj"),
    "shorter": lambda name: name.rpartition(".")[0] or "weight",
    "longer": lambda name: name + "_scale",
    "another part": lambda name: name.replace("weight_scale", "scales").replace("qweight", "weight"),
}
"""What becomes of one name; None: the tensor is missing."""


@functools.cache
def tensors_of(draft: str) -> Weights:
    """All tensors of a fixture, the numbers of floats as zeros."""
    found: Weights = {}
    for path in sorted((FIXTURES / draft).glob("*.safetensors")):
        for name, tensor in read_safetensors(path).items():
            found[name] = Weight(tensor.dtype, tensor.shape, tensor.data if tensor.dtype in ("I64", "BOOL") else None)
    return found


def renamed(draft: str, edits: dict[str, str]) -> Weights:
    """The tensors of a fixture, some of them under other names; ``edits``: name -> key of EDITS."""
    named = [(EDITS[edits[name]](name) if name in edits else name, t) for name, t in tensors_of(draft).items()]
    return {name: tensor for name, tensor in named if name is not None}


def copied(draft: str, folder: Path) -> None:
    """Put the configs of a fixture into a folder."""
    for name in ("config.json", "target_config.json"):
        (folder / name).unlink(missing_ok=True)
        if (FIXTURES / draft / name).is_file():
            shutil.copy(FIXTURES / draft / name, folder / name)


def findings(folder: Path, draft: str, edits: dict[str, str], engine: str) -> list[Finding]:
    """What lint says for two ranks; it may say anything but that a step or a rule of its own stopped."""
    copied(draft, folder)
    write_safetensors(folder / "model.safetensors", renamed(draft, edits))
    found = lint(folder, engine=engine, tp=2).findings
    assert not [f.message for f in found if f.rule == "DC999"], (draft, edits, engine)
    return found


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("names")


def edited(draft: str) -> st.SearchStrategy[tuple[str, dict[str, str]]]:
    names = st.sampled_from(sorted(tensors_of(draft)))
    edits = st.dictionaries(names, st.sampled_from(sorted(EDITS)), min_size=1, max_size=3)
    return edits.map(lambda chosen: (draft, chosen))


def examples(count: int) -> settings:
    suppressed = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(
        max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=suppressed
    )


@examples(300)
@given(case=st.sampled_from(HEALTHY).flatmap(edited), engine=st.sampled_from(ENGINES))
def test_any_names_in_a_healthy_draft(room: Path, case: tuple[str, dict[str, str]], engine: str) -> None:
    findings(room, *case, engine)


@examples(300)
@given(case=st.sampled_from(QUANTISED).flatmap(edited), engine=st.sampled_from(ENGINES))
def test_any_names_in_a_quantised_draft(room: Path, case: tuple[str, dict[str, str]], engine: str) -> None:
    findings(room, *case, engine)


@pytest.mark.parametrize("draft", QUANTISED)
def test_each_tensor_of_a_quantised_draft(room: Path, draft: str) -> None:
    """One by one, as chance would seldom choose the pair of a tensor and a release that builds it quantised."""
    engine = "vllm==0.33.0" if "/vllm-" in draft else "sglang==0.5.15"
    for name in tensors_of(draft):
        findings(room, draft, {name: "missing"}, engine)
        findings(room, draft, {name: "elsewhere"}, engine)


PARTS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    ("draft", "engine", "rule"),
    [
        ("good/fp8", "sglang==0.5.15", "DC101"),
        ("good/fp8", "sglang==0.5.23", "DC101"),
        ("good/modelopt-fp8", "sglang==0.5.15", "DC101"),
        ("good/vllm-fp8", "vllm==0.16.0", "DC104"),
        ("good/vllm-fp8", "vllm==0.33.0", "DC104"),
    ],
)
def test_one_projection_elsewhere(room: Path, draft: str, engine: str, rule: str, part: str) -> None:
    name = next(name for name in tensors_of(draft) if name.endswith(f"{part}.weight"))
    found = findings(room, draft, {name: "elsewhere"}, engine)
    assert rule in {f.rule for f in found}
    assert all(f.rule not in ("DC101", "DC104") for f in findings(room, draft, {}, engine))


@pytest.mark.parametrize(
    ("draft", "engine"),
    [
        ("good/fp8", "sglang==0.5.15"),
        ("good/fp8", "sglang==0.5.23"),
        ("good/vllm-fp8", "vllm==0.16.0"),
        ("good/vllm-fp8", "vllm==0.33.0"),
    ],
)
@pytest.mark.parametrize("part", ["gate_proj", "up_proj"])
def test_a_scale_is_missing_in_two_ranks(room: Path, draft: str, engine: str, part: str) -> None:
    """What is not known of a quantised layer keeps no rule from running: the ranks can share the rest."""
    name = next(name for name in tensors_of(draft) if name.endswith(f"{part}.weight_scale"))
    found = {f.rule for f in findings(room, draft, {name: "missing"}, engine)}
    assert "DC507" in found
    assert "DC205" not in found
