"""What the less usual keys of a contract mean: flags that compare, the target's sizes, names that lead nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafcheck.config import DraftConfig, TargetConfig
from drafcheck.contract import Contract, contract_for, extended, resolve_engine
from drafcheck.jsonpos import Document
from drafcheck.lookup import settled
from drafcheck.plan.files import Selection
from drafcheck.plan.load import plan_load
from drafcheck.plan.model import LoadPlan
from drafcheck.tensor import Tensor

BOOK = """
architectures = ["Loud"]
kind = "eagle3"
[[revision]]
summary = "one"
[[read]]
hidden = ["hidden_size"]
rows = ["draft_vocab_size", "= vocab"]
vocab = ["vocab_size"]
target_vocab = ["target vocab_size", "vocab_size"]
target_width = ["target hidden_size", "= hidden"]
[[flag]]
name = "no_map"
same = ["rows", "target_vocab"]
[[flag]]
name = "other_table"
differ = [["vocab", "target_vocab"], ["hidden", "target_width"]]
[[flag]]
name = "one_state"
falsy = "use_states"
[[names]]
rename = [["mid.", "layers.0."]]
mapping = "d2t"
drop = ["t2d"]
prefixes = ["model."]
bare = ["lm_head"]
[[skip]]
parts = ["fc."]
when = "one_state"
[stacked]
".q_proj" = [".qk_proj", "q"]
".k_proj" = [".qk_proj", "k"]
[[unknown]]
under = "model."
error = "no {place} in Model ({name})"
nested = "{name} is inside {place}"
ignored = ".bias"
modules = ["attn.rope"]
[[unknown]]
error = "no {place} in Head"
[[messages]]
plain = "{tensor} for {parameter}"
bias = "bias {tensor} for {parameter}"
[[mapping]]
attribute = "map"
parameter = "to_target"
semantics = "offset"
[[sharing]]
parameter = "model.embed.weight"
absent = "embed"
unless = "other_table"
[[sharing]]
parameter = "lm_head.weight"
absent = "lm_head"
[[param]]
name = "model.embed.weight"
shape = ["vocab", "hidden"]
load = "vocab"
initial = "empty"
[[param]]
name = "lm_head.weight"
shape = ["rows", "hidden"]
load = "vocab"
initial = "empty"
[[param]]
name = "to_target"
unless = "no_map"
shape = ["rows"]
load = "plain"
initial = "zeros"
[[param]]
name = "model.fc.weight"
unless = "one_state"
shape = ["hidden", "hidden"]
load = "replicated"
initial = "empty"
[[param]]
name = "model.layers.0.attn.qk_proj.bias"
shards = { q = "hidden", k = "hidden" }
load = "qkv"
initial = "empty"
[[param]]
name = "model.layers.0.attn.o_proj.bias"
shape = ["hidden"]
load = "bias"
initial = "empty"
"""


@pytest.fixture
def contract(tmp_path: Path) -> Iterator[Contract]:
    (tmp_path / "loud").mkdir()
    (tmp_path / "loud" / "engine.toml").write_text('releases = ["1.0"]\ncontracts = ["draft"]\n')
    (tmp_path / "loud" / "draft.toml").write_text(BOOK)
    (tmp_path / "loud" / "loader.toml").write_text('patterns = [".safetensors"]\n')
    with extended((tmp_path,), anew=True):
        found = contract_for(resolve_engine("loud"), "Loud")
        assert found is not None
        yield found


def config(target: dict[str, Any] | None = None, **keys: Any) -> DraftConfig:
    made = DraftConfig(Document("config.json", {"hidden_size": 4, "vocab_size": 16, "draft_vocab_size": 8} | keys))
    made.target = TargetConfig(Document("target.json", target)) if target is not None else None
    return made


def load(contract: Contract, told: DraftConfig, *tensors: tuple[str, tuple[int, ...]]) -> LoadPlan:
    listed = [Tensor(name, "BF16", shape, "model.safetensors") for name, shape in tensors]
    selection = Selection()
    selection.__dict__["tensors"] = listed
    return plan_load(told, selection, settled(contract, told))


def test_the_targets_sizes_decide_what_is_built(contract: Contract) -> None:
    assert "to_target" in load(contract, config()).parameters
    assert "to_target" in load(contract, config({"vocab_size": 32})).parameters
    assert "to_target" not in load(contract, config({"vocab_size": 8})).parameters
    assert "to_target" not in load(contract, config(draft_vocab_size=None)).parameters


def test_the_mapping_is_a_parameter_with_a_shape(contract: Contract) -> None:
    told = config()
    plan = load(contract, told, ("d2t", (8,)))
    assert plan.mapping is not None
    assert (plan.writes, "to_target" in plan.unwritten) == ([], False)
    short = load(contract, told, ("d2t", (7,)))
    assert short.refused is not None
    assert short.refused.error == "[7] for [8]"
    for name, target, error in (
        ("model.d2t", None, "no to_target in Model (to_target)"),
        ("d2t", {"vocab_size": 8}, "no to_target in Head"),
    ):
        refused = load(contract, config(target), (name, (8,))).refused
        assert refused is not None
        assert refused.error == error


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("extra.weight", "no extra in Model (extra.weight)"),
        ("mid.attn.w_proj.weight", "no layers.0.attn.w_proj in Model (layers.0.attn.w_proj.weight)"),
        ("layers.0.attn.q_proj", "no layers.0.attn.qk_proj in Model (layers.0.attn.qk_proj)"),
        ("fc.weight.part", "fc.weight.part is inside fc.weight"),
        ("layers.0.attn.rope.freq", "no layers.0.attn.rope.freq in Model (layers.0.attn.rope.freq)"),
        ("module.lm_head.weight", "no module in Head"),
        ("bias", "no bias in Model (bias)"),
        ("extra.bias", "no extra in Model (extra.bias)"),
        ("fc.bias", None),
        ("lm_head.bias", "no lm_head.bias in Head"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_where_the_modules_end(
    contract: Contract, name: str, error: str | None
) -> None:
    plan = load(contract, config(), (name, (4,)))
    assert (plan.refused.error if plan.refused else None) == error
    assert [d.why for d in plan.dropped] == ([] if error else ["no-slot"])


def test_what_the_target_gives_depends_on_the_file_and_on_both_shapes(contract: Contract) -> None:
    head, table = "lm_head.weight", "model.embed.weight"
    assert load(contract, config({"vocab_size": 16, "hidden_size": 4})).fills_from_target == [table, head]
    assert load(contract, config()).fills_from_target == [table, head]
    for other in ({"vocab_size": 16, "hidden_size": 8}, {"vocab_size": 32, "hidden_size": 4}):
        assert load(contract, config(other)).fills_from_target == [head]
    own = load(contract, config(), ("lm_head.weight", (8, 4)), ("embed.weight", (16, 4)))
    assert own.fills_from_target == []


def test_names_are_skipped_for_some_configs(contract: Contract) -> None:
    tensor = ("fc.weight", (4, 4))
    assert [w.parameter for w in load(contract, config(), tensor).writes] == ["model.fc.weight"]
    skipped = load(contract, config(use_states=False), tensor)
    assert ([d.why for d in skipped.dropped], "model.fc.weight" in skipped.parameters) == (["design"], False)
    assert load(contract, config(use_states=True), tensor).writes


def test_biases_have_shards_and_no_columns(contract: Contract) -> None:
    plan = load(contract, config(), ("mid.attn.q_proj.bias", (4,)), ("mid.attn.o_proj.bias", (5,)))
    assert plan.parameters["model.layers.0.attn.qk_proj.bias"].shape == (8,)
    assert [(w.parameter, w.shard) for w in plan.writes] == [("model.layers.0.attn.qk_proj.bias", "q")]
    assert plan.refused is not None
    assert plan.refused.error == "bias [5] for [4]"
