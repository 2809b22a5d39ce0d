"""Ask the real loaders: run the scripts that build an engine's own classes on a CPU, and bring back rows.

The scripts and the engines' sources are not part of this project: a folder holds them (``Oracle.scripts``), another
what they unpacked (``Oracle.home``). One answer is a row as fixtures/verdicts keeps them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]

RENAMED = {"missing_params": "unwritten", "partial_params": "partial", "share": "shared", "logits_probe": "logits"}
"""What the scripts call a column, and what it is called in a row."""


ABSENT: Row = {"loaded": [], "dropped": [], "unwritten": [], "partial": [], "error": None, "shared": None}
"""Columns of an answer that stops early, as the scripts leave them out."""


class Asked(NamedTuple):
    """What a loader is asked about: a checkpoint, and for vLLM the config of its target and the speculative method."""

    folder: Path
    target: Path
    method: str = "eagle3"
    parallel: bool = False


class Oracle(NamedTuple):
    """Where the scripts lie, and where the engines were unpacked."""

    scripts: Path
    home: Path

    def releases(self, engine: str) -> list[str]:
        """The releases of an engine that were unpacked."""
        return sorted(path.name.removeprefix(f"{engine}-") for path in (self.home / engine).iterdir() if path.is_dir())

    def ask(self, engine: str, release: str, folder: Path, target: Path, method: str = "eagle3") -> dict[str, Row]:
        """What the loader of ``release`` makes of every checkpoint in ``folder``, by the checkpoint's name.

        ``target`` is the config of the target model, ``method`` the speculative method: both for vLLM only. Raises
        RuntimeError when the scripts fail as such.
        """
        asked = {"sglang": self._sglang, "vllm": self._vllm}[engine]
        return {row["checkpoint"]: row for row in asked(release, folder, target, method)}

    def _sglang(self, release: str, folder: Path, target: Path, method: str) -> Iterable[Row]:  # noqa: ARG002
        wheel = self.home / "sglang" / f"sglang-{release}"
        printed = self._run("sglang", ["--batch", "--wheel", str(wheel), "--ckpt", str(folder)])
        for answer in json.loads(printed.strip().splitlines()[-1]):
            yield sglang_row(answer, release)

    def learn(self, engine: str, release: str, checkpoint: Path) -> None:
        """Ask once about a healthy checkpoint: the scripts keep what they had to leave out of the engine's imports."""
        self._run(engine, ["--wheel", str(self.home / engine / f"{engine}-{release}"), "--ckpt", str(checkpoint)])

    def _vllm(self, release: str, folder: Path, target: Path, method: str) -> Iterable[Row]:
        what = ["--batch", "--version", release, "--draft", f"{folder}/*", "--target", str(target), "--method", method]
        for line in self._run("vllm", [*what, "--share"]).splitlines():
            answer = json.loads(line)
            if "draft" not in answer:
                raise RuntimeError(f"vllm {release}: {answer['error']}")
            yield vllm_row(answer, release)

    def _run(self, engine: str, arguments: list[str]) -> str:
        command = [sys.executable, str(self.scripts / engine / "oracle.py"), *arguments]
        environment = {**os.environ, "ORACLE_HOME": str(self.home), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode or not done.stdout.strip():
            raise RuntimeError(f"{engine}: {done.stderr[-2000:] or 'no answer'}")
        return done.stdout


def sglang_row(answer: Row, release: str) -> Row:
    """An answer of the scripts for SGLang as a row."""
    return _row(answer, "sglang", release, answer["ckpt"])


def vllm_row(answer: Row, release: str) -> Row:
    """An answer of the scripts for vLLM as a row."""
    return _row(answer, "vllm", release, answer["draft"])


def _row(answer: Row, engine: str, release: str, checkpoint: str) -> Row:
    row = {RENAMED.get(key, key): value for key, value in answer.items()}
    return {**ABSENT, **row, "engine": engine, "version": release, "checkpoint": checkpoint}
