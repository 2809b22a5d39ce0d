"""Complex numbers where real ones are built: torch copies the real part, so that nothing stops or is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pickles import STORAGE, strides
from variants import TRAINED, healthy
from weightfiles import Storage, archive, state, tensor

from drafcheck.report.model import CheckpointReport
from drafcheck.runner import lint

NAME = "midlayer.self_attn.o_proj.weight"
WIDTHS = {"BF16": 2, "I64": 8, "BOOL": 1}


def report_on(folder: Path, storage: str | None, width: int = 0) -> CheckpointReport:
    """A healthy pair as a file of torch.save, whose output projection is in a storage of another kind."""
    pair = healthy()
    items, storages = {}, {}
    for key, (name, weight) in enumerate(pair.weights.items()):
        count = len(weight.raw) // WIDTHS[weight.dtype]
        other = storage if name == NAME and storage is not None else None
        place = Storage(other or STORAGE[weight.dtype], str(key), count)
        items[name] = tensor(place, weight.shape, strides(weight.shape))
        storages[str(key)] = weight.raw if other is None else bytes(width * count)
    pair.write(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(archive(state(items), storages))
    (report,) = lint(folder, engine="sglang==0.5.15", target=TRAINED / "target").checkpoints
    return report


@pytest.mark.parametrize(("storage", "width"), [("ComplexFloatStorage", 8), ("ComplexDoubleStorage", 16)])
def test_complex_numbers_are_called_that(tmp_path: Path, storage: str, width: int) -> None:
    report = report_on(tmp_path / "x", storage, width)
    [finding] = [f for f in report.findings if f.severity.value in ("error", "warning")]
    assert finding.rule == "DC507" and finding.message.startswith(f"`{NAME}` holds complex numbers")
    assert report.outcome.value == "broken"


def test_real_numbers_are_quiet(tmp_path: Path) -> None:
    assert report_on(tmp_path / "x", None).outcome.value == "clean"
