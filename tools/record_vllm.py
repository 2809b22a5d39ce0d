"""Ask vLLM's real loaders about tools/make_vllm_corpus.py, and write fixtures/verdicts/vllm/relatives.jsonl.xz anew.

    python tools/record_vllm.py --oracle DIR --home DIR [--families mistral,minicpm] [--releases 0.33.0]

Rows of families and releases that are not asked stay as they are. Each class is asked in the oldest release that has it
and in all later ones. DIR and DIR: see tools/loaders.py.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from driven_vllm import DrivenVllm
from loaders import Asked, Oracle, Row
from make_vllm_corpus import ARCHIVE, FAMILIES, write_corpus
from packaging.version import Version
from record_verdicts import tidy
from recorded import keep, rows

RELEASES = ("0.9.2", "0.11.0", "0.16.0", "0.22.1", "0.33.0")
RECORDING = ARCHIVE.with_name("relatives.jsonl")
COLUMNS = (
    "arch",
    "checkpoint",
    "corpus",
    "dropped",
    "engine",
    "error",
    "loaded",
    "method",
    "partial",
    "shared",
    "unwritten",
    "version",
)


def asked_in(release: str, family: str) -> bool:
    """Whether a release has the class of a family."""
    known = FAMILIES[family]
    return Version(known.since) <= Version(release) <= Version(known.until)


def ask(oracle: Oracle, release: str, folders: list[Path]) -> list[Row]:
    """The rows of one release about these checkpoints; ``method`` is the one that was asked for."""
    methods = [FAMILIES[folder.name.partition("-")[0]].method for folder in folders]
    parallel = [FAMILIES[folder.name.partition("-")[0]].parallel for folder in folders]
    asked = zip(folders, methods, parallel, strict=True)
    questions = [Asked(f, f / "target_config.json", method, both) for f, method, both in asked]
    answered = []
    with DrivenVllm(oracle, release, []) as driven:
        for one, row in zip(questions, driven.answers(questions), strict=True):
            if row is None:
                print(release, one.folder.name, "no answer")
                continue
            row |= {"corpus": "relatives", "method": one.method, "checkpoint": one.folder.name}
            answered.append(tidy(row, list(COLUMNS)))
    return answered


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--releases", default=",".join(RELEASES))
    given = parser.parse_args()
    oracle = Oracle(given.oracle, given.home)
    place = RECORDING.with_name(f"{RECORDING.name}.xz")
    known = {(row["version"], row["checkpoint"]): row for row in (rows(place) if place.is_file() else [])}
    place.touch()
    with tempfile.TemporaryDirectory() as room:
        written = write_corpus(Path(room) / "checkpoints", given.families.split(","))
        for release in given.releases.split(","):
            folders = [folder for folder in written if asked_in(release, folder.name.partition("-")[0])]
            fresh = ask(oracle, release, folders) if folders else []
            families = {folder.name.partition("-")[0] for folder in folders}
            gone = [key for key in known if key[0] == release and key[1].partition("-")[0] in families]
            for key in gone:
                del known[key]
            known |= {(row["version"], row["checkpoint"]): row for row in fresh}
            print(release, len(fresh), "rows")
    keep(RECORDING, [known[key] for key in sorted(known, key=lambda k: (k[1], Version(k[0])))])


if __name__ == "__main__":
    main()
