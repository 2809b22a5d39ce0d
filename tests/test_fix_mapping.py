"""Repairs of d2t and t2d: the map that is known to be the head's, and none where it is not known."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cases_vocabulary import KEPT
from drafts import DRAFT_VOCAB, VOCAB, Draft
from make_fixtures import FIXTURES
from repairing import SAFE, asked, contents, hashed, mended, mended_draft, options_of, written
from test_reference import npy
from weights import Weight, integers, mask, offsets, write_safetensors

from drafcheck.fix.edits import Add, Edit, Rename, Replace
from drafcheck.fix.registry import Wishes
from drafcheck.fix.repairs.mapping import ORDERED
from drafcheck.session import Options

UNSAFE = Wishes(unsafe=True)


def values_of(edit: Edit) -> list[int]:
    """The whole numbers, I64 or flags, that an edit writes."""
    assert isinstance(edit, (Add, Replace))
    data = written(edit)
    return list(array("q", data)) if edit.content.dtype == "I64" else list(data)


def drafted(tmp_path: Path, change: Callable[[Draft], object]) -> Path:
    draft = Draft()
    change(draft)
    draft.write(tmp_path)
    return tmp_path


OFFSETS = [token - draft for draft, token in enumerate(KEPT)]
MASK = list(mask(VOCAB, KEPT).raw)

EXPECTED: dict[str, list[int]] = {
    "DC301/lmdeploy-full-vocabulary": [0] * VOCAB,
    "DC301/no-d2t": OFFSETS,
    "DC302/d2t-inverted": OFFSETS,
    "DC302/d2t-short": OFFSETS,
    "DC302/t2d-stored-as-d2t": OFFSETS,
    "DC302/vllm-short-d2t": OFFSETS,
    "DC305/with-t2d": OFFSETS,
    "DC305/without-t2d": OFFSETS,
    "DC306/all-zeros": OFFSETS,
    "DC306/all-zeros-of-a-known-trainer": OFFSETS,
    "DC307/too-short": MASK,
    "DC308/bfloat16": OFFSETS,
    "DC308/float32": OFFSETS,
}


ASSUMED = ("DC301/no-d2t", "DC302/t2d-stored-as-d2t", "DC306/all-zeros")
"""Those of which t2d tells the tokens alone, and nobody's marks their order."""


@pytest.mark.parametrize("case", EXPECTED)
def test_the_map_is_the_one_that_the_head_was_trained_with(case: str) -> None:
    """Just one tensor is others than before, and the finding is gone."""
    code = case.partition("/")[0]
    wishes = UNSAFE if case in ASSUMED else SAFE
    [edit] = asked(FIXTURES / case, code, options_of(case), wishes)
    assert values_of(edit) == EXPECTED[case]
    done = mended(FIXTURES / case, options_of(case), wishes)
    assert [one.cost for one in done.repaired if one.finding.rule == code] == [ORDERED if case in ASSUMED else None]
    before, after = hashed(done.first), contents(done)
    changed = edit.name if isinstance(edit, Add) else edit.tensor.name if isinstance(edit, Replace) else ""
    assert {n: t for n, t in after.items() if n != changed} == {n: t for n, t in before.items() if n != changed}
    assert code not in {f.rule for f in done.last.findings}


def flags(draft: Draft) -> None:
    draft.weights["d2t"] = Weight("BOOL", (VOCAB,), draft.weights["t2d"].raw)


def numbers(draft: Draft) -> None:
    draft.weights["d2t"] = integers(list(draft.weights["t2d"].raw))


def zeros(draft: Draft) -> None:
    draft.weights["d2t"] = integers([0] * DRAFT_VOCAB)


def specforge(draft: Draft) -> None:
    """The marks of a trainer that orders draft ids by token, which last when d2t is gone."""
    draft.set(rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, rope_theta=10000.0)
    draft.set(dtype="bfloat16", transformers_version="5.0.0")
    draft.files["training_state.pt"] = b""


