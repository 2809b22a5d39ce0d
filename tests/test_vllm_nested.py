"""vLLM's own config that holds another one (EAGLEConfig), and how each release reads it; every answer was executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bases import BASES
from drafts import Draft

from drafcheck import lint
from drafcheck.runner import inspect_one
from drafcheck.session import Options
from drafcheck.subject import Subject

TAKEN = ("0.16.0", "0.22.1", "0.33.0")
NAMED = {"eagle1-plain": None, "eagle3-plain": "eagle3"}  # by the key `method`, whatever the launch says
CLASSES = {"eagle1-plain": "EagleLlamaForCausalLM", "eagle3-plain": "Eagle3LlamaForCausalLM"}
LAUNCHED = {"eagle1-plain": "eagle", "eagle3-plain": "eagle3"}


def nested(base: str, **above: Any) -> Draft:
    """A draft with its config in the table `model`, as EAGLEConfig.save_pretrained writes it."""
    draft = BASES[base]()
    within = draft.config
    draft.config = {"architectures": ["EAGLEModel"], "model_type": "eagle", "model": within, **above}
    if NAMED[base] is not None:
        draft.set(method=NAMED[base])
    return draft


def subject(folder: Path, draft: Draft, release: str, algorithm: str) -> Subject:
    draft.target = None
    draft.write(folder)
    seen = inspect_one(str(folder), Options(engine=f"vllm=={release}", algorithm=algorithm))
    assert seen.subject is not None
    assert not seen.crashed
    return seen.subject


def outcome(folder: Path, draft: Draft, release: str, algorithm: str = "eagle") -> tuple[str, list[str]]:
    draft.target = None
    draft.write(folder)
    report = lint(folder, engine=f"vllm=={release}", algorithm=algorithm)
    (seen,) = report.checkpoints
    return seen.outcome.value, [f.message for f in seen.findings if f.severity == "error"]


@pytest.mark.parametrize("release", TAKEN)
@pytest.mark.parametrize("base", NAMED)
def test_the_sizes_come_from_the_config_within(tmp_path: Path, base: str, release: str) -> None:
    launched = LAUNCHED[base]
    assert outcome(tmp_path, nested(base), release, launched) == outcome(tmp_path, BASES[base](), release, launched)
    s = subject(tmp_path, nested(base), release, LAUNCHED[base])
    flat = subject(tmp_path, BASES[base](), release, LAUNCHED[base])
    assert s.contract is not None and s.contract.architecture == CLASSES[base]
    assert s.load is not None and flat.load is not None
    assert s.load.refused is None and len(s.load.writes) > 5
    assert [str(w) for w in s.load.writes] == [str(w) for w in flat.load.writes]


@pytest.mark.parametrize("release", TAKEN)
def test_the_top_level_counts_before_the_config_within(tmp_path: Path, release: str) -> None:
    size = BASES["eagle1-plain"]().config["intermediate_size"]
    state, errors = outcome(tmp_path, nested("eagle1-plain", intermediate_size=2 * size), release)
    assert (
        state == "refused"
        and f"builds [{nested('eagle1-plain').config['model']['hidden_size']}, {2 * size}]" in errors[0]
    )
    draft = nested("eagle1-plain", intermediate_size=size)
    draft.config["model"]["intermediate_size"] = 2 * size
    assert outcome(tmp_path, draft, release) == outcome(tmp_path, BASES["eagle1-plain"](), release)


@pytest.mark.parametrize("release", TAKEN)
def test_the_class_is_that_of_the_config_within(tmp_path: Path, release: str) -> None:
    """The method of the config names it, `eagle` by itself: no launch makes an EAGLE-3 draft of it."""
    draft = nested("eagle3-plain")
    del draft.config["method"]
    assert outcome(tmp_path, draft, release, "eagle3")[0] == "refused"
    s = subject(tmp_path, draft, release, "eagle3")
    assert s.contract is not None and s.contract.architecture == "EagleLlamaForCausalLM"


@pytest.mark.parametrize("release", ["0.9.2", "0.11.0"])
@pytest.mark.parametrize("base", NAMED)
def test_earlier_releases_stop_at_every_such_config(tmp_path: Path, base: str, release: str) -> None:
    state, errors = outcome(tmp_path, nested(base), release, LAUNCHED[base])
    assert state == "refused" and "model should not be None when method is eagle" in errors[0]
    assert outcome(tmp_path, BASES[base](), release, LAUNCHED[base])[0] != "refused"


def _without(*route: str) -> Draft:
    draft = nested("eagle1-plain")
    table = draft.config
    for key in route[:-1]:
        table = table[key]
    del table[route[-1]]
    return draft


REFUSED = {
    "no model": (lambda: _without("model"), "model should not be None when method is eagle"),
    "null": (lambda: nested("eagle1-plain", model=None), "model should not be None when method is eagle"),
    "text": (lambda: nested("eagle1-plain", model="llama"), "has no attribute 'vocab_size'"),
    "no classes": (lambda: _without("model", "architectures"), "'NoneType' object is not iterable"),
    "no type": (lambda: _without("model", "model_type"), "missing 1 required positional argument: 'model_type'"),
    "method": (lambda: nested("eagle1-plain", method="mtp"), "Invalid method mtp"),
}


@pytest.mark.parametrize("release", TAKEN)
@pytest.mark.parametrize("case", REFUSED)
def test_what_it_does_not_read_is_said(tmp_path: Path, case: str, release: str) -> None:
    make, words = REFUSED[case]
    state, errors = outcome(tmp_path, make(), release)
    assert state == "refused" and len(errors) == 1 and words in errors[0]


@pytest.mark.parametrize("release", TAKEN)
def test_an_unknown_type_within_is_refused(tmp_path: Path, release: str) -> None:
    draft = nested("eagle1-plain")
    draft.config["model"]["model_type"] = "nonesuch"
    state, errors = outcome(tmp_path, draft, release)
    assert state == "refused" and "Unrecognized model identifier: nonesuch" in errors[0]


def test_a_finding_points_into_the_config_within(tmp_path: Path) -> None:
    s = subject(tmp_path, nested("eagle1-plain"), "0.33.0", "eagle")
    assert s.config is not None
    assert s.config.at("hidden_size").key == "model.hidden_size"
    assert s.config.at("architectures").key == "model.architectures"
