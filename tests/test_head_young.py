"""DC805 on heads that have learnt little: what their rows have in common follows their tokens, or nothing is told."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from test_head_beside import numbers, scrambled, tokens_of
from test_head_flat import matrix
from test_target_weights import HEAD
from variants import healthy
from weights import read_safetensors

from drafcheck.valuescan.heads import Alignment, aligned

Rows = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

WIDTH = 256
IDS = tokens_of(healthy())
SHARES = (0.0, 0.02, 0.1, 0.3, 1.0)


@cache
def target() -> Rows:
    """The rows of the trained target's head."""
    [file] = HEAD.glob("*.safetensors")
    rows: Rows = numbers(next(w for n, w in read_safetensors(file).items() if n.endswith("lm_head.weight")))
    return rows / rows.std()


def learnt(much: float, moved: float = 0.0) -> Rows:
    """A head that was drawn at random and has learnt so much of what tells tokens apart the most, in its own space.

    ``moved``: how far all of its rows went along one direction, one way or the other, as in the first steps, in which
    it counts whether a token was in the batch.
    """
    random = np.random.default_rng(4)
    turned = np.linalg.qr(random.standard_normal((WIDTH, WIDTH)))[0]
    noise = random.standard_normal((len(IDS), WIDTH))
    way = np.sign(random.standard_normal((len(IDS), 1))) * random.standard_normal(WIDTH)
    left, sizes, right = np.linalg.svd(target()[IDS] - target()[IDS].mean(axis=0), full_matrices=False)
    coarse = left[:, :4] * sizes[:4] @ right[:4]
    return (noise + much * coarse @ turned + moved * way).astype(np.float32)


def judged(head: Rows, share: float) -> Alignment:
    """The head beside a mapping of which such a share is scrambled."""
    found = aligned(matrix(head), matrix(target()), {"as given": scrambled(share)(IDS) if share else IDS})
    assert found is not None
    return found


@pytest.mark.parametrize("much", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("moved", [0.0, 1.0, 8.0])
def test_a_right_mapping_is_never_called_wrong(much: float, moved: float) -> None:
    found = judged(learnt(much, moved), 0)
    assert found.verdict in ("right", "untold") and found.concord.p < 1e-3


@pytest.mark.parametrize("much", [0.7, 1.5])
@pytest.mark.parametrize("moved", [0.0, 1.0, 8.0])
def test_one_that_is_scrambled_throughout_is_told(much: float, moved: float) -> None:
    found = judged(learnt(much, moved), 1)
    assert found.verdict == "wrong" and found.amiss == 1 and found.concord.p > 0.01
    assert found.concord.rows == len(IDS) and found.sampled == 256


@pytest.mark.parametrize(
    ("much", "moved", "verdicts"),
    [
        (0.7, 0.0, ["untold", "untold", "untold", "untold", "wrong"]),
        (1.5, 0.0, ["untold", "untold", "untold", "partly", "wrong"]),
        (1.5, 8.0, ["untold", "untold", "untold", "untold", "wrong"]),
    ],
)
def test_a_part_is_told_once_the_head_has_learnt_enough_of_the_others(
    much: float, moved: float, verdicts: list[str]
) -> None:
    found = [judged(learnt(much, moved), share) for share in SHARES]
    assert [one.verdict for one in found] == verdicts
    assert all(
        abs(one.amiss - share) < 0.1 for one, share in zip(found, SHARES, strict=True) if one.verdict != "untold"
    )


def test_what_is_left_open_is_said_with_what_would_settle_it() -> None:
    why = judged(learnt(1.0, 1.0), 0.3).why_untold("ours", "theirs")
    assert why.startswith(
        "ours has learnt too little to tell, though not for all of them, whether its rows are those of"
    )
    assert why.endswith("; a later training state would tell, or the mapping that the trainer kept (--reference)")
    nothing = judged(learnt(0.3), 1)
    assert nothing.verdict == "untold" and "too little sets the rows of ours apart" in nothing.why_untold("ours", "t")


def test_a_sorted_map_of_other_tokens_does_not_pass_for_theirs() -> None:
    """Frequent tokens come first in both, so that the rows follow those of other tokens a little."""
    others = sorted(set(range(2048)) - set(IDS[::2]))[: len(IDS)]
    found = aligned(matrix(learnt(1.0)), matrix(target()), {"as given": others})
    assert found is not None and found.verdict == "wrong" and found.concord.p > 0.01


UNSEEN = [0.15, 0.3, 0.6]


def unseen(share: float, away: float) -> Rows:
    """A head that has learnt much, but for tokens that no text had: their rows are those of the start.

    ``away``: how far training moved these, all of them the same way, off the hidden states that it saw.
    """
    random = np.random.default_rng(5)
    turned = np.linalg.qr(random.standard_normal((WIDTH, WIDTH)))[0]
    rows = target()[IDS] @ turned + 0.3 * random.standard_normal((len(IDS), WIDTH)) + random.standard_normal(WIDTH) / 2
    start = random.random(len(IDS)) < share
    rows[start] = random.standard_normal((start.sum(), WIDTH)) - away * rows[~start].mean(axis=0)
    return rows.astype(np.float32)


@pytest.mark.parametrize("share", UNSEEN)
@pytest.mark.parametrize("away", [0.0, 1.0, 3.0])
def test_rows_of_tokens_that_were_never_seen_are_no_accident_of_the_mapping(share: float, away: float) -> None:
    found = judged(unseen(share, away), 0)
    assert found.verdict in ("right", "untold"), found
    assert judged(unseen(share, away), 1).verdict == "wrong"


@pytest.mark.parametrize("share", [0.02, 0.05, 0.3])
def test_rows_of_other_tokens_are_told_where_all_were_seen(share: float) -> None:
    found = judged(unseen(0, 0), share)
    assert (found.verdict, found.others) == ("partly", False) and abs(found.amiss - share) < 0.1