@pytest.mark.parametrize(
    ("code", "change"), [("DC301", lambda d: d.drop("d2t")), ("DC306", zeros), ("DC302", numbers), ("DC308", flags)]
)
@pytest.mark.parametrize("known", [True, False])
def test_t2d_tells_the_order_of_a_trainer_that_goes_by_token(
    code: str, change: Callable[[Draft], object], known: bool, tmp_path: Path
) -> None:
    def edit(draft: Draft) -> None:
        change(draft)
        if known:
            specforge(draft)

    folder = drafted(tmp_path, edit)
    assert [values_of(e) for e in asked(folder, code)] == ([OFFSETS] if known else [])
    assert [values_of(e) for e in asked(folder, code, wishes=UNSAFE)] == [OFFSETS]


LEFT = (
    "DC301/llamacpp-no-d2t",
    "DC301/trtllm-no-d2t",
    "DC301/vllm-no-d2t",
    "DC302/llamacpp-longer-d2t",
    "DC303/negative",
    "DC303/past-the-end",
    "DC303/llamacpp-out-of-range",
    "DC304/two-ids-one-token",
    "DC304/llamacpp-twice",
    "DC307/other-tokens",
    "DC308/vllm-d2t-bf16",
)


@pytest.mark.parametrize("case", LEFT)
def test_a_map_that_nothing_tells_is_left(case: str) -> None:
    assert asked(FIXTURES / case, case.partition("/")[0], options_of(case)) == []


def modelopt(draft: Draft) -> None:
    """The marks of a trainer that orders draft ids by frequency."""
    draft.set(eagle_config={"use_mtp_layernorm": False, "parallel_draft_step": 1, "use_aux_hidden_state": True})


@pytest.mark.parametrize(("code", "change"), [("DC301", lambda d: d.drop("d2t")), ("DC306", None)])
def test_t2d_does_not_tell_the_order_of_a_trainer_that_goes_by_frequency(
    code: str, change: Callable[[Draft], object] | None, tmp_path: Path
) -> None:
    def edit(draft: Draft) -> None:
        modelopt(draft)
        if change is not None:
            change(draft)
        else:
            draft.weights["d2t"] = integers([0] * DRAFT_VOCAB)

    folder = drafted(tmp_path, edit)
    assert asked(folder, code) == [] and asked(folder, code, wishes=UNSAFE) == []


def test_t2d_of_another_size_tells_nothing(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.drop("d2t")
        draft.weights["t2d"] = mask(VOCAB, KEPT[:-1])

    assert asked(drafted(tmp_path, edit), "DC301") == []


def test_a_d2t_under_another_name_is_found(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.weights["draft_to_target"] = draft.weights.pop("d2t")

    [found] = asked(drafted(tmp_path, edit), "DC301")
    assert isinstance(found, Rename) and (found.tensor.name, found.name) == ("draft_to_target", "d2t")


def test_other_whole_numbers_are_no_d2t(tmp_path: Path) -> None:
    """As many as there are draft ids, and t2d says that they lead elsewhere: the map is made from t2d."""

    def edit(draft: Draft) -> None:
        draft.drop("d2t")
        draft.weights["counts"] = integers([7] * DRAFT_VOCAB)

    folder = drafted(tmp_path, edit)
    assert asked(folder, "DC301") == []
    [found] = asked(folder, "DC301", wishes=UNSAFE)
    assert isinstance(found, Add) and values_of(found) == OFFSETS


BY_FREQUENCY = KEPT[::2] + KEPT[1::2]


def side_file(draft: Draft, name: str, tokens: Sequence[int] = BY_FREQUENCY) -> None:
    def write(folder: Path) -> None:
        npy(folder / name, offsets(tokens), "<i8")

    draft.drop("d2t")
    draft.writers.append(write)


@pytest.mark.parametrize("with_t2d", [True, False])
def test_a_mapping_file_in_the_folder_tells(with_t2d: bool, tmp_path: Path) -> None:
    """It knows the order, which t2d does not."""

    def edit(draft: Draft) -> None:
        side_file(draft, "d2t.npy")
        if not with_t2d:
            draft.drop("t2d")

    [found] = asked(drafted(tmp_path, edit), "DC301")
    assert values_of(found) == [token - i for i, token in enumerate(BY_FREQUENCY)]


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("d2t.npy", [*range(DRAFT_VOCAB)]),  # not those that t2d keeps
        ("d2t.npy", KEPT[:-1]),
        ("d2t.npy", [*KEPT[:-1], VOCAB]),
        ("notes.npy", BY_FREQUENCY),
    ],
)
def test_a_mapping_file_that_does_not_belong_tells_nothing(name: str, tokens: list[int], tmp_path: Path) -> None:
    """What is left is t2d."""
    folder = drafted(tmp_path, lambda d: side_file(d, name, tokens))
    assert asked(folder, "DC301") == []
    [found] = asked(folder, "DC301", wishes=UNSAFE)
    assert isinstance(found, Add) and found.why == "from t2d"


