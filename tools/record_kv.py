"""Record how each vLLM release groups the KV caches of a target beside those of a draft: verdicts/vllm/kv.jsonl.

    ORACLE_HOME=... python tools/record_kv.py ORACLE [RELEASE ...]

ORACLE is a folder with ``vllm/oracle.py``, which runs a release's own code on the CPU; ORACLE_HOME holds the unpacked
releases and their environments. The caches of the layers are described by the release's own classes, by hand, and its
own grouping is asked. A layer is written ``kind kv-heads x head-size``, as one rank has it; the kind is ``full``,
``window`` or ``mla``. Nothing is asked of drafcheck. What is written is recorded data: run this, never edit it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import recorded

OUT = Path(__file__).parent.parent / "fixtures" / "verdicts" / "vllm" / "kv.jsonl"
BLOCK = 16
WINDOW = 128
GROUPED = "grouped"
TARGETS = [
    *("full 8x128", "full 4x128", "full 8x64", "full 1x256", "mla 1x576"),
    *("full 8x128, window 8x128", "full 8x64, window 8x64", "full 4x256, window 4x256", "full 1x80, window 1x80"),
]
DRAFTS = [
    *(f"full {heads}x{size}" for heads in (8, 4, 2, 1) for size in (64, 80, 96, 128)),
    *("full 1x288", "full 16x128", "window 8x128", "window 8x80", "window 4x64", "mla 1x576", "mla 1x320"),
]
DTYPES = ("bfloat16", "float32")

Json = dict[str, Any]


def questions() -> Iterator[Json]:
    """Each target beside each draft, with vLLM's manager of several groups and without it."""
    for target, draft, several in product(TARGETS, DRAFTS, (True, False)):
        yield {"target": target, "draft": draft, "several_groups": several}


def layers(question: Json) -> list[str]:
    """The kinds of layers of a question: a target has several of each of its own, a draft one."""
    return [*(kind for kind in question["target"].split(", ") for _ in range(4)), question["draft"]]


def specification(interface: Any, text: str, dtype: Any, mla: bool) -> Any:
    """The release's own description of a layer's cache. ``mla``: what it takes every layer for, if it asks once."""
    kind, _, size = text.partition(" ")
    heads, head = map(int, size.split("x"))
    keys: Json = {"block_size": BLOCK, "num_kv_heads": heads, "head_size": head, "dtype": dtype}
    if not hasattr(interface, "MLAAttentionSpec"):
        keys["use_mla"] = mla
    if kind == "window":
        return interface.SlidingWindowSpec(**keys, sliding_window=WINDOW)
    if kind == "mla" and "use_mla" not in keys:
        return interface.MLAAttentionSpec(**keys)
    return interface.FullAttentionSpec(**keys)


def grouping(several: bool, outermost: bool) -> Any:
    """As much of a configuration as the grouping looks at. ``outermost``: which of two layouts 0.33.0 resolved."""
    layout = SimpleNamespace(is_block_outermost=outermost)
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=not several, max_num_batched_tokens=2048),
        model_config=SimpleNamespace(max_model_len=2048),
        cache_config=SimpleNamespace(
            num_gpu_blocks_override=None, block_size=BLOCK, get_resolved_kv_cache_layout=lambda: layout
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
    )


def answer(question: Json, dtype_name: str, outermost: bool) -> str:
    """``grouped``, or the class of the error that the release raises."""
    import torch

    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    try:
        core = importlib.import_module("vllm.v1.core.kv_cache_planning")
    except ModuleNotFoundError:
        core = importlib.import_module("vllm.v1.core.kv_cache_utils")
    try:
        mla = question["target"].startswith("mla")
        dtype = getattr(torch, dtype_name)
        kinds = layers(question)
        specs = {f"layers.{n}": specification(interface, kind, dtype, mla) for n, kind in enumerate(kinds)}
        whole = grouping(question["several_groups"], outermost)
        if hasattr(core, "get_kv_cache_groups"):
            core.get_kv_cache_groups(whole, specs)
        else:
            core.get_kv_cache_config(whole, specs, 1 << 34)
    except Exception as error:
        return type(error).__name__
    return GROUPED


def worker(oracle_folder: str, release: str, answers: str) -> None:
    """All questions, in one process: the grouping keeps no state. Writes one JSON list.

    An answer that depends on the dtype or the layout names each, such as ``StopIteration or grouped``.
    """
    sys.path.insert(0, oracle_folder)
    importlib.import_module("oracle").base_imports(release)
    found = []
    for question in questions():
        said = {answer(question, dtype, outermost) for dtype, outermost in product(DTYPES, (False, True))}
        found.append(" or ".join(sorted(said)))
    Path(answers).write_text(json.dumps(found))


def ask(oracle: Any, oracle_folder: str, release: str) -> list[str]:
    """The verdicts of one release, in the order of the questions."""
    with tempfile.TemporaryDirectory() as scratch:
        answers = Path(scratch) / "answers.json"
        env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [oracle.py_for(release), str(Path(__file__).resolve()), "--worker", oracle_folder, release]
        done = subprocess.run([*command, str(answers)], env=env, capture_output=True, text=True, check=False)
        if not answers.is_file():
            raise SystemExit(f"{release}: {done.stderr[-2000:]}")
        verdicts: list[str] = json.loads(answers.read_text())
        return verdicts


def main(oracle_folder: str, releases: list[str]) -> None:
    """Ask the releases and write a row for each question and answer, with all releases that gave it."""
    folder = str((Path(oracle_folder) / "vllm").resolve())
    sys.path.insert(0, folder)
    oracle = importlib.import_module("oracle")
    rows: list[Json] = [{**question, "answers": {}} for question in questions()]
    for release in releases:
        for row, said in zip(rows, ask(oracle, folder, release), strict=True):
            row["answers"].setdefault(said, []).append(release)
        print(release, len(rows), flush=True)
    recorded.keep(OUT, rows)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(*sys.argv[2:5])
    else:
        main(sys.argv[1], sys.argv[2:])
