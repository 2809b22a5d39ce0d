"""What --reference costs: a drafter of Kimi-K2.5's size beside a sister model's, 32,000 of 163,840 tokens each.

    python benchmarks/reference.py [--runs 15]

Prints the median wall time of whole processes without a reference and with one in each form, and what a reference adds:
the median over the rounds of the difference to the plain run of the same round, in wall and in processor time, as the
machine may have other things to do. Exits 0 always.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from cold_start import ENVIRONMENT, interleaved, median_ms, row

FORMS = {
    "another checkpoint": "sister",
    "a mapping, .safetensors": "mapping.safetensors",
    "a mapping, d2t.npy and t2d.npy": "d2t.npy",
    "a set, t2d.npy": "t2d.npy",
}


def main() -> None:
    """Measure and print."""
    from make_sisters import write_sisters

    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as room:
        ENVIRONMENT["PYTHONPYCACHEPREFIX"] = str(Path(room) / "bytecode")
        folder = write_sisters(Path(room) / "kimi")
        draft = str(folder / "draft")
        plain = [sys.executable, "-m", "drafcheck", draft, "--engine", "sglang==0.5.15"]
        commands = {name: [*plain, "--reference", str(folder / path)] for name, path in FORMS.items()}
        costs = interleaved({"none": plain, **commands}, runs)
    plain_costs = costs["none"]
    row("no reference", f"{median_ms(plain_costs):.0f} ms", f"median of {runs}")
    for name in FORMS:
        pairs = list(zip(costs[name], plain_costs, strict=True))
        wall = 1000 * statistics.median(one.seconds - other.seconds for one, other in pairs)
        busy = 1000 * statistics.median(one.busy - other.busy for one, other in pairs)
        row(name, f"{median_ms(costs[name]):.0f} ms", f"{wall:+.0f} ms ({busy:+.0f} ms busy); goal 60 or less")
    row("exit codes with one", str(sorted({cost.code for name in FORMS for cost in costs[name]})), "1 expected")


if __name__ == "__main__":
    main()
