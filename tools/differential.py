"""Hold the contract book against the real loaders on random checkpoints.

    python tools/differential.py sglang --oracle DIR --seed 7 --pairs 400 [--releases 0.5.9,0.5.23] [--bases eagle3]

Makes random checkpoints, lets the real loader of each release and drafcheck judge them, and prints every disagreement,
reduced to the fewest edits that still show it. Exit code 1 when there is one. See rules/README.md.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import compress, tee
from pathlib import Path
from typing import NamedTuple

import agree
import agree_vllm
from bases import METHODS, TARGETS, target_config
from driven import Loader, opened
from loaders import Asked, Oracle, Row
from mutants import Recipe, recipe, write

BASES = {"sglang": "eagle3", "vllm": "eagle3,eagle3-plain,eagle3-qwen3,eagle1-plain,dflash"}
"""The kinds of heads that an engine is asked about where the command line names none."""

ASKED_TARGETS = {"sglang": ("usual",), "vllm": ("usual", "usual", *TARGETS)}
"""The targets that drafts are put beside; SGLang's loader does not look at one."""

SAYS_NOTHING = {"sglang": agree.says_nothing, "vllm": agree_vllm.says_nothing}
"""Why a row is no answer of its release."""

AGREE = {"sglang": agree.disagreements, "vllm": agree_vllm.disagreements}

MEMORY = Path("/dev/shm")
"""Where files cost no disk."""


class Difference(NamedTuple):
    """A recipe about which a loader and drafcheck have different answers."""

    release: str
    made: Recipe
    problems: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The same for differences that are likely to have one cause."""
        return re.sub(r"\d+", "#", " ".join(self.problems))[:120]


class Bench:
    """Where checkpoints are written and questions about them are put to one release."""

    def __init__(self, engine: str, release: str, folder: Path) -> None:
        """``folder`` is for the checkpoints and belongs to this release."""
        self.release, self.folder, self.counted = f"{engine}=={release}", folder, Counter[str]()
        self.engine, self.agree = engine, AGREE[engine]
        for name in TARGETS:
            self._target(name).parent.mkdir(parents=True)
            self._target(name).write_text(json.dumps(target_config(name)))

    def _target(self, name: str) -> Path:
        return self.folder / "targets" / name / "config.json"

    def healthy(self, bases: Iterable[str]) -> list[Asked]:
        """Write the checkpoint of each base as it is."""
        questions = [Asked(self.folder / f"healthy-{base}", self._target("usual"), _method(base)) for base in bases]
        for base, question in zip(bases, questions, strict=True):
            write(Recipe(0, base, ()), question.folder)
        return questions

    def differences(self, loader: Loader, recipes: Iterable[Recipe]) -> list[Difference]:
        """Put recipes to the release."""
        made, again = tee(recipes)
        found = []
        for one, row in zip(made, loader.answers(self._written(again)), strict=True):
            folder = self._place(one)
            problems = self._compare(row, folder, one)
            if problems:
                found.append(Difference(self.release, one, tuple(problems)))
            shutil.rmtree(folder)
        return found

    def _written(self, recipes: Iterable[Recipe]) -> Iterator[Asked]:
        for one in recipes:
            write(one, self._place(one))
            yield Asked(self._place(one), self._target(one.target), _method(one.base))

    def _place(self, made: Recipe) -> Path:
        left = "-".join(str(step.seed) for step in made.steps)
        return self.folder / f"c{made.number:06d}-{left}"

    def _compare(self, row: Row | None, folder: Path, made: Recipe) -> list[str]:
        from drafcheck.runner import inspect_one
        from drafcheck.session import Options

        if row is None or str(row.get("error", "")).startswith("child died"):
            self.counted["unanswered"] += 1
            return []
        if SAYS_NOTHING[self.engine](row) is not None:
            self.counted["says nothing"] += 1
            return []
        algorithm = _method(made.base) if self.engine == "vllm" else None
        options = Options(engine=self.release, algorithm=algorithm, target=self._target(made.target).parent)
        seen = inspect_one(str(folder), options)
        if seen.crashed or seen.subject is None:
            return [f"drafcheck crashed: {seen.crashed}"]
        if seen.subject.load is None and seen.subject.refused is None:
            self.counted["no contract"] += 1
            return []
        self.counted["compared"] += 1
        return list(self.agree(row, seen.subject))

    def reduced(self, loader: Loader, found: list[Difference]) -> list[Difference]:
        """The same differences with the fewest edits that still show one."""
        done: list[Difference] = []
        while found:
            smaller = {one.made.without(n) for one in found for n in range(len(one.made.steps))}
            left = {one.made: one for one in self.differences(loader, sorted(smaller))}
            next_round: list[Difference] = []
            for one in found:
                shorter = (left.get(one.made.without(n)) for n in range(len(one.made.steps)))
                fewer = next((it for it in shorter if it is not None), None)
                (done if fewer is None else next_round).append(fewer or one)
            found = next_round
        return done


def _method(base: str) -> str:
    return METHODS.get(base, "eagle3")


class Task(NamedTuple):
    """What is asked of one release: so many checkpoints of a series, from the ``first`` on."""

    engine: str
    release: str
    oracle: Oracle
    seed: int
    first: int
    pairs: int
    bases: tuple[str, ...]


class Found(NamedTuple):
    """What came of it: counts, and the differences, reduced, one of a kind."""

    release: str
    bases: tuple[str, ...]
    counted: Counter[str]
    differences: list[Difference]


def asked(task: Task) -> Found:
    """Put the questions to a release, about heads of kinds that it takes where they are healthy."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        bench = Bench(task.engine, task.release, Path(folder))
        healthy = bench.healthy(task.bases)
        with opened(task.oracle, task.engine, task.release, healthy) as loader:
            bases, targets = tuple(compress(task.bases, loader.takes)), ASKED_TARGETS[task.engine]
            pairs = task.pairs if bases else 0
            recipes = [recipe(task.seed, task.first + n, bases, targets) for n in range(pairs)]
            found = bench.differences(loader, recipes)
            counted = bench.counted.copy()
            kinds = {difference.kind: difference for difference in reversed(found)}
            reduced = bench.reduced(loader, list(kinds.values()))
    return Found(task.release, bases, counted + Counter(differ=len(found)), reduced)


