"""DC1xx and DC2xx on small checkpoints: each rule speaks for the fault and is quiet for its healthy twin."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft

from drafcheck import lint
from drafcheck.finding import Finding, Severity

H, V, DV, INTER, HEADS, KV, D = 64, 256, 128, 128, 4, 2, 16
LAYER = {
    "self_attn.q_proj.weight": [HEADS * D, 2 * H],
    "self_attn.k_proj.weight": [KV * D, 2 * H],
    "self_attn.v_proj.weight": [KV * D, 2 * H],
    "self_attn.o_proj.weight": [H, HEADS * D],
    "mlp.gate_proj.weight": [INTER, H],
    "mlp.up_proj.weight": [INTER, H],
    "mlp.down_proj.weight": [H, INTER],
    "hidden_norm.weight": [H],
    "input_layernorm.weight": [H],
    "post_attention_layernorm.weight": [H],
}
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": H,
    "intermediate_size": INTER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "head_dim": D,
    "num_hidden_layers": 1,
    "vocab_size": V,
    "draft_vocab_size": DV,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
SIZES = {"BF16": 2, "F32": 4, "I64": 8, "BOOL": 1}


def head(layer: str = "midlayer.", prefix: str = "") -> dict[str, list[int]]:
    shapes = {prefix + layer + name: shape for name, shape in LAYER.items()}
    rest = {"fc.weight": [H, 3 * H], "norm.weight": [H], "lm_head.weight": [DV, H]}
    return {**shapes, **{prefix + name: shape for name, shape in rest.items()}}


def write(folder: Path, shapes: dict[str, list[int]], **config: Any) -> Path:
    """A checkpoint of zeros with these BF16 tensors and a right d2t."""
    folder.mkdir(parents=True, exist_ok=True)
    offsets = struct.pack(f"<{DV}q", *range(DV))
    header: dict[str, Any] = {"d2t": {"dtype": "I64", "shape": [DV], "data_offsets": [0, len(offsets)]}}
    at = len(offsets)
    for name, shape in shapes.items():
        size = SIZES["BF16"]
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    data = struct.pack("<Q", len(text)) + text + offsets + bytes(at - len(offsets))
    (folder / "model.safetensors").write_bytes(data)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in {**CONFIG, **config}.items() if v is not ...}))
    return folder


def findings(path: Path, engine: str, *codes: str) -> list[Finding]:
    return list(lint(path, engine=f"sglang=={engine}", select=codes).findings)


def codes(path: Path, engine: str, family: str = "DC1") -> list[str]:
    found = findings(path, engine, "DC1", "DC2", "DC509")
    return sorted({f.rule for f in found if f.severity is not Severity.NOTE and f.rule.startswith(family)})


@pytest.mark.parametrize("release", ["0.4.5", "0.4.9", "0.5.11", "0.5.12", "0.5.23"])
def test_midlayer_is_clean_in_every_era(tmp_path: Path, release: str) -> None:
    assert codes(write(tmp_path, head()), release, "DC") == []


def test_layers_zero_is_refused_then_dropped_then_read(tmp_path: Path) -> None:
    path = write(tmp_path, head("layers.0."))
    assert codes(path, "0.4.8") == ["DC104"]
    assert codes(path, "0.5.11") == ["DC101", "DC102"]
    assert codes(path, "0.5.12") == []


def test_dropped_weight_says_share_wanted_name_and_release_that_takes_it(tmp_path: Path) -> None:
    (found,) = findings(write(tmp_path, head("layers.0.")), "0.5.9", "DC101")
    layer = sum(a * (b[0] if b else 1) for a, *b in LAYER.values())
    total = layer + H * 3 * H + H + DV * H
    assert f"10 tensors ({100 * layer / total:.1f} % of the drafter's parameters) are dropped" in found.message
    assert "`midlayer." in found.message
    assert found.help is not None
    assert "rename `layers.0.*` to `midlayer.*`" in found.help
    assert "sglang >= 0.5.12" in found.help


def test_share_of_a_single_misnamed_tensor(tmp_path: Path) -> None:
    shapes = head()
    shapes["midlayer.attn.o_proj.weight"] = shapes.pop("midlayer.self_attn.o_proj.weight")
    assert codes(write(tmp_path, shapes), "0.5.15") == ["DC101", "DC102"]


@pytest.mark.parametrize("width", [3, 5])
def test_what_the_loader_stops_at_is_not_dropped_as_well(tmp_path: Path, width: int) -> None:
    """vLLM stops at unknown names: also when it stopped at fc before, nothing is dropped without a word."""
    shapes = {"fc.weight": [H, width * H], **{k: v for k, v in head().items() if k != "fc.weight"}}
    path = write(tmp_path, {**shapes, "midlayer.self_attn.k_norm.weight": [D]})
    found = lint(path, engine="vllm==0.16.0", algorithm="eagle3", select=["DC101", "DC104"]).findings
    assert [f.rule for f in found] == ["DC104"]


def test_an_unknown_tensor_beside_a_whole_head_is_a_warning(tmp_path: Path) -> None:
    (found,) = findings(write(tmp_path, {**head(), "extra.tensor": [3]}), "0.5.15", "DC101")
    assert found.severity is Severity.WARNING


def test_rotary_buffers_and_t2d_are_no_fault(tmp_path: Path) -> None:
    shapes = {**head(), "midlayer.self_attn.rotary_emb.inv_freq": [8], "t2d": [V]}
    for release in ("0.4.5", "0.5.9", "0.5.23"):
        assert codes(write(tmp_path, shapes), release) == []


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "draft_model.", "module._orig_mod.", "base_model.model."])
def test_wrappers_are_named(tmp_path: Path, prefix: str) -> None:
    path = write(tmp_path, head(prefix=prefix))
    for release in ("0.4.8", "0.5.9", "0.5.15"):
        found = [f for f in findings(path, release, "DC1") if f.rule == "DC105"]
        assert len(found) == 1, release
        assert f"`{prefix}`" in found[0].message
        assert found[0].fixable
        assert "DC101" not in codes(path, release)
        assert "DC104" not in codes(path, release)


def test_model_prefix_is_taken_where_the_loader_takes_it(tmp_path: Path) -> None:
    layer = write(tmp_path / "a", {("" if n == "lm_head.weight" else "model.") + n: s for n, s in head().items()})
    assert codes(layer, "0.4.9") == []
    assert codes(layer, "0.4.8") == ["DC105"]
    everything = write(tmp_path / "b", head(prefix="model."))
    assert codes(everything, "0.5.15") == ["DC102", "DC105"]


def test_partial_parameter(tmp_path: Path) -> None:
    shapes = head()
    del shapes["midlayer.self_attn.q_proj.weight"]
    path = write(tmp_path, shapes)
    assert codes(path, "0.5.15") == ["DC103"]
    (found,) = findings(path, "0.5.15", "DC103")
    assert "gets no q_proj: 50.0 % of its rows" in found.message


def test_missing_norm_is_a_note_and_missing_fc_an_error(tmp_path: Path) -> None:
    for name, severity in (("norm.weight", Severity.NOTE), ("fc.weight", Severity.ERROR)):
        shapes = head()
        del shapes[name]
        (found,) = findings(write(tmp_path, shapes), "0.5.15", "DC102")
        assert found.severity is severity


@pytest.mark.parametrize("prefix", ["student.", "eagle_module.", "decoder."])
def test_a_prefix_that_nobody_is_known_for_is_a_wrapper_too(tmp_path: Path, prefix: str) -> None:
    path = write(tmp_path, head(prefix=prefix))
    assert codes(path, "0.5.15") == ["DC102", "DC105"]
    (found,) = findings(path, "0.5.15", "DC105")
    assert f"the prefix `{prefix}` stands before 13 names" in found.message


def test_one_stray_tensor_does_not_make_a_wrapper(tmp_path: Path) -> None:
    path = write(tmp_path, {**head(), "adapter.norm.weight": [H], "adapter.fc.weight": [H, 3 * H]})
    assert codes(path, "0.5.15") == ["DC101"]


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I8", "BOOL"])
def test_quantised_tensors_in_a_plain_draft(tmp_path: Path, dtype: str) -> None:
    path = write(tmp_path, head())
    data = (path / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    entry = header["midlayer.mlp.down_proj.weight"]
    entry["dtype"], entry["shape"] = dtype, [H, 2 * INTER]
    text = json.dumps(header).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    found = findings(path, "0.5.15", "DC507")
    assert [f.severity for f in found] == [Severity.ERROR]
    assert dtype in found[0].message


def test_scales_without_a_quantization_config(tmp_path: Path) -> None:
    shapes = {**head(), "midlayer.mlp.down_proj.weight_scale": [1]}
    path = write(tmp_path / "a", shapes)
    assert [f.rule for f in findings(path, "0.5.15", "DC507", "DC101")] == ["DC507"]
    told = write(tmp_path / "b", shapes, quantization_config={"quant_method": "fp8"})
    report = lint(told, engine="sglang==0.5.15")
    assert not [f for f in report.findings if f.severity is Severity.ERROR]
    assert report.checkpoints[0].outcome.value == "incomplete"
    assert any("quantization_config" in skipped.why for skipped in report.checkpoints[0].skipped)


@pytest.mark.parametrize("value", ["gelu", None, 0, []])
def test_another_activation_is_refused(tmp_path: Path, value: Any) -> None:
    """By the class; what is no text by the config's types, where the release checks them."""
    path = write(tmp_path, head(), hidden_act=value)
    said = "Unsupported activation" if value == "gelu" else "Field 'hidden_act' expected text"
    (found,) = findings(path, "0.5.15", "DC509")
    assert "`hidden_act`" in found.message and said in found.message
    (found,) = findings(path, "0.5.9", "DC509")
    assert "Unsupported activation" in found.message
    assert codes(write(tmp_path, head(), hidden_act="silu"), "0.5.15", "DC5") == []


