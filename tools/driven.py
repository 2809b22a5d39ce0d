"""Real loaders, each of one release, that are asked about checkpoints in order.

They stay open: a release takes seconds to import and milliseconds to ask. tools/drive_sglang.py is what runs there for
SGLang; tools/driven_vllm.py has what vLLM needs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Protocol

from driven_vllm import DrivenVllm
from loaders import Asked, Oracle, Row, sglang_row

DRIVER = Path(__file__).with_name("drive_sglang.py")
UNKNOWN_MODULE = re.compile(r"No module named '|name 'sgl_kernel' is not defined")
"""What the answer about a healthy checkpoint says when the scripts have not yet learnt what to leave out."""


class Loader(Protocol):
    """The loader of one release, a context manager. ``takes``: whether it took each of the healthy checkpoints."""

    takes: tuple[bool, ...]

    def answers(self, questions: Iterable[Asked]) -> Iterator[Row | None]:
        """The rows of checkpoints, in order; None where there is no answer."""

    def __enter__(self) -> Loader:
        """The loader, open."""

    def __exit__(self, *raised: object) -> None:
        """Close it."""


def opened(oracle: Oracle, engine: str, release: str, healthy: list[Asked]) -> Loader:
    """The loader of a release. Raises RuntimeError when the scripts fail as such."""
    if engine == "sglang":
        return Driven(oracle, release, [one.folder for one in healthy])
    return DrivenVllm(oracle, release, healthy)


class Driven:
    """One release of SGLang, imported once. A context manager: the process ends with it."""

    def __init__(self, oracle: Oracle, release: str, healthy: list[Path]) -> None:
        """``healthy`` are checkpoints on which everything is imported that such heads need.

        Raises RuntimeError when the scripts fail as such.
        """
        self.oracle, self.release, self.healthy = oracle, release, healthy
        if (unknown := self._unknown()) is not None:
            oracle.learn("sglang", release, unknown)
            unknown = self._unknown()
        if unknown is not None:
            raise RuntimeError(f"sglang {release}: a module is missing for {unknown.name}")
        self.takes = tuple(row["error"] is None for row in self.first)

    def _unknown(self) -> Path | None:
        """Open the release; the healthy checkpoint for which it imports what is not there, if there is one."""
        try:
            self._open()
        except RuntimeError as failed:
            if not UNKNOWN_MODULE.search(str(failed)):
                raise
            return self.healthy[0]
        answers = zip(self.healthy, self.first, strict=True)
        said = (folder for folder, row in answers if UNKNOWN_MODULE.search(f"{row['error']} {row.get('notes')}"))
        unknown = next(said, None)
        if unknown is not None:
            self.close()
        return unknown

    def _open(self) -> None:
        engine = self.oracle.home / "sglang" / f"sglang-{self.release}"
        command = [
            sys.executable,
            str(DRIVER),
            str(self.oracle.scripts / "sglang"),
            str(engine),
            *map(str, self.healthy),
        ]
        environment = {**os.environ, "ORACLE_HOME": str(self.oracle.home), "OMP_NUM_THREADS": "1"}
        self.said: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said
        )
        self.first = [self._answer() for _ in self.healthy]

    def _answer(self) -> Row:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.said.seek(0)
            raise RuntimeError(f"sglang {self.release}: {self.said.read()[-2000:] or 'no answer'}")
        return sglang_row(json.loads(line), self.release)

    def answers(self, questions: Iterable[Asked]) -> Iterator[Row | None]:
        """The rows of checkpoints, in order; the loader works on the next one while the caller looks at a row."""
        assert self.process.stdin is not None
        waiting = 0
        for one in questions:
            print(one.folder, file=self.process.stdin, flush=True)
            waiting += 1
            if waiting > 1:
                yield self._answer()
                waiting -= 1
        yield from (self._answer() for _ in range(waiting))

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.said.close()

    def __enter__(self) -> Driven:
        """The release, open."""
        return self

    def __exit__(self, *raised: object) -> None:
        """End the process, whatever happened."""
        self.close()
