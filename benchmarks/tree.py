"""What each of 500 checkpoints in a tree costs, header-only, after the first: one process, one report.

    python benchmarks/tree.py [--count 500] [--runs 5]

Two trees: tiny drafts, and 2.4 GB drafts (sparse, links to one file) whose map of 32,000 tokens is read and checked.
The cost of each further checkpoint is the time for the tree minus the time for one, over the number of the others.
Prints a table; exits 0 always.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

GOAL = 5.0
"""Milliseconds for each further checkpoint."""


def spread(one: Path, tree: Path, count: int) -> Path:
    """``count`` copies of the checkpoint ``one`` below ``tree``, their weights as links to the same bytes."""
    for number in range(count):
        folder = tree / f"team-{number % 10}" / f"draft-{number:04}"
        folder.mkdir(parents=True)
        for file in one.iterdir():
            if file.suffix == ".safetensors":
                os.link(file, folder / file.name)
            else:
                shutil.copy(file, folder / file.name)
    return tree


def seconds(paths: list[str], runs: int) -> float:
    """The wall time of a whole process that lints ``paths`` into a JSON report: the best run, as noise only adds."""
    command = [sys.executable, "-m", "drafcheck", *paths, "--engine", "sglang==0.5.15", "--format", "json"]
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        child = os.posix_spawn(
            command[0],
            command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)],
        )
        os.waitpid(child, 0)
        times.append(time.perf_counter() - start)
    return min(times)


def measure(what: str, one: Path, tree: Path, runs: int) -> None:
    """Print one line of the table."""
    count = sum(1 for _ in tree.glob("*/*/config.json"))
    alone, whole = seconds([str(one)], runs), seconds([str(tree)], runs)
    each = 1000 * (whole - alone) / (count - 1)
    verdict = "" if each <= GOAL else "  MISSED"
    print(
        f"{what:<28} {1000 * alone:>8.0f} ms {1000 * whole:>8.0f} ms {each:>8.2f} ms   goal {GOAL:.0f} or less{verdict}"
    )


def main() -> None:
    """Write the trees, measure and print."""
    from drafts import Draft
    from make_kimi import draft_weights, write_pair

    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        tiny, large = Path(room) / "tiny", Path(room) / "large"
        Draft().write(tiny)
        write_pair(large, draft_weights())
        print(f"{f'{options.count} checkpoints':<28} {'one':>11} {'tree':>11} {'each more':>11}")
        measure("tiny", tiny, spread(tiny, Path(room) / "tinies", options.count), options.runs)
        measure("2.4 GB, map of 32,000", large, spread(large, Path(room) / "larges", options.count), options.runs)


if __name__ == "__main__":
    main()
