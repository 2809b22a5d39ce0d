"""What random layers of whole models, and the last random drafts, showed: as test_random_drafts.py.

Every refusal here is one that the real loader of that release gave.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from test_random_drafts import made, refusal, subject
from weights import Weight, read_safetensors, write_safetensors

from drafcheck.runner import inspect_one
from drafcheck.session import Options

LAYER = "model.layers.2"
KEYS_OF_A_LAYER = (  # a base, a key of its config, a value that stops the release, the error, one that does not
    ("mtp-deepseek", "num_experts_per_tok", None, "TypeError", 1),
    ("mtp-deepseek", "n_group", None, "AssertionError", 1),
    ("mtp-deepseek", "first_k_dense_replace", None, "TypeError", 0),
    ("mtp-deepseek", "moe_layer_freq", ..., "AttributeError", 1),
    ("mtp-deepseek", "topk_method", ..., "AttributeError", "noaux_tc"),
    ("mtp-deepseek", "rope_theta", None, "AssertionError", 10000.0),
    ("mtp-deepseek", "num_nextn_predict_layers", None, "AssertionError", 1),
    ("mtp-glm", "partial_rotary_factor", None, "TypeError", 0.5),
    ("mtp-glm", "rope_theta", None, "TypeError", 10000.0),
)


@pytest.mark.parametrize("release", ("0.5.12", "0.5.16", "0.5.23"))
@pytest.mark.parametrize("case", KEYS_OF_A_LAYER)
def test_keys_that_a_decoder_layer_asks_for(
    tmp_path: Path, release: str, case: tuple[str, str, object, str, object]
) -> None:
    base, key, bad, error, good = case
    refused = refusal(tmp_path / "bad", release, base, **{key: bad})
    assert refused is not None and refused.error.startswith(error)
    assert refusal(tmp_path / "good", release, base, **{key: good}) is None


def test_a_null_size_of_a_value_is_that_of_a_head(tmp_path: Path) -> None:
    """Since 0.5.14, in the layers of DeepSeek too: 64 wide, 4 heads."""
    assert refusal(tmp_path / "before", "0.5.12", "mtp-deepseek", v_head_dim=None) is not None
    s = subject(tmp_path / "since", "0.5.16", "mtp-deepseek", v_head_dim=None)
    assert s.load is not None and s.load.refused is None
    assert s.load.parameters["model.decoder.self_attn.o_proj.weight"].shape == (64, 64)


@pytest.mark.parametrize(
    ("name", "shape", "error"),
    [
        ("experts.3.down_proj", (64,), "IndexError"),
        ("experts.0.gate_proj", (1, 32, 64), "RuntimeError: start (0) + length (32) exceeds dimension size (1)."),
        ("experts.0.gate_proj", (32,), "RuntimeError: The size of tensor a (64) must match the size of tensor b (32)"),
        ("experts.0.gate_proj", (32, 64), ""),
    ],
)
def test_an_expert_of_another_rank(tmp_path: Path, name: str, shape: tuple[int, ...], error: str) -> None:
    folder = made(tmp_path, "mtp-glm", {})
    weights = read_safetensors(folder / "model.safetensors")
    weights[f"{LAYER}.mlp.{name}.weight"] = Weight("BF16", shape)
    write_safetensors(folder / "model.safetensors", weights)
    seen = inspect_one(str(folder), Options(engine="sglang==0.5.16")).subject
    assert seen is not None and seen.load is not None
    refused = seen.load.refused
    assert (refused.error[: len(error)] if refused is not None else "") == error


@pytest.mark.parametrize(("release", "counted"), (("0.5.16", True), ("0.5.17", False)))
def test_a_text_for_the_eagle_config_is_not_asked_where_the_states_are_counted(
    tmp_path: Path, release: str, counted: bool
) -> None:
    """Until 0.5.17, which looks there for norm_before_fc as well."""
    refused = refusal(tmp_path, release, eagle_config="x")
    assert refused is not None and refused.error == "AttributeError: 'str' object has no attribute 'get'"
    assert (refusal(tmp_path, release, eagle_config="x", num_aux_hidden_states=3) is None) is counted


@pytest.mark.parametrize("value", (0, None))
def test_mla_does_not_read_the_size_of_a_head_beside_that_of_the_values(tmp_path: Path, value: int | None) -> None:
    assert refusal(tmp_path, "0.5.17", "mla-yarn", head_dim=value) is None
    assert refusal(tmp_path, "0.5.17", "eagle3", head_dim=0) is not None


@pytest.mark.parametrize("release", ("0.4.5", "0.5.9", "0.5.23"))
def test_a_null_part_of_a_head_is_not_rotated(tmp_path: Path, release: str) -> None:
    """Met before the head is built; Qwen2's layers do not ask."""
    for base, keys in (("eagle3", {}), ("eagle3", {"draft_vocab_size": ...}), ("eagle1", {})):
        refused = refusal(tmp_path, release, base, partial_rotary_factor=None, **keys)
        assert refused is not None and refused.key == "partial_rotary_factor"
    assert refusal(tmp_path, release, "eagle1-qwen2", partial_rotary_factor=None) is None
    assert refusal(tmp_path, release, "eagle3", partial_rotary_factor=0.5) is None


