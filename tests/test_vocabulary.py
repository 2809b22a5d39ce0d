"""The numbers in d2t and t2d, how they are meant, and the vocabulary plan."""

from __future__ import annotations

import random
import struct
from array import array

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weights import integers, mask, spread

from drafcheck.decode import DecodeError, decode, is_float, is_integer
from drafcheck.finding import Confidence
from drafcheck.header_json import DTYPE_BITS
from drafcheck.plan.vocabulary import count_kept, is_padding, is_reduced, judge, kept_tokens, to_targets

VOCAB, ROWS = 2048, 512


def as_offsets(tokens: list[int]) -> list[int]:
    return [token - i for i, token in enumerate(tokens)]


def flags(tokens: list[int], size: int = VOCAB) -> bytes:
    return mask(size, tokens).raw


@pytest.mark.parametrize(("dtype", "code"), [("I64", "q"), ("I32", "i"), ("I16", "h"), ("I8", "b"), ("U64", "Q")])
def test_decode_integers(dtype: str, code: str) -> None:
    values = [0, 1, 100] + ([-3] if code.islower() else [])
    assert decode(dtype, struct.pack(f"<{len(values)}{code}", *values)) == values


@pytest.mark.parametrize("dtype", ("BF16", "F16", "F32", "F64"))
def test_decode_floats(dtype: str) -> None:
    values = [0.0, -5.0, 128.0]
    codes = {"F16": "e", "F32": "f", "F64": "d", "BF16": "f"}
    data = struct.pack(f"<3{codes[dtype]}", *values)
    if dtype == "BF16":
        data = b"".join(data[i + 2 : i + 4] for i in range(0, 12, 4))
    assert decode(dtype, data) == [0, -5, 128]


@pytest.mark.parametrize("value", (0.5, float("nan"), float("inf")))
def test_decode_says_when_values_are_not_whole(value: float) -> None:
    with pytest.raises(DecodeError, match="1 of 2 values is no whole number"):
        decode("F32", struct.pack("<2f", 1.0, value))
    with pytest.raises(DecodeError, match="2 of 2 values are not whole numbers"):
        decode("F32", struct.pack("<2f", value, value))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([*DTYPE_BITS, "nonsense"]), st.binary(max_size=40))
def test_decode_never_crashes(dtype: str, data: bytes) -> None:
    try:
        values = decode(dtype, data)
    except DecodeError as error:
        assert str(error)
    else:
        assert all(type(v) is int for v in values)


def test_dtypes_are_one_or_the_other() -> None:
    for dtype in DTYPE_BITS:
        assert is_integer(dtype) != is_float(dtype) or dtype == "C64"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_mappings_round_trip(seed: int, sort: bool, with_mask: bool) -> None:
    """Any choice of tokens, in any order: offsets lead back to it, and are known for offsets; tokens for tokens."""
    dice = random.Random(seed)
    tokens = dice.sample(range(VOCAB), ROWS)
    tokens = sorted(tokens) if sort else tokens
    kept = flags(tokens) if with_mask else None
    raw = as_offsets(tokens)
    assert to_targets(raw, "offset") == tokens
    assert judge(raw, kept, VOCAB)[0] == "offset"
    assert judge(tokens, kept, VOCAB)[0] == "absolute"
    assert kept is None or kept_tokens(kept) == sorted(tokens)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40),
    st.one_of(st.none(), st.binary(max_size=40).map(lambda b: bytes(v & 1 for v in b))),
    st.one_of(st.none(), st.integers(1, 2**40)),
)
def test_judge_never_crashes(raw: list[int], kept: bytes | None, vocab: int | None) -> None:
    meant, certainty = judge(raw, kept, vocab)
    assert meant in ("offset", "absolute", "identity", None)
    assert isinstance(certainty, Confidence)


def test_t2d_makes_it_certain() -> None:
    tokens = spread(ROWS, VOCAB)
    assert judge(as_offsets(tokens), flags(tokens), VOCAB) == ("offset", Confidence.CERTAIN)
    assert judge(tokens, flags(tokens), VOCAB) == ("absolute", Confidence.CERTAIN)
    assert judge(tokens, None, VOCAB) == ("absolute", Confidence.LIKELY)


def test_a_tenth_of_wrong_values_does_not_change_the_kind() -> None:
    tokens = spread(ROWS, VOCAB)
    wrong = tokens[: ROWS - 20] + [VOCAB + 5] * 20
    assert judge(as_offsets(wrong), flags(tokens), VOCAB)[0] == "offset"
    assert judge(tokens[:-5] + tokens[:5], flags(tokens), VOCAB)[0] == "absolute"


def test_zeros_are_the_identity() -> None:
    assert judge([0] * 9, None, None) == ("identity", Confidence.CERTAIN)
    assert judge([], None, None)[0] is None


def test_every_other_token_is_not_taken_for_absolute() -> None:
    """0, 1, 2 ... as offsets keeps 0, 2, 4 ...: artificial either way."""
    assert judge(list(range(100)), None, 256)[0] == "offset"


def test_long_absolute_list_that_would_fit_as_offsets() -> None:
    """Tokens far below the end of the vocabulary: doubled they are still tokens, but none are neighbours."""
    tokens = spread(8000, 60000)
    assert judge(tokens, None, 163840) == ("absolute", Confidence.LIKELY)


@pytest.mark.parametrize(("rows", "vocab"), ((151669, 151936), (200019, 201088), (128256, 128256), (50257, 50304)))
def test_padding_is_no_reduction(rows: int, vocab: int) -> None:
    assert is_padding(rows, vocab)
    assert not is_reduced(rows, vocab)


@pytest.mark.parametrize(("rows", "vocab"), ((32000, 128256), (128, 256), (1024, 2048), (64000, 65536)))
def test_reduction(rows: int, vocab: int) -> None:
    assert is_reduced(rows, vocab)


def test_more_rows_than_tokens_are_no_reduction() -> None:
    assert not is_reduced(256, 128)


def test_count_kept_counts_tokens_once_and_skips_strangers() -> None:
    assert count_kept(bytes((1, 0, 1)), [0, 0, 1, 2, 3, -1]) == 2


def test_integers_helper_is_little_endian() -> None:
    assert integers([1]).raw == array("q", [1]).tobytes()
