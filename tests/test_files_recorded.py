"""Which files a release loads, and in which order, as its real loader answered."""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path

import pytest
import recorded
from test_files import FIXTURES, names, select


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The recorded checkpoints, unpacked."""
    roots = {}
    archives = {"synthetic": "verdicts/sglang/checkpoints.tar.xz", "producers": "producers/producers.tar.xz"}
    for corpus, name in archives.items():
        root = tmp_path_factory.mktemp(corpus)
        with tarfile.open(FIXTURES / name) as file:
            file.extractall(root, filter="data")
        roots[corpus] = root
    return roots


def test_files_as_the_real_loaders_chose_them(corpora: dict[str, Path]) -> None:
    """Every recorded row that came as far as files: the same files, in the same order, or the same refusal."""
    rows: Counter[str] = Counter()
    for corpus, root in corpora.items():
        places = {config.parent.name: config.parent for config in root.rglob("config.json")}
        for row in recorded.rows(FIXTURES / "verdicts" / "sglang" / f"{corpus}.jsonl"):
            if row["stage"] in ("config", "class", "construct"):
                continue
            selection = select(places[row["checkpoint"]], row["version"])
            assert names(selection) == (row["files"] or []), (row["checkpoint"], row["version"])
            assert (selection.refused is not None) is (row["stage"] == "files")
            if selection.refused is not None:  # the folder's name was cut short in some rows
                head = selection.refused.error.partition("`" if "`" in row["error"] else " missing from")[0]
                assert row["error"].startswith(head)
            rows[corpus] += 1
    assert rows["synthetic"] > 800 and rows["producers"] > 100
