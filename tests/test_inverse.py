"""A d2t that is the map the wrong way round: told by its length and its values, with certainty by t2d."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import DRAFT_VOCAB, VOCAB, Draft
from hypothesis import given
from hypothesis import strategies as st
from weights import Weights, integers, mask, offsets, spread, write_safetensors

from drafcheck import lint
from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.plan.inverse import FLAGS, INVERSE, inverted, tokens_of

KEPT = spread(DRAFT_VOCAB, VOCAB)


def inverse(tokens: list[int], vocab: int, fill: int) -> list[int]:
    ids = {token: i for i, token in enumerate(tokens)}
    return [ids.get(token, fill) for token in range(vocab)]


@given(st.permutations(range(12)), st.integers(2, 11), st.sampled_from(["-1", "0", "rows"]))
def test_every_inverse_map_is_told(order: list[int], rows: int, filling: str) -> None:
    tokens = order[:rows]
    fill = {"-1": -1, "0": 0, "rows": rows}[filling]
    raw = inverse(tokens, 12, fill)
    if filling == "0" and min(set(range(12)) - set(tokens)) < tokens[0]:
        return  # which of the zeros stands for draft id 0 cannot be told
    told = inverted(raw, rows, mask(12, tokens).raw)
    assert told == (INVERSE, Confidence.CERTAIN) or (rows == 2 and told is not None and told[0] == FLAGS)
    assert tokens_of(raw, rows) == tokens
    assert inverted(raw, rows, None) is not None


@given(st.lists(st.integers(0, 63), min_size=2, max_size=40, unique=True))
def test_no_healthy_map_is_taken_for_one(tokens: list[int]) -> None:
    raw = [token - i for i, token in enumerate(sorted(tokens))]
    assert inverted(raw, len(raw), None) is None
    assert inverted(raw, len(raw) - 1, None) in (None, (FLAGS, Confidence.LIKELY)) or len(set(raw)) <= 2


def found(room: Path, values: list[int], *, t2d: bool = True, rows: int = DRAFT_VOCAB) -> list[Finding]:
    draft = Draft()
    draft.weights["d2t"] = integers(values)
    if not t2d:
        draft.drop("t2d")
    draft.write(room / "draft")
    return [f for f in lint(room / "draft", engine="sglang==0.5.15").findings if f.rule.startswith("DC3")]


@pytest.mark.parametrize("fill", (-1, DRAFT_VOCAB))
@pytest.mark.parametrize("t2d", (True, False))
def test_one_finding(tmp_path: Path, fill: int, t2d: bool) -> None:
    [hit] = found(tmp_path, inverse(KEPT, VOCAB, fill), t2d=t2d)
    assert (hit.rule, hit.severity) == ("DC302", Severity.ERROR)
    assert hit.confidence is (Confidence.CERTAIN if t2d else Confidence.LIKELY)
    assert "it holds the inverse map" in hit.message


def test_flags(tmp_path: Path) -> None:
    [hit] = found(tmp_path, [int(token in KEPT) for token in range(VOCAB)])
    assert (hit.rule, hit.severity, hit.confidence) == ("DC302", Severity.ERROR, Confidence.CERTAIN)
    assert "t2d's flags" in hit.message


def test_a_map_that_is_merely_too_long_is_a_warning(tmp_path: Path) -> None:
    values = [token - i for i, token in enumerate([*KEPT, *(t for t in range(VOCAB) if t not in KEPT)])]
    hits = found(tmp_path, values[: DRAFT_VOCAB + 9], t2d=False)
    assert [(f.rule, f.severity) for f in hits] == [("DC302", Severity.WARNING)]


def test_the_comparison_goes_by_what_was_meant(tmp_path: Path) -> None:
    draft = Draft()
    draft.weights["d2t"] = integers(inverse(KEPT, VOCAB, -1))
    draft.write(tmp_path / "draft")
    reference: Weights = {"d2t": offsets(KEPT)}
    write_safetensors(tmp_path / "reference.safetensors", reference)
    report = lint(tmp_path / "draft", engine="sglang==0.5.15", reference=tmp_path / "reference.safetensors")
    made = report.checkpoints[0].reference
    assert made is not None
    assert (made.agree, made.draft_ids) == (DRAFT_VOCAB, DRAFT_VOCAB)
