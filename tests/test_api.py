"""The Python interface."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import Draft

import drafcheck
from drafcheck.report.model import Outcome


def test_names_are_exported_lazily() -> None:
    assert set(dir(drafcheck)) == {"Finding", "Report", "UsageError", "__version__", "lint"}
    with pytest.raises(AttributeError, match="nonsense"):
        _ = drafcheck.nonsense  # type: ignore[attr-defined]


def test_a_healthy_checkpoint(tmp_path: Path) -> None:
    Draft().write(tmp_path)
    report = drafcheck.lint(tmp_path, engine="sglang==0.5.15")
    assert isinstance(report, drafcheck.Report)
    assert report.ok
    assert report.exit_code == 0
    assert report.checkpoints[0].outcome is Outcome.CLEAN
    assert report.checkpoints[0].target == str(tmp_path / "target_config.json")


def test_a_broken_checkpoint(tmp_path: Path) -> None:
    draft = Draft()
    draft.drop("lm_head.weight")
    draft.write(tmp_path)
    report = drafcheck.lint(str(tmp_path), target=tmp_path / "target_config.json", engine="sglang==0.5.15")
    assert not report.ok
    assert report.exit_code == 1
    assert isinstance(report.findings[0], drafcheck.Finding)
    assert [f.severity.rank for f in report.findings] == sorted(f.severity.rank for f in report.findings)


def test_a_refused_checkpoint(tmp_path: Path) -> None:
    draft = Draft()
    draft.shape("fc.weight", 32, 32)
    draft.write(tmp_path)
    checkpoint = drafcheck.lint(tmp_path, engine="sglang==0.5.15").checkpoints[0]
    assert checkpoint.outcome is Outcome.REFUSED
    assert checkpoint.plan is not None
    assert checkpoint.plan.refused is not None


def test_an_unknown_class_is_not_called_clean(tmp_path: Path) -> None:
    draft = Draft()
    draft.set(architectures=["DeepseekMTPModel"])
    draft.write(tmp_path)
    report = drafcheck.lint(tmp_path, engine="lmdeploy", ignore=["DC5"])
    assert report.checkpoints[0].outcome is Outcome.INCOMPLETE
    assert report.checkpoints[0].plan is None
    assert any("draft class" in s.why for s in report.checkpoints[0].skipped)


def test_wrong_usage_raises(tmp_path: Path) -> None:
    Draft().write(tmp_path / "draft")
    for wrong in ({"engine": "nonsense"}, {"select": ["DC1O1"]}, {"target": tmp_path / "absent"}):
        with pytest.raises(drafcheck.UsageError):
            drafcheck.lint(tmp_path / "draft", **wrong)  # type: ignore[arg-type]
    with pytest.raises(drafcheck.UsageError, match="absent"):
        drafcheck.lint(tmp_path / "absent")


def test_engines_may_be_a_list(tmp_path: Path) -> None:
    Draft().write(tmp_path)
    listed = drafcheck.lint(tmp_path, engine=["sglang==0.5.9", "sglang==0.5.15"])
    assert listed == drafcheck.lint(tmp_path, engine="sglang==0.5.9,sglang==0.5.15")
    assert [c.engine.version for c in listed.checkpoints if c.engine] == ["0.5.9", "0.5.15"]


@pytest.mark.parametrize("layers", (-1, 0, 1, 4))
def test_targets_of_hardly_any_layers(tmp_path: Path, layers: int) -> None:
    """The default layers do not all exist then: a finding, and no crash."""
    draft = Draft()
    assert draft.target is not None
    draft.target["num_hidden_layers"] = layers
    draft.write(tmp_path)
    codes = [f.rule for f in drafcheck.lint(tmp_path, engine="sglang==0.5.15").findings]
    assert "DC403" in codes and "DC999" not in codes


def test_a_place_is_named_once(tmp_path: Path) -> None:
    """Two options of one line that do not go together have one place."""
    (tmp_path / "serve.sh").write_text(
        "python3 -m sglang.launch_server --model-path t --speculative-algorithm EAGLE3 "
        "--speculative-draft-model-path d "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 8\n"
    )
    Draft().write(tmp_path / "d")
    report = drafcheck.lint(tmp_path / "d", engine="sglang==0.5.15", launch=tmp_path / "serve.sh", select=["DC705"])
    (found,) = report.findings
    assert len(found.locations) == len(set(found.locations)) == 1
