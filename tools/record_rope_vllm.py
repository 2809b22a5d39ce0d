"""Record which rotary embedding each vLLM release really builds for a draft: fixtures/verdicts/vllm/rope.jsonl.

    ORACLE_HOME=... python tools/record_rope_vllm.py ORACLE [RELEASE ...]

ORACLE is a folder with ``vllm/oracle.py``, which runs a release's own classes on the CPU; ORACLE_HOME holds the
unpacked releases and their environments. The configs are those of record_rope.py. Each is read by the real
SpeculativeConfig beside a Llama target, the real draft class is built from it, and what its attention layer holds is
written down. Nothing is asked of drafcheck. What is written is recorded data: run this, never edit it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from asked import Json
from record_rope import BASE, TOP, cases, keep, numbers

OUT = Path(__file__).parent.parent / "fixtures" / "verdicts" / "vllm" / "rope.jsonl"
TARGET: Json = {**BASE, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 8, **TOP}


def described(embedding: Any) -> Json:
    """What an embedding that was really built holds."""
    kind = type(embedding).__name__
    factor = getattr(embedding, "scaling_factor", None)
    factors = getattr(embedding, "scaling_factors", None) or [None]
    original = "max_position_embeddings" if "YaRN" in kind else "orig_max_position"
    row = {
        "class": kind,
        "theta": embedding.base,
        "factor": factors[0] if factor is None else factor,
        "original": getattr(embedding, original, None),
    }
    return {key: value for key, value in row.items() if value is not None}


def one(target: str, draft: str) -> Json:
    """The verdict on one config: the embedding of the first layer, or the error. Runs in a process of its own."""
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
            return described(_embedding(whole, speculative.draft_model_config))
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


def _embedding(whole: Any, draft: Any) -> Any:
    import torch

    state = importlib.import_module("vllm.distributed.parallel_state")
    loading = importlib.import_module("vllm.model_executor.model_loader.utils")
    place = tempfile.mkdtemp(prefix="gloo_")
    state.init_distributed_environment(
        world_size=1, rank=0, local_rank=0, distributed_init_method=f"file://{place}/store", backend="gloo"
    )
    state.initialize_model_parallel(1, 1)
    torch.set_default_dtype(torch.bfloat16)
    model = loading.initialize_model(vllm_config=whole, model_config=draft)
    return model.model.layers[0].self_attn.rotary_emb


def forked(target: str, draft: str) -> Json:
    """``one`` in a child: the releases keep process-wide state."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        os.write(send, json.dumps(one(target, draft), default=str).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    verdict: Json = json.loads(said or b'{"error": "the process died", "stage": "oracle"}')
    return verdict


def worker(oracle_folder: str, release: str, answers: str) -> None:
    """All configs, each in a child of one process that has imported the release; writes one JSON object."""
    sys.path.insert(0, oracle_folder)
    importlib.import_module("oracle").base_imports(release)
    with tempfile.TemporaryDirectory() as scratch:
        target = _written(Path(scratch) / "target", TARGET)
        found = {}
        for number, (name, config) in enumerate(cases().items()):
            found[name] = forked(target, _written(Path(scratch) / str(number), config))
    Path(answers).write_text(json.dumps(found))


def _written(folder: Path, config: Json) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def ask(oracle: Any, oracle_folder: str, release: str) -> dict[str, Json]:
    """The verdicts of one release on every config."""
    with tempfile.TemporaryDirectory() as scratch:
        answers = Path(scratch) / "answers.json"
        env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [oracle.py_for(release), str(Path(__file__).resolve()), "--worker", oracle_folder, release]
        done = subprocess.run([*command, str(answers)], env=env, capture_output=True, text=True, check=False)
        if not answers.is_file():
            raise SystemExit(f"{release}: {done.stderr[-2000:]}")
        verdicts: dict[str, Json] = json.loads(answers.read_text())
        return verdicts


def main(oracle_folder: str, releases: list[str]) -> None:
    """Ask the releases and write the rows; rows of releases that were not asked stay."""
    folder = str((Path(oracle_folder) / "vllm").resolve())
    sys.path.insert(0, folder)
    oracle = importlib.import_module("oracle")
    for release in releases or sorted((path.name for path in Path(oracle.SRC).iterdir()), key=numbers):
        verdicts = ask(oracle, folder, release)
        keep(OUT, release, verdicts)
        print(release, len(verdicts), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(*sys.argv[2:5])
    else:
        main(sys.argv[1], sys.argv[2:])