def test_foreign_names(tmp_path: Path) -> None:
    shapes = {n.replace("midlayer.", "transformer.").replace("fc.", "fusion_fc."): s for n, s in head().items()}
    path = write(tmp_path, shapes)
    assert codes(path, "0.5.15") == ["DC102", "DC108"]
    (found,) = findings(path, "0.5.15", "DC108")
    assert "speculators 0.1" in found.message


def test_kv_rows_of_other_head_counts_are_cut_without_a_word(tmp_path: Path) -> None:
    shapes = {**head(), "midlayer.self_attn.k_proj.weight": [64, 128], "midlayer.self_attn.v_proj.weight": [64, 128]}
    path = write(tmp_path, shapes)
    assert codes(path, "0.5.15", "DC2") == ["DC201"]
    found = findings(path, "0.5.15", "DC201")
    assert all("cuts the rest off without a word" in f.message for f in found)
    assert found[0].help is not None
    assert "`num_key_value_heads` to 4" in found[0].help


def test_a_smaller_mlp_is_refused_until_it_is_padded(tmp_path: Path) -> None:
    path = write(tmp_path, head(), intermediate_size=160)
    assert codes(path, "0.5.2", "DC2") == ["DC201"]
    assert codes(path, "0.5.3", "DC2") == []
    notes = findings(path, "0.5.3", "DC201")
    assert {f.severity for f in notes} == {Severity.NOTE}
    assert all("pads it with zeros" in f.message for f in notes)


