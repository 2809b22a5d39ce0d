"""Which checkpoints a list of command-line paths stands for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_ENDINGS = (".safetensors", ".bin", ".index.json")


def checkpoints(paths: Iterable[str]) -> list[str]:
    """The checkpoints that ``paths`` name, each once, in order.

    A file of a checkpoint (its config.json, weights or index) stands for the folder it lies in: a pre-commit hook
    passes each changed file. Any other path is left as it is, so that it is opened, or missed, under that name.
    """
    return list(dict.fromkeys(_folder(path) for path in paths))


def _folder(path: str) -> str:
    file = Path(path)
    part = file.name == "config.json" or file.name.endswith(_ENDINGS)
    if not (part and file.is_file() and (file.parent / "config.json").is_file()):
        return path
    return str(file.parent)