def test_a_broken_mapping_file_is_passed_over(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.drop("d2t", "t2d")
        draft.files |= {"d2t.npy": b"nothing", "vocab_mapping.pt": b"PK\3\4", "t2d.safetensors": b"x"}

    folder = drafted(tmp_path, edit)
    (folder / "t2d.safetensors").unlink()
    assert asked(folder, "DC301") == []


def referring(tmp_path: Path, tokens: Sequence[int]) -> Options:
    """The options with a reference that has these tokens."""
    path = tmp_path / "reference.safetensors"
    write_safetensors(path, {"d2t": offsets(tokens), "t2d": mask(VOCAB, tokens)})
    return Options(engine="sglang==0.5.15", reference=str(path))


def test_a_reference_tells_the_order_when_t2d_agrees(tmp_path: Path) -> None:
    options = referring(tmp_path, BY_FREQUENCY)
    folder = drafted(tmp_path / "draft", lambda d: d.drop("d2t"))
    [found] = asked(folder, "DC301", options)
    assert isinstance(found, Add) and found.why == "from the reference"
    assert values_of(found) == [token - i for i, token in enumerate(BY_FREQUENCY)]


def test_a_reference_that_nothing_confirms_is_taken_on_demand_alone(tmp_path: Path) -> None:
    options = referring(tmp_path, BY_FREQUENCY)
    folder = drafted(tmp_path / "draft", lambda d: d.drop("d2t", "t2d"))
    assert asked(folder, "DC301", options) == []
    [found] = asked(folder, "DC301", options, UNSAFE)
    assert values_of(found) == [token - i for i, token in enumerate(BY_FREQUENCY)]


def test_one_wrong_token_is_mended_where_t2d_shows_it(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.weights["d2t"] = offsets([*KEPT[:-1], KEPT[-2]])

    [found] = asked(drafted(tmp_path, edit), "DC304")
    assert values_of(found) == OFFSETS


def test_a_token_past_the_end_is_mended_where_t2d_shows_it(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.weights["d2t"] = offsets([*KEPT[:-1], VOCAB + 44])

    [found] = asked(drafted(tmp_path, edit), "DC303")
    assert values_of(found) == OFFSETS


def test_a_wrong_token_in_a_map_that_is_not_sorted_stays(tmp_path: Path) -> None:
    """By token it would be another map: t2d does not tell the order."""

    def edit(draft: Draft) -> None:
        draft.weights["d2t"] = offsets([*BY_FREQUENCY[:-1], BY_FREQUENCY[-2]])

    assert asked(drafted(tmp_path, edit), "DC304") == []


def test_a_longer_map_is_cut_where_t2d_shows_what_is_too_much(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        extra = [token for token in range(VOCAB) if token not in KEPT][:8]
        draft.weights["d2t"] = offsets([*BY_FREQUENCY, *extra])

    [found] = asked(drafted(tmp_path, edit), "DC302")
    assert values_of(found) == [token - i for i, token in enumerate(BY_FREQUENCY)]


def test_a_map_in_a_column_is_laid_out_in_a_row(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        found = draft.weights["d2t"]
        draft.weights["d2t"] = Weight(found.dtype, (DRAFT_VOCAB, 1), found.raw)

    folder = drafted(tmp_path, edit)
    [found] = asked(folder, "DC302")
    assert isinstance(found, Replace) and found.content.shape == (DRAFT_VOCAB,) and values_of(found) == OFFSETS
    assert not {f.rule for f in mended_draft(folder).last.findings} & {"DC302", "DC303", "DC304", "DC305", "DC307"}


def test_tokens_that_t2d_does_not_keep_are_not_turned_into_offsets(tmp_path: Path) -> None:
    """Nearly all: d2t holds tokens, but not those of this head."""

    def edit(draft: Draft) -> None:
        other = next(token for token in range(VOCAB) if token not in KEPT)
        draft.weights["d2t"] = integers([*KEPT[:-1], other])

    assert asked(drafted(tmp_path, edit), "DC305") == []
