"""Names that differ in numbers which no loader knows are followed together, and told as one by one."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from test_checks_names import CONFIG, H, head, write
from test_many_names import contracts, said

from drafcheck import lint
from drafcheck import tensors as lists
from drafcheck.plan import many
from drafcheck.plan.alike import Alike
from drafcheck.plan.model import LoadPlan, Parameter, Parameters
from drafcheck.plan.names import route
from drafcheck.plan.wanted import wanted_names

WORDS = ["q_proj", "gate_proj", "weight", "bias", "layers", "experts", "fc", "norm", "d2t", "module", "x"]


def some_parameters() -> Parameters:
    names = [*head(), *head("model.layers.0.", "model."), "model.layers.0.mlp.experts.w13_weight", "fc_norm.1.weight"]
    return Parameters({n: Parameter(n, (H,), ("h",), "empty", "plain") for n in names})


def texts_of(alike: Alike) -> list[str]:
    return [t for t in alike._parts if len(t) < 60 and "\n" not in t]


def some_names(rng: random.Random, texts: list[str]) -> list[str]:
    """Names that are alike but for their numbers, of words that the loader knows."""
    parts = [rng.choice(texts) if rng.random() < 0.5 else rng.choice(WORDS) for _ in range(rng.randrange(1, 5))]
    joints = [rng.choice([".", ".", ".#.", "#", ".#", "#."]) for _ in parts]
    form = "".join(part + joint for part, joint in zip(parts, joints, strict=True)).replace("{n}", "#")
    form = rng.choice(["", "", "#.", "#", "model.", "model.layers.#."]) + form + rng.choice(["", ".weight", "weight"])
    digits = rng.choice([(1, 2), (3, 6), (2, 9)])

    def number(_: object) -> str:
        return rng.choice(["", "", "", "0"]) + str(rng.randrange(10 ** rng.randrange(*digits)))

    return [re.sub("#", number, form) for _ in range(8)]


def test_names_of_one_form_take_one_way() -> None:
    rng, parameters, grouped = random.Random(31), some_parameters(), 0
    for contract in contracts():
        alike = Alike(contract, [*parameters, *parameters.modules])
        texts = texts_of(alike)
        for _ in range(150):
            names = some_names(rng, texts)
            forms = list(alike.forms(names))
            grouped += len(set(forms)) < len(set(names))
            for name, form in zip(names, forms, strict=True):
                one, other = route(contract, name, parameters), route(contract, form, parameters)
                assert (one.end, one.shard) == (other.end, other.shard), (contract.name, name, form)
                assert one.parameter == other.parameter or one.end == "mapping", (contract.name, name, form)
    assert grouped > 3000


def test_other_spellings_are_found_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, parameters, told = random.Random(37), some_parameters(), 0
    for contract in contracts()[::3]:
        plan = LoadPlan(contract.name, parameters=parameters)
        texts = texts_of(Alike(contract, []))
        names = [name for _ in range(60) for name in some_names(rng, texts)]
        names += [f"module.{n}" for n in [*names[::7], *parameters]] + [f"odd.{n}" for n in [*names[::9], *parameters]]
        together = wanted_names(contract, plan, names)
        with monkeypatch.context() as patch:
            patch.setattr(Alike, "forms", lambda _, names: iter(names))
            assert wanted_names(contract, plan, names) == together, contract.name
        told += sum(w is not None for w in together)
    assert told > 300


FILLERS = {
    "projections": ["model.layers.{}.self_attn.q_proj.weight", "layers.{}.mlp.gate_proj.weight"],
    "experts": ["midlayer.mlp.experts.{}.up_proj.weight", "model.layers.0.mlp.experts.{}.down_proj.weight"],
    "biases": ["model.layers.{}.self_attn.k_proj.bias"],
    "mapping and masks": ["x.{}.d2t", "x.{}.t2d"],
    "wrapped": ["module.midlayer.{}.self_attn.v_proj.weight", "fc_norm.{}.weight"],
}
MTP = {
    **{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_nextn_predict_layers": 1},
    **{"num_hidden_layers": 4, "moe_layer_freq": 1, "n_routed_experts": 4, "first_k_dense_replace": 1},
}
HEADS = ["model.layers.{}.eh_proj.weight", "model.layers.{}.self_attn.o_proj.weight", "model.layers.4.mlp.experts.{}.x"]


def both(folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any], int]:
    """What is said with names followed together and one by one, and how many pieces were passed over at once."""
    passed, end = 0, many._Followed.end

    def counted(*a: Any) -> str:
        nonlocal passed
        found = end(*a)
        passed += bool(found)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(many._Followed, "end", counted)
        together = said(folder, engine)
        patch.setattr(many._Followed, "end", lambda *_: "")
        patch.setattr(Alike, "forms", lambda _, names: iter(names))
        return together, said(folder, engine), passed


@pytest.mark.parametrize("engine", ["sglang==0.4.9", "sglang==0.5.23", "vllm==0.11.0", "vllm==0.33.0"])
def test_a_checkpoint_is_told_as_name_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setattr(lists, "AT_ONCE", 20)
    rng, passed = random.Random(41), 0
    for filler, forms in FILLERS.items():
        numbers = [*rng.sample(range(100_000, 900_000), 70), 0, 1, 3, 12]
        shapes = {**head(), **{form.format(n): [1, 2] for form in forms for n in numbers}}
        if filler == "projections":
            del shapes["norm.weight"]
        together, alone, some = both(write(tmp_path / filler, shapes), engine, monkeypatch)
        assert together == alone, filler
        passed += some
    assert passed


@pytest.mark.parametrize("engine", ["sglang==0.5.23", "vllm==0.33.0"])
def test_so_is_one_of_a_whole_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setattr(lists, "AT_ONCE", 20)
    numbers = [*random.Random(43).sample(range(100_000, 900_000), 70), *range(6)]
    folder = write(tmp_path / "whole", {form.format(n): [1, 2] for form in HEADS for n in numbers})
    (folder / "config.json").write_text(json.dumps({**CONFIG, **MTP}))
    together, alone, passed = both(folder, engine, monkeypatch)
    assert together == alone and passed


def called(folder: Path) -> int:
    """Calls of Python functions that a lint takes: a count, as times are those of the machine."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    lint(folder, engine="sglang==0.5.23")  # what is read once and kept is no cost of a name
    sys.setprofile(note)
    try:
        lint(folder, engine="sglang==0.5.23")
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("form", ["model.layers.{}.self_attn.q_proj.weight", "midlayer.mlp.experts.{}.up_proj.weight"])
def test_a_name_with_a_word_of_the_loader_takes_few_steps(tmp_path: Path, form: str) -> None:
    calls = []
    for many_ in (2_000, 4_000):
        names = {form.format(100_000 + n): [1, 2] for n in range(many_)}
        calls.append(called(write(tmp_path / str(many_), {**head(), **names})))
    assert (calls[1] - calls[0]) / 2_000 < 80  # it was 500
