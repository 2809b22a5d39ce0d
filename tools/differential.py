"""Hold the contract book against the real loaders on random checkpoints.

    python tools/differential.py sglang --oracle DIR --seed 7 --pairs 400 [--releases 0.5.9,0.5.23] [--bases eagle3]

Makes random checkpoints, lets the real loader of each release and drafcheck judge them, and prints every disagreement,
reduced to the fewest edits that still show it. Exit code 1 when there is one. See rules/README.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import agree
import agree_vllm
from bases import target_config
from loaders import Oracle, Row
from mutants import Recipe, recipe, write

AT_A_TIME = 60
"""Checkpoints handed to one process of the real loader."""


ALGORITHMS = {"sglang": None, "vllm": "eagle3"}
"""What the real loaders are told that they serve; None: what the class is made for."""

AGREE = {"sglang": agree.disagreements, "vllm": agree_vllm.disagreements}

Asked = tuple[str, str]
"""An engine and its release."""


class Question(NamedTuple):
    """What is asked: one release of one engine, and a recipe."""

    engine: str
    release: str
    made: Recipe


class Difference(NamedTuple):
    """A question to which the loader and drafcheck have different answers."""

    asked: Question
    problems: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The same for differences that are likely to have one cause."""
        return re.sub(r"\d+", "#", " ".join(self.problems))[:120]


class Bench:
    """Where checkpoints are written and questions are put."""

    def __init__(self, oracle: Oracle, folder: Path) -> None:
        """``folder`` is for the checkpoints; what is in it may be overwritten."""
        self.oracle, self.folder, self.counted = oracle, folder, Counter[str]()
        self.target = folder / "target" / "config.json"
        self.target.parent.mkdir(parents=True)
        self.target.write_text(json.dumps(target_config()))

    def differences(self, engine: str, release: str, recipes: Iterable[Recipe]) -> list[Difference]:
        """Put all recipes to one release at once."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        made = {f"c{number:06d}": one for number, one in enumerate(recipes)}
        for name, one in made.items():
            write(one, place / name)
        rows = self.oracle.ask(engine, release, place, self.target)
        found = []
        for name, one in made.items():
            problems = self._compare(rows.get(name), place / name, f"{engine}=={release}")
            if problems:
                found.append(Difference(Question(engine, release, one), tuple(problems)))
        return found

    def _compare(self, row: Row | None, folder: Path, engine: str) -> list[str]:
        from drafcheck.runner import inspect_one
        from drafcheck.session import Options

        if row is None or str(row.get("error", "")).startswith("child died"):
            self.counted["unanswered"] += 1
            return []
        seen = inspect_one(
            str(folder), Options(engine=engine, algorithm=ALGORITHMS[row["engine"]], target=self.target.parent)
        )
        if seen.crashed or seen.subject is None:
            return [f"drafcheck crashed: {seen.crashed}"]
        if seen.subject.load is None and seen.subject.refused is None:
            self.counted["no contract"] += 1
            return []
        self.counted["compared"] += 1
        return list(AGREE[row["engine"]](row, seen.subject))

    def reduced(self, found: list[Difference]) -> list[Difference]:
        """The same differences with the fewest edits that still show one; those of a release are put together."""
        by_release: dict[Asked, list[Difference]] = {}
        for one in found:
            by_release.setdefault((one.asked.engine, one.asked.release), []).append(one)
        return [small for asked, some in by_release.items() for small in self._reduced(asked, some)]

    def _reduced(self, asked: Asked, found: list[Difference]) -> list[Difference]:
        done: list[Difference] = []
        while found:
            smaller = [one.asked.made.without(n) for one in found for n in range(len(one.asked.made.steps))]
            left = {one.asked.made: one for one in self.differences(*asked, smaller)} if smaller else {}
            next_round: list[Difference] = []
            for one in found:
                made = one.asked.made
                shorter = (left.get(made.without(n)) for n in range(len(made.steps)))
                fewer = next((it for it in shorter if it is not None), None)
                (done if fewer is None else next_round).append(fewer or one)
            found = next_round
        return done


def _shares(recipes: list[Recipe]) -> Iterator[list[Recipe]]:
    yield from (recipes[start : start + AT_A_TIME] for start in range(0, len(recipes), AT_A_TIME))


def run(bench: Bench, given: argparse.Namespace) -> list[Difference]:
    """Put the questions of the command line, to each release its own; the differences, reduced, one of a kind."""
    releases = given.releases.split(",") if given.releases else bench.oracle.releases(given.engine)
    each = -(-given.pairs // len(releases))
    work = [
        (release, share)
        for position, release in enumerate(releases)
        for share in _shares(
            [recipe(given.seed, position * each + n, tuple(given.bases.split(","))) for n in range(each)]
        )
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        answers = pool.map(lambda job: bench.differences(given.engine, *job), work)
        found = [difference for answer in answers for difference in answer]
    bench.counted["differ"] = len(found)
    kinds = {difference.kind: difference for difference in reversed(found)}
    return bench.reduced(list(kinds.values()))


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
    parser.add_argument("--bases", default="eagle3", help="kinds of heads, separated by commas")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Oracle(given.oracle, given.home), Path(folder))
        differences = run(bench, given)
        counted = dict(bench.counted)
    for difference in differences:
        print(f"{difference.asked.engine} {difference.asked.release}  {difference.asked.made}")
        print(f"  seed {given.seed}, checkpoint {difference.asked.made.number}: {difference.asked.made.steps}")
        for problem in difference.problems:
            print(f"  {problem}")
    print(f"{given.engine}, seed {given.seed}: {counted}, {len(differences)} kinds of differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
