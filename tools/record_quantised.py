"""Record of which parameters SGLang really builds quantised drafts: fixtures/verdicts/sglang/quantised.jsonl.

    ORACLE_HOME=... python tools/record_quantised.py ORACLE RELEASE ...

ORACLE is a folder with ``sglang/oracle.py``, as for tools/record_rope.py. Every ``quantization_config`` below is read
by the real config loader and the real method's own reader, the real draft class is built with it, and the parameters of
its linear layers are written down; the methods are told that there is a GPU of compute capability 9.0. Which
classes a release has is all that is asked of drafcheck. What is written is recorded data: run this, never edit it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import asked
import class_drafts
import class_relatives
import lattice_drafts
import mtp_families
import record_rope
import recorded
from asked import Json

OUT = Path(__file__).parent.parent / "fixtures" / "verdicts" / "sglang" / "quantised.jsonl"
SIZES: Json = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
BASE: Json = {**record_rope.BASE, **SIZES}
FP8: Json = {"quant_method": "fp8", "activation_scheme": "dynamic"}
AWQ: Json = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
GPTQ: Json = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
MODELOPT: Json = {"quant_method": "modelopt", "producer": {"name": "modelopt", "version": "0.37.0"}}
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def numbers(strategy: str, dynamic: bool | str = False, **more: Any) -> Json:
    """How compressed-tensors describes weights or activations."""
    return {"num_bits": 8, "type": "float", "strategy": strategy, "dynamic": dynamic, "symmetric": True, **more}


def compressed(form: str, weights: Json, activations: Json | None, *ignore: str) -> Json:
    """A config of compressed-tensors with one group."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None}
    head = {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed"}
    return {**head, "ignore": ["lm_head", *ignore], "config_groups": {"group_0": {**group, "format": form}}}


CHANNELS = ("float-quantized", numbers("channel"), numbers("token", True))
FOUR: Json = {"num_bits": 4, "group_size": 16}
LAYER = [f"model.layers.0.self_attn.{name}" for name in ATTENTION]
CONFIGS: dict[str, Json] = {
    "fp8": FP8,
    "fp8 static": {**FP8, "activation_scheme": "static"},
    "fp8 blocks": {**FP8, "weight_block_size": [128, 128]},
    "fp8, head left": {**FP8, "ignored_layers": ["lm_head"]},
    "fp8, attention left": {**FP8, "ignored_layers": LAYER},
    "fp8, fused names left": {**FP8, "ignored_layers": ["model.layers.0.self_attn.qkv_proj", "model.layers.0.mlp"]},
    "fp8, midlayer left": {**FP8, "modules_to_not_convert": [name.replace("layers.0", "midlayer") for name in LAYER]},
    "fp8, o_proj left as asked for": {**FP8, "ignored_layers": ["model.self_attn.o_proj"]},
    "fp8, qkv left as asked for": {
        **FP8,
        "ignored_layers": ["model.qkv_proj", "model.q_proj", "model.k_proj", "model.v_proj"],
    },
    "fp8, part of a name": {**FP8, "modules_to_not_convert": ["self_attn"]},
    "compressed-tensors fp8 static": compressed("float-quantized", numbers("tensor"), numbers("tensor")),
    "compressed-tensors fp8": compressed(*CHANNELS),
    "compressed-tensors fp8, attention left": compressed(*CHANNELS, *LAYER),
    "compressed-tensors fp8, q_proj left": compressed(*CHANNELS, "layers.0.self_attn.q_proj"),
    "compressed-tensors fp8, expressions": compressed(*CHANNELS, "re:.*qkv_proj", "re:.*o_proj"),
    "compressed-tensors int8": compressed(
        "int-quantized", numbers("channel", type="int"), numbers("token", True, type="int")
    ),
    "compressed-tensors int4": compressed(
        "pack-quantized", numbers("group", type="int", num_bits=4, group_size=128), None
    ),
    "compressed-tensors nvfp4": compressed(
        "nvfp4-pack-quantized", numbers("tensor_group", **FOUR), numbers("tensor_group", "local", **FOUR)
    ),
    "modelopt fp8": {**MODELOPT, "quant_algo": "FP8", "ignore": ["lm_head"]},
    "modelopt fp8, attention left": {**MODELOPT, "quant_algo": "FP8", "ignore": ["lm_head", "layers.0.self_attn*"]},
    "modelopt nvfp4": {
        **MODELOPT,
        "quant_algo": "NVFP4",
        "ignore": ["lm_head", "fc"],
        "config_groups": {"group_0": {"weights": FOUR, "input_activations": FOUR, "targets": ["Linear"]}},
    },
    "awq": AWQ,
    "awq, attention left": {**AWQ, "modules_to_not_convert": LAYER},
    "awq, part of a name": {**AWQ, "modules_to_not_convert": ["self_attn"]},
    "gptq": GPTQ,
}


LATENT: Json = {
    "q_lora_rank": 128,
    "kv_lora_rank": 128,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 64,
    "v_head_dim": 64,
}
EXPERTS: Json = {"moe_intermediate_size": 256, "intermediate_size": 512, "num_key_value_heads": 4}


def of_mtp(family: str, **sizes: Any) -> Json:
    """The config of a head in a target's checkpoint, in sizes that blocks of 128 divide."""
    return {**mtp_families.FAMILIES[family].config(), "hidden_size": 256, **sizes}


CLASSES: dict[str, Json] = {
    "llama_eagle3": BASE,
    "llama_eagle": {**class_drafts.eagle1().config, **SIZES},
    "qwen2_eagle": {**class_drafts.eagle1("Qwen2ForCausalLMEagle").config, **SIZES},
    "kimi_k25_eagle3": {**class_drafts.mla().config, **SIZES, **LATENT, "num_key_value_heads": 4},
    "dflash": {**class_drafts.dflash().config, **SIZES},
    "dflash2": {**class_relatives.dflash2().config, **SIZES},
    "dflash_laguna": {**class_relatives.laguna().config, **SIZES},
    "lilicorr": {**lattice_drafts.lilicorr().config, **SIZES},
    "dspark": {**class_drafts.dspark().config, **SIZES},
    "mistral_eagle": {**class_relatives.mistral().config, **SIZES},
    "deepseek_nextn": of_mtp("deepseek", **LATENT, **EXPERTS),
    "glm4_moe_nextn": of_mtp("glm4_moe", **SIZES, moe_intermediate_size=256),
    "glm_moe_dsa_nextn": of_mtp("glm_dsa", **LATENT, **EXPERTS),
}
"""A config of each class that is asked about, by the contract."""

BLOCKS: Json = {**FP8, "weight_block_size": [128, 128]}
LISTS: dict[str, dict[str, list[str]]] = {
    "llama_eagle": {"layer left": LAYER, "q_proj left": ["model.layers.0.self_attn.qkv_proj"]},
    "kimi_k25_eagle3": {
        "layer left": ["model.layers.0.self_attn.o_proj", "model.layers.0.mlp.down_proj", "model.midlayer.mlp"],
        "o_proj left as asked for": ["model.self_attn.o_proj"],
        "fc left": ["model.fc"],
    },
    "dflash": {"layer left": LAYER, "o_proj left as asked for": ["o_proj"]},
    "deepseek_nextn": {
        "layer left": ["model.layers.2.self_attn.o_proj", "model.layers.2.mlp.experts", "model.layers.2.eh_proj"],
        "as asked for": ["model.decoder.self_attn.o_proj", "model.decoder.mlp.experts"],
    },
}
LISTS["qwen2_eagle"] = LISTS["mistral_eagle"] = LISTS["llama_eagle"]
LISTS["dflash2"] = LISTS["lilicorr"] = LISTS["dflash_laguna"] = LISTS["dspark"] = LISTS["dflash"]
LISTS["glm4_moe_nextn"] = LISTS["glm_moe_dsa_nextn"] = LISTS["deepseek_nextn"]
SHORT = (
    *("fp8", "fp8 static", "fp8 blocks", "compressed-tensors fp8", "compressed-tensors fp8 static", "modelopt fp8"),
    *("compressed-tensors int4", "compressed-tensors fp8, expressions", "modelopt nvfp4", "awq", "gptq"),
)
"""What the other classes are asked about, beside the lists of their own."""


def tables(contract: str) -> dict[str, Json]:
    """The ``quantization_config`` that a class is asked about, by name."""
    if contract == "llama_eagle3":
        return CONFIGS
    lists = LISTS.get(contract, {})
    of_lists = {f"fp8, {name}": {**BLOCKS, "modules_to_not_convert": entries} for name, entries in lists.items()}
    of_lists |= {f"compressed-tensors fp8, {name}": compressed(*CHANNELS, *entries) for name, entries in lists.items()}
    return {**{name: CONFIGS[name] for name in SHORT}, **of_lists}


def cases(release: str) -> dict[str, Json]:
    """Every config, by the contract and the name, for the classes that the release has."""
    from drafcheck.proof import eras  # not in the environments of the engine

    return {
        f"{contract}: {name}": {**base, "quantization_config": table}
        for contract, base in CLASSES.items()
        if any(release == str(known) for _, era in eras("sglang", contract) for known in era)
        for name, table in tables(contract).items()
    }


def one(oracle: Any, wheel: str, folder: str) -> Json:
    """The parameters of the layers, by the layer and without their sizes, or the error."""
    stage = "config"
    try:
        config, model_config, _ = oracle.load_config(folder, [], "EAGLE")
        stage = "quantisation"
        method = _method(model_config)
        stage = "construct"
        model = _built(oracle.find_class(wheel, config.architectures[0])[0], config, method)
        layers: dict[str, dict[str, str]] = {}
        for name, parameter in model.named_parameters():
            module, _, part = name.rpartition(".")
            if "norm" not in module and "embed" not in module and not module.endswith(".attn"):
                layers.setdefault(module, {})[part] = str(parameter.dtype).removeprefix("torch.")
        return {"layers": layers}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:160]}", "stage": stage}


