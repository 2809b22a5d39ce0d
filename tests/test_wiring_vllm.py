"""vLLM's wiring against what its real releases answered: layers of both runners, methods, classes, targets, lengths."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from recorded import rows as recorded_rows

from drafcheck.config import DraftConfig, TargetConfig
from drafcheck.contract import Engine, contract_for, releases, resolve_engine
from drafcheck.conversion import as_read
from drafcheck.draftmode import class_name
from drafcheck.jsonpos import Document
from drafcheck.modelconfig import context_length
from drafcheck.plan.admission import refused_early
from drafcheck.plan.model import Refusal, WiringPlan
from drafcheck.plan.wiring import plan_wiring, read_ids, reading_of, runner_of
from drafcheck.targets import registered, target_class

FIXTURES = Path(__file__).parent.parent / "fixtures"
VERDICTS = FIXTURES / "verdicts" / "vllm"
VERSIONS = [str(v) for v in releases("vllm")]
Row = dict[str, Any]


@cache
def rows() -> list[Row]:
    files = (VERDICTS / f"{corpus}.jsonl" for corpus in ("synthetic", "producers"))
    return [row for file in files for row in recorded_rows(file)]


@cache
def configs() -> dict[tuple[str, str, str], Any]:
    """(corpus, checkpoint, file) -> what config.json and the target's config hold."""
    found: dict[tuple[str, str, str], Any] = {}
    archives = {"synthetic": VERDICTS / "checkpoints.tar.xz", "producers": FIXTURES / "producers" / "producers.tar.xz"}
    for corpus, archive in archives.items():
        with tarfile.open(archive) as packed:
            for member in packed:
                path = Path(member.name)
                stream = packed.extractfile(member) if path.suffix == ".json" else None
                if stream is not None:
                    found[corpus, path.parent.name, path.name] = json.loads(stream.read())
    return found


def engine_of(row: Row) -> Engine:
    return resolve_engine(f"vllm=={row['version']}")


def draft_of(row: Row) -> DraftConfig:
    """The config as it was when the row was recorded: 0.9.2 was asked under a name that it knows."""
    data = configs()[row["corpus"], row["checkpoint"], "config.json"]
    if (row["corpus"], row["version"]) == ("synthetic", "0.9.2"):
        data = json.loads(json.dumps(data).replace('"LlamaForCausalLMEagle3"', '"LlamaForCausalLM"'))
    return DraftConfig(Document("config.json", data))


def target_of(row: Row) -> TargetConfig:
    if row["corpus"] == "synthetic":
        name = next(key for key in configs() if key[0] == "synthetic" and key[2] == "target.json")
    else:
        name = ("producers", row["checkpoint"], "target_config.json")
    return TargetConfig(Document("config.json", configs()[name]))


def refusal_of(row: Row) -> Refusal | None:
    read = as_read(engine_of(row), draft_of(row))
    return read.refused or refused_early(engine_of(row), read.config, "eagle3", target_of(row))


@pytest.mark.parametrize("version", VERSIONS)
def test_layers_of_both_runners(version: str) -> None:
    """Every row that has them: the ids that the real getters return, or that they return none."""
    compared: Counter[str] = Counter()
    for row in rows():
        if row["version"] != version or not row["aux_layers"]:
            continue
        engine = engine_of(row)
        config = as_read(engine, draft_of(row)).config
        for runner in ("v1", "v2"):
            recorded = row["aux_layers"][f"{runner}_runner"]
            if isinstance(recorded, str) and not recorded.startswith("no such method"):
                assert reading_of(engine, runner) is None or version in ("0.9.2", "0.11.0")
                continue  # the release has no such runner for EAGLE-3
            assert asked(engine, config, runner) == (recorded if isinstance(recorded, list) else None), (row, runner)
            compared[runner] += 1
    late = version in ("0.22.1", "0.33.0")
    assert compared["v1"] == {"0.9.2": 92, "0.11.0": 104, "0.16.0": 102}.get(version, 103)
    assert compared["v2"] == (103 if late else 0)


