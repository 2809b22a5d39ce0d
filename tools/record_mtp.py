"""Turn what the engine's own classes answered about the corpus into fixtures/verdicts/<engine>/mtp.jsonl.

    python tools/record_mtp.py ANSWERS CORPUS --engine sglang

ANSWERS holds ``<family>/<release>.json``: for each checkpoint which tensor changed which parameter, what stayed as it
was, and the error, from running the real ``load_weights`` (fixtures/README.md). Releases with the same answer share a
row. The checkpoints of CORPUS spoken of are packed beside it. An answer without a verdict on the class (a fault
of the environment, not of the checkpoint) is refused.
"""

from __future__ import annotations

import argparse
import json
import tarfile
from collections import defaultdict
from io import BytesIO
from pathlib import Path
from typing import Any

from packaging.version import Version

FOLDER = Path(__file__).parent.parent / "fixtures" / "verdicts"
STAGES = ("config", "class", "construct", "files", "load_weights", "done")


def row(answer: dict[str, Any]) -> dict[str, Any]:
    """The part of an answer that is compared. Raises ValueError for one that says nothing about the checkpoint."""
    if answer.get("stage") not in STAGES or "CUDA" in (answer.get("error") or ""):
        raise ValueError(f"{answer.get('ckpt')} on {answer.get('version')}: {answer.get('error')}")
    return {
        "checkpoint": answer["ckpt"],
        "class": answer["arch"],
        "stage": answer["stage"],
        "error": answer["error"],
        "loaded": answer["loaded"],
        "dropped": sorted(answer["dropped"]),
        "unwritten": sorted(answer["missing_params"]),
        "partial": sorted([name, round(share, 2)] for name, share in answer["partial_params"]),
    }


def rows(answers: Path, corpus: Path) -> list[dict[str, Any]]:
    """All answers about the corpus, those of releases that agree in one row, by checkpoint and release."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(answers.glob("*/*.json")):
        if file.stat().st_size:
            for answer in (a for a in json.loads(file.read_text()) if (corpus / a["ckpt"]).is_dir()):
                found[json.dumps(row(answer), sort_keys=True)].append(file.stem)
    listed = [{**json.loads(text), "releases": sorted(releases, key=Version)} for text, releases in found.items()]
    return sorted(listed, key=lambda r: (r["checkpoint"], Version(r["releases"][0])))


def pack(corpus: Path, names: set[str], file: Path) -> None:
    """The checkpoints in one archive, the same bytes for the same contents."""
    with tarfile.open(file, "w:xz", preset=9) as packed:
        for name in sorted(names):
            for part in ("config.json", "model.safetensors"):
                data = (corpus / name / part).read_bytes()
                entry = tarfile.TarInfo(f"mtp/{name}/{part}")
                entry.size = len(data)
                packed.addfile(entry, BytesIO(data))


def main() -> None:
    """Write the rows and the archive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--engine", default="sglang")
    given = parser.parse_args()
    listed = rows(given.answers, given.corpus)
    folder = FOLDER / given.engine
    (folder / "mtp.jsonl").write_text("".join(json.dumps(r, sort_keys=True) + "\n" for r in listed))
    pack(given.corpus, {r["checkpoint"] for r in listed}, folder / "mtp.tar.xz")
    print(f"{len(listed)} rows, {sum(len(r['releases']) for r in listed)} answers")


if __name__ == "__main__":
    main()
