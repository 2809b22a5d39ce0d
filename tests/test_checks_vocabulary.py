"""DC301 to DC312: each fault, and what looks like one and works."""

from __future__ import annotations

import random
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from drafts import DRAFT_VOCAB, HIDDEN, VOCAB, Draft
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weights import ITEM, Weight, integers, mask, offsets, spread, write_safetensors, zeros

from drafcheck import lint
from drafcheck.finding import Confidence, Finding, Severity

KEPT = spread(DRAFT_VOCAB, VOCAB)
RELEASES = ("0.4.5", "0.4.9.post2", "0.5.1", "0.5.9", "0.5.15", "0.5.23")
Edit = Callable[[Draft], object]


def vocabulary_findings(folder: Path, version: str, **options: str) -> list[Finding]:
    report = lint(folder, engine=f"sglang=={version}", **options)
    assert not [f for c in report.checkpoints for f in c.findings if f.rule == "DC999"], report
    return [f for f in report.checkpoints[0].findings if f.rule.startswith("DC3")]


def found(tmp_path: Path, edit: Edit, version: str = "0.5.15", **options: str) -> list[Finding]:
    draft = Draft()
    edit(draft)
    draft.write(tmp_path / "draft")
    return vocabulary_findings(tmp_path / "draft", version, **options)


def tensor(name: str, weight: Weight) -> Edit:
    return lambda draft: draft.weights.update({name: weight})


def mapped(tokens: list[int], t2d: bool = False) -> Edit:
    def edit(draft: Draft) -> None:
        draft.weights["d2t"] = offsets(tokens)
        draft.drop("t2d")
        if t2d:
            draft.weights["t2d"] = mask(VOCAB, tokens)

    return edit


def both(*edits: Edit) -> Edit:
    return lambda draft: [edit(draft) for edit in edits]


def config(**keys: object) -> Edit:
    return lambda draft: draft.set(**keys)


def without(*names: str) -> Edit:
    return lambda draft: draft.drop(*names)


def keyless(draft: Draft) -> None:
    del draft.config["draft_vocab_size"]


def full(draft: Draft) -> None:
    draft.full_vocabulary()


def floats(dtype: str) -> Weight:
    values = [token - i for i, token in enumerate(KEPT)]
    data = struct.pack(f"<{len(values)}f", *values)
    if dtype == "BF16":
        data = b"".join(data[i + 2 : i + 4] for i in range(0, len(data), 4))
    return Weight(dtype, (len(values),), data)


