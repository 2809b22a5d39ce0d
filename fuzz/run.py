"""Fuzz every reader for a while and report: ``python fuzz/run.py --minutes N [--jobs J] [--work DIR] [TARGET...]``.

Exits with 1 when an input breaks a reader, or takes too much time or memory; its file is named.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

LONGEST = 32 << 10
HANG = 60  # seconds by the clock; the harness itself holds three seconds of processor time
RSS = 640  # MB of the whole process, atheris and its corpus included; the harness holds the 400 of an input


class Result(NamedTuple):
    """What came of one harness."""

    target: str
    seeds: int
    executions: int
    seconds: float
    corpus: int
    peak: int
    faults: list[Path]
    says: str


def fuzz(target: str, minutes: float, work: Path) -> Result:
    """Run one harness for so many minutes, going on after a fault until the time is over."""
    import seeds
    from targets import FOLDER

    corpus, faults = work / target / "corpus", work / target / "faults"
    faults.mkdir(parents=True, exist_ok=True)
    count = seeds.write(target, corpus)
    seeds.write_words(target, work / target / "words.dict")
    start, executions, peak, says = time.monotonic(), 0, 0, ""
    while (left := minutes * 60 - (time.monotonic() - start)) > 5 or not executions:
        done = subprocess.run(
            [
                sys.executable, str(HERE / "harness.py"), target, f"-max_total_time={max(int(left), 5)}",
                f"-artifact_prefix={faults}/", f"-dict={work / target / 'words.dict'}", f"-max_len={LONGEST}",
                f"-timeout={HANG}", f"-report_slow_units={HANG}", f"-rss_limit_mb={RSS}",
                "-print_final_stats=1", "-verbosity=1", "-close_fd_mask=1",
                str(corpus),
            ],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd=work,
            env={**os.environ, "DRAFCHECK_FUZZ_FOLDER": str(FOLDER)},  # atheris ends a harness before it can clean up
        )  # fmt: skip
        (work / target / "log.txt").write_text(done.stderr)
        ran = _number(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
        executions, peak = executions + ran, max(peak, _number(r"stat::peak_rss_mb:\s*(\d+)", done.stderr))
        if done.returncode:
            says = says or _fault(done.stderr)
        if done.returncode and not ran:
            break
    found = sorted(faults.iterdir())
    return Result(target, count, executions, time.monotonic() - start, len(list(corpus.iterdir())), peak, found, says)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def _fault(text: str) -> str:
    """The lines that say what happened."""
    at = text.find("Uncaught Python exception")
    return text[at : at + 3000] if at >= 0 else text[-3000:]


def main() -> int:
    """The command line."""
    from targets import TARGETS, forget

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], metavar="TARGET")
    parser.add_argument("--minutes", type=float, default=20, help="for each harness (default: 20)")
    parser.add_argument("--jobs", type=int, default=1, help="harnesses at a time (default: 1)")
    parser.add_argument("--work", type=Path, help="where corpus, logs and faults are kept (default: a new folder)")
    asked = parser.parse_args()
    work = (asked.work or Path(tempfile.mkdtemp(prefix="drafcheck-fuzz-"))).resolve()
    print(f"corpus, logs and faults: {work}", flush=True)
    print(
        f"{'harness':<10} {'seeds':>6} {'executions':>11} {'per second':>10} {'corpus':>7} {'peak MB':>8} {'faults':>7}"
    )
    bad = False
    with ThreadPoolExecutor(asked.jobs) as pool:
        for done in pool.map(lambda name: fuzz(name, asked.minutes, work), asked.targets or TARGETS):
            pace = done.executions / max(done.seconds, 1)
            row = f"{done.target:<10} {done.seeds:>6} {done.executions:>11,} {pace:>10.0f} {done.corpus:>7}"
            print(f"{row} {done.peak:>8} {len(done.faults):>7}", flush=True)
            bad |= bool(done.faults or done.says)
            if done.faults or done.says:
                print(*(f"  {path}" for path in done.faults), done.says, sep="\n", flush=True)
    forget()
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
