"""Ask the real loaders of one release of vLLM about heads that lie in the target's own checkpoint.

    ORACLE_HOME=DIR python tools/drive_mtp_vllm.py SCRIPTS RELEASE ANSWERS CORPUS/<family>-*

SCRIPTS holds oracle.py, which knows how a release is imported without a GPU. A checkpoint is target and draft in one.
It is put in a fork of this process: the class is built, every parameter filled with a sentinel, every tensor of the
file with a number of its own, and what changed after a tensor is what it was written to. The answers go to
``ANSWERS/<family>/RELEASE.json``, which tools/record_mtp.py reads.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mtp_kernels import module, without_kernels

Answer = dict[str, Any]

SENTINEL = -(2**40)
"""What parameters of whole numbers are filled with; the others hold NaN."""


def restart(oracle: Any, release: str) -> None:
    """Become a process of the environment in which the scripts run this release."""
    python = oracle.py_for(release)
    os.execve(python, [python, *sys.orig_argv[1:]], {**os.environ, "ORACLE_DRIVEN": "1", "OMP_NUM_THREADS": "1"})


def configs(folder: Path, release: str, method: str) -> tuple[Any, Any]:
    """The engine's whole configuration for a target that drafts with its own head, and that of the draft."""
    vc = module("vllm.config")
    named = {"model": str(folder), "tokenizer": str(folder), "skip_tokenizer_init": True, "dtype": "bfloat16"}
    old = {"task": "auto", "tokenizer_mode": "auto"} if release == "0.9.2" else {}
    target = vc.ModelConfig(**named, **old, seed=0, enforce_eager=True, trust_remote_code=False)
    ranks, tokens = vc.ParallelConfig(), 1
    said = {"model": str(folder), "target_model_config": target, "target_parallel_config": ranks, "method": method}
    try:
        drafting = vc.SpeculativeConfig(**said, num_speculative_tokens=tokens)
    except Exception as error:
        if "divisible" not in str(error):
            raise
        tokens = json.loads((folder / "config.json").read_text())["num_nextn_predict_layers"]
        drafting = vc.SpeculativeConfig(**said, num_speculative_tokens=tokens)
    try:
        eager = vc.CompilationConfig(mode=0)
    except Exception:
        eager = vc.CompilationConfig(level=0)
    whole = vc.VllmConfig(
        model_config=target,
        speculative_config=drafting,
        parallel_config=ranks,
        device_config=vc.DeviceConfig("cpu"),
        load_config=vc.LoadConfig(),
        cache_config=vc.CacheConfig(enable_prefix_caching=False),
        compilation_config=eager,
    )
    return whole, drafting.draft_model_config


def built(whole: Any, draft: Any) -> Any:
    """The draft class, built for one rank on the CPU."""
    import torch

    ranks, loading = module("vllm.distributed.parallel_state"), module("vllm.model_executor.model_loader.utils")
    place = tempfile.mkdtemp()  # which has to stay for as long as this process asks for ranks
    ranks.init_distributed_environment(1, 0, f"file://{place}/gloo", 0, "gloo")
    ranks.initialize_model_parallel(1, 1)
    before = torch.get_default_dtype()
    torch.set_default_dtype(draft.dtype)
    try:
        with torch.device("cpu"):
            return loading.initialize_model(vllm_config=whole, model_config=draft)
    finally:
        torch.set_default_dtype(before)