@pytest.mark.parametrize(("release", "refuses"), (("0.5.12", True), ("0.5.16", False), ("0.5.23", False)))
def test_no_heads_are_built_where_the_class_tells_the_size_of_one(tmp_path: Path, release: str, refuses: bool) -> None:
    refused = refusal(tmp_path, release, "mtp-deepseek", num_attention_heads=0)
    assert (refused is not None) is refuses
    other = refusal(tmp_path, release, "mtp-deepseek", num_attention_heads=0, model_type="qwen2")
    assert other is not None and other.error.startswith("ZeroDivisionError")


@pytest.mark.parametrize("key", ("vocab_size", "num_hidden_layers", "head_dim"))
def test_sizes_of_zero_of_a_glm_layer(tmp_path: Path, key: str) -> None:
    assert refusal(tmp_path, "0.5.23", "mtp-glm", **{key: 0}) is None
    assert refusal(tmp_path, "0.5.23", "mtp-glm", num_attention_heads=0) is not None


@pytest.mark.parametrize("base", ("mtp-deepseek", "mtp-glm"))
@pytest.mark.parametrize("key", ("n_group", "n_routed_experts", "routed_scaling_factor", "num_experts_per_tok"))
def test_a_config_of_another_model_lacks_what_a_layer_of_experts_asks_for(tmp_path: Path, base: str, key: str) -> None:
    refused = refusal(tmp_path, "0.5.23", base, model_type="qwen3", **{key: ...})
    assert refused is not None and refused.error == f"AttributeError: 'Qwen3Config' object has no attribute '{key}'"
    assert refusal(tmp_path, "0.5.23", base, model_type="qwen3") is None
    assert refusal(tmp_path, "0.5.23", base, **{key: ...}) is None or key == "n_routed_experts"


@pytest.mark.parametrize("release", ("0.5.12", "0.5.23"))
@pytest.mark.parametrize("key", ("qk_nope_head_dim", "qk_rope_head_dim", "q_lora_rank", "kv_lora_rank"))
def test_mla_asks_another_models_config_for_deepseeks_keys(tmp_path: Path, release: str, key: str) -> None:
    """Its own config class supplies them."""
    refused = refusal(tmp_path / "bad", release, "mla-yarn", model_type="llama4_text", **{key: ...})
    assert refused is not None and refused.error.endswith(f"'Llama4TextConfig' object has no attribute '{key}'")
    own = refusal(tmp_path / "good", release, "mla-yarn", model_type="deepseek_v3", **{key: ...})
    assert own is None or own.cause != "config-key"


def test_only_the_size_of_a_value_may_be_absent_from_another_models_config(tmp_path: Path) -> None:
    """Since 0.5.14 it is worked out from the heads."""
    keys = {"model_type": "llama", "v_head_dim": ...}
    early = refusal(tmp_path, "0.5.12", "mla-yarn", **keys)
    assert early is not None and early.key == "v_head_dim"
    later = refusal(tmp_path, "0.5.23", "mla-yarn", **keys)
    assert later is None or later.key != "v_head_dim"
