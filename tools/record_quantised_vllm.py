"""Record of which parameters vLLM really builds quantised drafts: fixtures/verdicts/vllm/quantised.jsonl.xz.

    ORACLE_HOME=... python tools/record_quantised_vllm.py ORACLE [RELEASE ...]

ORACLE is a folder with ``vllm/oracle.py``, as for tools/record_rope_vllm.py. The tables are those that SGLang is asked
about, and lists by the numbers behind the target's layers; a draft is built by its own table, or beside a target that
has one. Which hardware a method wants is not asked: a CPU is taken for what it wants. Nothing is asked of drafcheck.
What is written is recorded data: run this, never edit it.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

import asked_vllm
import record_quantised
import recorded
from asked import Json
from record_rope import TOP, numbers

OUT = Path(__file__).parent.parent / "fixtures" / "verdicts" / "vllm" / "quantised.jsonl"
BASE: Json = {**record_quantised.BASE, **TOP}
DEPTH = 8
TARGET: Json = {**BASE, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": DEPTH}
BEHIND = [f"model.layers.{DEPTH}.self_attn.{part}" for part in ("qkv_proj", "q_proj", "k_proj", "v_proj", "o_proj")]
TABLES: dict[str, Json] = {
    **record_quantised.CONFIGS,
    "fp8, behind the target": {**record_quantised.FP8, "ignored_layers": BEHIND},
    "fp8, fc left": {**record_quantised.FP8, "ignored_layers": ["model.fc", "fc"]},
    "compressed-tensors fp8, behind the target": record_quantised.compressed(*record_quantised.CHANNELS, *BEHIND),
    "awq, behind the target": {**record_quantised.AWQ, "modules_to_not_convert": BEHIND},
}
NAMED_SO = ("fp8", "compressed-tensors fp8")


def questions() -> dict[str, tuple[Json, Json]]:
    """Every draft and its target, by name."""
    own = {name: ({**BASE, "quantization_config": table}, TARGET) for name, table in TABLES.items()}
    beside = {f"target's {n}": (BASE, {**TARGET, "quantization_config": table}) for n, table in TABLES.items()}
    plain = {**BASE, "architectures": TARGET["architectures"]}  # as the first releases know the draft class
    named = {f"{n}, named as the target": ({**plain, "quantization_config": TABLES[n]}, TARGET) for n in NAMED_SO}
    return {**own, **beside, **named}


def layers(model: Any) -> Json:
    """The parameters of the layers, by the layer and without their sizes."""
    found: dict[str, dict[str, str]] = {}
    for name, parameter in model.named_parameters():
        module, _, part = name.rpartition(".")
        if "norm" not in module and "embed" not in module and not module.endswith(".attn"):
            found.setdefault(module, {})[part] = str(parameter.dtype).removeprefix("torch.")
    return {"layers": found}


KERNELS = (
    "vllm.model_executor.kernels.linear",
    "vllm.model_executor.layers.quantization.kernels.scaled_mm",
    "vllm.model_executor.layers.quantization.kernels.mixed_precision",
)
"""Where the releases list the kernels of the layers, by platform; they decide nothing about the parameters."""


def _any_hardware() -> None:
    """Have every method taken for one that the platform runs, and the first kernel of a GPU for one of its own."""
    platforms = importlib.import_module("vllm.platforms")
    interface = importlib.import_module("vllm.platforms.interface")
    platform = type(platforms.current_platform)
    platform.supported_quantization = []
    platform.get_device_capability = classmethod(lambda *_, **__: interface.DeviceCapability(9, 0))
    platform.has_device_capability = classmethod(lambda *_, **__: True)
    for place in KERNELS:
        with contextlib.suppress(ImportError):
            lists = [d for d in vars(importlib.import_module(place)).values() if isinstance(d, dict)]
            for found in [d for d in lists if interface.PlatformEnum.CUDA in d]:
                _taken(found, found[interface.PlatformEnum.CUDA], platforms.current_platform._enum)


def _taken(kernels: Any, of_a_gpu: list[Any], platform: Any) -> None:
    """Have the platform at hand run what a GPU does."""
    kernels[platform] = of_a_gpu
    for kernel in of_a_gpu:
        for asked in ("is_supported", "can_implement"):
            if hasattr(kernel, asked):
                setattr(kernel, asked, classmethod(lambda *_, **__: (True, None)))
        if hasattr(kernel, "get_min_capability"):
            kernel.get_min_capability = classmethod(lambda *_: 0)


def main() -> None:
    """Ask the releases and write the rows, or be the process that asks one; rows of others stay."""
    if sys.argv[1] == "--worker":
        asked_vllm.work(sys.argv[2:5], layers, questions(), _any_hardware)
        return
    folder = str((Path(sys.argv[1]) / "vllm").resolve())
    sys.path.insert(0, folder)
    oracle = importlib.import_module("oracle")
    releases = sys.argv[2:] or sorted((path.name for path in Path(oracle.SRC).iterdir()), key=numbers)
    rows = [row for row in recorded.rows(OUT) if row["release"] not in releases]
    for release in releases:
        for name, verdict in asked_vllm.ask(oracle, folder, release, Path(__file__)).items():
            draft, target = questions()[name]
            tables = {"config": draft.get("quantization_config"), "target": target.get("quantization_config")}
            rows.append({"release": release, "case": name, **tables, **verdict})
    recorded.keep(OUT, rows)


if __name__ == "__main__":
    main()
