"""TensorRT-LLM, LMDeploy and llama.cpp: loaders of another kind, and a book that was only read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from cases import load_cases
from drafts import HIDDEN, Draft
from test_contract_keys import config, load
from weights import zeros

from drafcheck import lint
from drafcheck.cli import run
from drafcheck.contract import contract_files, contract_for, extended, load_toml, releases, resolve_engine
from drafcheck.contract_tables import contract_table
from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.plan.admission import chosen_class
from drafcheck.proof import proofs
from drafcheck.registry import load_rules
from drafcheck.report.model import CheckpointReport, Outcome
from drafcheck.targets import is_draft_class

FIXTURES = Path(__file__).parent.parent / "fixtures"
READ = ("lmdeploy", "llama.cpp", "tensorrt-llm")
RELEASES = [f"{name}=={release}" for name in READ for release in releases(name)]


def checked(folder: Path, engine: str, *edits: Callable[[Draft], object]) -> CheckpointReport:
    """The report on a healthy draft after some edits; under the one class name that LMDeploy takes."""
    draft = Draft()
    if engine.startswith("lmdeploy"):
        draft.set(architectures=["LlamaForCausalLM"])
    for edit in edits:
        edit(draft)
    shutil.rmtree(folder, ignore_errors=True)
    draft.write(folder)
    return lint(folder, engine=engine).checkpoints[0]


def rules(report: CheckpointReport) -> set[str]:
    return {f.rule for f in report.findings if f.severity is not Severity.NOTE}


# ---- What is healthy


@pytest.mark.parametrize("engine", RELEASES)
def test_a_healthy_draft_passes(engine: str, tmp_path: Path) -> None:
    report = checked(tmp_path / "draft", engine)
    assert (report.outcome, rules(report)) == (Outcome.CLEAN, set())
    assert report.contract is not None
    assert len(report.plan.loaded if report.plan else []) > 10


@pytest.mark.parametrize("engine", RELEASES)
def test_a_trained_draft_passes(engine: str, tmp_path: Path) -> None:
    """The one that drafted with an accept length of 2.30, under the class name that LMDeploy takes."""
    shutil.copytree(FIXTURES / "trained" / "draft", tmp_path / "draft")
    told = json.loads((tmp_path / "draft" / "config.json").read_text())
    if engine.startswith("lmdeploy"):
        told["architectures"] = ["LlamaForCausalLM"]
    (tmp_path / "draft" / "config.json").write_text(json.dumps(told))
    report = lint(tmp_path / "draft", engine=engine, target=FIXTURES / "trained" / "target").checkpoints[0]
    assert (report.outcome, rules(report)) == (Outcome.CLEAN, set())


def test_lmdeploy_takes_one_class_name_only(tmp_path: Path) -> None:
    report = checked(tmp_path / "draft", "lmdeploy", lambda d: d.set(architectures=["LlamaForCausalLMEagle3"]))
    (finding,) = [f for f in report.findings if f.rule == "DC501"]
    assert "Can not found rewrite for architectures: ['LlamaForCausalLMEagle3']" in finding.message
    assert finding.help == 'set architectures to ["LlamaForCausalLM"], which lmdeploy has since 0.11.0'
    assert report.outcome is Outcome.REFUSED


@pytest.mark.parametrize("named", [["Whatever"], None])
def test_an_algorithm_may_choose_the_class(named: list[str] | None, tmp_path: Path) -> None:
    report = checked(tmp_path / "draft", "tensorrt-llm", lambda d: d.set(architectures=named))
    assert (report.contract, report.outcome) == ("tensorrt-llm/eagle3", Outcome.CLEAN)


def test_a_class_that_is_built_belongs_to_its_algorithm() -> None:
    told, engine = config(architectures=["Whatever"]), resolve_engine("tensorrt-llm")
    assert chosen_class(engine, told, "EAGLE3") == chosen_class(engine, told, "Eagle3") == "Eagle3ForCausalLM"
    assert chosen_class(engine, told, "MTP") is None


# ---- Nothing that was only read is certain


@cache
def on_broken_checkpoints() -> list[tuple[str, str, Finding]]:
    """Engine, fixture and finding: all the faults that the fixtures have, for engines that most were not made for."""
    elsewhere = ("DC00", "DC01", "DC7", "DC9", "good/")
    paths = [path for path in load_cases() if not path.startswith(elsewhere)]
    reports = ((engine, path, lint(FIXTURES / path, engine=engine)) for path in paths for engine in READ)
    return [(engine, path, finding) for engine, path, report in reports for finding in report.findings]


def test_findings_are_not_certain_and_no_rule_crashes() -> None:
    for engine, path, finding in on_broken_checkpoints():
        assert finding.rule != "DC999", (path, engine, finding.message)
        if load_rules()[finding.rule].needs:
            assert finding.confidence is not Confidence.CERTAIN, (path, engine, finding)
    assert len({finding.rule for _, _, finding in on_broken_checkpoints()}) > 35


def test_messages_speak_of_the_engine_at_hand() -> None:
    """No option, key or message of another engine in what is said for these; to_sglang is a producer's own word."""
    own = {"sglang": "sglang", "--speculative": "lmdeploy", "--disable-cuda-graph": "sglang"}
    for engine, path, finding in on_broken_checkpoints():
        text = f"{finding.message} {finding.help or ''}".lower().replace("to_sglang", "")
        assert not [word for word, whose in own.items() if word in text and whose != engine], (path, text)
        assert "write the ids into , " not in text
        assert "layers in :" not in text
    assert len(on_broken_checkpoints()) > 300


