"""Repairs of biases: a bias of zeros is the same as none, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases_names import bias
from drafts import HEADS, HIDDEN, KV_HEADS, Draft
from make_fixtures import FIXTURES
from repairing import asked, checked, contents, edits_for, hashed, mended, mended_draft, options_of
from weights import zeros

from drafcheck.fix.edits import Add, Drop, Edit, SetKey
from drafcheck.session import Options

ATTENTION = "midlayer.self_attn"


@pytest.mark.parametrize(
    ("case", "edit"),
    [
        ("DC204/fc-bias", SetKey(("bias",), True)),
        ("DC204/vllm-biases-missing", SetKey(("attention_bias",), False)),
        ("DC102/trtllm-bias-missing", SetKey(("attention_bias",), False)),
    ],
)
def test_the_key_says_whether_there_are_biases(case: str, edit: Edit) -> None:
    assert asked(FIXTURES / case, case[:5], options_of(case)) == [edit]
    done = mended(FIXTURES / case, options_of(case))
    assert contents(done) == hashed(done.first)
    assert case[:5] not in {f.rule for f in done.last.findings}


def test_a_bias_of_zeros_without_a_place_is_left_out() -> None:
    case = "DC204/zero-bias"
    [edit] = asked(FIXTURES / case, "DC204", options_of(case))
    assert isinstance(edit, Drop) and edit.tensor.name == "fc.bias"
    done = mended(FIXTURES / case, options_of(case))
    before = hashed(done.first)
    assert contents(done) == {name: tensor for name, tensor in before.items() if name != "fc.bias"}
    assert "DC204" not in {f.rule for f in done.last.findings}


@pytest.mark.parametrize("case", ["DC204/qkv-bias", "DC204/vllm-bias-dropped", "DC204/eagle-1-no-fc-bias"])
def test_biases_that_nothing_mends_are_left(case: str) -> None:
    assert asked(FIXTURES / case, "DC204", options_of(case)) == []


def test_biases_that_some_weights_have_are_completed(tmp_path: Path) -> None:
    """The key cannot be switched off, as there is a bias: zeros beside the others, of the rows that each has."""
    draft = Draft()
    draft.set(attention_bias=True)
    draft.weights[f"{ATTENTION}.o_proj.bias"] = bias(HIDDEN, 0x3F)
    draft.write(tmp_path)
    engine = Options(engine="vllm==0.33.0")
    edits = asked(tmp_path, "DC204", engine)
    rows = {"q": HEADS * 8, "k": KV_HEADS * 8, "v": KV_HEADS * 8}
    assert {(e.name, e.content.shape) for e in edits if isinstance(e, Add)} == {
        (f"{ATTENTION}.{part}_proj.bias", (size,)) for part, size in rows.items()
    }
    done = mended(tmp_path, engine)
    assert "DC204" not in {f.rule for f in done.last.findings}
    kept = hashed(done.first)
    assert {name: tensor for name, tensor in contents(done).items() if name in kept} == kept


def test_a_bias_beside_no_weight_is_not_made_up(tmp_path: Path) -> None:
    """Without its weight nothing says under which name, or how large."""
    draft = Draft()
    draft.set(attention_bias=True)
    draft.drop(*(f"{ATTENTION}.{part}_proj.weight" for part in "qkv"))
    draft.weights[f"{ATTENTION}.o_proj.bias"] = bias(HIDDEN, 0x3F)
    draft.write(tmp_path)
    seen = checked(tmp_path, Options(engine="vllm==0.33.0"))
    assert not [edit for f in seen.findings if f.rule == "DC204" for edit in edits_for(seen, f)]


def test_a_bias_of_a_module_that_is_not_read_stays_with_its_weight(tmp_path: Path) -> None:
    draft = Draft()
    draft.weights |= {"extra.weight": zeros("BF16", HIDDEN, HIDDEN), "extra.bias": bias(HIDDEN, 0)}
    draft.write(tmp_path)
    assert asked(tmp_path, "DC204") == []


def test_a_good_bias_is_left() -> None:
    case = "good/fc-bias-with-a-slot"
    done = mended(FIXTURES / case, options_of(case))
    assert not done.rounds


def test_a_bias_that_is_not_read_whole_is_no_bias_of_zeros(tmp_path: Path) -> None:
    draft = Draft()
    draft.weights["fc.bias"] = bias(HIDDEN, 0)
    draft.weights[f"{ATTENTION}.q_proj.bias"] = bias(HIDDEN, 0x3F)
    draft.write(tmp_path)
    done = mended_draft(tmp_path)
    assert set(hashed(done.first)) - set(contents(done)) == {"fc.bias"}
