"""Pack checkpoints that trainers wrote into fixtures/producers/producers.tar.xz, their float weights zeroed.

    python tools/make_producers.py FOLDER_OF_CHECKPOINTS

Names, shapes, dtypes, order, configs, integer and boolean tensors stay as the trainer wrote them; only the values of
floating-point weights are lost, which no header-level check reads. Needs torch for ``.bin`` files.
"""

from __future__ import annotations

import io
import lzma
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from weights import zero_floats

ARCHIVE = Path(__file__).parent.parent / "fixtures" / "producers" / "producers.tar.xz"


def zero_pickle(path: Path) -> None:
    """The same for a torch checkpoint: load, zero the floats in place, save."""
    import torch

    state = torch.load(path, weights_only=True, map_location="cpu")
    for tensor in state.values():
        if tensor.is_floating_point():
            tensor.zero_()
    torch.save(state, path)


def zero_checkpoint(folder: Path) -> None:
    """Zero every weight file of one checkpoint folder."""
    for path in folder.glob("*.safetensors"):
        zero_floats(path)
    for path in folder.glob("*.bin"):
        zero_pickle(path)


def copy_checkpoint(source: Path, folder: Path) -> None:
    """A writable copy of the plain files of ``source``."""
    folder.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_file():
            shutil.copyfile(path, folder / path.name)


def pack(folder: Path, archive: Path) -> None:
    """A reproducible tar.xz of ``folder``: sorted, no owner, no time."""
    blob = io.BytesIO()
    with tarfile.open(fileobj=blob, mode="w") as tar:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            info = tarfile.TarInfo(path.relative_to(folder).as_posix())
            info.size, info.mode = path.stat().st_size, 0o644
            with path.open("rb") as file:
                tar.addfile(info, file)
    archive.write_bytes(lzma.compress(blob.getvalue(), preset=9))


def main(source: Path) -> None:
    """Copy, zero and pack."""
    with tempfile.TemporaryDirectory() as scratch:
        room = Path(scratch)
        for checkpoint in sorted(p for p in source.iterdir() if (p / "config.json").is_file()):
            copy_checkpoint(checkpoint, room / checkpoint.name)
            zero_checkpoint(room / checkpoint.name)
        ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
        pack(room, ARCHIVE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