def _built(kind: Any, config: Any, method: Any) -> Any:
    """The real class; some are told which of several heads they are."""
    first = {"draft_model_idx": 0} if "draft_model_idx" in inspect.signature(kind.__init__).parameters else {}
    return kind(config=config, quant_config=method, **first)


def _method(model_config: Any) -> Any:
    """The quantisation as the release reads it from the config."""
    reader = importlib.import_module("sglang.srt.model_loader.weight_utils").get_quant_config
    load = importlib.import_module("sglang.srt.configs.load_config").LoadConfig()
    wanted = inspect.signature(reader).parameters
    return reader(model_config, load, *([{}] if "packed_modules_mapping" in wanted else []))


def _on_a_gpu() -> None:
    import torch

    torch.cuda.get_device_capability = lambda *_, **__: (9, 0)


def main() -> None:
    """Ask the releases named, or be the process that asks one; rows of releases that were not asked stay."""
    if sys.argv[1] == "--worker":
        asked.work(sys.argv[2:5], one, _on_a_gpu)
    folder = str(Path(sys.argv[1]) / "sglang")
    sys.path.insert(0, folder)
    oracle = importlib.import_module("oracle")
    rows = [row for row in recorded.rows(OUT) if row["release"] not in sys.argv[2:]]
    for release in sys.argv[2:]:
        wheel = str(Path(oracle.HOME) / "sglang" / f"sglang-{release}")
        healthy = {**record_rope.BASE, **record_rope.TOP}
        verdicts = asked.ask(oracle, folder, wheel, cases(release), script=Path(__file__), healthy=healthy)
        for name, verdict in verdicts.items():
            contract, _, case = name.partition(": ")
            row = {"release": release, "class": contract, "case": case, "config": tables(contract)[case], **verdict}
            rows.append(row)
    recorded.keep(OUT, rows)


if __name__ == "__main__":
    main()
