"""What a header-only lint of a 2.4 GB drafter costs, beside a floor measured in the same run.

    python benchmarks/cold_start.py [--runs 15]

The floor is a process that imports click and pydantic and validates one small model. Prints a table; exits 0 always.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

FLOOR = """
import click, pydantic
class Point(pydantic.BaseModel):
    name: str
    shape: tuple[int, ...]
Point.model_validate({"name": "fc.weight", "shape": [7168, 21504]})
"""

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Bytecode is cached, as in every installation; a run without the cache would measure the compiler."""


class Cost(NamedTuple):
    """One process: wall time in seconds, peak resident memory in KiB, exit code, processor time in seconds."""

    seconds: float
    peak: int
    code: int
    busy: float


def run(arguments: list[str]) -> Cost:
    """Run a process to its end, its output thrown away."""
    start = time.perf_counter()
    child = os.posix_spawn(
        arguments[0],
        arguments,
        ENVIRONMENT,
        file_actions=[(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)],
    )
    _, status, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return Cost(time.perf_counter() - start, usage.ru_maxrss, code, usage.ru_utime + usage.ru_stime)


def interleaved(commands: dict[str, list[str]], runs: int) -> dict[str, list[Cost]]:
    """Run every command ``runs`` times in turn, after one warm-up each."""
    for command in commands.values():
        run(command)
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            costs[name].append(run(command))
    return costs


def median_ms(costs: list[Cost]) -> float:
    """The median wall time in milliseconds."""
    return 1000 * statistics.median(cost.seconds for cost in costs)


def peak_mib(costs: list[Cost]) -> float:
    """The median peak memory in MiB."""
    return statistics.median(cost.peak for cost in costs) / 1024


def weight_bytes_read(folder: Path) -> tuple[int, int]:
    """Bytes of the weight file that one lint reads, and the most it may: header, d2t, t2d and 64 KiB."""
    from drafcheck import lint, source

    source.bytes_read.clear()
    lint(folder, target=folder / "target_config.json", engine="sglang==0.5.15")
    weights = folder / "model.safetensors"
    read = sum(count for path, count in source.bytes_read.items() if Path(path).name == weights.name)
    with weights.open("rb") as file:
        header = 8 + int.from_bytes(file.read(8), "little")
    return read, header + 32000 * 8 + 163840 + 64 * 1024


def many_ms(folder: Path, count: int) -> float:
    """Milliseconds for each further checkpoint when ``count`` are linted by one process."""
    from drafcheck import lint

    lint(folder, engine="sglang==0.5.15")
    start = time.perf_counter()
    for _ in range(count):
        lint(folder, engine="sglang==0.5.15")
    return 1000 * (time.perf_counter() - start) / count


def row(what: str, value: str, goal: str) -> None:
    """Print one line of the table."""
    print(f"{what:<42} {value:>16}   {goal}")


def main() -> None:
    """Measure and print."""
    from make_fixtures import FIXTURES
    from make_kimi import draft_weights, write_pair

    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as room:
        ENVIRONMENT["PYTHONPYCACHEPREFIX"] = str(Path(room) / "bytecode")
        folder = write_pair(Path(room) / "kimi", draft_weights())
        target = str(folder / "target_config.json")
        lint = [sys.executable, "-m", "drafcheck", str(folder), "--target", target, "--engine", "sglang==0.5.15"]
        costs = interleaved({"floor": [sys.executable, "-c", FLOOR], "lint": lint}, runs)
        read, most = weight_bytes_read(folder)
        each = many_ms(FIXTURES / "good" / "healthy", 200)
    floor, whole = median_ms(costs["floor"]), median_ms(costs["lint"])
    row("floor: click and pydantic", f"{floor:.0f} ms", "")
    row("lint of a 2.4 GB drafter", f"{whole:.0f} ms", "")
    row("ratio", f"{whole / floor:.2f}", "goal 1.5 or less")
    row(
        "peak memory above the floor",
        f"{peak_mib(costs['lint']) - peak_mib(costs['floor']):.1f} MiB",
        "goal 60 or less",
    )
    row("bytes read of the weight file", f"{read:,}", f"goal {most:,} or less")
    row("each of 200 more tiny checkpoints", f"{each:.2f} ms", "goal 5 or less")
    row("exit codes of the lint", str(sorted({cost.code for cost in costs["lint"]})), "0 expected")


if __name__ == "__main__":
    main()
