"""DC313: rows of lm_head that repeat where d2t does, told from a few short reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cases_reference import KEPT, head_of
from drafts import DRAFT_VOCAB, HIDDEN, Draft
from make_kimi import draft_weights, write_pair
from weights import Weight, mask, offsets, zeros

from drafcheck import lint, source
from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.rows import HEAD, PAIRS, pairs_alike

OFFSETS = [token - i for i, token in enumerate(KEPT)]


def found(room: Path, head: Weight, edit: Callable[[Draft], object] = id) -> list[Finding]:
    draft = Draft()
    draft.weights["lm_head.weight"] = head
    edit(draft)
    draft.write(room)
    return [f for f in lint(room, engine="sglang==0.5.15").findings if f.rule == "DC313"]


def test_cut_by_offsets(tmp_path: Path) -> None:
    [hit] = found(tmp_path, head_of(OFFSETS))
    assert (hit.severity, hit.confidence) == (Severity.WARNING, Confidence.CERTAIN)
    assert [place.tensor for place in hit.locations] == ["lm_head.weight", "d2t"]


def patched(row: int, data: bytes) -> Weight:
    head = head_of(OFFSETS)
    at = row * 2 * HIDDEN
    assert head.data is not None
    return Weight(head.dtype, head.shape, head.data[:at] + data + head.data[at + len(data) :])


SOUND: dict[str, Weight] = {
    "by tokens": head_of(KEPT),
    "nothing but zeros": zeros("BF16", DRAFT_VOCAB, HIDDEN),
    "all rows alike": head_of([5] * DRAFT_VOCAB),
    "two rows alike": head_of([KEPT[1], *KEPT[1:]]),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_is_no_such_head(name: str, tmp_path: Path) -> None:
    assert found(tmp_path, SOUND[name]) == []


def test_rows_that_only_begin_alike(tmp_path: Path) -> None:
    """The first bytes agree in the pattern of d2t, the rest of the rows does not."""
    begin, end = head_of(OFFSETS).data, head_of(KEPT).data
    assert begin is not None and end is not None
    wide = 4 * HEAD
    rows = [begin[64 * i : 64 * i + 64] * (HEAD // 64) + end[64 * i : 64 * i + 64] * 12 for i in range(DRAFT_VOCAB)]
    assert {len(row) for row in rows} == {wide}

    def edit(draft: Draft) -> None:
        draft.weights["lm_head.weight"] = Weight("BF16", (DRAFT_VOCAB, wide // 2), b"".join(rows))

    assert found(tmp_path, zeros("BF16", 1), edit) == []


def test_untrained_rows_beside_repeated_ones(tmp_path: Path) -> None:
    """Zeros in some rows neither hide the pattern nor make one."""
    [hit] = found(tmp_path, patched(0, bytes(2 * HIDDEN * 8)))
    assert "rows 0 and 1" not in hit.message
    assert found(tmp_path, patched(0, bytes(2 * HIDDEN * DRAFT_VOCAB))) == []


def test_unsorted_maps_have_pairs_too(tmp_path: Path) -> None:
    """By frequency: the same offset is met again far away."""
    tokens = [*KEPT[1::2], *KEPT[::2]]

    def by_frequency(draft: Draft) -> None:
        draft.weights["d2t"] = offsets(tokens)
        draft.weights["t2d"] = mask(256, tokens)

    assert found(tmp_path, head_of(tokens), by_frequency) == []


def test_pairs_are_spread_and_alike() -> None:
    pairs = list(pairs_alike(OFFSETS))
    assert len(pairs) >= 8
    assert all(OFFSETS[one] == OFFSETS[two] for one, two in pairs)
    assert max(one for one, _ in pairs) - min(one for one, _ in pairs) > DRAFT_VOCAB // 2
    assert list(pairs_alike([3, 1, 2, 1, 3])) == [(1, 3), (0, 4)]
    assert list(pairs_alike([])) == list(pairs_alike([1])) == []


def test_few_bytes_are_read(tmp_path: Path) -> None:
    """Of a head of 459 MB a few kilobytes, whatever is in it."""
    folder = write_pair(tmp_path / "kimi", draft_weights())
    source.bytes_read.clear()
    lint(folder, engine="sglang==0.5.15", select=["DC313"])
    with_rows = sum(source.bytes_read.values())
    source.bytes_read.clear()
    lint(folder, engine="sglang==0.5.15", select=["DC312"])
    assert 0 < with_rows - sum(source.bytes_read.values()) <= 2 * PAIRS * HEAD


def test_a_file_that_ends_early_has_its_own_finding(tmp_path: Path) -> None:
    draft = Draft()
    draft.weights["lm_head.weight"] = head_of(OFFSETS)
    draft.write(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4096])
    codes = {f.rule for f in lint(tmp_path, engine="sglang==0.5.15").findings}
    assert "DC004" in codes
    assert "DC999" not in codes
