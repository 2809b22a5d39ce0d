"""DC507: drafts that are stored quantised, in the forms that exporters write."""

from __future__ import annotations

from typing import Any

from cases import case
from drafts import Draft
from weights import Weight, zeros

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
FP8: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
MODELOPT: dict[str, Any] = {"quant_method": "modelopt", "ignore": ["lm_head"], "producer": {"name": "modelopt"}}
HALF: dict[str, Any] = {"type": "float", "num_bits": 8, "strategy": "channel", "symmetric": True, "dynamic": False}


def compressed(form: str, weights: dict[str, Any], activations: dict[str, Any] | None, *ignore: str) -> dict[str, Any]:
    """A config of compressed-tensors with one group for all linear layers."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "ignore": ["lm_head", *ignore],
        "config_groups": {"group_0": group},
    }


def store(draft: Draft, parts: dict[str, str], *spared: str) -> None:
    """Replace the projections by quantised ones: the last words of the names, and their dtypes."""
    wanted = [f".{projection}.weight" for projection in PROJECTIONS if projection not in spared]
    for name in [name for name in draft.weights if name.endswith(tuple(wanted))]:
        rows, columns = draft.weights.pop(name).shape
        for part, dtype in parts.items():
            shape = {"weight": (rows, columns), "weight_packed": (rows, columns // 8), "qweight": (columns, rows // 8)}
            small = (1,) if part.endswith(("scale", "scale_2")) else (rows, 1)
            draft.weights[name.replace("weight", part)] = Weight(dtype, shape.get(part, small))


E8, SCALED = (
    {"weight": "F8_E4M3", "weight_scale": "F32"},
    {"weight": "F8_E4M3", "weight_scale": "F32", "input_scale": "F32"},
)


@case("good/fp8")
@case("good/vllm-fp8", "vllm==0.33.0")
def fp8(draft: Draft) -> None:
    store(draft, E8)
    draft.set(quantization_config=FP8)


@case("good/fp8-blocks")
def fp8_blocks(draft: Draft) -> None:
    store(draft, {"weight": "F8_E4M3", "weight_scale_inv": "F32"})
    draft.set(quantization_config={**FP8, "weight_block_size": [128, 128]})


@case("good/modelopt-fp8", "0.5.23")
def modelopt(draft: Draft) -> None:
    store(draft, SCALED)
    draft.set(quantization_config={**MODELOPT, "quant_algo": "FP8"})


@case("good/modelopt-nvfp4", "0.5.23")
def modelopt_nvfp4(draft: Draft) -> None:
    store(draft, {"weight": "U8", "weight_scale": "F8_E4M3", "weight_scale_2": "F32", "input_scale": "F32"})
    draft.set(quantization_config={**MODELOPT, "quant_algo": "NVFP4"})


@case("good/compressed-tensors-fp8")
def compressed_fp8(draft: Draft) -> None:
    store(draft, E8)
    draft.set(quantization_config=compressed("float-quantized", HALF, {**HALF, "strategy": "token", "dynamic": True}))


@case("good/compressed-tensors-int4")
def compressed_int4(draft: Draft) -> None:
    store(draft, {"weight_packed": "I32", "weight_scale": "BF16", "weight_shape": "I64"})
    draft.set(quantization_config=compressed("pack-quantized", {**HALF, "type": "int", "num_bits": 4}, None))


@case("good/awq")
def awq(draft: Draft) -> None:
    store(draft, {"qweight": "I32", "qzeros": "I32", "scales": "F16"})
    draft.set(quantization_config={"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"})


@case("good/packed", "0.5.12")
def packed(draft: Draft) -> None:
    """A packed layout: no tensor has the shape of the plain parameter, and that is no fault."""
    store(draft, {"qweight": "I32", "qzeros": "I32", "scales": "F16", "g_idx": "I32"})
    draft.set(quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 32})


@case("DC507/attention-left-plain")
def attention_left_plain(draft: Draft) -> None:
    """SGLang asks for model.qkv_proj and model.self_attn.o_proj: nothing of this list is ever found."""
    attention = ("q_proj", "k_proj", "v_proj", "o_proj")
    ignored = [f"model.layers.0.self_attn.{name}" for name in attention]
    store(draft, E8, *attention)
    draft.set(quantization_config={**FP8, "ignored_layers": ["lm_head", *ignored]})


@case("DC507/vllm-listed-by-its-own-number", "vllm==0.33.0")
def listed_by_its_own_number(draft: Draft) -> None:
    """vLLM asks for layer 8 of a draft behind a target of eight."""
    attention_left_plain(draft)
    config = draft.config["quantization_config"]
    draft.set(quantization_config={**config, "ignored_layers": [*config["ignored_layers"], "fc", "model.fc"]})


@case("good/vllm-listed-behind-the-target", "vllm==0.33.0")
def listed_behind_the_target(draft: Draft) -> None:
    listed_by_its_own_number(draft)
    attention = ("qkv_proj", "q_proj", "k_proj", "v_proj", "o_proj")
    draft.config["quantization_config"]["ignored_layers"] = [
        "lm_head", "model.fc", *(f"model.layers.8.self_attn.{name}" for name in attention)
    ]  # fmt: skip


@case("DC507/fc-packed", "0.5.23")
def fc_packed(draft: Draft) -> None:
    fp8(draft)
    draft.weights["fc.weight"] = Weight("F8_E4M3", draft.weights["fc.weight"].shape)
    draft.weights["fc.weight_scale"] = zeros("F32", 1)


@case("DC507/no-input-scales", "0.5.23")
def no_input_scales(draft: Draft) -> None:
    modelopt(draft)
    draft.drop(*[name for name in draft.weights if name.endswith("input_scale")])


@case("DC507/one-projection-plain")
def one_projection_plain(draft: Draft) -> None:
    store(draft, E8, "v_proj")
    draft.set(quantization_config=compressed("float-quantized", HALF, {**HALF, "dynamic": True}, "re:.*v_proj"))


@case("DC507/vllm-quantised-as-the-target", "vllm==0.11.0")
def quantised_as_the_target(draft: Draft) -> None:
    assert draft.target is not None
    draft.target["quantization_config"] = FP8


@case("DC507/vllm-quantised-in-vain", "vllm==0.9.2")
def quantised_in_vain(draft: Draft) -> None:
    fp8(draft)
    draft.set(architectures=["LlamaForCausalLM"])


@case("good/vllm-quantised-target-0.22.1", "vllm==0.22.1")
def quantised_target(draft: Draft) -> None:
    assert draft.target is not None
    draft.target["quantization_config"] = FP8
