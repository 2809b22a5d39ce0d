"""``--target-weights`` where the draft's head is a view of its storage, or lies compressed in its file."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from test_head_beside import mapped, scrambled
from test_target_weights import HEAD, beside

FORMS = ("columns of a wider one", "transposed", "compressed", "as it lies")


def saved(folder: Path, form: str, share: float) -> Path:
    """The trained draft as a file of torch.save, its mapping scrambled in part."""
    torch = pytest.importorskip("torch", reason="writes the pickle")
    from safetensors.torch import load_file

    mapped(folder, scrambled(share))
    [file] = folder.glob("*.safetensors")
    tensors = load_file(file)
    file.unlink()
    head = tensors["lm_head.weight"]
    if form == "transposed":
        tensors["lm_head.weight"] = head.T.contiguous().T
    elif form == "columns of a wider one":
        tensors["lm_head.weight"] = torch.cat([head, head], dim=1)[:, : head.shape[1]]
    path = folder / "pytorch_model.bin"
    torch.save(tensors, path)
    if form == "compressed":
        raw = io.BytesIO(path.read_bytes())
        with zipfile.ZipFile(raw) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                new.writestr(name, old.read(name))
    return folder


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("share", "verdict"), [(0.0, "right"), (1.0, "wrong")])
def test_its_rows_are_compared_as_those_that_lie_one_after_another(
    tmp_path: Path, form: str, share: float, verdict: str
) -> None:
    report = beside(saved(tmp_path / "ckpt", form, share), HEAD)
    assert report.head is not None and report.head.verdict == verdict
    assert ("DC805" in {f.rule for f in report.findings}) is (share == 1)
    assert not [s for s in report.skipped if s.asked]


def test_rows_that_are_one_row_repeated_are_still_said_not_to_be_compared(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="writes the pickle")
    folder = saved(tmp_path / "ckpt", "as it lies", 0.0)
    path = folder / "pytorch_model.bin"
    tensors = torch.load(path, weights_only=True)
    tensors["lm_head.weight"] = tensors["lm_head.weight"][:1].expand(1024, -1)
    torch.save(tensors, path)
    [why] = [s.why for s in beside(folder, HEAD).skipped if s.rule == "DC805" and s.asked]
    assert why.endswith("the rows of lm_head.weight do not lie one after another in its file")
