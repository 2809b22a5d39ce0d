"""What reading every value costs beside reading the bytes alone, in one run on one file.

    python benchmarks/value_scan.py [--gb 2.4] [--runs 3] [--cold]

A bf16 draft of that size is written, then read: plainly by preadv into a reused buffer (by one thread and by two), by
the scan behind ``--values``, and, beside them, by what one would write without it: numpy over float32 copies,
torch.isfinite over mapped tensors, and safetensors into torch, where torch is installed. ``--cold`` drops the file from
the page cache before each reading. The memory is that of a whole ``drafcheck --values`` process. Prints a table; exits
0 always.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT))

CHUNK = 2 << 20
WARM, COLD, MEMORY = 0.60, 0.85, 64
"""Goals: the scan's throughput over that of a plain reading (cold: of one by two threads), and MiB at the peak."""


def write_draft(folder: Path, size: int) -> Path:
    """A draft of about ``size`` bytes whose matrices hold random numbers; its weight file."""
    import numpy as np
    from drafts import Draft
    from weights import Weight, write_safetensors

    draft = Draft()
    draft.write(folder)
    random = np.random.default_rng(0)
    block = (random.standard_normal(1 << 24, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    rows = size // (2 * 4096)
    data = (block.tobytes() * (2 * rows * 4096 // block.nbytes + 1))[: 2 * rows * 4096]
    file = folder / "model.safetensors"
    write_safetensors(file, {**draft.weights, "lm_head.weight": Weight("BF16", (rows, 4096), data)}, {"format": "pt"})
    return file


def plain(file: Path, threads: int) -> None:
    """Read a file from one end to the other into reused buffers."""
    handle = os.open(file, os.O_RDONLY)
    places, lock = iter(range(0, file.stat().st_size, CHUNK)), threading.Lock()

    def work() -> None:
        buffer = bytearray(CHUNK)
        while True:
            with lock:
                place = next(places, None)
            if place is None:
                return
            os.preadv(handle, [buffer], place)

    helpers = [threading.Thread(target=work) for _ in range(threads - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    os.close(handle)


def by_drafcheck(file: Path) -> None:
    """The scan behind --values."""
    from drafcheck.checkpoint import open_folder
    from drafcheck.place import LocalPlace
    from drafcheck.valuescan.scan import scan

    assert not scan(open_folder("ckpt", LocalPlace(file.parent)).files).unread


def by_numpy(file: Path) -> None:
    """float32 copies, block by block."""
    import numpy as np

    data = np.memmap(file, np.uint16, mode="r")
    for start in range(0, data.size, CHUNK // 2):
        values = (data[start : start + CHUNK // 2].astype(np.uint32) << 16).view(np.float32)
        np.isfinite(values).all()
        np.abs(values).max()


def by_torch(file: Path) -> None:
    """torch.isfinite over tensors that safetensors maps."""
    import torch
    from safetensors import safe_open

    with safe_open(str(file), framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118 - it is no mapping
            torch.isfinite(opened.get_tensor(name)).all()


def by_load(file: Path) -> None:
    """The whole file into torch tensors, and nothing more; a copy, as mapped ones are not read before they are used."""
    from safetensors.torch import load_file

    for tensor in load_file(str(file)).values():
        tensor.clone()


def forget(file: Path) -> None:
    """Drop a file from the page cache."""
    handle = os.open(file, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)


def seconds(work: Callable[[], None], file: Path, runs: int, *, cold: bool) -> float:
    """The best of some runs: noise only adds."""
    times = []
    for _ in range(runs):
        if cold:
            forget(file)
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def ways() -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Every way of reading, the plain ones first."""
    yield "plain preadv", lambda file: plain(file, 1)
    yield "plain preadv, two threads", lambda file: plain(file, 2)
    yield "drafcheck --values", by_drafcheck
    yield "numpy, float32 copies", by_numpy
    try:
        import torch  # noqa: F401
    except ImportError:
        return
    yield "torch.isfinite, mapped", by_torch
    yield "safetensors + torch load", by_load


_PEAK = """
import sys
from drafcheck.cli import run
run(sys.argv[1:])
status = open("/proc/self/status").read()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), file=sys.stderr)
"""


def peak(folder: Path) -> float:
    """MiB at the peak of a whole process with --values (Linux)."""
    command = [sys.executable, "-c", _PEAK, str(folder), "--engine", "sglang==0.5.15", "--values", "-q"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    told = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stderr
    return int(told.split()[-1]) / 1024


def main() -> None:
    """Write the file, measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gb", type=float, default=2.4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        file = write_draft(Path(room), int(options.gb * 1e9))
        size = file.stat().st_size
        base = 0.0
        for name, way in ways():
            took = seconds(lambda way=way: way(file), file, options.runs, cold=options.cold)  # type: ignore[misc]
            if name == ("plain preadv, two threads" if options.cold else "plain preadv"):
                base = took
            share = base / took if base else 0.0
            goal = COLD if options.cold else WARM
            missed = name.startswith("drafcheck") and share < goal
            told = f"{share:6.2f}" + (
                f"   goal {goal:.2f} or more{'  MISSED' if missed else ''}" if name.startswith("drafcheck") else ""
            )
            print(f"{name:<28} {size / took / 1e9:6.2f} GB/s {told}")
        memory = peak(file.parent)
        print(f"{'peak memory':<28} {memory:6.1f} MiB    goal {MEMORY} or less{'  MISSED' if memory > MEMORY else ''}")


if __name__ == "__main__":
    main()
