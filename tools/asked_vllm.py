"""Build the drafts of many configs in one vLLM release: what the recorders of ropes and of quantised layers share.

A recorder is started by ``ask`` as a worker of the environment in which the release runs, and answers by ``work``.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from asked import Json

Said = Callable[[Any], Json]
"""What is written down of the draft class that was built."""


def one(target: str, draft: str, said: Said) -> Json:
    """The verdict on one config, or the error. Runs in a process of its own."""
    stage = "target"
    try:
        vc = importlib.import_module("vllm.config")
        keys: Json = {"model": target, "tokenizer": target, "skip_tokenizer_init": True, "dtype": "bfloat16", "seed": 0}
        model = vc.ModelConfig(**keys, enforce_eager=True)
        stage = "speculative_config"
        parallel = vc.ParallelConfig()
        speculative = vc.SpeculativeConfig(
            model=draft,
            method="eagle3",
            num_speculative_tokens=3,
            target_model_config=model,
            target_parallel_config=parallel,
        )
        stage = "vllm_config"
        whole = vc.VllmConfig(
            model_config=model,
            speculative_config=speculative,
            parallel_config=parallel,
            device_config=vc.DeviceConfig("cpu"),
            load_config=vc.LoadConfig(),
            compilation_config=_uncompiled(vc),
        )
        with vc.set_current_vllm_config(whole):
            stage = "construct"
            return said(_built(whole, speculative.draft_model_config))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {_gist(error)}", "stage": stage}


def _gist(error: Exception) -> str:
    """The message without the frame that pydantic puts around it."""
    lines = [line.strip() for line in str(error).splitlines()]
    inner = next((line for line in lines if line.startswith(("Value error, ", "Assertion failed, "))), None)
    return (inner or " ".join(lines))[:160]


def _uncompiled(vc: Any) -> Any:
    try:
        return vc.CompilationConfig(mode=0)
    except Exception:
        return vc.CompilationConfig(level=0)


def _built(whole: Any, draft: Any) -> Any:
    import torch

    state = importlib.import_module("vllm.distributed.parallel_state")
    loading = importlib.import_module("vllm.model_executor.model_loader.utils")
    place = tempfile.mkdtemp(prefix="gloo_")
    state.init_distributed_environment(
        world_size=1, rank=0, local_rank=0, distributed_init_method=f"file://{place}/store", backend="gloo"
    )
    state.initialize_model_parallel(1, 1)
    torch.set_default_dtype(torch.bfloat16)
    return loading.initialize_model(vllm_config=whole, model_config=draft)


def forked(target: str, draft: str, said: Said) -> Json:
    """``one`` in a child: the releases keep process-wide state."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        os.write(send, json.dumps(one(target, draft, said), default=str).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    verdict: Json = json.loads(told or b'{"error": "the process died", "stage": "oracle"}')
    return verdict


def work(
    given: Sequence[str], said: Said, questions: dict[str, tuple[Json, Json]], before: Callable[[], None] = lambda: None
) -> None:
    """All configs, each in a child of one process that has imported the release; writes one JSON object.

    ``given`` is what the worker was told: the oracle's folder, the release, and where the answers go. A question is the
    config of a draft and that of its target; ``before`` is done first.
    """
    oracle_folder, release, answers = given
    sys.path.insert(0, oracle_folder)
    importlib.import_module("oracle").base_imports(release)
    before()
    with tempfile.TemporaryDirectory() as scratch:
        found = {}
        for number, (name, (draft, target)) in enumerate(questions.items()):
            beside = _written(Path(scratch) / f"target-{number}", target)
            found[name] = forked(beside, _written(Path(scratch) / str(number), draft), said)
    Path(answers).write_text(json.dumps(found))


def _written(folder: Path, config: Json) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def ask(oracle: Any, oracle_folder: str, release: str, script: Path, *more: str) -> dict[str, Json]:
    """The verdicts of one release on every config; ``script`` is run as a worker, with ``more`` behind what it gets."""
    with tempfile.TemporaryDirectory() as scratch:
        answers = Path(scratch) / "answers.json"
        env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [oracle.py_for(release), str(script.resolve()), "--worker", oracle_folder, release]
        done = subprocess.run([*command, str(answers), *more], env=env, capture_output=True, text=True, check=False)
        if not answers.is_file():
            raise SystemExit(f"{release}: {done.stderr[-2000:]}")
        verdicts: dict[str, Json] = json.loads(answers.read_text())
        return verdicts
