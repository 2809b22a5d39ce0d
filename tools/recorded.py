"""Read what was recorded of real loaders (a row a line, packed with xz where the file would be large), and of what."""

from __future__ import annotations

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def files(folder: Path) -> list[Path]:
    """The recordings in a folder, packed or not, in the order of their names."""
    return sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.xz")])


def name_of(file: Path) -> str:
    """What a recording is called: ``classes`` for ``classes.jsonl.xz``."""
    return file.name.partition(".")[0]


def rows(file: Path) -> list[Row]:
    """The rows of a recording; ``file`` is its name without ``.xz``, whether it is packed or not."""
    packed = file.with_name(f"{file.name}.xz")
    if file.suffix == ".xz" or packed.is_file():
        text = lzma.decompress((file if file.suffix == ".xz" else packed).read_bytes()).decode()
    else:
        text = file.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def table(file: Path) -> Any:
    """One packed document; ``file`` is its name without ``.xz``."""
    return json.loads(lzma.decompress(file.with_name(f"{file.name}.xz").read_bytes()))


def keep(file: Path, listed: list[Row]) -> None:
    """Write the rows of a recording, packed where it is packed now."""
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in listed)
    packed = file.with_name(f"{file.name}.xz")
    if packed.is_file():
        packed.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    else:
        file.write_text(text, encoding="utf-8")


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive of checkpoints into ``folder``; the folder that holds them."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else packed.extractall(folder)
    return next(path.parent.parent for path in sorted(folder.rglob("config.json")))
