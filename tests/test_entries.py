"""What a PyTorch file holds beside tensors: what the engines' loaders do with it, asked of their own sources."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import pytest
from drafts import Draft
from pickles import Weights, number, text, write_torch, write_zip
from weightfiles import archive, state

from drafcheck import lint
from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.report.model import CheckpointReport, Outcome

VLLM, SGLANG = "vllm==0.33.0", "sglang==0.5.15"
O_PROJ, UP_PROJ = "midlayer.self_attn.o_proj.weight", "midlayer.mlp.up_proj.weight"
VALUES = {
    "int": number(7),
    "NoneType": b"N",
    "bool": b"\x88",
    "float": b"G" + bytes(8),
    "str": text("x"),
    "list": b"](K\x01K\x02e",
    "dict": b"}" + text("a") + b"K\x01s",
    "tuple": b"K\x01\x85",
}
KEYS = {"int": number(5), "NoneType": b"N", "bool": b"\x88", "float": b"G" + bytes(8), "tuple": text("a") + b"\x85"}


def checked(folder: Path, engine: str, entry: bytes, *, without: str = "") -> tuple[list[Finding], Outcome]:
    """The healthy draft as a pickle with an entry more, and without one of its tensors."""
    draft = Draft()
    draft.weight_file = None
    weights = {name: weight for name, weight in draft.weights.items() if name != without}
    draft.writers.append(lambda place: write_torch(place / "pytorch_model.bin", weights, after=entry))
    draft.write(folder)
    (found,) = lint(folder, engine=engine).checkpoints
    return list(found.findings), found.outcome


def errors(findings: list[Finding]) -> list[str]:
    return [f.rule for f in findings if f.severity is Severity.ERROR]


@pytest.mark.parametrize("kind", VALUES)
def test_a_name_that_is_refused_is_refused_whatever_it_holds(tmp_path: Path, kind: str) -> None:
    found, outcome = checked(tmp_path, VLLM, text("step") + VALUES[kind])
    (hit,) = [f for f in found if f.rule == "DC104"]
    assert errors(found) == ["DC104"] and outcome is Outcome.REFUSED and hit.confidence is Confidence.CERTAIN
    words = f"stops at `step`, which is no tensor ({kind}): ValueError: There is no module or parameter named 'step'"
    assert words in hit.message


@pytest.mark.parametrize("kind", VALUES)
def test_a_name_that_is_dropped_is_dropped_whatever_it_holds(tmp_path: Path, kind: str) -> None:
    found, outcome = checked(tmp_path, SGLANG, text("step") + VALUES[kind])
    assert errors(found) == [] and outcome is Outcome.CLEAN


@pytest.mark.parametrize("engine", [VLLM, SGLANG])
def test_what_is_skipped_by_design_is_skipped_whatever_it_holds(tmp_path: Path, engine: str) -> None:
    found, outcome = checked(tmp_path, engine, text("t2d") + VALUES["list"], without="t2d")
    assert errors(found) == [] and outcome is Outcome.CLEAN


@pytest.mark.parametrize("engine", [VLLM, SGLANG])
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", [O_PROJ, "d2t", "lm_head.weight", "midlayer.self_attn.q_proj.weight"])
def test_both_stop_at_what_is_no_tensor_under_a_name_of_theirs(
    tmp_path: Path, engine: str, kind: str, name: str
) -> None:
    found, outcome = checked(tmp_path, engine, text(name) + VALUES[kind], without=name)
    assert errors(found) == ["DC104"] and outcome is Outcome.REFUSED
    (hit,) = [f for f in found if f.rule == "DC104"]
    assert f"stops at `{name}`, which is no tensor ({kind}): AttributeError: '{kind}' object" in hit.message
    assert hit.help is not None and ("torch.tensor(d2t)" in hit.help) is (name == "d2t")


@pytest.mark.parametrize("engine", [VLLM, SGLANG, "sglang==0.4.5", "vllm==0.22.1"])
@pytest.mark.parametrize("kind", KEYS)
def test_both_stop_at_a_key_that_is_no_text(tmp_path: Path, engine: str, kind: str) -> None:
    found, outcome = checked(tmp_path, engine, KEYS[kind] + b"K\x01")
    assert "DC104" in errors(found) and outcome is Outcome.REFUSED
    (hit,) = [f for f in found if f.rule == "DC104"]
    assert f'TypeError: can only concatenate str (not "{kind}") to str' in hit.message


def test_nothing_is_said_for_an_engine_that_was_not_asked(tmp_path: Path) -> None:
    found, _ = checked(tmp_path, "lmdeploy==0.16.0", number(5) + b"K\x01")
    assert "DC104" not in errors(found)


def without_tensors(folder: Path, engine: str, data: bytes) -> tuple[list[Finding], Outcome]:
    draft = Draft()
    draft.weight_file = None
    draft.writers.append(lambda place: (place / "pytorch_model.bin").write_bytes(archive(data, {})))
    draft.write(folder)
    (found,) = lint(folder, engine=engine).checkpoints
    return list(found.findings), found.outcome


@pytest.mark.parametrize("engine", [VLLM, SGLANG])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (state({}), "pytorch_model.bin holds no tensors"),
        (state({"state": pickle.EMPTY_DICT, "groups": b"]"}), "holds no tensors, only `state`, `groups`"),
    ],
)
def test_a_file_without_tensors_is_one_finding(tmp_path: Path, engine: str, data: bytes, words: str) -> None:
    found, outcome = without_tensors(tmp_path, engine, data)
    assert errors(found) == ["DC012"]
    (hit,) = [f for f in found if f.rule == "DC012"]
    assert words in hit.message
    stops = engine == VLLM and "only" in words
    assert outcome is (Outcome.REFUSED if stops else Outcome.BROKEN)
    assert ("starts with nothing of it loaded" in hit.message) is not stops
    assert "DC010" not in {f.rule for f in found}


def test_tensors_inside_a_key_are_refused_only_by_who_refuses_the_key(tmp_path: Path) -> None:
    inner = Draft()
    for engine, outcome in ((SGLANG, Outcome.BROKEN), (VLLM, Outcome.REFUSED)):
        folder = tmp_path / engine.partition("=")[0]
        draft = Draft()
        draft.weight_file = None
        draft.writers.append(lambda place: nested(place / "pytorch_model.bin", inner))
        draft.write(folder)
        (found,) = lint(folder, engine=engine).checkpoints
        assert errors(list(found.findings)) == ["DC012"] and found.outcome is outcome
        (hit,) = [f for f in found.findings if f.rule == "DC012"]
        assert f"keeps its {len(inner.weights)} tensors inside the key 'state_dict'" in hit.message
        assert hit.help is not None and "['state_dict']" in hit.help


def nested(path: Path, draft: Draft) -> None:
    """The weights as an inner dict: the outer one is opened before them, and filled behind them."""
    write_torch(path, draft.weights, before=b"}(" + text("state_dict"), after=b"u")


def within(folder: Path, engine: str, place: int, entry: bytes, without: tuple[str, ...] = ()) -> CheckpointReport:
    """The healthy draft as a pickle in which an entry comes after so many tensors."""
    draft = Draft()
    draft.weight_file = None
    weights = {name: weight for name, weight in draft.weights.items() if name not in without}
    first = dict(list(weights.items())[:place])
    rest = {name: weight for name, weight in weights.items() if name not in first}
    draft.writers.append(lambda folder: interrupted(folder / "pytorch_model.bin", first, entry, rest))
    draft.write(folder)
    (found,) = lint(folder, engine=engine).checkpoints
    return found


def interrupted(path: Path, first: Weights, entry: bytes, rest: Weights) -> None:
    """The entry is put between two batches of items; what it stands behind is set first."""
    write_torch(path, {**first, **rest})
    with zipfile.ZipFile(path) as old:
        members = {name.removeprefix("archive/"): old.read(name) for name in old.namelist()}
    data = members["data.pkl"]
    at = data.index(text(next(iter(rest)))) if rest else data.rindex(b"u.")
    write_zip(path, {**members, "data.pkl": data[:at] + entry + data[at:]})


def loaded(report: CheckpointReport) -> list[str]:
    assert report.plan is not None
    return [one.tensor for one in report.plan.loaded]


@pytest.mark.parametrize("engine", [VLLM, SGLANG, "sglang==0.4.5", "vllm==0.22.1"])
@pytest.mark.parametrize("place", [0, 1, 5, 99])
def test_what_lies_behind_an_entry_at_which_the_loader_stops_is_not_loaded(
    tmp_path: Path, engine: str, place: int
) -> None:
    entry = text(O_PROJ) + number(7)
    names = [name for name in Draft().weights if name != O_PROJ]
    whole = loaded(within(tmp_path / "whole", engine, place, b"", without=(O_PROJ,)))
    report = within(tmp_path / "x", engine, place, entry, without=(O_PROJ,))
    assert report.outcome is Outcome.REFUSED and [f.rule for f in report.findings if f.severity is Severity.ERROR] == [
        "DC104"
    ]
    expected = [name for name in whole if name in names[:place]]
    assert loaded(report) == expected and bool(expected) is (place > 0)


@pytest.mark.parametrize("place", [0, 5, 99])
def test_a_key_that_is_no_text_stops_before_any_load_where_all_are_gathered_first(tmp_path: Path, place: int) -> None:
    entry = number(5) + number(7)
    names = list(Draft().weights)[:place]
    lazily = within(tmp_path / "sglang", SGLANG, place, entry)
    assert loaded(lazily) and set(loaded(lazily)) <= set(names) if place else not loaded(lazily)
    assert loaded(within(tmp_path / "vllm", VLLM, place, entry)) == []


@pytest.mark.parametrize("engine", [VLLM, SGLANG])
def test_of_two_entries_the_first_is_told(tmp_path: Path, engine: str) -> None:
    one, other = text(O_PROJ) + b"N", text(UP_PROJ) + b"]"
    report = within(tmp_path / "x", engine, 2, one + other, without=(O_PROJ, UP_PROJ))
    assert report.plan is not None and report.plan.refused is not None
    assert "'NoneType'" in report.plan.refused.error
    (finding,) = [f for f in report.findings if f.rule == "DC104"]
    assert f"stops at `{O_PROJ}`" in finding.message and "(and 1 more)" in finding.message


@pytest.mark.parametrize("engine", [VLLM, SGLANG])
def test_an_entry_that_is_passed_over_stops_nothing(tmp_path: Path, engine: str) -> None:
    passed = text("t2d") + number(7)
    whole = loaded(within(tmp_path / "whole", engine, 3, b"", without=("t2d",)))
    assert loaded(within(tmp_path / "x", engine, 3, passed, without=("t2d",))) == whole != []


@pytest.mark.parametrize("place", [0, 99])
def test_what_stops_first_is_what_stops_the_loader(tmp_path: Path, place: int) -> None:
    """A tensor whose name vLLM refuses, before or behind the entry."""
    draft = Draft()
    odd = {"odd.weight": draft.weights["norm.weight"]}
    entry = text(O_PROJ) + number(7)
    weights = {name: weight for name, weight in draft.weights.items() if name != O_PROJ}
    draft.weight_file = None
    first, rest = (odd, weights) if place else ({}, {**odd, **weights})
    draft.writers.append(lambda folder: interrupted(folder / "pytorch_model.bin", first, entry, rest))
    draft.write(tmp_path)
    (report,) = lint(tmp_path, engine=VLLM).checkpoints
    assert report.plan is not None and report.plan.refused is not None and loaded(report) == []
    assert ("odd" in report.plan.refused.error) is bool(place)
