"""Heads whose rows hardly differ from random ones in their cosines, and were trained all the same."""

from __future__ import annotations

import numpy as np
import pytest

from drafcheck.matrix import Matrix
from drafcheck.source import Memory
from drafcheck.tensor import Tensor
from drafcheck.valuescan.heads import Alignment, aligned

WIDTH, VOCAB, DRAFT_VOCAB = 448, 10240, 2000
KEPT = sorted(np.random.default_rng(1).choice(VOCAB - 1, DRAFT_VOCAB, replace=False).tolist())


def matrix(rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Matrix:
    raw = rows.astype("<f4").tobytes()
    return Matrix(Memory(raw, "x"), Tensor("lm_head.weight", "F32", rows.shape, "x", 0, len(raw)))


@pytest.fixture(scope="module")
def target() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Directions of nearly the same weight, as in heads whose spectrum is flat."""
    random = np.random.default_rng(3)
    return (random.standard_normal((VOCAB, WIDTH)) * np.arange(1, WIDTH + 1) ** -0.1).astype(np.float32)


def judged(target: np.ndarray[tuple[int, ...], np.dtype[np.float32]], meant: list[int]) -> Alignment:
    """A head in another space whose rows stand for the tokens ``meant``, beside a mapping to the tokens kept."""
    random = np.random.default_rng(5)
    turned = np.linalg.qr(random.standard_normal((WIDTH, WIDTH)))[0]
    noise = 0.3 * random.standard_normal((DRAFT_VOCAB, WIDTH))
    draft = (target[meant] @ turned + noise).astype(np.float32)
    readings = {
        "as given": KEPT,
        "one on": [token + 1 for token in KEPT],
        "the draft ids": list(range(DRAFT_VOCAB)),
    }
    found = aligned(matrix(draft), matrix(target), readings)
    assert found is not None and 1.01 < min(found.structure) < 1.15
    return found


def test_a_right_mapping_is_right(target: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    found = judged(target, KEPT)
    assert found.verdict == "right" and found.named > 0.9


@pytest.mark.parametrize("reading", ["one on", "the draft ids"])
def test_another_reading_that_agrees_tells_a_wrong_one(
    target: np.ndarray[tuple[int, ...], np.dtype[np.float32]], reading: str
) -> None:
    meant = [token + 1 for token in KEPT] if reading == "one on" else list(range(DRAFT_VOCAB))
    found = judged(target, meant)
    assert found.verdict == "wrong" and found.named < 0.1 and found.agree[reading] > 0.9


def test_where_no_reading_agrees_nothing_is_told(target: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    found = judged(target, np.random.default_rng(7).permutation(KEPT).tolist())
    assert found.verdict == "untold" and max(found.agree.values()) < 0.1
    why = found.why_untold("ours", "theirs")
    assert "too little sets the rows of ours apart from random ones" in why and "(--reference)" in why
