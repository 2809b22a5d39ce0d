"""What random drafts (tools/differential.py) showed: configs and tensors of no kind recorded before.

Every refusal here is one that the real loader of that release gave.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bases import target_config
from mutants import Recipe, Step, write
from weights import Weight, read_safetensors, write_safetensors

from drafcheck.finding import Severity
from drafcheck.plan.model import Refusal
from drafcheck.runner import inspect_one, lint
from drafcheck.session import Options
from drafcheck.subject import Subject


def made(folder: Path, base: str, keys: dict[str, Any], *steps: Step) -> Path:
    """The healthy draft of a kind with other keys in its config; ``...`` takes one out."""
    write(Recipe(0, base, steps), folder / "draft")
    path = folder / "draft" / "config.json"
    config = {**json.loads(path.read_text()), **keys}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))
    (folder / "target").mkdir(exist_ok=True)
    (folder / "target" / "config.json").write_text(json.dumps(target_config()))
    return folder / "draft"


def subject(folder: Path, release: str, base: str = "eagle3", **keys: Any) -> Subject:
    draft = made(folder, base, keys)
    seen = inspect_one(str(draft), Options(engine=f"sglang=={release}", target=folder / "target"))
    assert seen.subject is not None and not seen.crashed
    return seen.subject


def refusal(folder: Path, release: str, base: str = "eagle3", **keys: Any) -> Refusal | None:
    s = subject(folder, release, base, **keys)
    return s.refused or (s.load.refused if s.load is not None else None)


CHECKED = (  # a key, a value of another type, one of the right type
    ("mlp_bias", None, True),
    ("attention_bias", 0, False),
    ("tie_word_embeddings", None, False),
    ("use_cache", "yes", True),
    ("hidden_act", None, "silu"),
    ("rms_norm_eps", 1, 1e-6),
    ("initializer_range", None, 0.02),
    ("num_hidden_layers", 1.0, 1),
    ("vocab_size", None, 512),
    ("max_position_embeddings", True, 2048),
    ("num_key_value_heads", "1", 1),
    ("head_dim", 32.0, None),
    ("eos_token_id", ["2"], [2, 3]),
    ("bos_token_id", [1], None),
    ("architectures", "LlamaForCausalLMEagle3", ["LlamaForCausalLMEagle3"]),
    ("rope_parameters", [], {"rope_type": "default", "rope_theta": 1e4}),
    ("attention_dropout", "0", 0),
)


@pytest.mark.parametrize(("key", "wrong", "right"), CHECKED, ids=str)
def test_a_key_of_another_type_stops_the_releases_that_check(
    tmp_path: Path, key: str, wrong: object, right: object
) -> None:
    refused = refusal(tmp_path, "0.5.17", **{key: wrong})
    assert refused is not None
    assert (refused.stage, refused.key, refused.cause) == ("config", key, "config-key")
    assert refused.error.startswith(f"StrictDataclassFieldValidationError: Field '{key}' expected ")
    assert refusal(tmp_path, "0.5.17", **{key: right}) is None


def test_releases_before_take_what_is_as_good_as_absent(tmp_path: Path) -> None:
    assert refusal(tmp_path, "0.5.10", mlp_bias=None) is None
    assert refusal(tmp_path, "0.5.10", initializer_range=None, use_cache="yes") is None


def test_another_class_checks_other_keys(tmp_path: Path) -> None:
    """A Mistral config has no mlp_bias, and Qwen3 no null head_dim."""
    assert refusal(tmp_path, "0.5.17", model_type="mistral", mlp_bias=None) is None
    refused = refusal(tmp_path, "0.5.17", "dflash", head_dim=None)
    assert refused is not None and refused.error.endswith("'head_dim' expected int, got NoneType")


def test_a_config_class_of_the_checkpoints_own_is_not_known(tmp_path: Path) -> None:
    own = {"AutoConfig": "configuration_own.OwnConfig"}
    assert refusal(tmp_path, "0.5.17", mlp_bias=None, auto_map=own) is None


def test_the_finding_names_the_key(tmp_path: Path) -> None:
    draft = made(tmp_path, "eagle3", {"mlp_bias": None})
    report = lint(draft, target=tmp_path / "target", engine="sglang==0.5.23")
    found = [f for f in report.checkpoints[0].findings if f.rule == "DC509"]
    assert [f.severity for f in found] == [Severity.ERROR.value]
    assert "`mlp_bias` is null" in found[0].message
    twin = lint(made(tmp_path, "eagle3", {"mlp_bias": False}), target=tmp_path / "target", engine="sglang==0.5.23")
    assert [f.rule for f in twin.checkpoints[0].findings if f.severity == Severity.ERROR.value] == []


def test_llama_wants_a_hidden_size_that_the_heads_divide(tmp_path: Path) -> None:
    refused = refusal(tmp_path, "0.5.11", num_attention_heads=3)
    assert refused is not None and (refused.stage, refused.key) == ("config", "num_attention_heads")
    assert "(64) is not a multiple of the number of attention heads (3)" in refused.error
    mistral = refusal(tmp_path, "0.5.11", num_attention_heads=3, model_type="mistral")
    assert mistral is not None and mistral.stage == "load"
    older = refusal(tmp_path, "0.5.9", num_attention_heads=3)
    assert older is not None and older.stage == "load"


@pytest.mark.parametrize(("release", "stage"), (("0.5.23", "config"), ("0.5.17", "load")))
def test_an_odd_head_is_not_rotated(tmp_path: Path, release: str, stage: str) -> None:
    refused = refusal(tmp_path, release, head_dim=33)
    assert refused is not None and refused.stage == stage
    derived = refusal(tmp_path, release, head_dim=..., hidden_size=66)
    assert derived is not None and derived.stage == stage
    even = refusal(tmp_path, release, head_dim=34)
    assert even is not None and even.stage == "load"  # of another size than the tensors, but for that


def test_sizes_of_zero_are_built(tmp_path: Path) -> None:
    """Nothing is refused for a vocabulary of none, whose table is the target's; other tensors do not fit."""
    assert refusal(tmp_path, "0.5.4", vocab_size=0) is None
    width = refusal(tmp_path, "0.5.4", hidden_size=0)
    assert width is not None and width.error.endswith("into parameter (torch.Size([0, 0]))")
    heads = refusal(tmp_path, "0.5.4", num_attention_heads=0)
    assert heads is not None and heads.cause == "config-value"
    derived = refusal(tmp_path, "0.5.4", hidden_size=0, head_dim=...)
    assert derived is not None and derived.error.startswith("ZeroDivisionError")


