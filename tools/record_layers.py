"""Record which layers each SGLang release captures for the producers' own configs.

    ORACLE_HOME=... python tools/record_layers.py ORACLE

ORACLE is a folder with ``sglang/oracle.py``, whose ``aux_oracle(release, draft_config, target_config)`` runs the
statements of a real release that read the draft's config, and those of the target class that take the ids; ORACLE_HOME
holds the unpacked releases (``sglang/sglang-VERSION``). Nothing is asked of drafcheck. What is written, to
fixtures/verdicts/sglang/producer_layers.jsonl.xz, is recorded data: run this, never edit it.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import recorded
from packaging.version import Version

FIXTURES = Path(__file__).parent.parent / "fixtures"
ARCHIVE = FIXTURES / "producers" / "producers.tar.xz"
RECORD = FIXTURES / "verdicts" / "sglang" / "producer_layers.jsonl"
TARGETS = FIXTURES / "verdicts" / "sglang" / "aux_targets"

Json = dict[str, Any]


def lists_for(depth: int) -> dict[str, list[int]]:
    """Lists that producers write for a target of that depth, by what they are."""
    return {
        "usual three as outputs": [1, depth // 2 - 1, depth - 4],
        "usual three as inputs": [2, depth // 2, depth - 3],
        "one layer later before 0.5 of speculators": [3, depth // 2 + 1, depth - 2],
        "does not begin with one": [3, depth // 2, depth - 5],
        "up to the depth": [2 * depth // 3, depth - 2, depth],
        "four": [1, depth // 3, depth // 2, depth - 4],
        "five from one": [1, 2, depth // 2, depth - 3, depth - 2],
    }


def drafts(room: Path) -> Iterator[tuple[str, Json]]:
    """The configs of the real checkpoints, by their names."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(room, filter="data")
    for path in sorted(room.glob("*/config.json")):
        yield path.parent.name, json.loads(path.read_text(encoding="utf-8"))


def depth_of(target: Json) -> int:
    """The layers of a recorded target."""
    return int(target.get("text_config", target)["num_hidden_layers"])


def listed(target: Json) -> Iterator[tuple[str, Json]]:
    """A config for each list, with the ids where this engine reads them."""
    for name, ids in lists_for(depth_of(target)).items():
        key = "eagle_aux_hidden_state_layer_ids"
        yield f"list: {name}", {"eagle_config": {key: ids, "use_aux_hidden_state": True}}


def answer(oracle: ModuleType, release: Path, draft: Path, target: Path) -> list[int] | str:
    """The layer inputs that the real statements capture, or why there are none."""
    try:
        got = oracle.aux_oracle(str(release), str(draft), str(target))
    except Exception as error:
        return f"error: {type(error).__name__}: {error}"
    if got.get("error"):
        return f"error: {got['error']}"
    if not got.get("use_aux"):
        return "not captured"
    return str(got["target_error"]) if got.get("target_error") else list(got["layers_to_capture"])


def record(oracle: ModuleType, releases: list[Path], room: Path) -> Iterator[Json]:
    """One row for each draft, target and answer, with all releases that gave it."""
    known = list(drafts(room))
    for target in sorted(TARGETS.glob("*.json")):
        for name, config in (*known, *listed(json.loads(target.read_text(encoding="utf-8")))):
            draft = room / "draft.json"
            draft.write_text(json.dumps(config), encoding="utf-8")
            answers: dict[str, list[str]] = {}
            for release in releases:
                said = json.dumps(answer(oracle, release, draft, target))
                answers.setdefault(said, []).append(version_of(release))
            ids = config.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids")
            for said, versions in answers.items():
                yield {
                    "engine": "sglang",
                    "draft": name,
                    "eagle_config_ids": ids,
                    "target": target.stem,
                    "versions": versions,
                    "captured_layer_inputs": json.loads(said),
                }


def version_of(release: Path) -> str:
    """The version in the name of an unpacked release."""
    return release.name.removeprefix("sglang-")


def main(folder: Path) -> None:
    """Ask and write."""
    sys.path.insert(0, str(folder / "sglang"))
    import oracle  # type: ignore[import-not-found]

    unpacked = (path for path in Path(oracle.HOME, "sglang").glob("sglang-*") if path.is_dir())
    releases = sorted(unpacked, key=lambda path: Version(version_of(path)))
    with tempfile.TemporaryDirectory() as room:
        rows = list(record(oracle, releases, Path(room)))
    recorded.keep(RECORD, rows)
    print(f"{len(rows)} rows, {len(releases)} releases")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
