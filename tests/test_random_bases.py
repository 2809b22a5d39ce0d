"""The random drafts that real loaders are asked about: each base is healthy, and a recipe is the same every time."""

from __future__ import annotations

from pathlib import Path

import pytest
from bases import METHODS, TARGETS, target_config
from mutants import Recipe, recipe, write

from drafcheck.checkpoint import open_checkpoint
from drafcheck.runner import inspect_one
from drafcheck.session import Options

TAKEN = {
    "eagle3": "vllm==0.33.0",
    "eagle3-plain": "vllm==0.9.2",
    "eagle3-qwen3": "vllm==0.33.0",
    "eagle1-plain": "vllm==0.11.0",
    "dflash": "vllm==0.22.1",
    "mla": "vllm==0.33.0",
    "speculators": "vllm==0.11.0",
    "dspark": "sglang==0.5.16",
    "mtp-deepseek": "sglang==0.5.12",
    "mtp-glm": "sglang==0.5.23",
}


@pytest.mark.parametrize("base", TAKEN)
def test_a_base_is_taken_as_it_is(tmp_path: Path, base: str) -> None:
    (tmp_path / "target").mkdir()
    write(Recipe(0, base, ()), tmp_path / "draft")
    of_vllm = TAKEN[base].startswith("vllm")
    options = Options(engine=TAKEN[base], algorithm=METHODS.get(base, "eagle3") if of_vllm else None)
    seen = inspect_one(str(tmp_path / "draft"), options).subject
    assert seen is not None
    assert seen.load is not None
    assert seen.refused is None
    assert seen.load.refused is None
    assert seen.load.writes
    assert seen.load.partial == []


def test_a_recipe_is_the_same_every_time(tmp_path: Path) -> None:
    made = [recipe(5, number, tuple(TAKEN), tuple(TARGETS)) for number in range(40)]
    assert made == [recipe(5, number, tuple(TAKEN), tuple(TARGETS)) for number in range(40)]
    assert {one.target for one in made} == set(TARGETS)
    for folder in ("a", "b"):
        write(made[1], tmp_path / folder)
    one, other = (open_checkpoint(str(tmp_path / folder)) for folder in ("a", "b"))
    assert one.config is not None
    assert other.config is not None
    assert one.config.data == other.config.data


def test_targets_alone_do_not_change_the_drafts() -> None:
    """Engines that are asked beside one target only get the same series."""
    plain = [recipe(5, number, ("eagle3",)) for number in range(40)]
    beside = [recipe(5, number, ("eagle3",), tuple(TARGETS)) for number in range(40)]
    assert [(one.base, one.steps) for one in plain] == [(one.base, one.steps) for one in beside]


def test_targets_differ_in_what_they_are_named_for() -> None:
    usual = target_config()
    changed = {name: {key for key in usual if target_config(name)[key] != usual[key]} for name in TARGETS}
    assert changed == {name: set(keys) for name, keys in TARGETS.items()}
