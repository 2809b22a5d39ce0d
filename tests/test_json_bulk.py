"""The table of a long index, read many entries at once: the same document and the same faults as entry by entry."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from drafcheck import checkpoint, json_bulk, jsonpos
from drafcheck.checkpoint import INDEXES, open_checkpoint
from drafcheck.jsonpos import Document, read_document
from drafcheck.source import LocalFile, Memory

JUNK = ['"', ",", ":", "{", "}", " ", "\n", "\\", "\t", "é", "\xa0", "\x01", "1", "null", "NaN", '"a"', '"weight_map"']


def both(raw: bytes, monkeypatch: pytest.MonkeyPatch, at_once: int) -> tuple[Document, Document]:
    each = read_document(Memory(raw, "x.json"))
    with monkeypatch.context() as patch:
        patch.setattr(jsonpos, "_LONG", 0)
        patch.setattr(json_bulk, "_AT_ONCE", at_once)
        return each, read_document(Memory(raw, "x.json"))


def text_of(rng: random.Random) -> str:
    names = [rng.choice(["model.layers.{}.w", "a:{}", ",{}", "é{}", "{}"]).format(i) for i in range(rng.randrange(30))]
    table = {name: rng.choice(["m-1.safetensors", "m-2.safetensors", ",x", ":"]) for name in names}
    whole: dict[str, object] = {"metadata": {"total_size": 1}, "weight_map": table, "more": [{"a": 1}]}
    keys = rng.sample(list(whole), rng.randrange(1, 4))
    return json.dumps({key: whole[key] for key in keys}, indent=rng.choice([None, 2]), ensure_ascii=False)


def test_the_same_document(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(11)
    taken = 0
    known = json_bulk.without_table

    def counted(text: str, key: str) -> tuple[dict[str, str], str] | None:
        nonlocal taken
        found = known(text, key)
        taken += found is not None
        return found

    monkeypatch.setattr(json_bulk, "without_table", counted)
    healthy = 0
    for _ in range(4000):
        text = text_of(rng)
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(JUNK) + text[at + rng.choice([0, 0, 1, 3]) :]
        each, together = both(text.encode(), monkeypatch, rng.choice([30, 100, 1 << 18]))
        assert (repr(together.data), together.problems) == (repr(each.data), each.problems)  # and in the same order
        healthy += each.data is not None
    assert taken > 1000 and 1500 < healthy < 3500


@pytest.mark.parametrize(
    "table",
    ['"a":"x","b":"y","a":"z","c":"x"', '"a":"x","b":"y",', '"a":"x","b":"y","c":3,"d":"x"', '"a":"x","b":{"a":"y"}'],
)
def test_twice_a_comma_too_many_and_other_values(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    each, together = both(f'{{"weight_map":{{{table}}}}}'.encode(), monkeypatch, 12)
    assert together == each and together.data == each.data


def test_a_place_in_a_text_that_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonpos, "DOCUMENT_LIMIT", 40)
    (tmp_path / "config.json").write_text("{}")
    path = tmp_path / INDEXES[0]
    path.write_text('{"weight_map": {\n  "a": "x.safetensors",\n  "b": "y.safetensors"\n}}')
    whole = read_document(LocalFile(path), limit=checkpoint.INDEX_LIMIT)
    index = open_checkpoint(tmp_path).index
    assert index is not None and index.document.text == "" and whole.text
    assert index.document.at("weight_map", "b") == whole.at("weight_map", "b")
    assert index.document.at("weight_map", "b").line == 3
    path.write_text(path.read_text().replace("y", "z"))
    assert index.document.at("weight_map", "b").line is None  # another file by now
