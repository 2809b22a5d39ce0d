"""Let vLLM build classes on a CPU whose kernels want a GPU: no parameter hangs on which one computes something."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

MOE = "vllm.model_executor.layers.fused_moe."
ATTENTION = ("vllm.model_executor.layers.mla", "vllm.model_executor.models.deepseek_v2")


class Gpu:
    """A platform that says it is a GPU, for the places that choose a kernel by it."""

    def __init__(self, real: Any) -> None:
        """Stand for the platform that there is."""
        self._real = real

    def __getattr__(self, name: str) -> Any:
        """Everything else is what the platform says."""
        return getattr(self._real, name)

    def is_cuda_alike(self) -> bool:
        """Whatever there is."""
        return True


class NoKernel:
    """In the place of what computes attention: it takes everything, and has no parameters."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Nothing to build."""

    def __getattr__(self, name: str) -> int:
        """Whatever the layer wants to know of it."""
        if name.startswith("__"):
            raise AttributeError(name)
        return 0


def without_kernels(release: str) -> None:
    """Leave the choice of kernels out of a release that is imported, and its own config classes of others in."""
    for step in (_experts, _latent_attention, _buffers, _head_sizes, _sinks, _sparse_deepseek, _pangu):
        with contextlib.suppress(ImportError, AttributeError):
            step(release)


def module(name: str) -> Any:
    """A module of the environment in which the engine runs."""
    return importlib.import_module(name)


def _experts(release: str) -> None:
    for place in ("config", "layer"):
        with contextlib.suppress(ImportError, AttributeError):
            if release not in ("0.9.2", "0.11.0", "0.16.0"):
                found = module(MOE + place)
                found.current_platform = Gpu(found.current_platform)
    triton = module(MOE + "oracle.unquantized").UnquantizedMoeBackend.TRITON
    chosen = triton if release == "0.16.0" else (triton, None)
    module(MOE + "unquantized_fused_moe_method").select_unquantized_moe_backend = lambda *_, **__: chosen


def _latent_attention(_: str) -> None:
    import torch

    for name in ATTENTION:
        with contextlib.suppress(ImportError, AttributeError):
            found = module(name)
            if hasattr(found, "MLAAttention"):
                found.MLAAttention = lambda *_, **__: torch.nn.Module()
            elif hasattr(found, "Attention"):
                found.Attention = _unless_latent(found.Attention)


def _unless_latent(real: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    return lambda *args, **keys: torch.nn.Module() if keys.get("use_mla") else real(*args, **keys)


def _buffers(release: str) -> None:
    """Buffers of indices lie on a GPU, said by name."""
    import torch

    empty = torch.empty
    if release == "0.11.0":
        torch.empty = lambda *args, **keys: empty(*args, **{k: v for k, v in keys.items() if k != "device"})


def _head_sizes(_: str) -> None:
    """Only the CPU's attention asks for certain sizes of a head."""
    paged = module("vllm.attention.backends.torch_sdpa").PagedAttention
    paged.get_supported_head_sizes = staticmethod(lambda: list(range(1, 600)))


def _sinks(_: str) -> None:
    module("vllm.v1.attention.backends.flash_attn").flash_attn_supports_sinks = lambda *_, **__: True


def _sparse_deepseek(_: str) -> None:
    """The class for CUDA, which the package chooses by the platform."""
    package = module("vllm.models.deepseek_v32")
    package.DeepseekV32MTP = module("vllm.models.deepseek_v32.nvidia.mtp").DeepseekV32MTP
    module("vllm.v1.attention.backends.cpu_attn").CPUAttentionBackend.get_impl_cls = staticmethod(lambda: NoKernel)
    latent = module("vllm.model_executor.layers.attention.mla_attention")
    latent.get_mla_prefill_backend = lambda *_, **__: NoKernel


def _pangu(_: str) -> None:
    """openPangu's checkpoints bring their config class along; one of its name that takes every key stands for it."""
    transformers = module("transformers")
    config = type("PanguUltraMoEConfig", (transformers.PretrainedConfig,), {"model_type": "pangu_ultra_moe"})
    transformers.AutoConfig.register("pangu_ultra_moe", config, exist_ok=True)
