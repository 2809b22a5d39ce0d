"""Names that a loader takes whole by a list of patterns, and drafts of such classes that the book does not describe."""

from __future__ import annotations

from pathlib import Path

import pytest
from class_relatives import mistral, mistral_large
from drafts import HIDDEN, Draft
from weights import zeros

import drafcheck
from drafcheck.cli import run
from drafcheck.plan.spelled import respelled
from drafcheck.report.model import CheckpointReport, Outcome

NAMES = {
    "spelled": [
        ["layers.{n}.experts.{n}.w1.{word}", "model.layers.{n}.mlp.experts.{n}.gate_proj.{word}"],
        ["norm.weight", "model.norm.weight"],
    ],
    "spelled_already": ["model."],
}


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("layers.3.experts.12.w1.weight", "model.layers.3.mlp.experts.12.gate_proj.weight"),
        ("layers.3.experts.12.w1.weight.more", None),
        ("layers.three.experts.12.w1.weight", None),
        ("x.layers.3.experts.12.w1.weight", None),
        ("norm.weight", "model.norm.weight"),
        ("normXweight", None),  # a dot is a dot
        ("model.whatever", "model.whatever"),
        ("", None),
    ],
)
def test_a_name_has_to_fit_from_end_to_end(name: str, becomes: str | None) -> None:
    assert respelled(NAMES, name) == becomes


def checked(draft: Draft, folder: Path, release: str) -> CheckpointReport:
    draft.write(folder)
    return drafcheck.lint(folder, engine=f"sglang=={release}").checkpoints[0]


def test_what_fits_no_pattern_is_lost(tmp_path: Path) -> None:
    healthy = checked(mistral(), tmp_path / "healthy", "0.5.23")
    assert healthy.outcome is Outcome.CLEAN
    draft = mistral()
    draft.rename(lambda name: f"module.{name}")
    lost = checked(draft, tmp_path / "wrapped", "0.5.23")
    assert lost.outcome is Outcome.BROKEN
    assert lost.plan is not None
    assert len(lost.plan.dropped) == len(draft.weights)


@pytest.mark.parametrize(("release", "outcome"), [("0.5.9", Outcome.BROKEN), ("0.5.10", Outcome.CLEAN)])
def test_a_class_that_did_not_build_its_fc(tmp_path: Path, release: str, outcome: Outcome) -> None:
    found = checked(mistral_large(), tmp_path / "draft", release)
    assert found.outcome is outcome
    assert [(f.rule, f.help) for f in found.findings if f.rule == "DC101"] == (
        [("DC101", "serve with sglang >= 0.5.10, which takes it as it is")] if release == "0.5.9" else []
    )


def test_experts_in_some_layers_only_are_not_described(tmp_path: Path) -> None:
    draft = mistral_large()
    draft.set(first_k_dense_replace=1, moe_layer_freq=2)
    found = checked(draft, tmp_path / "some", "0.5.23")
    assert found.outcome is Outcome.INCOMPLETE
    assert any("moe_layer_freq" in skipped.why for skipped in found.skipped)
    draft.set(moe_layer_freq=1)
    assert checked(draft, tmp_path / "every", "0.5.23").outcome is Outcome.REFUSED
    del draft.config["first_k_dense_replace"]  # the config class says 3
    assert checked(draft, tmp_path / "dense", "0.5.23").outcome is Outcome.CLEAN


def test_layers_past_the_last_one_are_passed_over(tmp_path: Path) -> None:
    draft = mistral_large()
    draft.set(num_hidden_layers=1)
    found = checked(draft, tmp_path / "one", "0.5.23")
    assert found.plan is not None
    assert found.plan.refused is None
    assert all(name.startswith("layers.1.") for name in found.plan.dropped)
    draft.weights["layers.0.shared_experts.w1.weight"] = zeros("BF16", 8, HIDDEN)
    stopped = checked(draft, tmp_path / "stopped", "0.5.23")
    assert stopped.outcome is Outcome.REFUSED  # of a layer that is built


def test_a_flag_that_nothing_declares_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own" / "sglang"
    own.mkdir(parents=True)
    own.joinpath("engine.toml").write_text('contracts = ["acme"]\n')
    own.joinpath("acme.toml").write_text(
        'extends = ["mistral_eagle"]\narchitectures = ["Acme"]\n[not_described]\nflags = { strange = "key" }\n'
    )
    assert run(["contracts", "--contracts", str(tmp_path / "own")]) == 2
    assert "'strange' is no [[flag]] of this contract" in capsys.readouterr().err
