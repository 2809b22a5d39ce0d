"""What ``--target-weights`` at an address cost: requests, bytes and memory, counted by a Hub on loopback."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from fakehub import Hub, Repo
from test_head_beside import mapped
from test_target_weights import HEAD, half
from weights import Weight, read_safetensors, write_safetensors

from drafcheck import lint
from drafcheck.checkpoint import WeightFile
from drafcheck.cli import run
from drafcheck.fix.pieces import Span, joined
from drafcheck.fix.stream import REMOTE, Stream
from drafcheck.matrix import APART, STRETCH, Matrix
from drafcheck.report.model import CheckpointReport
from drafcheck.source import LocalFile, Memory
from drafcheck.valuescan import heads

ENGINE = "sglang==0.5.15"
WIDE = 8192
ROW = 2 * WIDE
"""Bytes of a row of a large target."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained target's head with rows as long as those of a large model: the rest of them is zeros."""
    [file] = HEAD.glob("*.safetensors")
    head = next(w for n, w in read_safetensors(file).items() if n.endswith("lm_head.weight"))
    rows = np.zeros((head.shape[0], WIDE), "<u2")
    rows[:, : head.shape[1]] = np.frombuffer(head.raw, "<u2").reshape(head.shape)
    folder = tmp_path_factory.mktemp("wide")
    write_safetensors(folder / "model.safetensors", {"lm_head.weight": Weight("BF16", rows.shape, rows.tobytes())})
    return folder


def served(folder: Path) -> Path:
    """The same draft, where the target says that its head has such rows and its states have not."""
    config = json.loads((folder / "target_config.json").read_text())
    (folder / "target_config.json").write_text(json.dumps({**config, "word_embed_proj_dim": WIDE}))
    return folder


def compared(hub: Hub, draft: Path, weights: Path) -> tuple[CheckpointReport, int]:
    """The report, which is that of the files on disk, and how many requests the weights took."""
    hub.repos["org/target"] = Repo(weights)
    local = lint(draft, engine=ENGINE, target_weights=weights).checkpoints[0]
    hub.seen.clear()
    report = lint(draft, engine=ENGINE, target_weights="hf://org/target").checkpoints[0]
    assert (report.findings, report.head, report.skipped) == (local.findings, local.head, local.skipped)
    return report, sum(seen.server == "store" for seen in hub.seen)


def test_a_right_mapping_takes_a_request_for_eight_rows(hub: Hub, tmp_path: Path, wide: Path) -> None:
    report, requests = compared(hub, served(mapped(tmp_path / "ckpt", lambda tokens: tokens)), wide)
    assert report.head is not None and (report.head.verdict, report.head.rows) == ("right", 256)
    assert requests <= 40
    assert hub.sent < 2048 * ROW / 2
    assert max(seen.sent for seen in hub.seen) <= STRETCH


def test_a_wrong_one_takes_more_for_its_other_readings(hub: Hub, tmp_path: Path, wide: Path) -> None:
    report, requests = compared(hub, served(mapped(tmp_path / "ckpt", lambda tokens: tokens[1:] + tokens[:1])), wide)
    assert [f.rule for f in report.findings if f.rule.startswith("DC8")] == ["DC805"]
    assert report.head is not None and len(report.head.readings) >= 6
    assert requests <= 120
    assert max(seen.sent for seen in hub.seen) <= STRETCH