class Watch:
    """What a loader writes: the parameters before and after each tensor that it takes."""

    def __init__(self, model: Any) -> None:
        """Fill every parameter, and stand between the loader and the file."""
        self.parameters = dict(model.named_parameters())
        for parameter in self.parameters.values():
            parameter.data.fill_(float("nan") if parameter.is_floating_point() else SENTINEL)
        self.seen: list[str] = []
        self.loaded: dict[str, list[str]] = defaultdict(list)
        self.before: dict[str, Any] | None = None  # while the loader has a tensor
        self.real = model.load_weights
        model.load_weights = self.load

    def load(self, weights: Iterable[tuple[str, Any]], **more: Any) -> Any:
        """In the place of the model's own method, which is called."""
        return self.real(self.given(weights), **more)

    def given(self, weights: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The tensors, each full of its own number."""
        for number, (name, tensor) in enumerate(weights):
            self.seen.append(name)
            self.before = {n: p.data.clone() for n, p in self.parameters.items()}
            yield name, tensor.new_full(tensor.shape, number + 1) if tensor.is_floating_point() else tensor
            self.note()

    def note(self) -> None:
        """What the last tensor was written to."""
        if self.before is None:
            return
        for name, parameter in self.parameters.items():
            same = (self.before[name] == parameter.data) | (_left(self.before[name]) & _left(parameter.data))
            if not bool(same.all()):
                self.loaded[self.seen[-1]].append(name)
        self.before = None

    def told(self, stopped: bool) -> Answer:
        """What became of the tensors, but for one at which the loader stopped, and of the parameters."""
        last = self.seen[-1:] if stopped and self.before is not None else []
        self.note()
        left = {name: float(_left(p.data).float().mean()) for name, p in self.parameters.items() if p.numel()}
        return {
            "loaded": dict(self.loaded),
            "dropped": sorted({*self.seen} - {*self.loaded} - {*last}),
            "missing_params": [name for name, share in left.items() if share == 1],
            "partial_params": [[name, round(share, 3)] for name, share in left.items() if 0 < share < 1],
        }


def _left(values: Any) -> Any:
    """Where a parameter still is what it was filled with."""
    return values.isnan() if values.is_floating_point() else values == SENTINEL


def answer(folder: Path, release: str, method: str) -> Answer:
    """What the release makes of one checkpoint."""
    found: Answer = {"ckpt": folder.name, "version": release, "arch": None, "loaded": {}, "dropped": []}
    found |= {"missing_params": [], "partial_params": [], "error": None, "stage": "config"}
    try:
        whole, draft = configs(folder, release, method)
        found |= {"arch": next(iter(draft.hf_config.architectures or []), None), "stage": "construct"}
        with module("vllm.config").set_current_vllm_config(whole):
            model = built(whole, draft)
            watch, found["stage"] = Watch(model), "load_weights"
            loader = module("vllm.model_executor.model_loader").get_model_loader(whole.load_config)
            try:
                loader.load_weights(model, draft)
            except BaseException:
                found |= watch.told(stopped=True)
                raise
            found |= watch.told(stopped=False) | {"stage": "done"}
    except BaseException as error:
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def forked(folder: Path, release: str, method: str) -> Answer:
    """The same from a fork of this process, so that no answer depends on an earlier one."""
    here, there = os.pipe()
    if (child := os.fork()) == 0:
        with os.fdopen(there, "w") as out:
            json.dump(answer(folder, release, method), out, default=str)
        os._exit(0)
    os.close(there)
    with os.fdopen(here) as said:
        text = said.read()
    os.waitpid(child, 0)
    return json.loads(text)  # type: ignore[no-any-return]


def main() -> None:
    """Ask about every folder that is named."""
    scripts, release, answers, *folders = sys.argv[1:]
    sys.path.insert(0, scripts)
    oracle = importlib.import_module("oracle")
    if "ORACLE_DRIVEN" not in os.environ:
        restart(oracle, release)
    oracle.base_imports(release)
    without_kernels(release)
    method = "deepseek_mtp" if release == "0.9.2" else "mtp"
    listed: dict[str, list[Answer]] = defaultdict(list)
    for folder in map(Path, folders):
        listed[folder.name.partition("-")[0]].append(forked(folder, release, method))
        with contextlib.suppress(BrokenPipeError):
            print(folder.name, listed[folder.name.partition("-")[0]][-1]["stage"], flush=True)
    for family, rows in listed.items():
        file = Path(answers) / family / f"{release}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
