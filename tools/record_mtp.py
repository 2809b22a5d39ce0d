"""Turn what the engine's own classes answered about the corpus into fixtures/verdicts/<engine>/mtp.jsonl.xz.

    python tools/record_mtp.py ANSWERS CORPUS --engine sglang

ANSWERS holds ``<family>/<release>.json``: for each checkpoint which tensor changed which parameter, what stayed as it
was, and the error, from running the real ``load_weights`` (fixtures/README.md). Releases with the same answer share a
row. The checkpoints of CORPUS spoken of are packed beside it. An answer without a verdict on the class (a fault
of the environment, not of the checkpoint) is refused. Families that ANSWERS says nothing about keep their rows.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import tarfile
from collections import defaultdict
from io import BytesIO
from pathlib import Path
from typing import Any

import recorded
from packaging.version import Version

FOLDER = Path(__file__).parent.parent / "fixtures" / "verdicts"
SET = re.compile(r"\{('[^{}]*')\}")
STAGES = ("config", "class", "construct", "files", "load_weights", "done")


def row(answer: dict[str, Any]) -> dict[str, Any]:
    """The part of an answer that is compared. Raises ValueError for one that says nothing about the checkpoint."""
    if answer.get("stage") not in STAGES or "CUDA" in (answer.get("error") or ""):
        raise ValueError(f"{answer.get('ckpt')} on {answer.get('version')}: {answer.get('error')}")
    return {
        "checkpoint": answer["ckpt"],
        "class": answer["arch"],
        "stage": answer["stage"],
        "error": without_order(answer["error"]),
        "loaded": answer["loaded"],
        "dropped": sorted(answer["dropped"]),
        "unwritten": sorted(answer["missing_params"]),
        "partial": sorted([name, round(share, 2)] for name, share in answer["partial_params"]),
    }


def without_order(error: str | None) -> str | None:
    """An error in which a set is quoted, with its names in order: the engine prints them in another one each time."""
    return SET.sub(lambda found: "{" + ", ".join(sorted(found[1].split(", "))) + "}", error) if error else error


def rows(answers: Path, corpus: Path) -> list[dict[str, Any]]:
    """All answers about the corpus, those of releases that agree in one row, by checkpoint and release."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(answers.glob("*/*.json")):
        if file.stat().st_size:
            for answer in (a for a in json.loads(file.read_text()) if (corpus / a["ckpt"]).is_dir()):
                found[json.dumps(row(answer), sort_keys=True)].append(file.stem)
    listed = [{**json.loads(text), "releases": sorted(releases, key=Version)} for text, releases in found.items()]
    return sorted(listed, key=lambda r: (r["checkpoint"], Version(r["releases"][0])))


def family(row: dict[str, Any]) -> str:
    """The family of heads that a row is about."""
    return str(row["checkpoint"]).partition("-")[0]


def packed_files(file: Path) -> dict[str, bytes]:
    """What an archive of checkpoints holds already."""
    if not file.is_file():
        return {}
    with tarfile.open(file) as packed:
        return {m.name: packed.extractfile(m).read() for m in packed.getmembers() if m.isfile()}  # type: ignore[union-attr]


def pack(corpus: Path, asked: set[str], kept: set[str], file: Path) -> None:
    """The checkpoints in one archive, the same bytes for the same contents."""
    files = {n: data for n, data in packed_files(file).items() if n.split("/")[1] in kept}
    parts = ("config.json", "model.safetensors")
    files |= {f"mtp/{name}/{part}": (corpus / name / part).read_bytes() for name in asked for part in parts}
    with tarfile.open(file, "w:xz", preset=9) as packed:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            packed.addfile(entry, BytesIO(data))


def main() -> None:
    """Write the rows and the archive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--engine", default="sglang")
    parser.add_argument("--name", default="mtp", help="of the recording")
    given = parser.parse_args()
    asked = rows(given.answers, given.corpus)
    folder = FOLDER / given.engine
    anew = {family(r) for r in asked}
    file = folder / f"{given.name}.jsonl.xz"
    before = recorded.rows(file) if file.is_file() else []
    kept = [r for r in before if family(r) not in anew]
    listed = sorted([*kept, *asked], key=lambda r: (r["checkpoint"], Version(r["releases"][0])))
    text = "".join(json.dumps(r, sort_keys=True) + "\n" for r in listed)
    file.write_bytes(lzma.compress(text.encode(), preset=9))
    pack(
        given.corpus, {r["checkpoint"] for r in asked}, {r["checkpoint"] for r in kept}, folder / f"{given.name}.tar.xz"
    )
    print(f"{len(listed)} rows, {sum(len(r['releases']) for r in listed)} answers")


if __name__ == "__main__":
    main()