@pytest.mark.parametrize("engine", READ)
def test_the_proof_says_read(engine: str) -> None:
    assert load_toml(engine, "engine.toml")["proof"] == "read"
    for stem in contract_files(engine):
        assert {p.how for p in proofs(engine, stem)} == {"read"}
        assert all(entry.get("source") for entry in contract_table(engine, stem)["revision"])


def test_what_needs_nothing_of_the_engine_stays_certain(tmp_path: Path) -> None:
    report = checked(tmp_path / "draft", "llama.cpp", lambda d: d.files.update({"model.safetensors": b"short"}))
    assert {f.confidence for f in report.findings if f.rule == "DC004"} == {Confidence.CERTAIN}


# ---- [[required]] every: what is missing stops the load


INSISTS = """
architectures = ["Insists"]
kind = "eagle3"
[[revision]]
summary = "one"
[[read]]
hidden = ["hidden_size"]
rows = ["draft_vocab_size"]
[[flag]]
name = "lenient"
any = ["lenient"]
[[names]]
mapping = "d2t"
prefixes = [""]
[stacked]
".q_proj" = [".qk_proj", "q"]
".k_proj" = [".qk_proj", "k"]
[[mapping]]
attribute = "map"
parameter = "d2t"
semantics = "offset"
[[sharing]]
parameter = "embed.weight"
[[required]]
every = true
unless = "lenient"
error = "KeyError: {first} of {missing}"
[[param]]
name = "embed.weight"
shape = ["hidden"]
load = "plain"
initial = "empty"
[[param]]
name = "d2t"
shape = ["rows"]
load = "plain"
initial = "empty"
[[param]]
name = "norm.weight"
shape = ["hidden"]
load = "plain"
initial = "ones"
[[param]]
name = "attn.qk_proj.weight"
shards = { q = "hidden", k = "hidden" }
in = "hidden"
load = "plain"
initial = "empty"
"""
WHOLE = {"d2t": (2,), "norm.weight": (4,), "attn.q_proj.weight": (4, 4), "attn.k_proj.weight": (4, 4)}


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ([], None),
        (["norm.weight"], "KeyError: norm.weight of ['norm.weight']"),
        (["attn.k_proj.weight"], "KeyError: attn.qk_proj.weight of ['attn.qk_proj.weight']"),
        (["d2t", "norm.weight"], "KeyError: d2t of ['d2t', 'norm.weight']"),
    ],
)
def test_a_loader_that_insists_on_every_parameter(gone: list[str], said: str | None, tmp_path: Path) -> None:
    (tmp_path / "loud").mkdir()
    (tmp_path / "loud" / "engine.toml").write_text('releases = ["1"]\ncontracts = ["insists"]\n')
    (tmp_path / "loud" / "insists.toml").write_text(INSISTS)
    held = [(name, shape) for name, shape in WHOLE.items() if name not in gone]
    with extended((tmp_path,), anew=True):
        contract = contract_for(resolve_engine("loud"), "Insists")
        assert contract is not None
        strict = load(contract, config(draft_vocab_size=2), *held)
        lenient = load(contract, config(draft_vocab_size=2, lenient=True), *held)
    assert (strict.refused.error if strict.refused else None) == said
    assert strict.wants is (said is not None)
    assert lenient.refused is None
    assert "embed.weight" not in strict.unwritten


@pytest.mark.parametrize("engine", ["tensorrt-llm", "llama.cpp"])
def test_a_missing_tensor_is_a_refusal_that_names_it(engine: str, tmp_path: Path) -> None:
    report = checked(tmp_path / "draft", engine, lambda d: d.drop("norm.weight", "fc.weight"))
    (finding,) = [f for f in report.findings if f.rule == "DC102"]
    assert (report.outcome, finding.severity) == (Outcome.REFUSED, Severity.ERROR)
    assert "fills 2 parameters" in finding.message
    assert "norm.weight" in finding.message
    assert "uninitialised" not in finding.message


def test_a_missing_norm_is_a_note_where_nobody_insists(tmp_path: Path) -> None:
    report = checked(tmp_path / "draft", "lmdeploy", lambda d: d.drop("norm.weight"))
    assert [f.severity for f in report.findings if f.rule == "DC102"] == [Severity.NOTE]
    assert report.outcome is Outcome.CLEAN


