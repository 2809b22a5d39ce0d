"""What a repair costs: the decoder layer of a 2.4 GB drafter renamed, beside a plain ``cp`` of its weight file.

    python benchmarks/fix.py [--runs 5] [--folder /tmp]

Every byte of the file is there (no holes), and lies in memory; both end when the copy is on the disk. Whole processes,
in turn and each first as often as the other: ``drafcheck fix`` reads, checks, writes, opens and checks again. Needs
7.5 GB in the folder, which it gives back. Where the machine has other things to do, the seconds that each was busy say
more than those that it took. Prints a table; exits 0 always.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from cold_start import ENVIRONMENT, Cost, peak_mib, row, run

RATIO, MEMORY = 1.3, 80

COPY = 'cp "$0" "$1" && sync "$1"'


def dense(folder: Path) -> Path:
    """The drafter with bytes in place of the holes that ``make_kimi`` leaves: float weights are noise."""
    from make_kimi import draft_weights, write_pair
    from weights import encode_header

    weights = draft_weights("layers.0")
    write_pair(folder, weights)
    at = len(encode_header(weights, {"format": "pt"}))
    noise = memoryview(os.urandom(4 << 20))
    with (folder / "model.safetensors").open("r+b") as file:
        for weight in weights.values():
            if weight.data is None:
                file.seek(at)
                for start in range(0, weight.size, len(noise)):
                    file.write(noise[: weight.size - start])
            at += weight.size
        os.fsync(file.fileno())
    return folder


def warmed(file: Path) -> None:
    """Read the file once, so that it lies in memory."""
    with file.open("rb", buffering=0) as opened:
        while opened.read(4 << 20):
            pass


def rounds(room: Path, runs: int) -> dict[str, list[Cost]]:
    """The costs of both, ``runs`` times in turn after one warm-up each."""
    draft = room / "draft"
    file, copy, goal = draft / "model.safetensors", room / "copy", room / "goal"
    fix = [sys.executable, "-m", "drafcheck", "fix", str(draft), "--output", str(goal), "--engine", "sglang==0.5.11"]
    commands = {"cp": ["/bin/sh", "-c", COPY, str(file), str(copy)], "fix": fix}
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in sorted(commands.items(), reverse=number % 2 == 1):
            copy.unlink(missing_ok=True)
            shutil.rmtree(goal, ignore_errors=True)
            os.sync()
            warmed(file)
            costs[name].append(run(command))
    return {name: each[1:] for name, each in costs.items()}


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where to write; default: the folder for such files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as room:
        ENVIRONMENT["PYTHONPYCACHEPREFIX"] = str(Path(room) / "bytecode")
        draft = dense(Path(room) / "draft")
        size = (draft / "model.safetensors").stat().st_size
        costs = rounds(Path(room), options.runs)
    plain, whole = costs["cp"], costs["fix"]
    ratios = [one.seconds / other.seconds for one, other in zip(whole, plain, strict=True)]
    row("the file", f"{size / 1e9:.2f} GB", "")
    for what, each in (("cp and sync", plain), ("fix: the layer renamed", whole)):
        seconds = [cost.seconds for cost in each]
        row(what, f"{statistics.median(seconds):.2f} s", f"{min(seconds):.2f} to {max(seconds):.2f} s, {_busy(each)}")
    row("ratio of the medians", f"{_median(whole) / _median(plain):.2f}", f"goal {RATIO} or less")
    row("median of the ratios", f"{statistics.median(ratios):.2f}", ", ".join(f"{ratio:.2f}" for ratio in ratios))
    row("peak memory of fix", f"{peak_mib(whole):.1f} MiB", f"goal {MEMORY} or less")
    row("exit codes of fix", str(sorted({cost.code for cost in whole})), "0 expected")


def _busy(costs: list[Cost]) -> str:
    return f"{statistics.median(cost.busy for cost in costs):.2f} s busy"


def _median(costs: list[Cost]) -> float:
    return statistics.median(cost.seconds for cost in costs)


if __name__ == "__main__":
    main()
