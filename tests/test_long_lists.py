"""Long lists in a config: they cost what each entry does, and are told in a short message."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases_reference import KEPT, LOST, own_target
from drafts import Draft
from scaling import QUADRATIC, growth
from weightfiles import Storage, archive, state, tensor

from drafcheck import lint
from drafcheck.jsonpos import read_document
from drafcheck.source import LocalFile, Memory
from drafcheck.torch_pickle import read_pickle

IDS = "eagle_aux_hidden_state_layer_ids"


def ended(folder: Path, ends: list[int], *, generation: bool = False) -> list[str]:
    """What is said of the ends of an answer, where the target names these."""
    draft = Draft()
    files = {"generation_config.json": {"eos_token_id": ends}} if generation else {}
    own_target(draft, files, **({} if generation else {"eos_token_id": ends}))
    draft.write(folder)
    report = lint(folder, engine="sglang==0.5.15", target=folder / "target")
    return [f.message for f in report.checkpoints[0].findings if f.rule == "DC314"]


@pytest.mark.parametrize("generation", [False, True])
def test_many_ends_of_an_answer(tmp_path: Path, generation: bool) -> None:
    def work(ends: int) -> None:
        ended(tmp_path, list(range(10_000, 10_000 + ends)), generation=generation)

    assert growth(work, 1000) < QUADRATIC / 2


def test_ends_that_are_lost_are_told_among_many(tmp_path: Path) -> None:
    far = list(range(10_000, 15_000))
    [message] = ended(tmp_path / "lost", [*KEPT, *far, *LOST])
    assert f"no draft id stands for {len(LOST)} token" in message
    assert ended(tmp_path / "kept", [*KEPT, *far]) == []


def aux(folder: Path, ids: list[int]) -> list[str]:
    draft = Draft()
    draft.config["eagle_config"] = {IDS: ids}
    draft.write(folder)
    report = lint(folder, engine="sglang==0.5.15")
    return [f.message for f in report.checkpoints[0].findings if f.rule == "DC403"]


def test_many_layer_ids_are_told_in_a_short_message(tmp_path: Path) -> None:
    for ids in (list(range(20_000)), [5] * 20_000, [*range(8), *range(-20_000, 0)]):
        said = aux(tmp_path, ids)
        assert said and all(len(message) < 400 for message in said)


def test_thousands_of_ids_that_mean_other_layers(tmp_path: Path) -> None:
    """A target of as many layers, as a config may claim: the last id numbers what enters a layer (DC404)."""

    def said(last: int) -> list[str]:
        draft = Draft()
        draft.config["eagle_config"] = {IDS: list(range(1, last + 1))}
        draft.target["num_hidden_layers"] = last
        draft.write(tmp_path)
        found = lint(tmp_path, engine="sglang==0.5.15").checkpoints[0].findings
        return [f"{f.message} {f.help}" for f in found if f.rule == "DC404"]

    assert said(8) and said(2000)
    assert all(len(text) < 1000 for text in said(2000))
    assert "1, 2, 3, 4, 5, 6 and 7" in said(8)[0] and "and 1,988 more" in said(2000)[0]


def test_many_tensors_in_a_pickle(tmp_path: Path) -> None:
    """As many as a mixture of experts has; `--values` and other rules aside."""
    path = tmp_path / "pytorch_model.bin"

    def work(tensors: int) -> None:
        one = tensor(Storage("LongStorage", "0", 6), (2, 3), (3, 1), 0)
        path.write_bytes(archive(state({f"layers.{i}.weight": one for i in range(tensors)}), {"0": bytes(48)}))
        assert len(read_pickle(LocalFile(path)).tensors) == tensors

    assert growth(work, 1000) < QUADRATIC / 2


def test_places_behind_lists_of_numbers() -> None:
    text = '{"a": [1, 2.5, null], "b": [[], [1], "]", {"c": [3]}], "d": [ 1,\n2 ], '
    text += '"e": {"f": [7, 8], "g": [9, {"h": 0}]}}'
    document = read_document(Memory(text.encode(), "config.json"))

    def column(*route: str | int) -> str:
        place = document.at(*route)
        assert place.line is not None and place.column is not None
        return text.splitlines()[place.line - 1][place.column - 1 :][:4]

    assert column("d") == '"d":'
    assert column("e", "g") == '"g":'
    assert column("b", 3, "c") == '"c":'
    assert column("b", 2) == '"]",'
    assert column("a", 1) == "2.5,"
    assert column("e", "g", 1, "h") == '"h":'
    assert column("e", "f", 5) == '"f":'  # the nearest that is there
