"""d2t and t2d of more values than any vocabulary has tokens: told from their shapes, nothing of them is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import VOCAB, Draft
from helpers import lint_draft, of
from weights import zeros

from drafcheck import lint
from drafcheck.checkpoint import Checkpoint
from drafcheck.decode import LARGEST
from drafcheck.finding import Severity


@pytest.mark.parametrize("dtype", ["BOOL", "U8", "I64", "BF16"])
@pytest.mark.parametrize("flags", [LARGEST + 1, 100_000_000])
def test_a_t2d_far_too_long(tmp_path: Path, dtype: str, flags: int) -> None:
    (found,) = of(lint_draft(tmp_path, lambda d: d.weights.update(t2d=zeros(dtype, flags))), "DC307")
    assert found.severity is Severity.ERROR
    assert found.message.startswith(f"t2d has {flags} flags for the target's {VOCAB} tokens")


def test_a_t2d_far_too_long_without_a_target(tmp_path: Path) -> None:
    draft = Draft(target=None)
    draft.weights["t2d"] = zeros("BOOL", LARGEST + 1)
    draft.write(tmp_path)
    (found,) = [f for f in lint(tmp_path, engine="sglang==0.5.15").findings if f.rule == "DC307"]
    assert "the target" not in found.message


@pytest.mark.parametrize("dtype", ["BOOL", "I32", "I64", "BF16"])
@pytest.mark.parametrize("engine", ["sglang==0.5.15", "vllm==0.33.0"])
def test_a_d2t_far_too_long(tmp_path: Path, dtype: str, engine: str) -> None:
    draft = Draft()
    draft.weights["d2t"] = zeros(dtype, LARGEST + 1)
    draft.write(tmp_path)
    (seen,) = lint(tmp_path, engine=engine).checkpoints
    (found,) = of(list(seen.findings), "DC302")
    assert found.severity is Severity.ERROR
    assert {"DC303", "DC304", "DC306"} <= {one.rule for one in seen.skipped if "more than any vocabulary" in one.why}


def test_nothing_of_them_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    whole = Checkpoint.read
    monkeypatch.setattr(Checkpoint, "read", lambda c, tensor: (asked.append(tensor.name), whole(c, tensor))[1])
    lint_draft(tmp_path, lambda d: d.weights.update(t2d=zeros("BOOL", LARGEST + 1), d2t=zeros("I64", LARGEST + 1)))
    assert not asked
    lint_draft(tmp_path)
    assert {"d2t", "t2d"} <= set(asked)


def test_maps_of_the_usual_length_are_read(tmp_path: Path) -> None:
    found = lint_draft(tmp_path)
    assert not of(found, "DC302") and not of(found, "DC307")


@pytest.mark.parametrize(("values", "severity"), [(64, Severity.ERROR), (300, Severity.WARNING)])
def test_zeros_as_flags_are_offsets_of_another_length(tmp_path: Path, values: int, severity: Severity) -> None:
    """The engine adds them to the draft ids, as it adds any whole number: nothing was said of the longer one."""
    (found,) = of(lint_draft(tmp_path, lambda d: d.weights.update(d2t=zeros("BOOL", values))), "DC302")
    assert found.severity is severity
    (same,) = of(lint_draft(tmp_path, lambda d: d.weights.update(d2t=zeros("I64", values))), "DC302")
    assert same.severity is severity
