"""Record which files the loaders of real releases take from a folder, in which order, and what they yield of them.

    ORACLE_HOME=... python tools/record_files.py ENGINE ORACLE [RELEASE ...]

writes fixtures/verdicts/ENGINE/files.jsonl. ORACLE holds ``ENGINE/oracle.py``, which knows how a release is imported
on a CPU; ORACLE_HOME holds the releases. Every folder of file_layouts.py is written twice to a memory disk, which lists
the newest file first, so that each pair of files is listed both ways round; the release's own loader reads each of them
several times, as its server would. Nothing is asked of drafcheck. What is written is recorded data: run this, never
edit it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

VERDICTS = Path(__file__).parent.parent / "fixtures" / "verdicts"
MEMORY = Path("/dev/shm")
ROUNDS = 6
"""Times that each folder is read: what comes in an order of its own each time is seen to."""

Json = dict[str, Any]
Reads = Callable[[str, Any], Iterator[tuple[str, Any]]]


def sglang_reads(oracle: Any, release: str, probe: str) -> tuple[Any, Reads]:
    """The loader of a release of SGLang, and how it is asked for the weights in a folder."""
    wheel = str(Path(oracle.HOME) / "sglang" / f"sglang-{release}")
    oracle.setup(wheel)
    oracle.init_runtime(probe, oracle.ver(wheel)[1])
    kind = importlib.import_module("sglang.srt.model_loader.loader").DefaultModelLoader
    loader = kind(importlib.import_module("sglang.srt.configs.load_config").LoadConfig())
    hf_config = SimpleNamespace(architectures=["LlamaForCausalLMEagle3"])

    def reads(folder: str, model: Any) -> Iterator[tuple[str, Any]]:
        asked = SimpleNamespace(model_path=folder, model_weights=folder, revision=None, hf_config=hf_config)
        yield from loader._get_all_weights(asked, model)

    return loader, reads


def vllm_reads(oracle: Any, release: str, probe: str) -> tuple[Any, Reads]:
    """The same for vLLM."""
    del probe
    oracle.base_imports(release)
    kind = importlib.import_module("vllm.model_executor.model_loader.default_loader").DefaultModelLoader
    loader = kind(importlib.import_module("vllm.config").LoadConfig())

    def reads(folder: str, model: Any) -> Iterator[tuple[str, Any]]:
        yield from loader.get_all_weights(SimpleNamespace(model=folder, revision=None), model)

    return loader, reads


READS = {"sglang": sglang_reads, "vllm": vllm_reads}


def one(loader: Any, reads: Reads, folder: str) -> Json:
    """What the loader takes from a folder and yields, each order once; or how it stops."""
    import torch

    taken: list[str] = []
    prepare = loader._prepare_weights

    def watched(*args: Any, **kwargs: Any) -> Any:
        found = prepare(*args, **kwargs)
        taken[:] = [str(Path(file).relative_to(folder)) for file in found[1]]
        return found

    row: Json = {"listed": os.listdir(folder)}  # noqa: PTH208 - the order of the folder is what counts
    orders: list[Any] = []
    loader._prepare_weights = watched
    try:
        for _ in range(ROUNDS):
            order = [(name, _number(tensor)) for name, tensor in reads(folder, torch.nn.Module())]
            if order not in orders:
                orders.append(order)
    except Exception as error:
        return {**row, "error": re.sub(re.escape(folder), "FOLDER", f"{type(error).__name__}: {error}")[:200]}
    finally:
        loader._prepare_weights = prepare
    return {**row, "taken": taken, "yielded": sorted(orders)}


def _number(tensor: Any) -> float:
    return float(tensor.flatten()[0])


def worker(engine: str, oracle_folder: str, release: str, folders: str, answers: str) -> None:
    """Every folder, one after the other; writes one JSON object."""
    sys.path.insert(0, oracle_folder)
    oracle = importlib.import_module("oracle")
    with tempfile.TemporaryDirectory() as probe:
        (Path(probe) / "config.json").write_text(json.dumps(_probe()))
        loader, reads = READS[engine](oracle, release, probe)
        found = {path: one(loader, reads, path) for path in json.loads(folders)}
    Path(answers).write_text(json.dumps(found))
    os._exit(0)


def _probe() -> Json:
    """A config that every release reads."""
    return json.loads((VERDICTS.parent / "good/healthy/config.json").read_text())  # type: ignore[no-any-return]


def _environment(engine: str, oracle: Any, release: str, scratch: Path) -> tuple[str, dict[str, str]]:
    """The interpreter of a release, and what stands in its environment."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    if engine == "vllm":
        return oracle.py_for(release), env
    probe = scratch / "probe"
    probe.mkdir()
    (probe / "config.json").write_text(json.dumps(_probe()))
    wheel = str(Path(oracle.HOME) / "sglang" / f"sglang-{release}")
    learnt = oracle.run(wheel, str(probe))  # finds out which third-party modules must be stood in for
    stubs = {"ORACLE_STUBS": ",".join(learnt["stubs"])}
    return oracle.PY, {**env, **stubs, "PYTHONPATH": str(Path(oracle.TF) / learnt["deps"])}


def ask(engine: str, oracle: Any, oracle_folder: str, release: str) -> list[Json]:
    """The rows of one release."""
    from file_layouts import LAYOUTS, write

    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        made: dict[str, str] = {}
        for number, (case, layout) in enumerate(LAYOUTS.items()):
            for way in (False, True):
                folder = Path(scratch) / f"{number}-{way:d}"
                folder.mkdir()
                write(layout, folder, backwards=way)
                made[str(folder)] = case
        answers = Path(scratch) / "answers.json"
        python, env = _environment(engine, oracle, release, Path(scratch))
        command = [python, str(Path(__file__).resolve()), "--worker", engine, oracle_folder, release]
        command += [json.dumps(list(made)), str(answers)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200, check=False)
        if not answers.is_file():
            raise SystemExit(f"{release}: {done.stderr[-2000:]}")
        found = json.loads(answers.read_text())
        return [{"version": release, "case": case, **found[folder]} for folder, case in made.items()]


def main(engine: str, oracle_folder: str, releases: list[str]) -> None:
    """Ask the releases and write the rows; rows of releases that were not asked stay."""
    from recorded import keep, rows

    folder = str((Path(oracle_folder) / engine).resolve())
    sys.path.insert(0, folder)
    oracle = importlib.import_module("oracle")
    out = VERDICTS / engine / "files.jsonl"
    for release in releases:
        packed = out.with_name(f"{out.name}.xz")
        kept = [row for row in (rows(out) if packed.is_file() or out.is_file() else []) if row["version"] != release]
        keep(out, sorted([*kept, *ask(engine, oracle, folder, release)], key=lambda row: _numbers(row["version"])))
        print(release, flush=True)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(*sys.argv[2:7])
    else:
        main(sys.argv[1], sys.argv[2], sys.argv[3:])
