"""DC803: how sure it is that nobody trained a head, and matrices that lie by columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drafts import Draft
from test_values import check, fresh, spoken
from variants import healthy
from weights import Weight

from drafcheck.finding import Severity
from drafcheck.source import SourceError

HEADS = ("copied", "missing")


def as_weight(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]], dtype: str) -> Weight:
    bits = values.astype(np.float32).view(np.uint32)
    return Weight(dtype, values.shape, (bits >> 16).astype("<u2").tobytes() if dtype == "BF16" else bits.tobytes())


def beside(draft: Draft, head: str, dtype: str = "BF16") -> Draft:
    """The draft beside an lm_head that is the target's, or none: neither says how long it was trained."""
    shape = draft.weights["lm_head.weight"].shape
    if head == "missing":
        draft.drop("lm_head.weight")
        return draft
    values = np.random.default_rng(2).normal(0, 0.05, shape) + np.linspace(-0.1, 0.1, shape[0])[:, None]
    draft.weights["lm_head.weight"] = as_weight(values.astype(np.float32), dtype)
    return draft


@pytest.mark.parametrize("head", HEADS)
def test_a_head_beside_another_lm_head_may_have_been_trained_very_little(tmp_path: Path, head: str) -> None:
    """In bfloat16 norms stay at one for long."""
    beside(fresh("uniform"), head).write(tmp_path)
    [finding] = spoken(check(tmp_path))
    assert (finding.rule, finding.severity) == ("DC803", Severity.NOTE)
    assert "or was trained very little" in finding.message


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_in_float32_norms_of_one_say_that_there_was_no_step(tmp_path: Path, kind: str, head: str) -> None:
    beside(fresh(kind, dtype="F32"), head, "F32").write(tmp_path)
    [finding] = spoken(check(tmp_path))
    assert (finding.rule, finding.severity) == ("DC803", Severity.WARNING)
    assert "are exactly one, which a step of training in float32 ends" in finding.message
    assert "very little" not in finding.message


def test_numbers_of_16_bits_that_were_made_longer_say_no_more_than_before(tmp_path: Path) -> None:
    draft = beside(fresh("uniform"), "copied")
    for name, weight in draft.weights.items():
        if weight.dtype == "BF16":
            bits = np.frombuffer(weight.raw, "<u2").astype("<u4") << 16
            draft.weights[name] = Weight("F32", weight.shape, bits.tobytes())
    draft.write(tmp_path)
    [finding] = spoken(check(tmp_path))
    assert finding.severity is Severity.NOTE and "float32" not in finding.message


def test_a_norm_that_moved_in_float32_says_that_it_was_trained(tmp_path: Path) -> None:
    """By the least that there is."""
    draft = beside(fresh("normal", dtype="F32"), "copied", "F32")
    norm = next(name for name in draft.weights if name.endswith("hidden_norm.weight"))
    draft.weights[norm] = as_weight(np.full(draft.weights[norm].shape, np.nextafter(np.float32(1), 2)), "F32")
    draft.write(tmp_path)
    assert not spoken(check(tmp_path))


def by_columns(folder: Path, *, only: str = "") -> None:
    """Save a checkpoint as torch does whose matrices were transposed: they lie by columns."""
    torch = pytest.importorskip("torch", reason="writes the pickle")
    safetensors = pytest.importorskip("safetensors.torch", reason="reads the tensors")
    [file] = folder.glob("*.safetensors")
    tensors = {
        name: tensor.T.contiguous().T if tensor.ndim == 2 and only in name else tensor
        for name, tensor in safetensors.load_file(file).items()
    }
    file.unlink()
    torch.save(tensors, folder / "pytorch_model.bin")


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("steps", [0, 300])
def test_matrices_by_columns_are_held_against_their_initialisation(tmp_path: Path, kind: str, steps: int) -> None:
    """By the length of their rows, which is not that of the columns that lie there."""
    fresh(kind, steps).write(tmp_path)
    by_columns(tmp_path)
    assert [(f.rule, f.severity) for f in spoken(check(tmp_path))] == [("DC803", Severity.WARNING)] * (steps == 0)


@pytest.mark.parametrize("only", ["", "self_attn.v_proj"])
def test_the_same_bytes_by_columns_are_told_and_a_transposed_one_is_another(tmp_path: Path, only: str) -> None:
    pair = healthy()
    value, key = "midlayer.self_attn.v_proj.weight", "midlayer.self_attn.k_proj.weight"
    folder = pair.write(tmp_path / "healthy")
    by_columns(folder, only=only)
    assert not spoken(check(folder))
    pair.weights[value] = pair.weights[key]
    folder = pair.write(tmp_path / "twice")
    by_columns(folder, only=only)
    assert [f.rule for f in spoken(check(folder))] == ([] if only else ["DC803"])


def test_a_matrix_that_can_not_be_read_again_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh("uniform").write(tmp_path)

    def gone(*_: object) -> bytes:
        raise SourceError("model.safetensors ends before byte 9")

    monkeypatch.setattr("drafcheck.valuescan.signature._rows", gone)
    report = check(tmp_path)
    assert not spoken(report) and report.outcome.value != "clean"
    skipped = [s for s in report.skipped if s.asked]
    assert "DC803" in {s.rule for s in skipped}
    assert all(s.why.endswith("`fc.weight`, not read: model.safetensors ends before byte 9") for s in skipped)


@pytest.mark.parametrize(("kind", "steps"), [("uniform", 0), ("normal", 0), ("normal", 300)])
def test_matrices_that_are_cut_out_of_a_storage_are_looked_at(tmp_path: Path, kind: str, steps: int) -> None:
    """Every second row of a longer one, and the first columns of a wider one."""
    torch = pytest.importorskip("torch", reason="writes the pickle")
    safetensors = pytest.importorskip("safetensors.torch", reason="reads the tensors")
    fresh(kind, steps).write(tmp_path)
    [file] = tmp_path.glob("*.safetensors")
    tensors = {}
    for number, (name, tensor) in enumerate(safetensors.load_file(file).items()):
        if tensor.ndim < 2:
            tensors[name] = tensor
        elif number % 2:
            tensors[name] = torch.stack([tensor, torch.full_like(tensor, 9)], 1).flatten(0, 1)[::2]
        else:
            tensors[name] = torch.cat([tensor, torch.full_like(tensor, 9)], 1)[:, : tensor.shape[1]]
    file.unlink()
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    assert [(f.rule, f.severity) for f in spoken(check(tmp_path))] == [("DC803", Severity.WARNING)] * (steps == 0)
