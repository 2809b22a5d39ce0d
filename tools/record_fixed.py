"""Repair the trainers' checkpoints for some releases, and ask the real loaders about each before and after.

    python tools/record_fixed.py --oracle DIR --home DIR [--releases sglang==0.5.12,vllm==0.33.0]

Writes fixtures/verdicts/fixed.jsonl; rows of releases that are not asked stay as they are. ``fingerprint`` is that of
the repaired checkpoint, so that an answer stands only as long as the repair comes out the same; null where nothing is
repaired. ``dropped`` is null where a loader keeps every tensor until the last has come: which of them it wrote can not
be seen then, only that nothing stayed unwritten.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from loaders import Oracle, Row
from record_verdicts import FIXTURES, tidy
from recorded import unpack

from drafcheck.fix.mend import FailedRepairError, Mended, mend
from drafcheck.fix.registry import Wishes
from drafcheck.fix.staging import Meter
from drafcheck.fix.write import deliver
from drafcheck.place import LocalPlace
from drafcheck.report.build import outcome
from drafcheck.session import Options, Session

RECORDED = FIXTURES / "verdicts" / "fixed.jsonl"
PRODUCERS = FIXTURES / "producers" / "producers.tar.xz"
RELEASES = ("sglang==0.5.1", "sglang==0.5.12", "sglang==0.5.23", "vllm==0.33.0")
ASKED_FOR_A_TARGET = ("vllm",)
"""The engines whose loader is told of the target and of the method."""

COLUMNS = ["engine", "error", "loaded", "dropped", "unwritten", "partial"]


class Repaired(NamedTuple):
    """A checkpoint for one release: the repair, None where it does not hold."""

    checkpoint: Path
    mended: Mended | None

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.mended is not None and self.mended.state.changed


def repaired(checkpoint: Path, release: str) -> Repaired:
    """The repair of one checkpoint for one release; nothing is written."""
    setup = Session(Options(engine=release)).setup(str(checkpoint))
    try:
        return Repaired(checkpoint, mend(str(checkpoint), setup, LocalPlace(checkpoint), Wishes()))
    except FailedRepairError:
        return Repaired(checkpoint, None)


def fingerprint(mended: Mended) -> str:
    """The hash of all that a loader reads of the repaired checkpoint: the config, and every tensor in its file."""
    subject = mended.last.subject
    assert subject is not None and subject.written is not None
    checkpoint = subject.checkpoint
    tensors = [
        [file.name, t.name, t.dtype, list(t.shape), hashlib.sha256(checkpoint.read(t)).hexdigest()]
        for file in checkpoint.files
        for t in file.header.tensors
    ]
    told = json.dumps([subject.written.data, sorted(tensors)], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def summary(one: Repaired) -> dict[str, Any]:
    """What is recorded of a repair itself."""
    if one.mended is None:
        return {"rules": [], "verdict": None, "fingerprint": None}
    return {
        "rules": sorted({done.finding.rule for done in one.mended.repaired}),
        "verdict": outcome(one.mended.last).value,
        "fingerprint": fingerprint(one.mended) if one.changed else None,
    }


def ask(oracle: Oracle, release: str, asked: Iterable[tuple[Path, str]]) -> dict[str, Row]:
    """The loader's answers about checkpoints, each with the method that it is served with, by their names."""
    engine, _, version = release.partition("==")
    groups: dict[tuple[bytes, str], list[Path]] = defaultdict(list)
    for checkpoint, method in asked:
        target = checkpoint.joinpath("target_config.json").read_bytes()
        groups[(target, method) if engine in ASKED_FOR_A_TARGET else (b"", "")].append(checkpoint)
    rows: dict[str, Row] = {}
    for (content, method), checkpoints in groups.items():
        with tempfile.TemporaryDirectory() as place:
            config = Path(place, "target.json")
            config.write_bytes(content)
            for checkpoint in checkpoints:
                Path(place, "checkpoints").mkdir(exist_ok=True)
                Path(place, "checkpoints", checkpoint.name).symlink_to(checkpoint)
            rows |= oracle.ask(engine, version, Path(place, "checkpoints"), config, method)
    return rows


def method_of(mended: Mended | None, *, first: bool) -> str:
    """The method under which the checkpoint is served before or after its repair."""
    seen = None if mended is None else mended.first if first else mended.last
    return seen.subject.algorithm if seen is not None and seen.subject is not None else "eagle3"


def record(oracle: Oracle, release: str, checkpoints: list[Path]) -> list[Row]:
    """A row for each checkpoint, before and after its repair for ``release``."""
    work = [repaired(checkpoint, release) for checkpoint in checkpoints]
    before = ask(oracle, release, [(one.checkpoint, method_of(one.mended, first=True)) for one in work])
    with tempfile.TemporaryDirectory() as place:
        written = []
        for one in work:
            if one.mended is not None and one.changed:
                goal, state = Path(place, one.checkpoint.name), one.mended.state
                deliver(state.base, state.files, state.removed, goal, check=lambda _: None, progress=Meter())
                shutil.copyfile(one.checkpoint / "target_config.json", goal / "target_config.json")
                written.append((goal, method_of(one.mended, first=False)))
        after = ask(oracle, release, written)
    engine, _, version = release.partition("==")
    return [
        {
            "engine": engine,
            "version": version,
            "checkpoint": one.checkpoint.name,
            **summary(one),
            "before": _answer(before[one.checkpoint.name]),
            "after": _answer(after[one.checkpoint.name]) if one.checkpoint.name in after else None,
        }
        for one in work
    ]


def _answer(row: Row) -> Row:
    """What counts of an answer; of what was loaded only how much."""
    told = tidy(row, COLUMNS)
    kept = {key: told[key] for key in ("error", "dropped", "unwritten", "partial")}
    if not told["loaded"] and told["dropped"] and not (told["error"] or told["unwritten"]):
        kept["dropped"] = None
    return {**kept, "loaded": len(told["loaded"])}


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--releases", default=",".join(RELEASES))
    given = parser.parse_args()
    oracle = Oracle(given.oracle, given.home)
    lines = RECORDED.read_text().splitlines() if RECORDED.is_file() else []
    rows = {(row["engine"], row["version"], row["checkpoint"]): row for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as place:
        folder = unpack(PRODUCERS, Path(place))
        checkpoints = sorted(path.parent for path in folder.glob("*/config.json"))
        for release in given.releases.split(","):
            told = record(oracle, release, checkpoints)
            rows |= {(row["engine"], row["version"], row["checkpoint"]): row for row in told}
            print(f"{release}: {len(told)} checkpoints, {sum(row['after'] is not None for row in told)} repaired")
    RECORDED.write_text("".join(json.dumps(rows[key], sort_keys=True) + "\n" for key in sorted(rows)))


if __name__ == "__main__":
    main()