def test_a_wrapper_before_every_name_is_not_called_a_missing_map(tmp_path: Path) -> None:
    report = checked(tmp_path / "draft", "tensorrt-llm", lambda d: d.rename(lambda name: f"module.{name}"))
    assert rules(report) == {"DC102", "DC105"}
    assert report.outcome is Outcome.REFUSED


# ---- The layers


def stated(*ids: int) -> Callable[[Draft], None]:
    return lambda draft: draft.set(eagle_config={"eagle_aux_hidden_state_layer_ids": list(ids)})


@pytest.mark.parametrize("engine", READ)
def test_layer_ids_of_the_config_are_not_read(engine: str, tmp_path: Path) -> None:
    report = checked(tmp_path / "draft", engine, stated(0, 2, 6))
    assert report.wiring is not None
    assert report.wiring.layer_outputs == (1, 3, 4)
    (finding,) = [f for f in report.findings if f.rule == "DC405"]
    option = engine == "tensorrt-llm"
    assert finding.severity is (Severity.WARNING if option else Severity.ERROR)
    assert ("eagle3_layers_to_capture" in f"{finding.message} {finding.help}") is option
    assert rules(checked(tmp_path / "draft", engine, stated(1, 3, 4))) == set()


def test_a_target_that_hands_nothing_over_is_no_refusal_where_nothing_is_asked(tmp_path: Path) -> None:
    def other(draft: Draft) -> None:
        assert draft.target is not None
        draft.target["architectures"] = ["Qwen3ForCausalLM"]

    report = checked(tmp_path / "draft", "lmdeploy", other)
    assert rules(report) == {"DC402", "DC601"}
    assert report.outcome is Outcome.BROKEN
    assert rules(checked(tmp_path / "draft", "llama.cpp", other)) == set()


def test_an_unknown_target_class_is_nobody_s_fault(tmp_path: Path) -> None:
    def strange(draft: Draft) -> None:
        assert draft.target is not None
        draft.target["architectures"] = ["StrangeForCausalLM"]

    for engine in ("llama.cpp", "tensorrt-llm"):
        assert rules(checked(tmp_path / "draft", engine, strange)) == set()


# ---- The vocabulary


def test_a_map_that_is_not_read_is_named(tmp_path: Path) -> None:
    report = checked(tmp_path / "draft", "tensorrt-llm", lambda d: d.set(vocab_size=d.config["draft_vocab_size"]))
    (finding,) = [f for f in report.findings if f.rule == "DC301"]
    assert "reads no d2t where vocab_size is draft_vocab_size" in finding.message
    assert finding.help == "set vocab_size to 256, the target's"
    whole = checked(tmp_path / "draft", "tensorrt-llm", Draft.full_vocabulary, add_zeros)
    assert rules(whole) == set()


def add_zeros(draft: Draft) -> None:
    draft.weights["d2t"] = zeros("I64", draft.config["vocab_size"])


@pytest.mark.parametrize(("engine", "fires"), [("lmdeploy", {"DC301"}), ("llama.cpp", set()), ("tensorrt-llm", set())])
def test_no_map_at_full_vocabulary(engine: str, fires: set[str], tmp_path: Path) -> None:
    assert rules(checked(tmp_path / "draft", engine, Draft.full_vocabulary)) == fires
    assert rules(checked(tmp_path / "draft", engine, Draft.full_vocabulary, add_zeros)) == set()


@pytest.mark.parametrize("engine", ["llama.cpp", "tensorrt-llm"])
def test_an_embedding_of_other_rows_that_nobody_looks_at(engine: str, tmp_path: Path) -> None:
    def table(draft: Draft) -> None:
        draft.weights["embed_tokens.weight"] = zeros("BF16", 100, HIDDEN)

    assert rules(checked(tmp_path / "draft", engine, table)) == set()
    assert rules(checked(tmp_path / "draft", "lmdeploy", table)) == {"DC312"}


# ---- What is not described


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [("num_hidden_layers", 2, "num_hidden_layers 2"), ("kv_lora_rank", 512, "kv_lora_rank")],
)
def test_other_shapes_of_the_class_are_passed_over(key: str, value: int, why: str, tmp_path: Path) -> None:
    report = checked(tmp_path / "draft", "tensorrt-llm", lambda d: d.set(**{key: value}))
    assert report.outcome is Outcome.INCOMPLETE
    assert {f"needs a contract for drafts with {why}, which drafcheck does not have yet"} <= {
        s.why for s in report.skipped
    }


def test_a_nested_config_is_read_where_the_converter_flattens_it(capsys: pytest.CaptureFixture[str]) -> None:
    nested = str(FIXTURES / "good" / "llamacpp-nested")
    assert run([nested, "--engine", "llama.cpp"]) == 0
    assert run([nested, "--engine", "tensorrt-llm"]) == 1
    assert "DC503" in capsys.readouterr().out


def test_a_target_class_is_no_draft_class_for_a_converter_s_sake() -> None:
    assert not is_draft_class("LlamaForCausalLM")
    assert is_draft_class("Eagle3Speculator")
