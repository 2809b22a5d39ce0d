"""References of only 0 and 1, references that are broken, and what the finding advises then."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import DRAFT_VOCAB, HIDDEN, VOCAB, Draft
from pickles import pickled_tensor, write_torch
from test_reference import npy, saved
from weights import Weight, Weights, integers, mask, offsets, spread, write_safetensors, zeros

from drafcheck import lint
from drafcheck.finding import Confidence, Finding
from drafcheck.reference import Reference, settled

KEPT = spread(DRAFT_VOCAB, VOCAB)
FLAGS = [int(token in set(KEPT)) for token in range(VOCAB)]


def found(room: Path, reference: Path, draft: Draft | None = None) -> list[Finding]:
    (draft or Draft()).write(room / "draft")
    report = lint(room / "draft", engine="sglang==0.5.15", reference=reference).checkpoints[0]
    assert report.reference is not None
    return [f for f in report.findings if f.rule == "DC311"]


def write_flags(room: Path, form: str, flags: list[int]) -> Path:
    whole, small = integers(flags), Weight("U8", (len(flags),), bytes(flags))
    path = room / form
    if form == "ti.pt":
        return saved(path, pickled_tensor("0", "I64", (len(flags),), len(flags)), {"0": whole.raw})
    if form == "list.pt":
        return saved(path, b"(" + b"".join(b"\x88" if flag else b"\x89" for flag in flags) + b"l", {})
    if form == "dict.pt":
        write_torch(path, {"t2d": whole})
    elif form == "i8.npy":
        npy(path, whole, "<i8")
    elif form == "u1.npy":
        npy(path, small, "|u1")
    else:
        kinds = {
            "i8.safetensors": whole,
            "u1.safetensors": small,
            "b1.safetensors": Weight("BOOL", small.shape, small.raw),
        }
        write_safetensors(path, {"kept": kinds[form]})
    return path


FORMS = (
    "ti.pt",
    "list.pt",
    "dict.pt",
    "i8.npy",
    "u1.npy",
    "i8.safetensors",
    "u1.safetensors",
    "b1.safetensors",
)


@pytest.mark.parametrize("form", FORMS)
def test_a_t2d_however_it_is_stored(tmp_path: Path, form: str) -> None:
    assert found(tmp_path, write_flags(tmp_path, form, FLAGS)) == []


@pytest.mark.parametrize("form", FORMS)
def test_another_t2d_however_it_is_stored(tmp_path: Path, form: str) -> None:
    other = [int(token in set(spread(DRAFT_VOCAB, VOCAB, salt=3))) for token in range(VOCAB)]
    [hit] = found(tmp_path, write_flags(tmp_path, form, other))
    assert "(128, a t2d alone, taken in the order of token ids)" in hit.message
    assert "a d2t made from the reference's t2d" in str(hit.help)


@pytest.mark.parametrize("form", ("ti.pt", "i8.npy", "u1.npy", "i8.safetensors"))
def test_offsets_of_0_and_1_stay_a_d2t(tmp_path: Path, form: str) -> None:
    steps = [int(i >= 50) for i in range(DRAFT_VOCAB)]
    draft = Draft()
    draft.weights["d2t"] = integers(steps)
    draft.weights["t2d"] = mask(VOCAB, [i + step for i, step in enumerate(steps)])
    assert found(tmp_path, write_flags(tmp_path, form, steps), draft) == []


@pytest.mark.parametrize(
    ("flags", "ids", "vocab", "ordered"),
    (
        (b"\0\0\1\1", 4, 9, True),
        (b"\0\0\1\1", 4, None, True),
        (b"\0\0\1\1", 4, 4, False),
        (b"\0\0\1\1", 2, None, False),
        (b"\0\1\1\1", 2, 4, False),
        (b"\0\0\1\1", 3, None, True),
        (b"\1\0\1", 9, None, False),
    ),
)
def test_flags_and_offsets(flags: bytes, ids: int, vocab: int | None, ordered: bool) -> None:
    targets = [i + flag for i, flag in enumerate(flags)]
    assert settled(Reference("", targets, flags=flags), ids, vocab).ordered is ordered


BROKEN: dict[str, tuple[Weights, str]] = {
    "contradiction": (
        {"d2t": offsets(spread(DRAFT_VOCAB, VOCAB, salt=3)), "t2d": mask(VOCAB, KEPT)},
        "its d2t contradicts its own t2d",
    ),
    "duplicate": ({"d2t": offsets([KEPT[0], *KEPT[:-1]])}, "1 draft id of it repeats a token"),
    "out of range": ({"d2t": offsets([*KEPT[:-1], 1000000005])}, "it holds token 1000000005, outside the vocabulary"),
    "negative": (
        {"d2t": offsets([-7, *KEPT[1:]]), "t2d": mask(VOCAB, KEPT)},
        f"it holds token -7, outside its t2d of {VOCAB:,}",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_reference_is_said(tmp_path: Path, name: str) -> None:
    weights, clause = BROKEN[name]
    write_safetensors(tmp_path / "m.safetensors", weights)
    [hit] = found(tmp_path, tmp_path / "m.safetensors")
    assert f"the reference itself looks broken: {clause}" in hit.message
    assert hit.confidence is not Confidence.CERTAIN
    assert "use the reference's" not in str(hit.help)


def test_a_sound_reference_is_not_called_broken(tmp_path: Path) -> None:
    other = spread(DRAFT_VOCAB, VOCAB, salt=3)
    write_safetensors(tmp_path / "m.safetensors", {"d2t": offsets(other), "t2d": mask(VOCAB, other)})
    [hit] = found(tmp_path, tmp_path / "m.safetensors")
    assert "broken" not in hit.message
    assert hit.confidence is Confidence.CERTAIN


def full() -> Draft:
    draft = Draft()
    draft.full_vocabulary()
    return draft


def test_a_draft_of_full_vocabulary_has_all_rows(tmp_path: Path) -> None:
    """Its own file is where the finding is, not the reference's."""
    write_safetensors(tmp_path / "m.safetensors", {"d2t": offsets(KEPT)})
    [hit] = found(tmp_path, tmp_path / "m.safetensors", full())
    assert hit.help == "lm_head has a row for each of the reference's 128 draft ids: take them in its order"
    assert [(place.file, place.tensor) for place in hit.locations] == [("model.safetensors", "lm_head.weight")]


def test_a_draft_class_without_a_contract_is_found_by_its_d2t(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(architectures=["Eagle3DraftModel"])
    write_safetensors(tmp_path / "m.safetensors", {"d2t": offsets(spread(DRAFT_VOCAB, VOCAB, salt=3))})
    [hit] = found(tmp_path, tmp_path / "m.safetensors", draft)
    assert [(place.file, place.tensor) for place in hit.locations] == [("model.safetensors", "d2t")]


def test_a_reference_of_full_vocabulary_has_no_d2t_to_use(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", {"lm_head.weight": zeros("BF16", VOCAB, HIDDEN)})
    [hit] = found(tmp_path, tmp_path / "m.safetensors")
    assert "no d2t to use" in str(hit.help)


def test_padding_of_a_full_head_is_no_difference(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", {"lm_head.weight": zeros("BF16", VOCAB + 8, HIDDEN)})
    assert found(tmp_path, tmp_path / "m.safetensors", full()) == []
