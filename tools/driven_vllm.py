"""One release of vLLM that stays open: tools/drive_vllm.py is what runs there, and this is who talks to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from agree_vllm import SERVED
from loaders import Asked, Oracle, Row, vllm_row

DRIVER = Path(__file__).with_name("drive_vllm.py")
NO_ANSWER = ("oracle", "import", "target_config", "distributed")
"""Stages at which the scripts failed, and not the loader."""


class DrivenVllm:
    """A context manager: the process ends with it. ``takes``: whether it took each of the healthy checkpoints."""

    def __init__(self, oracle: Oracle, release: str, healthy: list[Asked]) -> None:
        """Open the release. Raises RuntimeError when the scripts fail as such."""
        self.release = release
        command = [sys.executable, str(DRIVER), str(oracle.scripts / "vllm"), release]
        # An engine is thousands of modules: compiled at every start, they cost as much as a hundred questions.
        kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(oracle.home / "bytecode")}
        self.scratch = tempfile.TemporaryDirectory()  # the scripts leave a folder and a socket for every question
        kept["TMPDIR"] = self.scratch.name
        environment = {**os.environ, "ORACLE_HOME": str(oracle.home), "OMP_NUM_THREADS": "1", **kept}
        self.said: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said
        )
        self.takes = tuple(row is not None and is_taken(row) for row in self.answers(healthy))

    def answers(self, questions: Iterable[Asked]) -> Iterator[Row | None]:
        """The rows of checkpoints, in order; the loader works on the next one while the caller looks at a row."""
        assert self.process.stdin is not None
        waiting = 0
        for one in questions:
            question: dict[str, str | bool] = {
                "draft": str(one.folder),
                "target": str(one.target),
                "method": one.method,
            }
            if one.parallel:
                question["parallel_drafting"] = True
            print(json.dumps(question), file=self.process.stdin, flush=True)
            waiting += 1
            if waiting > 1:
                yield self._answer()
                waiting -= 1
        yield from (self._answer() for _ in range(waiting))

    def _answer(self) -> Row | None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.said.seek(0)
            raise RuntimeError(f"vllm {self.release}: {self.said.read()[-2000:] or 'no answer'}")
        row = vllm_row(json.loads(line), self.release)
        return None if row["error"] and row["error"]["stage"] in NO_ANSWER else row

    def __enter__(self) -> DrivenVllm:
        """The release, open."""
        return self

    def __exit__(self, *raised: object) -> None:
        """End the process, whatever happened."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.said.close()
        self.scratch.cleanup()


def is_taken(row: Row) -> bool:
    """Whether the loader took the checkpoint, whatever the recording met in using it."""
    return row["error"] is None or row["error"]["stage"] in SERVED
