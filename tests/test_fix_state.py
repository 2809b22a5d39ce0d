"""Edits, the text of a mended config, and a mended checkpoint that is not written yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft
from hypothesis import given
from hypothesis import strategies as st

from drafcheck.errors import UsageError
from drafcheck.fix.edits import (
    Add,
    Content,
    Convert,
    Drop,
    DropFile,
    Edit,
    Reindex,
    RemoveKey,
    Rename,
    Replace,
    SetKey,
    merged,
)
from drafcheck.fix.jsontext import with_key, without_key
from drafcheck.fix.pieces import Span, Spliced
from drafcheck.fix.state import State, after
from drafcheck.place import LocalPlace
from drafcheck.tensor import Tensor

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab"\\é{}[],:\n', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
ROUTES = st.lists(st.sampled_from("abc"), min_size=1, max_size=3)
LAYOUTS = st.sampled_from([{}, {"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}])


def _set(data: dict[str, Any], route: list[str], value: Any) -> None:
    for key in route[:-1]:
        if not isinstance(data.get(key), dict):
            data[key] = {}
        data = data[key]
    data[route[-1]] = value


@given(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), ROUTES, JSON, LAYOUTS)
def test_a_key_that_is_set_in_the_text_is_set_in_what_it_says(
    data: dict[str, Any], route: list[str], value: Any, layout: dict[str, Any]
) -> None:
    text = json.dumps(data, **layout)
    mended = with_key(text, route, value)
    _set(data, route, value)
    assert json.loads(mended) == data


@given(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), ROUTES, LAYOUTS)
def test_a_key_that_is_taken_out_of_the_text_is_gone(
    data: dict[str, Any], route: list[str], layout: dict[str, Any]
) -> None:
    mended = json.loads(without_key(json.dumps(data, **layout), route))
    inner: Any = data
    for key in route[:-1]:
        inner = inner.get(key) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner.pop(route[-1], None)
    assert mended == data


def test_the_rest_of_the_text_stays_as_it_was_written() -> None:
    text = '{\n    "ids": [1, 2,  3],\n    "eps": 1e-5,\n    "eagle_config": {\n        "a": true\n    }\n}\n'
    mended = with_key(text, ["eagle_config", "ids"], [1, 2])
    lines = ["            1,", "            2", "        ]", "    }", "}"]
    assert mended.splitlines()[:5] == [*text.splitlines()[:4], '        "a": true,']
    assert mended.splitlines()[5:] == ['        "ids": [', *lines]
    assert without_key(mended, ["eagle_config", "ids"]) == text


def test_of_a_key_given_twice_the_one_that_counts_is_changed_and_both_are_taken_out() -> None:
    assert with_key('{"a": 1, "a": 2}', ["a"], 3) == '{"a": 1, "a": 3}'
    assert without_key('{"a": 1, "b": 0, "a": 2}', ["a"]) == '{"b": 0}'


@given(st.lists(st.binary(max_size=5)), st.integers(0, 30), st.integers(0, 30))
def test_a_spliced_file_reads_as_its_pieces_one_after_another(parts: list[bytes], start: int, stop: int) -> None:
    whole = b"".join(parts)
    file = Spliced("file", parts)
    outer = Spliced("outer", [b"<", Span(file, 0, file.size()), b">"])
    assert (file.size(), file.read(start, stop)) == (len(whole), whole[start:stop])
    assert outer.read(0, outer.size()) == b"<" + whole + b">"
    assert not any(isinstance(piece, Span) for piece in outer.pieces)


TENSOR = Tensor("a", "F32", (1,), "model.safetensors", 0, 4)
CONTENT = Content("F32", (1,), (b"\0" * 4,))
CONTRADICTIONS: list[tuple[Edit, Edit]] = [
    (Rename(TENSOR, "b"), Rename(TENSOR, "c")),
    (Rename(TENSOR, "b"), Drop(TENSOR, "why")),
    (Replace(TENSOR, CONTENT, "how"), Drop(TENSOR, "why")),
    (Rename(TENSOR, "b"), Add("b", CONTENT, "why")),
    (SetKey(("a",), 1), SetKey(("a",), 2)),
    (SetKey(("a",), 1), RemoveKey(("a",))),
    (SetKey(("a",), {}), SetKey(("a", "b"), 2)),
    (RemoveKey(("a", "b")), SetKey(("a",), 2)),
]


@pytest.mark.parametrize(("one", "two"), CONTRADICTIONS)
def test_two_rules_that_want_different_things_of_one_object_are_named(one: Edit, two: Edit) -> None:
    for pair in ((one, two), (two, one)):
        with pytest.raises(UsageError, match=r"DC101 and DC105 want different things of `[ab.]+`"):
            merged(zip(("DC101", "DC105"), pair, strict=True))


def test_what_two_rules_ask_for_alike_is_done_once() -> None:
    edits = merged(
        [("DC101", Rename(TENSOR, "b")), ("DC104", Rename(TENSOR, "b")), ("DC308", Replace(TENSOR, CONTENT, "h"))]
    )
    assert [*edits.by_rule.values()] == [["DC101", "DC104"], ["DC308"]]


def _written(tmp_path: Path) -> State:
    Draft().write(tmp_path)
    return State(str(tmp_path), LocalPlace(tmp_path))


def test_a_mended_checkpoint_is_read_as_if_it_were_written(tmp_path: Path) -> None:
    state = _written(tmp_path)
    before = state.opened()
    tensors = {t.name: t for t in before.files[0].header.tensors}
    d2t, t2d, norm = tensors["d2t"], tensors["t2d"], tensors["norm.weight"]
    wide = Content("I64", d2t.shape, (b"\1" + bytes(8 * d2t.numel - 1),))
    asked: list[Edit] = [
        Rename(norm, "final.weight"),
        Drop(t2d, "why"),
        Replace(d2t, wide, "how"),
        Add("bias", Content("F32", (2,), (bytes(8),)), "zeros"),
        SetKey(("draft_vocab_size",), 7),
        RemoveKey(("head_dim",)),
    ]
    now = after(state, before, merged(("DC101", edit) for edit in asked)).opened()
    names = {t.name: t for t in now.files[0].header.tensors}
    assert not now.files[0].header.problems
    assert set(names) == (set(tensors) - {"norm.weight", "t2d"}) | {"final.weight", "bias"}
    assert now.read(names["d2t"]) == wide.pieces[0]
    assert now.read(names["final.weight"]) == before.read(norm)
    untouched = set(names) & set(tensors) - {"d2t"}
    assert all(now.read(names[name]) == before.read(tensors[name]) for name in untouched)
    assert now.config is not None and now.config.get("draft_vocab_size") == 7 and "head_dim" not in now.config.data
    assert json.loads((tmp_path / "config.json").read_bytes()).get("head_dim")  # nothing was written


@pytest.mark.parametrize("stray", ["training_state.pt", "z.safetensors"])
def test_a_new_tensor_goes_into_a_file_that_the_loader_takes(tmp_path: Path, stray: str) -> None:
    """Not into what lies beside the weights, be it the last file: that may not even be one of weights."""
    state = _written(tmp_path)
    index = {"weight_map": {t.name: "model.safetensors" for t in state.opened().files[0].header.tensors}}
    if stray.endswith("safetensors"):
        (tmp_path / stray).write_bytes((tmp_path / "model.safetensors").read_bytes())
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        (tmp_path / stray).write_bytes(b"")
    before = state.opened()
    assert before.files[-1].name == stray
    done = after(state, before, merged([("DC301", Add("new", CONTENT, "why"))]))
    assert {name for name in done.files if not name.endswith(".json")} == {"model.safetensors"} and not done.removed


def test_an_index_follows_what_becomes_of_the_tensors(tmp_path: Path) -> None:
    state = _written(tmp_path)
    table = {t.name: "model.safetensors" for t in state.opened().files[0].header.tensors}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"by": "x"}, "weight_map": table}), encoding="utf-8")
    before = state.opened()
    norm = next(t for t in before.files[0].header.tensors if t.name == "norm.weight")
    renamed = after(state, before, merged([("DC101", Rename(norm, "final.weight"))])).opened()
    assert renamed.index is not None
    assert set(renamed.index.weight_map) == (set(table) - {"norm.weight"}) | {"final.weight"}
    assert renamed.index.document.data["metadata"]["by"] == "x"
    assert after(state, before, merged([("DC005", Reindex())])).opened().index is None  # one file needs none
    keyed = after(state, before, merged([("DC302", SetKey(("a",), 1))]))
    assert set(keyed.files) == {"config.json"}


def test_a_file_can_be_left_out_and_a_name_is_never_taken_twice(tmp_path: Path) -> None:
    state = _written(tmp_path)
    (tmp_path / "other.bin").write_bytes(b"x")
    gone = after(state, state.opened(), merged([("DC006", DropFile("other.bin", "why"))]))
    assert gone.opened().file("other.bin") is None and gone.removed == {"other.bin"}
    before = state.opened()
    with pytest.raises(UsageError, match=r"two tensors of model\.safetensors would be called norm\.weight"):
        d2t = next(t for t in before.files[0].header.tensors if t.name == "d2t")
        after(state, before, merged([("DC101", Rename(d2t, "norm.weight"))]))
    with pytest.raises(UsageError, match=r"other\.bin can not be read whole"):
        after(state, before, merged([("DC010", Convert("other.bin"))]))


def test_a_name_that_safetensors_keeps_for_itself_is_not_given_away(tmp_path: Path) -> None:
    state = _written(tmp_path)
    before = state.opened()
    d2t = next(t for t in before.files[0].header.tensors if t.name == "d2t")
    with pytest.raises(UsageError, match=r"model\.safetensors can have no tensor called __metadata__"):
        after(state, before, merged([("DC101", Rename(d2t, "__metadata__"))]))


def test_a_state_without_edits_is_the_folder_itself(tmp_path: Path) -> None:
    state = _written(tmp_path)
    assert not state.changed
    assert state.opened().place is state.base