def test_the_message_names_the_class_of_the_config(tmp_path: Path) -> None:
    for model_type, said in (("llama", "LlamaConfig"), ("qwen3", "Qwen3Config"), ("gemma2", "...")):
        refused = refusal(tmp_path, "0.5.9", draft_vocab_size=..., model_type=model_type)
        assert refused is not None and refused.error.startswith(f"AttributeError: '{said}' object")


def test_a_null_theta_before_dflash_reads_the_table(tmp_path: Path) -> None:
    assert refusal(tmp_path, "0.5.12", "dflash", rope_theta=None) is None
    refused = refusal(tmp_path, "0.5.13", "dflash", rope_theta=None)
    assert refused is not None and refused.key == "rope_theta"
    assert refusal(tmp_path, "0.5.13", "dflash", rope_theta=1e4) is None


def test_dflash_with_the_layers_of_llama_4(tmp_path: Path) -> None:
    refused = refusal(tmp_path, "0.5.23", "dflash", model_type="llama4_text")
    assert refused is not None and "chunked_attention" in refused.error
    named = refusal(tmp_path, "0.5.23", "dflash", model_type="llama4_text", layer_types=["full_attention"] * 2)
    assert named is None
    assert refusal(tmp_path, "0.5.13", "dflash", model_type="llama4_text") is None


SIDES = "RuntimeError: The size of tensor a (64) must match the size of tensor b (512) at non-singleton dimension 1"


def with_tensor(folder: Path, name: str, tensor: Weight) -> Subject:
    """The plans for a healthy draft with one more tensor, or another one."""
    draft = made(folder, "eagle3", {})
    file = draft / "model.safetensors"
    write_safetensors(file, {**read_safetensors(file), name: tensor}, {"format": "pt"})
    seen = inspect_one(str(draft), Options(engine="sglang==0.5.17", target=folder / "target"))
    assert seen.subject is not None and not seen.crashed
    return seen.subject


@pytest.mark.parametrize(
    ("shape", "error"),
    (
        ((512, 64), SIDES),
        ((), "IndexError: tuple index out of range"),
        ((64, 64), None),
        ((64, 1), None),
        ((128,), None),
    ),
)
def test_a_mapping_to_which_no_vector_can_be_added(tmp_path: Path, shape: tuple[int, ...], error: str | None) -> None:
    s = with_tensor(tmp_path, "module.d2t", Weight("I64", shape))
    assert s.load is not None
    assert (s.load.refused.error if s.load.refused is not None else None) == error


