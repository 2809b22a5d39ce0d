"""The layers that real releases capture for the producers' own configs, and what is found about them.

fixtures/verdicts/sglang/producer_layers.jsonl.xz was recorded by tools/record_layers.py from the code of 18 releases.
"""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import recorded
from drafts import Draft
from packaging.version import Version
from test_wiring import engine_and_contract, target

from drafcheck import lint
from drafcheck.finding import Severity
from drafcheck.plan.model import WiringPlan
from drafcheck.plan.wiring import plan_wiring
from drafcheck.runner import inspect_one
from drafcheck.session import Options
from drafcheck.targets import target_class
from drafcheck.trained import trained_on

FIXTURES = Path(__file__).parent.parent / "fixtures"
RECORDED = FIXTURES / "verdicts" / "sglang"
TARGETS = ("dsv3_61", "gptoss_36", "kimi25", "llama8", "qwen3_36")
VERSIONS = (
    *("0.4.5", "0.4.8", "0.4.9.post2", "0.4.10.post2", "0.5.1", "0.5.2", "0.5.3", "0.5.4", "0.5.5", "0.5.9"),
    *("0.5.10", "0.5.11", "0.5.12", "0.5.13", "0.5.15", "0.5.16", "0.5.17", "0.5.23"),
)
LIST = "list: "


class Cell(NamedTuple):
    """What one release captured for one draft's config and one target."""

    draft: str
    target: str
    version: str
    ids: tuple[int, ...] | None
    captured: list[int] | str


@cache
def cells() -> tuple[Cell, ...]:
    rows = recorded.rows(RECORDED / "producer_layers.jsonl")
    return tuple(
        Cell(row["draft"], row["target"], version, row["eagle_config_ids"], row["captured_layer_inputs"])
        for row in rows
        for version in row["versions"]
    )


@pytest.fixture(scope="module")
def producers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("producers")
    with tarfile.open(FIXTURES / "producers" / "producers.tar.xz") as archive:
        archive.extractall(room, filter="data")
    return room


def config_of(producers: Path, cell: Cell) -> dict[str, Any]:
    if cell.draft.startswith(LIST):
        return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": cell.ids, "use_aux_hidden_state": True}}
    config: dict[str, Any] = json.loads((producers / cell.draft / "config.json").read_text(encoding="utf-8"))
    return config


def plan(cell: Cell, config: dict[str, Any]) -> WiringPlan:
    engine, contract = engine_and_contract(cell.version)
    draft: Any = SimpleNamespace(data={"hidden_size": 64, **config}, settled=False, classless=False)
    known = target_class(engine, target(cell.target))
    return plan_wiring(draft, target(cell.target), known, contract, engine, "EAGLE3", None)


def agrees(got: WiringPlan, captured: list[int] | str) -> bool:
    if isinstance(captured, list):
        return got.inputs is not None and list(got.inputs) == captured
    why = got.why_not or ""
    if captured == "not captured":
        return got.captured is False and "use_aux_hidden_state is false" in why
    return (
        got.captured is False and ("has no class" if captured.endswith("not registered") else "hand them over") in why
    )


def test_nothing_is_missing() -> None:
    """34 checkpoints and 7 lists, 5 targets, 18 releases, and no answer that is a failure of the recording itself."""
    asked = {(c.draft, c.target, c.version) for c in cells()}
    assert len(asked) == len(cells()) == (34 + 7) * len(TARGETS) * len(VERSIONS)
    assert {c.version for c in cells()} == set(VERSIONS)
    assert {c.target for c in cells()} == set(TARGETS)
    assert not [c for c in cells() if isinstance(c.captured, str) and c.captured.startswith("error")]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_cell(producers: Path, version: str) -> None:
    for cell in cells():
        if cell.version == version:
            got = plan(cell, config_of(producers, cell))
            assert agrees(got, cell.captured), (cell, got)


def trained(cell: Cell) -> list[int]:
    """The layer inputs that a list of outputs stands for; one that goes up to the depth can only be of inputs."""
    assert cell.ids is not None
    inputs = max(cell.ids) == target(cell.target).num_hidden_layers
    return [i + (not inputs) for i in cell.ids]


REWRITTEN = {
    f"{LIST}usual three as inputs": [],
    f"{LIST}one layer later before 0.5 of speculators": [Severity.NOTE],
    f"{LIST}does not begin with one": [Severity.NOTE],
}
"""Lists that another reading than the producer's explains as well."""


@pytest.mark.parametrize("version", [v for v in VERSIONS if Version(v) >= Version("0.4.9")])
def test_a_finding_exactly_where_other_layers_are_captured(version: str, tmp_path: Path) -> None:
    """A producer that is certain to number outputs: DC404 where the real release captured anything else.

    Not an error where the same list may have been rewritten for the release, nothing where it surely looks so.
    """
    found = 0
    for number, cell in enumerate(c for c in cells() if c.version == version and c.draft.startswith(LIST)):
        if not isinstance(cell.captured, list):
            continue
        draft, folder = Draft(), tmp_path / str(number)
        draft.set(_torchspec_version="0.0.1", **config_of(tmp_path, cell))
        draft.write(folder)
        path = RECORDED / "aux_targets" / f"{cell.target}.json"
        report = lint(folder, engine=f"sglang=={version}", target=path, select=["DC404"])
        wanted = REWRITTEN.get(cell.draft, [Severity.ERROR]) if cell.captured != trained(cell) else []
        assert [f.severity for f in report.findings] == wanted, cell
        found += len(report.findings)
    assert found, "no list of this release is read as other layers: the test would hold with no rule at all"


TRAINED: dict[str, tuple[tuple[int, ...] | None, str]] = {
    "modelopt-eagle1": (None, "no fc: made for the last state alone"),
    "modelopt-eagle3": ((1, 3, 4), "eagle_config, outputs"),
    "modelopt-eagle3-fullvocab": ((1, 3, 4), "eagle_config, outputs"),
    "modelopt-eagle3-qwen3": ((1, 3, 4), "eagle_config, outputs"),
    "specforge-eagle3-auxids-sglang": ((1, 3, 4), "eagle_config, outputs"),
    "specforge-eagle3-fullvocab-sglang": ((1, 3, 4), "its default"),
    "specforge-eagle3-hf": ((1, 3, 4), "its default"),
    "specforge-eagle3-sglang": ((1, 3, 4), "its default"),
    "torchspec-eagle3-fullvocab": ((1, 3, 4), "its default"),
    "torchspec-eagle3-pruned-vllm": ((1, 3, 4), "its default; --vllm adds one for kimi_k2 alone"),
}
"""The outputs trained on, with the reason, of those that this engine has a wiring plan for."""


@pytest.mark.parametrize("checkpoint", sorted(TRAINED))
def test_layers_trained_on(producers: Path, checkpoint: str) -> None:
    subject = inspect_one(str(producers / checkpoint), Options(engine="sglang==0.5.15")).subject
    assert subject is not None
    assert subject.wiring is not None
    found = trained_on(subject)
    assert (found.outputs if found is not None else None) == TRAINED[checkpoint][0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("checkpoint", [name for name in sorted(TRAINED) if "modelopt-eagle1" not in name])
def test_healthy_pairs_have_no_finding_about_layers(producers: Path, checkpoint: str, version: str) -> None:
    """A draft beside the target that it was made for: nothing above a note, in any release that takes it."""
    report = lint(producers / checkpoint, engine=f"sglang=={version}", select=["DC403", "DC404", "DC405", "DC406"])
    assert [f.message for f in report.findings if f.severity is not Severity.NOTE] == []