def test_head_dim_derived_otherwise(tmp_path: Path) -> None:
    path = write(tmp_path / "a", head(), num_attention_heads=8, num_key_value_heads=4, head_dim=...)
    assert codes(path, "0.5.15", "DC2") == []
    wide = {
        **head(),
        "midlayer.self_attn.q_proj.weight": [128, 128],
        "midlayer.self_attn.k_proj.weight": [64, 128],
        "midlayer.self_attn.v_proj.weight": [64, 128],
        "midlayer.self_attn.o_proj.weight": [64, 128],
    }
    path = write(tmp_path / "b", wide, head_dim=...)
    (found,) = findings(path, "0.5.15", "DC202")
    assert "make head_dim 32, sglang 0.5.15 derives head_dim 16" in found.message
    assert codes(write(tmp_path / "c", wide, head_dim=32), "0.5.15", "DC2") == []


def test_layer_count(tmp_path: Path) -> None:
    two = write(tmp_path / "a", head(), num_hidden_layers=2)
    assert codes(two, "0.5.11", "DC") == ["DC203"]
    assert codes(two, "0.5.15", "DC") == ["DC203"]
    surplus = {**head("layers.0."), **{"layers.1." + n: s for n, s in LAYER.items()}}
    path = write(tmp_path / "b", surplus)
    assert codes(path, "0.5.15", "DC") == []
    (note,) = findings(path, "0.5.15", "DC203")
    assert note.severity is Severity.NOTE
    assert codes(write(tmp_path / "d", head(), num_hidden_layers=0), "0.5.15", "DC") == ["DC203"]
    for layers, last in ((2, "layer 1 stays"), (32, "layers 1 to 31 stay"), (5000, "layers 1 to 4,999 stay")):
        (many,) = findings(write(tmp_path / "e", head(), num_hidden_layers=layers), "0.5.15", "DC203")
        assert f"{last} uninitialised" in many.message
    second = {"layers.1." + n: ([s[0], H] if n.split(".")[1][0] in "qkv" else s) for n, s in LAYER.items()}
    whole = write(tmp_path / "c", {**head("layers.0."), **second}, num_hidden_layers=2)
    assert codes(whole, "0.5.15", "DC") == []
    assert findings(whole, "0.5.15", "DC203") == []