@pytest.mark.parametrize(
    ("shape", "error"),
    (
        ((128, 64), "AssertionError: param_data.shape=torch.Size([64, 128]) loaded_weight.shape=torch.Size([64, 64])"),
        ((64, 64), "AssertionError: param_data.shape=torch.Size([64, 128]) loaded_weight.shape=torch.Size([64, 64])"),
        ((64, 128), "RuntimeError: start (64) + length (32) exceeds dimension size (64)."),
        ((32, 64), "RuntimeError: start (0) + length (64) exceeds dimension size (32)."),
        ((128, 128), None),
    ),
)  # fmt: skip
def test_a_fused_tensor_is_loaded_shard_by_shard(tmp_path: Path, shape: tuple[int, ...], error: str | None) -> None:
    s = with_tensor(tmp_path, "midlayer.self_attn.qkv_proj.weight", Weight("BF16", shape))
    assert s.load is not None
    assert (s.load.refused.error if s.load.refused is not None else None) == error


def test_a_part_of_an_odd_head_may_be_rotated(tmp_path: Path) -> None:
    scaled = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    refused = refusal(tmp_path, "0.5.23", head_dim=33, rope_scaling=scaled)
    assert refused is not None and refused.stage == "config"
    partly = refusal(tmp_path, "0.5.23", head_dim=33, rope_scaling={**scaled, "partial_rotary_factor": 0.5})
    assert partly is not None and partly.stage == "load"


