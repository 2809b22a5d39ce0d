"""The command of a script that writes a corpus of checkpoints: into a folder, or packed where the tests look for it."""

from __future__ import annotations

import argparse
import io
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path


def pack(folder: Path, archive: Path, under: str) -> None:
    """Pack what lies below ``folder`` as ``under``/..., the same bytes whenever and wherever it is done."""
    with tarfile.open(archive, "w:xz") as packed:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(f"{under}/{file.relative_to(folder)}")
            entry.size = file.stat().st_size
            packed.addfile(entry, io.BytesIO(file.read_bytes()))


def main(doc: str | None, write_corpus: Callable[[Path], list[Path]], archive: Path, under: str) -> None:
    """Write the corpus to the folder given, or pack it into ``archive``; ``doc`` is the help."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--pack", action="store_true")
    given = parser.parse_args()
    if given.folder is not None:
        print(len(write_corpus(given.folder)), "checkpoints")
    if given.pack:
        with tempfile.TemporaryDirectory() as room:
            write_corpus(Path(room))
            pack(Path(room), archive, under)
