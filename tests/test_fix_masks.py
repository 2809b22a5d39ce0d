"""Repairs of maps that are no whole numbers, of masks, and maps that are good."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases_vocabulary import KEPT, bfloat16, float32
from drafts import DRAFT_VOCAB, VOCAB, Draft
from make_fixtures import FIXTURES
from repairing import asked, contents, hashed, mended, options_of
from test_fix_mapping import MASK, UNSAFE, drafted, referring, values_of
from weights import Weight, integers, mask

from drafcheck.fix.edits import Add, Replace
from drafcheck.session import Options


@pytest.mark.parametrize(
    ("weight", "mends"),
    [
        (float32([10 * i for i in range(DRAFT_VOCAB)]), True),
        (bfloat16([2 * i for i in range(DRAFT_VOCAB)]), True),
        (bfloat16([10 * i for i in range(DRAFT_VOCAB)]), False),
        (Weight("F32", (DRAFT_VOCAB,), b"\0\0\0\x3f" * DRAFT_VOCAB), False),
    ],
)
def test_floats_become_whole_numbers_where_none_was_rounded(weight: Weight, mends: bool, tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.set(vocab_size=2048)
        draft.target = {**(draft.target or {}), "vocab_size": 2048}
        draft.drop("t2d")
        draft.weights["d2t"] = weight

    assert bool(asked(drafted(tmp_path, edit), "DC308")) == mends


def test_numbers_that_were_rounded_come_from_t2d(tmp_path: Path) -> None:
    tokens = [11 * i + 3 for i in range(DRAFT_VOCAB)]
    exact = [token - i for i, token in enumerate(tokens)]

    def edit(draft: Draft) -> None:
        draft.set(vocab_size=2048)
        draft.target = {**(draft.target or {}), "vocab_size": 2048}
        draft.weights |= {"t2d": mask(2048, tokens), "d2t": bfloat16(exact)}

    [found] = asked(drafted(tmp_path / "one", edit), "DC308")
    assert values_of(found) == exact

    def another(draft: Draft) -> None:
        edit(draft)
        draft.weights["d2t"] = bfloat16([3 * value for value in exact])

    assert asked(drafted(tmp_path / "two", another), "DC308") == []


def test_a_mask_that_was_never_filled_is_filled(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.weights["t2d"] = mask(VOCAB, [])

    [found] = asked(drafted(tmp_path, edit), "DC307")
    assert values_of(found) == MASK


def test_a_mask_of_other_tokens_is_replaced_on_demand_alone(tmp_path: Path) -> None:
    case = "DC307/other-tokens"
    options = options_of(case)
    [found] = asked(FIXTURES / case, "DC307", options, UNSAFE)
    done = mended(FIXTURES / case, options, UNSAFE)
    assert "DC307" not in {f.rule for f in done.last.findings} and done.repaired[0].cost
    assert isinstance(found, Replace) and found.tensor.name == "t2d"


def test_a_mask_of_other_tokens_is_replaced_where_a_reference_confirms_d2t(tmp_path: Path) -> None:
    options = referring(tmp_path, KEPT)

    def edit(draft: Draft) -> None:
        draft.weights["t2d"] = mask(VOCAB, [*KEPT[:-9], *range(VOCAB - 9, VOCAB)])

    [found] = asked(drafted(tmp_path / "draft", edit), "DC307", options)
    assert values_of(found) == MASK


def test_an_inverse_map_without_t2d_is_left(tmp_path: Path) -> None:
    """Likely, and not certain."""

    def edit(draft: Draft) -> None:
        inverse = [-1] * VOCAB
        for i, token in enumerate(KEPT):
            inverse[token] = i
        draft.drop("t2d")
        draft.weights["d2t"] = integers(inverse)

    assert asked(drafted(tmp_path, edit), "DC302") == []


def test_zeros_at_full_vocabulary_where_a_map_is_wanted(tmp_path: Path) -> None:
    """SGLang before 0.4.9 asks every head for one."""

    def edit(draft: Draft) -> None:
        draft.full_vocabulary()

    [found] = asked(drafted(tmp_path, edit), "DC301", Options(engine="sglang==0.4.8"))
    assert isinstance(found, Add) and values_of(found) == [0] * VOCAB


GOOD = (
    "unsorted-offsets",
    "unsorted-offsets-without-t2d",
    "zeros-at-full-vocabulary",
    "d2t-int32",
    "t2d-padded",
)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_map_is_left(name: str) -> None:
    case = f"good/{name}"
    done = mended(FIXTURES / case, options_of(case), UNSAFE)
    assert not done.rounds and contents(done) == hashed(done.first)