FAULTS: dict[str, tuple[str, Edit]] = {
    "no d2t": ("DC301", without("d2t")),
    "no mapping": ("DC301", without("d2t", "t2d")),
    "config says half": ("DC302", config(draft_vocab_size=DRAFT_VOCAB // 2)),
    "config says all": ("DC302", config(draft_vocab_size=VOCAB)),
    "key absent": ("DC302", keyless),
    "key null": ("DC302", config(draft_vocab_size=None)),
    "key zero": ("DC302", config(draft_vocab_size=0)),
    "key a text": ("DC302", config(draft_vocab_size="128")),
    "head of all rows": ("DC302", lambda draft: draft.shape("lm_head.weight", VOCAB, HIDDEN)),
    "d2t short": ("DC302", tensor("d2t", offsets(KEPT[:64]))),
    "d2t of two dimensions": ("DC302", tensor("d2t", zeros("I64", DRAFT_VOCAB, 1))),
    "past the end": ("DC303", mapped([*KEPT[:-1], VOCAB])),
    "below zero": ("DC303", mapped([-1, *KEPT[1:]])),
    "past the end, with t2d": ("DC303", tensor("d2t", offsets([*KEPT[:-1], VOCAB + 9]))),
    "one token twice": ("DC304", mapped([*KEPT[:-1], KEPT[3]])),
    "one token twice, with t2d": ("DC304", tensor("d2t", offsets([*KEPT[:-1], KEPT[3]]))),
    "absolute": ("DC305", tensor("d2t", integers(KEPT))),
    "absolute by frequency": ("DC305", tensor("d2t", integers(KEPT[::-1]))),
    "absolute without t2d": ("DC305", both(tensor("d2t", integers(KEPT)), without("t2d"))),
    "absolute by frequency without t2d": ("DC305", both(tensor("d2t", integers(KEPT[::-1])), without("t2d"))),
    "zeros": ("DC306", tensor("d2t", zeros("I64", DRAFT_VOCAB))),
    "zeros without t2d": ("DC306", both(tensor("d2t", zeros("I64", DRAFT_VOCAB)), without("t2d"))),
    "zeros, t2d zeros": ("DC306", both(tensor("d2t", zeros("I64", DRAFT_VOCAB)), tensor("t2d", zeros("BOOL", VOCAB)))),
    "t2d of another": ("DC307", tensor("t2d", mask(VOCAB, spread(DRAFT_VOCAB, VOCAB, salt=7)))),
    "t2d with one more": ("DC307", tensor("t2d", mask(VOCAB, [*KEPT, next(t for t in range(VOCAB) if t not in KEPT)]))),
    "bf16": ("DC308", tensor("d2t", floats("BF16"))),
    "f32": ("DC308", tensor("d2t", floats("F32"))),
    "f8": ("DC308", tensor("d2t", zeros("F8_E4M3", DRAFT_VOCAB))),
    "mask as d2t": ("DC308", tensor("d2t", mask(DRAFT_VOCAB, [1, 2]))),
    "no head": ("DC309", without("lm_head.weight")),
    "no head at full vocabulary": ("DC309", both(full, without("lm_head.weight"))),
    "borrowed head, renumbered": ("DC309", both(without("lm_head.weight"), config(draft_vocab_size=None))),
    "tied": ("DC310", config(tie_word_embeddings=True)),
    "tied without head": ("DC310", both(config(tie_word_embeddings=True), without("lm_head.weight"))),
    "embedding of other rows": ("DC312", tensor("embed_tokens.weight", zeros("BF16", VOCAB - 64, HIDDEN))),
}


@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_one_error(name: str, tmp_path: Path) -> None:
    code, edit = FAULTS[name]
    hits = found(tmp_path, edit)
    assert [(f.rule, f.severity) for f in hits] == [(code, Severity.ERROR)], [(f.rule, f.message) for f in hits]
    assert (hits[0].help and hits[0].locations and hits[0].message[0].islower()) or hits[0].message[0].isdigit()


HEALTHY: dict[str, Edit] = {
    "as it is": lambda draft: None,
    "no t2d": without("t2d"),
    "int32": tensor("d2t", integers((t - i for i, t in enumerate(KEPT)), "I32")),
    "by frequency": mapped(KEPT[64:] + KEPT[:64]),
    "by frequency, with t2d": mapped(KEPT[::-1], t2d=True),
    "t2d padded": tensor("t2d", mask(VOCAB + 64, KEPT)),
    "t2d as numbers": tensor("t2d", Weight("U8", (VOCAB,), mask(VOCAB, KEPT).raw)),
    "t2d that is no mask": tensor("t2d", integers(range(VOCAB))),
    "the first tokens are the ones kept": both(
        tensor("d2t", zeros("I64", DRAFT_VOCAB)), tensor("t2d", mask(VOCAB, range(DRAFT_VOCAB)))
    ),
    "zeros at full vocabulary": both(
        full, tensor("d2t", zeros("I64", VOCAB)), tensor("t2d", mask(VOCAB, range(VOCAB)))
    ),
    "embedding": tensor("embed_tokens.weight", zeros("BF16", VOCAB, HIDDEN)),
    "a prefix on d2t": lambda draft: draft.rename(lambda name: "module.d2t" if name == "d2t" else name),
}


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("name", HEALTHY)
def test_what_works_is_no_fault(name: str, version: str, tmp_path: Path) -> None:
    assert found(tmp_path, HEALTHY[name], version) == []


@pytest.mark.parametrize("version", RELEASES)
def test_full_vocabulary_without_mapping(version: str, tmp_path: Path) -> None:
    """Before 0.4.9 the worker wants a mapping from every head."""
    codes = [f.rule for f in found(tmp_path, full, version)]
    assert codes == (["DC301"] if version == "0.4.5" else [])


@pytest.mark.parametrize("version", RELEASES)
def test_head_borrowed_from_the_target(version: str, tmp_path: Path) -> None:
    """null borrows since 0.5.2 and is refused before."""
    edit = both(full, without("lm_head.weight"), config(draft_vocab_size=None))
    codes = [f.rule for f in found(tmp_path, edit, version)]
    assert codes == (["DC302"] if version in ("0.4.5", "0.4.9.post2", "0.5.1") else [])


def test_padding_is_no_reduction(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.full_vocabulary()
        assert draft.target is not None
        draft.target["vocab_size"] = VOCAB - 4

    assert found(tmp_path, edit) == []


def test_d2t_longer_than_the_head_is_a_warning(tmp_path: Path) -> None:
    (hit,) = found(tmp_path, both(tensor("d2t", offsets(spread(140, VOCAB))), without("t2d")))
    assert (hit.rule, hit.severity) == ("DC302", Severity.WARNING)


def test_the_odd_one_out_is_the_one_to_mend(tmp_path: Path) -> None:
    (hit,) = found(tmp_path / "a", config(draft_vocab_size=DRAFT_VOCAB // 2))
    assert (hit.fixable, hit.help) == (True, f"set draft_vocab_size to {DRAFT_VOCAB}")
    (hit,) = found(tmp_path / "b", lambda draft: draft.shape("lm_head.weight", VOCAB, HIDDEN))
    assert not hit.fixable and "lm_head" in str(hit.help)


def test_mask_that_was_never_filled_is_a_warning(tmp_path: Path) -> None:
    (hit,) = found(tmp_path, tensor("t2d", zeros("BOOL", VOCAB)))
    assert (hit.rule, hit.severity) == ("DC307", Severity.WARNING)


def test_mapping_for_another_vocabulary(tmp_path: Path) -> None:
    (hit,) = found(tmp_path, tensor("t2d", mask(4 * VOCAB, KEPT)))
    assert (hit.rule, hit.confidence) == ("DC307", Confidence.LIKELY)
    assert str(4 * VOCAB) in hit.message


def test_numbers_are_said(tmp_path: Path) -> None:
    (hit,) = found(tmp_path, without("d2t"))
    assert "128" in hit.message and "256" in hit.message and "t2d" in str(hit.help)
    (hit,) = found(tmp_path / "b", mapped([*KEPT[:-1], VOCAB]))
    assert "1 of 128 draft ids" in hit.message and "draft id 127: token 256" in hit.message


def test_less_is_certain_without_a_target(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.drop("d2t")
        draft.target = None

    (hit,) = found(tmp_path, edit)
    assert (hit.rule, hit.confidence) == ("DC301", Confidence.LIKELY)


def test_tied_copy_of_a_tied_target_is_a_warning(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.full_vocabulary()
        draft.set(tie_word_embeddings=True)
        assert draft.target is not None
        draft.target["tie_word_embeddings"] = True

    (hit,) = found(tmp_path, edit)
    assert (hit.rule, hit.severity) == ("DC310", Severity.WARNING)


def test_vocabulary_size_unlike_the_target_is_a_note(tmp_path: Path) -> None:
    (hit,) = found(tmp_path, config(vocab_size=2 * VOCAB))
    assert (hit.rule, hit.severity) == ("DC312", Severity.NOTE)


def test_own_embedding_that_is_too_small(tmp_path: Path) -> None:
    """A draft of another width keeps its own embedding."""

    def edit(draft: Draft) -> None:
        draft.set(target_hidden_size=2 * HIDDEN, vocab_size=VOCAB // 2)
        draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB // 2, HIDDEN)
        draft.weights["fc.weight"] = zeros("BF16", HIDDEN, 6 * HIDDEN)
        assert draft.target is not None
        draft.target["hidden_size"] = 2 * HIDDEN

    hits = found(tmp_path, edit)
    assert [(f.rule, f.severity) for f in hits] == [("DC312", Severity.ERROR)]


def compared(tmp_path: Path, theirs: list[int]) -> list[Finding]:
    write_safetensors(tmp_path / "reference.safetensors", {"d2t": offsets(theirs), "t2d": mask(VOCAB, theirs)})
    return found(tmp_path, lambda draft: None, reference=str(tmp_path / "reference.safetensors"))


def test_same_mapping_as_the_reference(tmp_path: Path) -> None:
    assert compared(tmp_path, KEPT) == []


def test_reference_in_another_order(tmp_path: Path) -> None:
    (hit,) = compared(tmp_path, [*KEPT[:2], *KEPT[:1:-1]])
    assert hit.rule == "DC311"
    assert "2 of 128 draft ids agree" in hit.message and "shared 128" in hit.message
    assert "a permutation" in str(hit.help)


def test_reference_with_other_tokens(tmp_path: Path) -> None:
    theirs = spread(DRAFT_VOCAB, VOCAB, salt=3)
    only_there = len(set(theirs) - set(KEPT))
    (hit,) = compared(tmp_path, theirs)
    assert f"only there {only_there}" in hit.message and f"{only_there} row" in str(hit.help)
    assert hit.message.count("/") == 1 + 10


def test_producers_mappings_are_sound(tmp_path: Path) -> None:
    """Whatever each trainer wrote, sorted or by frequency, with t2d or without: no fault in the mapping itself.

    Their tables of frequencies are made up and leave out token 2, the end that Llama's config class fills in: a note.
    """
    archive = Path(__file__).parent.parent / "fixtures" / "producers" / "producers.tar.xz"
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    folders = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    assert len(folders) == 34
    for folder in folders:
        found = vocabulary_findings(folder, "0.5.15")
        assert [f for f in found if (f.rule, f.severity) != ("DC314", Severity.NOTE)] == [], folder.name


dtypes = st.sampled_from(sorted(ITEM))


@st.composite
def any_tensor(draw: st.DrawFn) -> Weight:
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 3, 16, 64, DRAFT_VOCAB, VOCAB]), max_size=2)))
    weight = Weight(draw(dtypes), shape)
    if weight.size > 1 << 16:
        return weight
    fill = draw(st.sampled_from(["zeros", "random", "ones"]))
    seed = random.Random(draw(st.integers(0, 99)))
    data = {"zeros": None, "ones": b"\x01" * weight.size, "random": seed.randbytes(weight.size)}[fill]
    return Weight(weight.dtype, shape, data)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(d2t=any_tensor(), t2d=any_tensor(), head=any_tensor(), version=st.sampled_from(RELEASES))
def test_no_tensor_makes_them_crash(d2t: Weight, t2d: Weight, head: Weight, version: str, tmp_path: Path) -> None:
    draft = Draft()
    draft.weights |= {"d2t": d2t, "t2d": t2d, "lm_head.weight": head}
    draft.write(tmp_path / "draft")
    vocabulary_findings(tmp_path / "draft", version)
