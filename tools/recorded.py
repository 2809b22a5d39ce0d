"""Read what was recorded of real loaders: a row a line, packed with xz where the file would be large."""

from __future__ import annotations

import json
import lzma
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