YARN = {"rope_type": "yarn", "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}


@pytest.mark.parametrize("base", ("eagle3", "eagle1", "mla-yarn"))
def test_a_null_theta_beside_a_table(tmp_path: Path, base: str) -> None:
    """The table has to state one, or the config."""
    refused = refusal(tmp_path, "0.5.12", base, rope_theta=None, rope_scaling=YARN)
    assert refused is not None and refused.key == "rope_theta"
    assert refusal(tmp_path, "0.5.12", base, rope_theta=1e4, rope_scaling=YARN) is None
    assert refusal(tmp_path, "0.5.12", base, rope_theta=None, rope_scaling={**YARN, "rope_theta": 1e4}) is None


def test_mla_asks_for_the_length_of_the_ids(tmp_path: Path) -> None:
    key = "eagle_aux_hidden_state_layer_ids"
    for keys in ({key: 3}, {"eagle_config": {key: 3}}):
        refused = refusal(tmp_path, "0.5.23", "mla-yarn", **keys)
        assert refused is not None and refused.error == "TypeError: object of type 'int' has no len()"
    assert refusal(tmp_path, "0.5.23", "mla-yarn", **{key: [1, 3, 5]}) is None
    assert refusal(tmp_path, "0.5.23", "mla-yarn", **{key: 3, "eagle_config": {key: [1, 3, 5]}}) is None


def test_mla_forgets_the_first_of_two_parts_of_one_name(tmp_path: Path) -> None:
    draft = made(tmp_path, "mla-yarn", {})
    file = draft / "model.safetensors"
    weights = read_safetensors(file)
    name = "midlayer.self_attn.kv_a_proj_with_mqa.weight"
    twin = name.replace("midlayer", "layers.0")
    write_safetensors(file, {twin: Weight("BF16", weights[name].shape), **weights}, {"format": "pt"})
    seen = inspect_one(str(draft), Options(engine="sglang==0.5.23", target=tmp_path / "target"))
    assert seen.subject is not None and seen.subject.load is not None
    assert [drop.tensor.name for drop in seen.subject.load.dropped if drop.why == "alone"] == [twin]
    assert [(a.name, b.name) for a, b in seen.subject.load.collisions] == [(twin, name)]
    assert not seen.subject.load.unwritten or "kv_a" not in str(seen.subject.load.unwritten)


def test_mla_has_read_a_part_before_it_stops(tmp_path: Path) -> None:
    draft = made(tmp_path, "mla-yarn", {"draft_vocab_size": None})  # the head is refused, and lies between the two
    file = draft / "model.safetensors"
    name = "midlayer.self_attn.kv_a_proj_with_mqa.weight"
    twin = name.replace("midlayer", "layers.0")
    weights = read_safetensors(file)
    write_safetensors(file, {**weights, twin: Weight("BF16", weights[name].shape)}, {"format": "pt"})
    seen = inspect_one(str(draft), Options(engine="sglang==0.5.12", target=tmp_path / "target"))
    assert seen.subject is not None and seen.subject.load is not None
    plan = seen.subject.load
    assert plan.refused is not None and plan.refused.tensor is not None
    assert plan.refused.tensor.name == "lm_head.weight"
    assert twin in {drop.tensor.name for drop in plan.dropped}
    assert name in {tensor.name for tensor in plan.unread}
    assert not plan.collisions


def test_sizes_left_out_are_those_of_the_config_class(tmp_path: Path) -> None:
    s = subject(tmp_path, "0.5.9", "eagle1-qwen2", model_type="llama4_text")  # 128 elements a head
    assert s.load is not None and s.load.refused is not None
    assert s.load.refused.error == "RuntimeError: start (0) + length (128) exceeds dimension size (32)."
    twin = subject(tmp_path, "0.5.9", "eagle1-qwen2", model_type="llama4_text", head_dim=32)
    assert twin.load is not None and twin.load.refused is None


def test_a_number_for_the_ids_is_not_asked_where_the_states_are_counted(tmp_path: Path) -> None:
    ids = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": 3}}
    refused = refusal(tmp_path, "0.5.23", **ids)
    assert refused is not None and refused.error == "TypeError: object of type 'int' has no len()"
    assert refusal(tmp_path, "0.5.23", **ids, num_aux_hidden_states=3) is None


def test_a_tied_head_without_a_number_of_draft_tokens(tmp_path: Path) -> None:
    refused = refusal(tmp_path, "0.5.12", draft_vocab_size=None, tie_word_embeddings=True)
    assert refused is not None and "Field 'vocab_size' expected int" in refused.error
    untied = refusal(tmp_path, "0.5.12", draft_vocab_size=None)
    assert untied is not None and "Field 'vocab_size'" not in untied.error
    assert refusal(tmp_path, "0.5.12", draft_vocab_size=512, tie_word_embeddings=True) is None


@pytest.mark.parametrize(("release", "error"), (("0.5.13", "TypeError: unsupported operand"), ("0.5.14", "")))
def test_mla_takes_the_size_of_a_head_where_that_of_the_values_is_null(
    tmp_path: Path, release: str, error: str
) -> None:
    refused = refusal(tmp_path, release, "mla-yarn", v_head_dim=None)
    assert (refused.error if refused is not None else "").startswith(error)
    assert (refused is None) is (not error)


def test_the_layers_are_built_before_the_head(tmp_path: Path) -> None:
    """Of two faults, the one that is met first is told."""
    both = refusal(tmp_path, "0.5.20", rope_theta=None, draft_vocab_size=...)
    assert both is not None and both.key == "rope_theta"
    head = refusal(tmp_path, "0.5.20", draft_vocab_size=...)
    assert head is not None and head.key == "draft_vocab_size"


def test_a_wide_table_is_not_copied_into_a_narrow_one(tmp_path: Path) -> None:
    refused = refusal(tmp_path, "0.4.8", "eagle1", hidden_size=1, num_attention_heads=1)
    broadcast = "RuntimeError: output with shape [512, 1] doesn't match the broadcast shape [512, 64]"
    assert refused is not None and refused.error == broadcast
    other = refusal(tmp_path, "0.4.8", "eagle1", hidden_size=2)
    assert other is not None and other.error.startswith("RuntimeError: The size of tensor a (2) must match")


def test_qwen2_reads_the_size_of_a_head_since_0_4_9(tmp_path: Path) -> None:
    assert refusal(tmp_path, "0.4.8", "eagle1-qwen2", head_dim=64) is None
    refused = refusal(tmp_path, "0.4.9", "eagle1-qwen2", head_dim=64)
    assert refused is not None and refused.cause == "shape"


@pytest.mark.parametrize("base", ("eagle3", "eagle1"))
def test_a_projection_without_a_place_gets_its_prefix_first(tmp_path: Path, base: str) -> None:
    draft = made(tmp_path, base, {})
    file = draft / "model.safetensors"
    for name, error in (("k_proj.weight", "KeyError: 'model.qkv_proj.weight'"), ("other.weight", None)):
        write_safetensors(file, {**read_safetensors(file), name: Weight("BF16", (64,))}, {"format": "pt"})
        seen = inspect_one(str(draft), Options(engine="sglang==0.4.8", target=tmp_path / "target"))
        assert seen.subject is not None and seen.subject.load is not None
        refused = seen.subject.load.refused
        assert (refused.error if refused is not None else None) == error
        write_safetensors(file, {n: w for n, w in read_safetensors(file).items() if n != name}, {"format": "pt"})
