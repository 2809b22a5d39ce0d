"""Kill a process while it writes a repair, at many points: a process of its own, so that it may fork.

    python tests/killing.py new|in-place ROOM STEPS DELAYS

ROOM/N for each N holds a copy of the broken draft in ``draft`` when this begins. The Nth process is killed by SIGKILL
while it repairs that: the first STEPS of them at a line of Python, spread over all that run, the others after a time.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import mending

from drafcheck.fix import inplace, stream, write
from drafcheck.fix.staging import Meter
from drafcheck.place import LocalPlace

ANYWHERE = (str(Path(stream.__file__).parent), shutil.__file__)
ORDER = (write.__file__, inplace.__file__)
"""Where the lines of Python are counted: in all that writes and removes, and in what says in which order."""


def repair(room: Path, mode: str) -> Callable[[], object]:
    """What writes the repair of ROOM/N/draft: into ROOM/N/goal, or where it is."""
    old = room / "draft"
    files, removed = mending.mended(old)
    if mode == "new":
        goal = room / "goal"
        return partial(write.deliver, LocalPlace(old), files, removed, goal, check=mending.fine, progress=Meter())
    return partial(inplace.replace, LocalPlace(old), files, removed, check=mending.fine, progress=Meter())


def in_child(work: Callable[[], object]) -> int:
    """Begin ``work`` in another process, and answer its number."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    finally:
        os._exit(0)


def counted(work: Callable[[], object], where: tuple[str, ...], last: float = float("inf")) -> int:
    """How many lines of the files ``where`` are run by ``work``; the process is killed at the one numbered ``last``."""
    lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.startswith(where):
            return None
        lines += event == "line"
        if lines >= last:
            os.kill(os.getpid(), signal.SIGKILL)
        return count

    sys.settrace(count)
    work()
    sys.settrace(None)
    return lines


def lines_in(work: Callable[[], object], where: tuple[str, ...]) -> int:
    """The same from another process."""
    reading, writing = os.pipe()
    os.waitpid(in_child(lambda: os.write(writing, b"%d" % counted(work, where))), 0)
    return int(os.read(reading, 20))


def main() -> None:
    """Count the lines and the time that one repair takes, then kill the others."""
    mode, room, steps, delays = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    stream.BUFFER, stream.LARGE, stream.STEP = 4096, 1024, 2048  # small files in as many steps as large ones
    rng = random.Random(7)
    parts = [ANYWHERE, ORDER]
    lines = [lines_in(repair(room / f"counted-{number}", mode), where) for number, where in enumerate(parts)]
    for number in range(steps):
        part, step = number % 2, number // 2
        last = int(lines[part] * (step + rng.random()) / (steps / 2))
        work = repair(room / str(number), mode)
        _, status = os.waitpid(in_child(partial(counted, work, parts[part], last)), 0)
        assert os.WIFSIGNALED(status), (number, last, lines)
    begin = time.perf_counter()
    os.waitpid(in_child(repair(room / "timed", mode)), 0)
    seconds = time.perf_counter() - begin
    for number in range(steps, steps + delays):
        child = in_child(repair(room / str(number), mode))
        time.sleep(rng.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
