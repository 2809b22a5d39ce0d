"""Record of which parameters SGLang really builds quantised drafts: fixtures/verdicts/sglang/quantised.jsonl.

    ORACLE_HOME=... python tools/record_quantised.py ORACLE RELEASE ...

ORACLE is a folder with ``sglang/oracle.py``, as for tools/record_rope.py. Every ``quantization_config`` below is read
by the real config loader and the real method's own reader, the real draft class is built with it, and the parameters of
its linear layers are written down; the methods are told that there is a GPU of compute capability 9.0. Nothing is asked
of drafcheck. What is written is recorded data: run this, never edit it.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import record_rope
from record_rope import Json

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


def cases() -> dict[str, Json]:
    """Every config by name."""
    return {name: {**BASE, "quantization_config": table} for name, table in CONFIGS.items()}


def one(oracle: Any, wheel: str, folder: str) -> Json:
    """The parameters of the layers, by the layer and without their sizes, or the error."""
    stage = "config"
    try:
        config, model_config, _ = oracle.load_config(folder, [])
        stage = "quantisation"
        method = _method(model_config)
        stage = "construct"
        model = oracle.find_class(wheel, config.architectures[0])[0](config=config, quant_config=method)
        layers: dict[str, dict[str, str]] = {}
        for name, parameter in model.named_parameters():
            module, _, part = name.rpartition(".")
            if "norm" not in module and "embed" not in module and not module.endswith(".attn"):
                layers.setdefault(module, {})[part] = str(parameter.dtype).removeprefix("torch.")
        return {"layers": layers}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:160]}", "stage": stage}


def _method(model_config: Any) -> Any:
    """The quantisation as the release reads it from the config."""
    reader = importlib.import_module("sglang.srt.model_loader.weight_utils").get_quant_config
    load = importlib.import_module("sglang.srt.configs.load_config").LoadConfig()
    wanted = inspect.signature(reader).parameters
    return reader(model_config, load, *([{}] if "packed_modules_mapping" in wanted else []))


def worker(oracle_folder: str, wheel: str, configs: str) -> None:
    """All configs in one process; prints one JSON object."""
    sys.path.insert(0, oracle_folder)
    oracle = importlib.import_module("oracle")
    oracle.setup(wheel)
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.bfloat16)
    torch.cuda.get_device_capability = lambda *_, **__: (9, 0)
    found: dict[str, Json] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, config) in enumerate(json.loads(Path(configs).read_text()).items()):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(config))
            if not found:
                oracle.init_runtime(str(folder), oracle.ver(wheel)[1])
            found[name] = one(oracle, wheel, str(folder))
    print("\n@@JSON@@" + json.dumps(found, default=str), flush=True)
    os._exit(0)


def main() -> None:
    """Ask the releases named, or be the process that asks one."""
    if sys.argv[1] == "--worker":
        worker(*sys.argv[2:5])
    folder = str(Path(sys.argv[1]) / "sglang")
    sys.path.insert(0, folder)
    oracle = importlib.import_module("oracle")
    rows = []
    for release in sys.argv[2:]:
        wheel = str(Path(oracle.HOME) / "sglang" / f"sglang-{release}")
        for name, verdict in record_rope.ask(oracle, folder, wheel, cases(), Path(__file__)).items():
            rows.append({"release": release, "case": name, "config": CONFIGS[name], **verdict})
    OUT.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