def test_of_long_rows_a_part_is_looked_at(
    tmp_path: Path, wide: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that they cost what the longest rows of real models do, and the report says so; the verdict is the same."""
    draft = served(mapped(tmp_path / "ckpt", lambda tokens: tokens[1:] + tokens[:1]))
    whole = lint(draft, engine=ENGINE, target_weights=wide).checkpoints[0].head
    monkeypatch.setattr(heads, "COLUMNS", 1024)
    read: list[int] = []
    real = WeightFile.read

    def counting(file: WeightFile, start: int, stop: int) -> bytes:
        if file.source.size() > 2048 * ROW:
            read.append(stop - start)
        return real(file, start, stop)

    monkeypatch.setattr(WeightFile, "read", counting)
    part = lint(draft, engine=ENGINE, target_weights=wide).checkpoints[0].head
    assert whole is not None and part is not None
    assert (whole.verdict, whole.columns) == ("wrong", None) and (part.verdict, part.columns) == ("wrong", 1024)
    assert read and max(read) == 2 * 1024
    assert run([str(draft), "--engine", ENGINE, "--target-weights", str(wide)]) == 1
    assert ", by the first 1024 values of a row" in capsys.readouterr().out


class Counted(WeightFile):
    """A weight file that writes down how much was read at once."""

    def read(self, start: int, stop: int) -> bytes:
        self.__dict__.setdefault("spans", []).append(stop - start)
        return super().read(start, stop)


@pytest.mark.parametrize(("step", "reads"), [(1, 8), (3, 8), (4, 64)])
def test_rows_that_lie_near_are_read_together_and_no_more_is_held_than_a_stretch(
    tmp_path: Path, step: int, reads: int
) -> None:
    """Of rows half as long as what is read along: two between are, three are not."""
    width = APART // 2
    rows = np.repeat(np.arange(256, dtype=np.uint8), width).reshape(256, width)
    write_safetensors(tmp_path / "model.safetensors", {"x": Weight("I8", rows.shape, rows.tobytes())})
    file = Counted(LocalFile(tmp_path / "model.safetensors"))
    matrix = Matrix(file, file.header.tensors[0])
    tracemalloc.start()
    seen = [(number, data[0], len(data)) for number, data in matrix.rows(range(0, 256, step))]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == [(number, number, width) for number in range(0, 256, step)]
    assert len(file.__dict__["spans"]) == reads and max(file.__dict__["spans"]) <= STRETCH
    assert peak < 3 * STRETCH


def test_a_row_longer_than_a_stretch_is_read_alone(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"x": half(np.ones((2, STRETCH), np.float32))})
    file = Counted(LocalFile(tmp_path / "model.safetensors"))
    rows = [(number, len(data)) for number, data in Matrix(file, file.header.tensors[0]).rows([1, 0, 1])]
    assert rows == [(0, 2 * STRETCH), (1, 2 * STRETCH)]


class Far(Memory):
    """A file far away that writes down how much was asked for at once."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, "far")
        self.asked: list[int] = []

    def read(self, start: int, stop: int) -> bytes:
        self.asked.append(stop - start)
        return super().read(start, stop)


@pytest.mark.parametrize(
    ("rows", "requests"),
    [
        ([*range(0, 64, 2)], 2),
        ([*range(64)], 2),  # one stretch, as long as the file
        ([*range(0, 64, 8)], 8),  # too far apart
        ([*range(63, -1, -1)], 64),  # in another order
        ([*range(0, 16, 2), *range(1, 16, 2)], 2),
        ([5], 1),
    ],
)
def test_rows_that_fix_copies_from_far_away_come_together_where_they_lie_near(
    tmp_path: Path, rows: list[int], requests: int
) -> None:
    """Such as those of a target's head, of which there are 32,000: in the order that is asked for, in 8 MiB at most."""
    data = np.random.default_rng(1).integers(0, 256, 64 * APART, np.uint8).tobytes()
    far, other = Far(data), Far(b"another file")
    pieces = [Span(far, row * APART, (row + 1) * APART) for row in rows]
    with (tmp_path / "made").open("wb") as goal, Stream(lambda _: None) as stream:
        stream.write(joined([b"first", *pieces, Span(other, 0, 7), b"last"]), goal.fileno())
    wanted = b"".join(data[span.start : span.stop] for span in pieces)
    assert (tmp_path / "made").read_bytes() == b"first" + wanted + b"anotherlast"
    assert len(far.asked) == requests and max(far.asked) <= REMOTE and other.asked == [7]