def tasks(given: argparse.Namespace) -> list[Task]:
    """The questions of the command line, to each release its own."""
    oracle = Oracle(given.oracle, given.home)
    releases = given.releases.split(",") if given.releases else oracle.releases(given.engine)
    each = -(-given.pairs // len(releases))
    bases = tuple((given.bases or BASES[given.engine]).split(","))
    return [
        Task(given.engine, release, oracle, given.seed, position * each, each, bases)
        for position, release in enumerate(releases)
    ]


def printed(found: Found, seed: int) -> None:
    """One line for a release, and its differences."""
    print(f"{found.release}: {dict(found.counted)}, heads {', '.join(found.bases)}", flush=True)
    for difference in found.differences:
        print(f"{difference.release}  {difference.made}")
        print(f"  seed {seed}, checkpoint {difference.made.number}: {difference.made.steps}")
        for problem in difference.problems:
            print(f"  {problem}", flush=True)


def main() -> int:
    """Ask, print, and say how many agreed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=("sglang", "vllm"))
    parser.add_argument(
        "--oracle", type=Path, required=True, help="the folder of the scripts that run the real loaders"
    )
    parser.add_argument("--home", type=Path, required=True, help="where those scripts unpacked the engines")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--pairs", type=int, default=100, help="checkpoint x release pairs, at least")
    parser.add_argument("--releases", help="separated by commas; default: all that were unpacked")
    parser.add_argument("--bases", help="kinds of heads, separated by commas")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    counted, kinds = Counter[str](), set[str]()
    with ProcessPoolExecutor(given.jobs) as pool:
        for found in pool.map(asked, tasks(given)):
            printed(found, given.seed)
            counted += found.counted
            kinds |= {difference.kind for difference in found.differences}
    print(f"{given.engine}, seed {given.seed}: {dict(counted)}, {len(kinds)} kinds of differences")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
