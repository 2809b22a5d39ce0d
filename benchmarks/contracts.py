"""What the size of the contract book costs a lint: the whole book, beside one with only the contract at hand.

    python benchmarks/contracts.py [--runs 15]

Both lint the same small EAGLE-3 draft for SGLang in a process of its own, in turn. Prints a table; exits 0 always.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from cold_start import ENVIRONMENT, Cost, interleaved, median_ms, row

ROOT = Path(__file__).parent.parent
ENGINE, STEM = "sglang", "llama_eagle3"
PACKAGE = ("drafcheck", "rules")


def package(folder: Path) -> Path:
    """A copy of the package and its book below ``folder``, as it is installed."""
    for name in PACKAGE:
        goal = folder / "drafcheck" / "rules" if name == "rules" else folder / name
        shutil.copytree(ROOT / name, goal, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def only_one(folder: Path) -> Path:
    """The book without any other engine, and without any other contract of this one."""
    from drafcheck.contract import contract_files, load_toml

    book = folder / "drafcheck" / "rules"
    for engine in [path.parent.name for path in book.glob("*/engine.toml")]:
        if engine != ENGINE:
            shutil.rmtree(book / engine)
    for stem in set(contract_files(ENGINE)) - {STEM}:
        (book / ENGINE / f"{stem}.toml").unlink()
    classes = load_toml(ENGINE, "engine.toml")["classes"]
    text = (book / ENGINE / "engine.toml").read_text(encoding="utf-8")
    head, _, tail = text.partition("[classes]\n")
    rest = tail[tail.find("\n[") :] if "\n[" in tail else ""
    (book / ENGINE / "engine.toml").write_text(f"{head}[classes]\n{STEM} = {classes[STEM]!r}\n{rest}", encoding="utf-8")
    return folder


def least_ms(costs: list[Cost]) -> float:
    """The least processor time in milliseconds: on a busy machine it says more than the wall time."""
    return 1000 * min(cost.busy for cost in costs)


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    draft = str(ROOT / "fixtures" / "good" / "healthy")
    with tempfile.TemporaryDirectory() as room:
        ENVIRONMENT["PYTHONPYCACHEPREFIX"] = str(Path(room) / "bytecode")
        books = {"whole": package(Path(room) / "whole"), "one": only_one(package(Path(room) / "one"))}
        lint = "import sys; sys.path.insert(0, sys.argv.pop(1)); from drafcheck.cli import main; main()"
        command = {
            name: [sys.executable, "-c", lint, str(book), draft, "--engine", f"{ENGINE}==0.5.15"]
            for name, book in books.items()
        }
        costs = interleaved(command, runs)
        files = {name: len(list(book.rglob("rules/**/*.toml"))) for name, book in books.items()}
    whole, one = costs["whole"], costs["one"]
    row("files in the book", f"{files['whole']} and {files['one']}", "")
    row("lint with the whole book", f"{median_ms(whole):.0f} ms", f"least processor time {least_ms(whole):.0f} ms")
    row("lint with this contract alone", f"{median_ms(one):.0f} ms", f"least processor time {least_ms(one):.0f} ms")
    row("ratio of the medians", f"{median_ms(whole) / median_ms(one):.2f}", "")
    row("the whole book adds, median", f"{median_ms(whole) - median_ms(one):.1f} ms", "goal 15 or less")
    row("the whole book adds, least processor time", f"{least_ms(whole) - least_ms(one):.1f} ms", "goal 15 or less")
    row("exit codes", str(sorted({cost.code for cost in whole + one})), "0 expected")


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
