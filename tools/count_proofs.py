"""Count the recorded checkpoints on which each draft class was run, and write the counts into its contract.

    python tools/count_proofs.py            # write [proof.executed] of rules/<engine>/<class>.toml
    python tools/count_proofs.py --check    # exit 1 and name the contracts whose counts are not those of the recordings
    python tools/count_proofs.py --read sglang 0.5.15.post1    # the source of this release was read: into every [proof]

A recording counts for a contract when the class was built and its loader ran, in that release, on a checkpoint whose
config the contract describes: what tests/test_verdicts*.py then hold against the load plan.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import recorded
from packaging.version import Version

from drafcheck.config import DraftConfig
from drafcheck.contract import Engine, contract_files, contract_for, engines, load_toml, releases, rules_folder
from drafcheck.conversion import as_read
from drafcheck.draftmode import usual_algorithm
from drafcheck.jsonpos import Document
from drafcheck.plan.admission import chosen_class

Row = dict[str, Any]
Counts = dict[str, int]

FIXTURES = Path(__file__).parent.parent / "fixtures"
LOADED = ("done", "load_weights", "share", "compute_logits", "combine_hidden_states")
"""The stages of a recording that the loader was reached in."""


HEAD = "[proof.executed] # recorded checkpoints by release: python tools/count_proofs.py"


def counted(engine: str) -> dict[str, Counts]:
    """For each contract of an engine, the number of checkpoints by release, in the order of releases."""
    seen: dict[str, dict[str, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
    for file in recorded.files(FIXTURES / "verdicts" / engine):
        corpus = recorded.name_of(file)
        for row in recorded.rows(file):
            for release in _ran(row):
                name = _contract_of(engine, release, row, corpus)
                if name is not None:
                    seen[name.partition("/")[2]][release].add((corpus, row["checkpoint"]))
    return {
        stem: {release: len(by_release[release]) for release in sorted(by_release, key=Version)}
        for stem, by_release in seen.items()
    }


def _ran(row: Row) -> list[str]:
    """The releases in which this recording reached the loader; none for recordings of something else."""
    if "loaded" not in row or "checkpoint" not in row:
        return []
    error = row.get("error")
    stage = row.get("stage") or (error["stage"] if error else "done")
    return row.get("releases") or [row["version"]] if stage in LOADED else []


def _contract_of(engine: str, release: str, row: Row, corpus: str) -> str | None:
    """The contract that describes what was run; None where the book has none for this config."""
    asked = Engine(engine, release, Version(release), exact=Version(release) in releases(engine))
    data = _configs(engine, corpus).get(row["checkpoint"])
    if data is None:
        raise SystemExit(f"no archive holds the checkpoint {row['checkpoint']} of {engine}/{corpus}.jsonl")
    config = as_read(asked, DraftConfig(Document("config.json", data))).config
    # What was recorded as run, else what the release makes of the names in the config.
    named = row.get("class") or (row["arch"][0] if row.get("arch") else None)
    contract = contract_for(asked, named or chosen_class(asked, config, usual_algorithm(asked, config)))
    if contract is None or contract.undescribed(config) is not None:
        return None
    return contract.name


@cache
def _configs(engine: str, corpus: str) -> dict[str, Row]:
    """The config.json of every checkpoint that the recordings of a corpus may speak of, by the checkpoint's name."""
    folder = FIXTURES / "verdicts" / engine
    own = folder / f"{corpus}.tar.xz"
    archive = FIXTURES / "producers" / "producers.tar.xz" if corpus == "producers" else folder / "checkpoints.tar.xz"
    with tarfile.open(own if own.is_file() else archive) as packed:
        files = [m for m in packed.getmembers() if m.name.endswith("/config.json")]
        return {Path(m.name).parent.name: json.load(packed.extractfile(m) or _nothing(m.name)) for m in files}


def _nothing(name: str) -> Any:
    raise SystemExit(f"{name} is no file")


def written(text: str, counts: Counts) -> str:
    """The text of a contract with these counts in its ``[proof.executed]``."""
    lines = "".join(f'"{release}" = {count}\n' for release, count in counts.items())
    block = f"{HEAD}\n{lines}"
    text = re.sub(r"^executed = \[[^\]]*\]\n", "", text, flags=re.MULTILINE)
    if found := re.search(r"^\[proof\.executed\].*\n(?:\".*\n)*", text, re.MULTILINE):
        return text[: found.start()] + block + text[found.end() :]
    text = re.sub(r"^\[proof\]\n\s*(?=\[)", "", text, flags=re.MULTILINE)  # nothing is left in it
    if found := re.search(r"^\[proof\].*\n(?:[^\[\n].*\n|\].*\n)*", text, re.MULTILINE):
        return text[: found.end()] + "\n" + block + text[found.end() :]
    start = re.search(r"^(?:#.*\n)*\[", text, re.MULTILINE)
    assert start is not None
    return f"{text[: start.start()]}{block}\n{text[start.start() :]}"


def stale() -> dict[Path, str]:
    """The contracts whose counts differ from the recordings, each with the text that it should have."""
    made: dict[Path, str] = {}
    for engine in engines():
        counts = counted(engine) if (FIXTURES / "verdicts" / engine).is_dir() else {}
        for stem in contract_files(engine):
            path = rules_folder() / engine / f"{stem}.toml"
            said = load_toml(engine, f"{stem}.toml").get("proof", {}).get("executed", {})
            right = counts.get(stem, {})
            if said != right and (said or right):
                made[path] = written(path.read_text(encoding="utf-8"), right)
    return made


def also_read(text: str, release: str) -> str:
    """The text of a contract whose ``[proof]`` says that the source of ``release`` was read, too."""
    if head := re.search(r"^\[proof\]\n", text, re.MULTILINE):
        end = re.compile(r"^\[", re.MULTILINE).search(text, head.end())
        found = re.compile(r"^read = \[([^\]]*)\]", re.MULTILINE).search(
            text, head.end(), end.start() if end else len(text)
        )
        if found is None:
            return f'{text[: head.end()]}read = ["{release}"]\n{text[head.end() :]}'
        listed = {*re.findall(r'"([^"]+)"', found[1]), release}
        named = ", ".join(f'"{one}"' for one in sorted(listed, key=Version))
        return f"{text[: found.start()]}read = [{named}]{text[found.end() :]}"
    start = re.search(r"^\[proof\.executed\]", text, re.MULTILINE) or re.search(r"^(?:#.*\n)*\[", text, re.MULTILINE)
    assert start is not None
    return f'{text[: start.start()]}[proof]\nread = ["{release}"]\n\n{text[start.start() :]}'


def read(engine: str, release: str) -> int:
    """Write into every contract of an engine that a release was read; 1 where the book has no such release."""
    if Version(release) not in releases(engine):
        print(f"{release} is none of the releases in rules/{engine}/engine.toml")
        return 1
    for stem in contract_files(engine):
        path = rules_folder() / engine / f"{stem}.toml"
        proof = load_toml(engine, f"{stem}.toml").get("proof", {})
        if release not in proof.get("executed", {}):
            path.write_text(also_read(path.read_text(encoding="utf-8"), release), encoding="utf-8")
    return 0


def main() -> int:
    """Write, or with ``--check`` only compare; 1 when a contract says something else than the recordings."""
    if sys.argv[1:2] == ["--read"]:
        return read(*sys.argv[2:4])
    for path, text in stale().items():
        print(f"{path.relative_to(rules_folder().parent)}: the counts are not those of fixtures/verdicts")
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    return int("--check" in sys.argv and bool(stale()))


if __name__ == "__main__":
    sys.exit(main())