def test_biases(tmp_path: Path) -> None:
    qkv = {**head(), "midlayer.self_attn.q_proj.bias": [64]}
    (found,) = findings(write(tmp_path / "a", qkv), "0.5.15", "DC204")
    assert found.severity is Severity.WARNING  # it is all zero
    data = bytearray((tmp_path / "a" / "model.safetensors").read_bytes())
    data[-1] = 1  # the bias is the last tensor
    (tmp_path / "a" / "model.safetensors").write_bytes(data)
    (found,) = findings(tmp_path / "a", "0.5.15", "DC204")
    assert found.severity is Severity.ERROR
    flag = write(tmp_path / "b", head(), attention_bias=True)
    assert [f.severity for f in findings(flag, "0.5.8", "DC204")] == [Severity.ERROR]
    assert findings(flag, "0.5.9", "DC204") == []
    assert [f.severity for f in findings(write(tmp_path / "c", head()), "0.4.8", "DC204")] == [Severity.NOTE]
    assert findings(tmp_path / "c", "0.4.9", "DC204") == []


@pytest.mark.parametrize("engine", ["sglang==0.4.5", "sglang==0.5.23", "vllm==0.16.0", "vllm==0.33.0", "tensorrt-llm"])
@pytest.mark.parametrize("width", [-64, -33, 0])
def test_a_width_that_is_none_is_told_once(width: int, engine: str, tmp_path: Path) -> None:
    """At the key itself: neither at the number of heads nor at what it is compared with."""
    draft = Draft()
    draft.set(hidden_size=width)
    draft.config.pop("head_dim")
    draft.write(tmp_path)
    errors = [f for f in lint(tmp_path, engine=engine).findings if f.severity is Severity.ERROR]
    assert [[place.key for place in f.locations][:1] for f in errors] == [["hidden_size"]], errors


def test_sizes_that_are_none_are_errors(tmp_path: Path) -> None:
    """Of the right type, and the tensors or the heads do not fit them."""
    (found,) = findings(write(tmp_path / "a", head(), hidden_size=-1), "0.5.15", "DC509")
    assert found.message.startswith("`hidden_size` is -1, which sglang 0.5.15 cannot build from: ")
    assert "The hidden size (-1) is not a multiple" in found.message
    (found,) = findings(write(tmp_path / "c", head(), num_attention_heads=3), "0.5.15", "DC509")
    assert found.message.startswith("`num_attention_heads` is 3, which ")  # a size like any other
    (found,) = findings(write(tmp_path / "b", head(), hidden_size=0), "0.5.15", "DC201")
    assert "builds 0 and refuses" in found.message


@pytest.mark.parametrize("value", ["64", 64.0, True, [64], {"a": 1}, None])
def test_sizes_of_the_wrong_type(tmp_path: Path, value: Any) -> None:
    (found,) = findings(write(tmp_path, head(), hidden_size=value), "0.5.15", "DC509")
    assert "`hidden_size`" in found.message


def test_flags_of_the_wrong_type_are_refused_by_typed_configs_only(tmp_path: Path) -> None:
    path = write(tmp_path, head(), attention_bias="no")
    assert codes(path, "0.5.9", "DC5") == []
    assert codes(path, "0.5.10", "DC5") == []  # transformers 5.3.0 takes any type yet
    assert codes(path, "0.5.11", "DC5") == ["DC509"]


@pytest.mark.parametrize("key", ["rope_theta", "max_position_embeddings"])
def test_null_where_the_rotary_embedding_is_built_from(tmp_path: Path, key: str) -> None:
    for release in ("0.4.5", "0.5.9", "0.5.23"):
        (found,) = findings(write(tmp_path / "null", head(), **{key: None}), release, "DC509")
        assert f"`{key}` is null" in found.message
        assert findings(write(tmp_path / "set", head(), **{key: 4096}), release, "DC509") == []
        assert findings(write(tmp_path / "absent", head(), **{key: ...}), release, "DC509") == []
