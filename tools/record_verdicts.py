"""Ask the real loaders again about the recorded corpora, and write fixtures/verdicts anew.

    python tools/record_verdicts.py sglang --oracle DIR --home DIR [--releases 0.5.9] [--corpora synthetic] [--check]

Rows of releases that are not asked stay as they are. --check writes nothing and prints which rows would change;
the exit code is then 1 when there are any.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from loaders import Oracle, Row
from recorded import keep, rows, unpack

FIXTURES = Path(__file__).parent.parent / "fixtures"
ARCHIVES = {"synthetic": "verdicts/{engine}/checkpoints.tar.xz", "producers": "producers/producers.tar.xz"}
"""Where the checkpoints of a corpus are."""

LEFT = ("notes", "log", "logits", "files")
"""Columns that differ from run to run: chance values and paths of the machine."""


def by_target(folder: Path) -> dict[bytes, list[Path]]:
    """The checkpoints of a corpus by the target's config: beside each, one for all, or none."""
    groups: dict[bytes, list[Path]] = {}
    shared = folder / "target.json"
    for config in sorted(folder.glob("*/config.json")):
        beside = config.with_name("target_config.json")
        target = shared if shared.is_file() else beside
        groups.setdefault(target.read_bytes() if target.is_file() else b"", []).append(config.parent)
    return groups


def ask(oracle: Oracle, engine: str, release: str, corpus: str, folder: Path) -> list[Row]:
    """The rows of one release about one corpus."""
    rows: list[Row] = []
    for content, checkpoints in by_target(folder).items():
        with tempfile.TemporaryDirectory() as place:
            target = Path(place, "target.json")
            target.write_bytes(content)
            group = Path(place, "checkpoints")
            group.mkdir()
            for checkpoint in checkpoints:
                (group / checkpoint.name).symlink_to(checkpoint)
            rows += oracle.ask(engine, release, group, target).values()
    return [{**row, "corpus": corpus} for row in rows]


def tidy(row: Row, columns: list[str]) -> Row:
    """A row with the columns that are kept and without paths of the machine."""
    text = re.sub(r"/[^\s`'\"]*/checkpoints/", "", json.dumps({key: row.get(key) for key in columns}))
    told: Row = json.loads(text)
    return {**told, "loaded": told["loaded"] or {}} if row["engine"] == "sglang" else told


def merged(before: list[Row], asked: list[Row]) -> list[Row]:
    """The rows recorded before with the new ones in their places, with the same columns; new rows come last."""
    columns = sorted(before[0]) if before else sorted(asked[0])
    fresh = {(row["version"], row["checkpoint"]): tidy(row, columns) for row in asked}
    kept = [fresh.pop((row["version"], row["checkpoint"]), row) for row in before]
    return kept + list(fresh.values())


def changed(before: list[Row], after: list[Row]) -> list[str]:
    """Which rows differ, and in which columns."""
    known = {(row["version"], row["checkpoint"]): row for row in before}
    lines = []
    for row in after:
        old = known.get((row["version"], row["checkpoint"]), {})
        columns = [key for key in row if key not in LEFT and _plain(row[key]) != _plain(old.get(key))]
        if columns:
            said = "; ".join(f"{key} {row[key]}, was {old.get(key)}" for key in columns)
            lines.append(f"{row['version']} {row['checkpoint']}: {said:.600}")
    return lines


def _plain(value: object) -> object:
    """A value without what chance decides: a second write of the same bytes to one parameter is not always seen."""
    if isinstance(value, dict):
        return {key: sorted(set(item)) if isinstance(item, list) else item for key, item in value.items()}
    return value


def main() -> int:
    """Record, or say what would change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=("sglang", "vllm"))
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--releases")
    parser.add_argument("--corpora", default="synthetic,producers")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    oracle = Oracle(given.oracle, given.home)
    differ = False
    for corpus in given.corpora.split(","):
        path = FIXTURES / "verdicts" / given.engine / f"{corpus}.jsonl"
        before = rows(path) if path.is_file() or path.with_name(f"{path.name}.xz").is_file() else []
        with tempfile.TemporaryDirectory() as place:
            folder = unpack(FIXTURES / ARCHIVES[corpus].format(engine=given.engine), Path(place))
            releases = given.releases.split(",") if given.releases else oracle.releases(given.engine)
            asked = [row for release in releases for row in ask(oracle, given.engine, release, corpus, folder)]
        after = merged(before, asked)
        lines = changed(before, after)
        differ = differ or bool(lines)
        print("\n".join([*lines, f"{given.engine} {corpus}: {len(asked)} rows asked, {len(lines)} differ"]))
        if not given.check:
            keep(path, after)
    return 1 if differ and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