def asked(engine: Engine, config: DraftConfig, runner: str) -> list[int] | None:
    reading = reading_of(engine, runner)
    assert reading is not None
    plan = WiringPlan()
    read_ids(plan, config, reading)
    return [i + plan.plus for i in plan.ids] if plan.ids is not None else None


def test_whether_aux_states_are_asked_for() -> None:
    compared = 0
    for row in rows():
        wanted = (row["aux_layers"] or {}).get("v2_requires_aux")
        if isinstance(wanted, bool):
            reading = reading_of(engine_of(row), "v2")
            assert reading is not None
            got = draft_of(row).get(*reading["use_aux"].split("."), default=True)
            assert bool(got) is wanted, row
            compared += 1
    assert compared == 103


def test_every_method_and_class() -> None:
    """The class after draft mode's renaming, wherever the row got so far."""
    compared = 0
    for row in rows():
        if row["arch"] is None or (row["version"] == "0.9.2" and guessed_from_the_path(row)):
            continue
        assert row["method"] == "eagle3"
        engine = engine_of(row)
        read = as_read(engine, draft_of(row))
        assert read.algorithm in (None, "eagle3")
        names = [class_name(engine, read.config, name, "eagle3") for name in read.config.architectures]
        assert names == row["arch"], row
        compared += 1
    assert compared == 503


def guessed_from_the_path(row: Row) -> bool:
    """Transformers 4 takes the name of a model type out of the path: qwen3 of 87_speculators_qwen3."""
    return row["checkpoint"] in ("87_speculators_qwen3", "88_speculators_gemma3")


EARLY = ("speculative_config", "model_init")
LATER = ("PagedAttention", "draft_vocab_size", "kernel", "PlatformEnum")  # the constructor's, and the recording's own


def test_every_early_refusal() -> None:
    """Refused where the real config was, and nowhere else, with its message as far as it is known."""
    compared = 0
    for row in rows():
        error = row["error"] if row["error"] and row["error"]["stage"] in EARLY else None
        if error is not None and any(word in error["message"] for word in LATER):
            error = None
        if row["version"] == "0.9.2" and guessed_from_the_path(row):
            continue
        found = refusal_of(row)
        assert (found is None) == (error is None), (row["checkpoint"], row["version"], found, error)
        if found is not None and error is not None:
            compared += 1
            message = error["message"].replace("1 validation error for SpeculativeConfig\n  Value error, ", "")
            assert same_start(found.error.partition(": ")[2], message), (found.error, message)
    assert compared == 67


def same_start(told: str, recorded: str) -> bool:
    """Whether the texts agree up to the first place that is left open (``...`` and the path)."""
    head = told.partition("...")[0]
    return recorded.startswith(head.partition("{")[0]) and len(head) > 10


def test_every_target() -> None:
    compared = 0
    for row in rows():
        said = row["target_supports_eagle3"]
        if isinstance(said, dict):
            known = target_class(engine_of(row), target_of(row))
            assert known is not None
            assert (known.architecture, known.captures) == (said["arch"], said["supports_eagle3"])
            compared += 1
    assert compared == 412


@pytest.mark.parametrize("version", VERSIONS)
def test_every_class_that_could_be_imported(version: str) -> None:
    """The interface test of the engine on the real class of each architecture that it registers."""
    engine = resolve_engine(f"vllm=={version}")
    recorded = json.loads((VERDICTS / "targets.json").read_text())
    asked_of = {name: by[version] for name, by in recorded.items() if version in by}
    assert len(asked_of) == {"0.9.2": 157, "0.11.0": 195, "0.16.0": 254, "0.22.1": 305, "0.33.0": 344}[version]
    for name, captures in asked_of.items():
        config = TargetConfig(Document("config.json", {"architectures": [name]}))
        known = target_class(engine, config)
        assert known is not None and known.captures is captures, name
        assert registered(engine, name), name


