"""Runs one harness: ``harness.py TARGET [libFuzzer options] CORPUS``; without atheris ``harness.py TARGET FILE...``."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

SECONDS = 3.0
"""Processor time that one input may take."""

MEMORY = 400 << 10
"""KiB that the process may have more than before its first input."""


class TooMuch(Exception):
    """An input that takes more time or memory than it may."""


def limited(work: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The harness, with the limits held. Processor time, not the clock: the machine may be busy."""
    first: list[int] = []

    def run(data: bytes) -> None:
        if not first:
            first.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        start = time.process_time()
        work(data)
        spent = time.process_time() - start
        if spent > SECONDS:
            raise TooMuch(f"{spent:.1f} s for {len(data)} bytes")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first[0]
        if grown > MEMORY:
            raise TooMuch(f"{grown >> 10} MB more than at the start")

    return run


def again(work: Callable[[bytes], None], files: list[str]) -> int:
    """Run files one by one; how many are faults."""
    faults = 0
    for file in files:
        start = time.process_time()
        try:
            work(Path(file).read_bytes())
        except Exception:
            faults += 1
            traceback.print_exc()
        print(f"{file}: {time.process_time() - start:.2f} s")
    return faults


def main() -> int:
    """The command line."""
    name, rest = sys.argv[1], sys.argv[2:]
    plain = all(Path(argument).is_file() for argument in rest)
    if plain:
        from targets import TARGETS, forget

        try:
            return 1 if again(limited(TARGETS[name]), rest) else 0
        finally:
            forget()
    import atheris

    with atheris.instrument_imports(include=["drafcheck", "zipfile", "pickletools", "tomli"]):
        from targets import TARGETS
    atheris.Setup([sys.argv[0], *rest], limited(TARGETS[name]))
    with contextlib.suppress(KeyboardInterrupt):
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
