"""Keep one release of vLLM open, and ask its real loaders about one checkpoint after another.

    ORACLE_HOME=DIR python tools/drive_vllm.py SCRIPTS RELEASE < questions > answers

SCRIPTS holds oracle.py, which knows how a release is asked about one checkpoint; importing the engine costs a hundred
times as much as a question. A question is a line of JSON with the paths ``draft`` and ``target`` (a config) and the
speculative ``method``, and ``parallel_drafting`` where the launch asks for it. It is put in a fork of this process, so
that no answer depends on an earlier one. One line of JSON answers one line, in order.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
from typing import Any

WITHOUT_KERNELS = ("vllm.model_executor.layers.mla", "MLAAttention")
"""What computes attention in DeepSeek's layers: it has no parameters, and asks for a GPU's kernels when it is built."""

GIVEN = {"dtype": "bfloat16", "parallel_drafting": False, "share": True}


def restart(oracle: Any, release: str) -> None:
    """Become a process of the environment in which the scripts run this release."""
    python = oracle.py_for(release)
    os.execve(python, [python, *sys.orig_argv[1:]], {**os.environ, "ORACLE_DRIVEN": "1"})


def opened(oracle: Any, release: str) -> None:
    """Import the release, with an empty module for what can not be built without a GPU."""
    oracle.base_imports(release)
    import torch

    place, name = WITHOUT_KERNELS
    with contextlib.suppress(ImportError):
        setattr(importlib.import_module(place), name, lambda *_, **__: torch.nn.Module())


def answer(oracle: Any, release: str, question: dict[str, str]) -> str:
    """What a fork of this process answers, as the scripts print it."""
    printed: list[str] = []
    oracle.print = lambda text, **_: printed.append(text)
    oracle.forker(argparse.Namespace(version=release, **{**GIVEN, **question}))
    return printed[-1].removeprefix("@@JSON@@")


def main() -> None:
    """Answer until standard input ends."""
    scripts, release = sys.argv[1:]
    sys.path.insert(0, scripts)
    oracle = importlib.import_module("oracle")
    if "ORACLE_DRIVEN" not in os.environ:
        restart(oracle, release)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the engine prints as well
    opened(oracle, release)
    for line in sys.stdin:
        print(answer(oracle, release, json.loads(line)), file=answers)


if __name__ == "__main__":
    main()