def test_every_length() -> None:
    compared = 0
    for row in rows():
        if row["draft_max_model_len"] is not None:
            engine, target = engine_of(row), target_of(row)
            config = as_read(engine, draft_of(row)).config
            lengths = [context_length(engine, data) for data in (config.data, target.language)]
            assert min(int(read.value) for read in lengths if read) == row["draft_max_model_len"], row
            compared += 1
    assert compared == 504


@cache
def llama(layers: int = 8) -> TargetConfig:
    return TargetConfig(
        Document("config.json", {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": layers})
    )


def plan(version: str, draft: dict[str, Any], target: TargetConfig | None = None, runner: str = "") -> WiringPlan:
    engine = resolve_engine(f"vllm=={version}")
    contract = contract_for(engine, "Eagle3LlamaForCausalLM")
    assert contract is not None
    config = DraftConfig(Document("config.json", {"hidden_size": 64, **draft}))
    theirs = target or llama()
    return plan_wiring(config, theirs, target_class(engine, theirs), contract, engine, "eagle3", None, runner)


def top(*ids: int) -> dict[str, Any]:
    return {"eagle_aux_hidden_state_layer_ids": list(ids)}


def test_the_states_that_real_targets_hand_over() -> None:
    """The real Llama of each release with layers that write their number: what arrives for which ids."""
    for line in (VERDICTS / "aux_layers.jsonl").read_text().splitlines():
        row = json.loads(line)
        engine = resolve_engine(f"vllm=={row['version']}")
        known = target_class(engine, llama(row["layers"]))
        assert known is not None
        if row["version"] in ("0.9.2", "0.11.0"):
            assert plan(row["version"], {"eagle_aux_hidden_state_layer_ids": row["ids"]}).inputs == tuple(
                row["default"]
            )
            continue
        got = plan(row["version"], {"eagle_aux_hidden_state_layer_ids": row["ids"]})
        if isinstance(row["captured"], str):
            assert known.zero_stops and got.inputs is not None and 0 in got.inputs
        else:
            assert got.layer_outputs == tuple(k - 1 for k in row["captured"]), row


NESTED = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}}


def test_nested_ids_by_runner() -> None:
    assert plan("0.33.0", NESTED).layer_outputs == (1, 3, 4)
    assert plan("0.33.0", NESTED, runner="v1").layer_outputs == (0, 2, 5)
    assert plan("0.22.1", NESTED).layer_outputs == (0, 2, 5)
    assert plan("0.22.1", NESTED, runner="v2").layer_outputs == (1, 3, 4)


@pytest.mark.parametrize("value", ([], None, "1,2", 3, {"a": 1}, False))
def test_what_holds_no_ids_gives_the_default(value: object) -> None:
    got = plan("0.33.0", {"eagle_aux_hidden_state_layer_ids": value})
    assert (got.source, got.layer_outputs) == ("default", (1, 3, 4))


def test_the_runner_of_a_release() -> None:
    config = DraftConfig(Document("config.json", {}))
    parallel = DraftConfig(Document("config.json", {"pard_token": 5}))
    qwen = TargetConfig(Document("config.json", {"architectures": ["Qwen3ForCausalLM"]}))
    quantised = TargetConfig(Document("config.json", {**qwen.data, "quantization_config": {}}))
    assert runner_of(resolve_engine("vllm==0.33.0"), config, None, "") == "v2"
    assert runner_of(resolve_engine("vllm==0.33.0"), parallel, None, "") == "v1"
    assert runner_of(resolve_engine("vllm==0.22.1"), config, llama(), "") == "v1"
    assert runner_of(resolve_engine("vllm==0.22.1"), config, qwen, "") == "v2"
    assert runner_of(resolve_engine("vllm==0.22.1"), config, quantised, "") == "v1"
    assert runner_of(resolve_engine("vllm==0.22.1"), config, qwen, "v1") == "v1"
    assert runner_of(resolve_engine("sglang==0.5.15"), config, qwen, "") == ""
