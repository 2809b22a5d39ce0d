"""The draft checkpoints below a folder that is none itself, such as a store of models."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from drafcheck.address import is_remote
from drafcheck.checkpoint import CONFIG, INDEXES, WEIGHT_SUFFIXES, Checkpoint, open_checkpoint
from drafcheck.config import DraftConfig
from drafcheck.contract import load_toml
from drafcheck.errors import NothingToCheck, UsageError
from drafcheck.heads import head_of
from drafcheck.jsonpos import read_document
from drafcheck.source import LocalFile
from drafcheck.targets import is_draft_class, is_known_class

MOST_FILES = 4
"""A folder with more weight files holds a whole model: their headers are not read to find that out."""


@dataclass(slots=True)
class Found:
    """``drafts`` are the paths to check, ``passed_over`` folders that look like a model and are no draft, with why."""

    drafts: tuple[str, ...]
    passed_over: tuple[tuple[str, str], ...] = ()


def expand(paths: Iterable[str]) -> Found:
    """``paths``, but in the place of a folder that is no checkpoint itself the draft checkpoints below it.

    A folder without any stays, so that it is reported as nothing to check.
    """
    drafts: dict[str, None] = {}
    passed: dict[str, str] = {}
    for path in paths:
        below = _below(path) if _is_tree(path) else [(path, None)]
        found = [place for place, why in below if why is None]
        drafts |= dict.fromkeys(found or [path])
        passed |= {place: why for place, why in below if why is not None}
    return Found(tuple(drafts), tuple(passed.items()))


def only_drafts(paths: Iterable[str]) -> Found:
    """Of ``paths`` those that are drafts, by the judgement of ``expand``; the others are passed over.

    For whoever is handed every changed file, such as a hook. What is not there, and addresses, stay: opening them says
    what is wrong.
    """
    drafts: dict[str, None] = {}
    passed: dict[str, str] = {}
    for path in paths:
        for place, why in _judged(path):
            if why is None:
                drafts[place] = None
            else:
                passed[place] = why
    return Found(tuple(drafts), tuple(passed.items()))


def _judged(path: str) -> list[tuple[str, str | None]]:
    """A path, or what is below it, with None for a draft, else why it is none."""
    if is_remote(path) or not os.path.lexists(path):
        return [(path, None)]
    if _is_tree(path):
        return _below(path) or [(path, "no checkpoint in it")]
    return [(path, _why_not(path))]


def _is_tree(path: str) -> bool:
    """Whether ``path`` is a folder with nothing in it that belongs to a checkpoint."""
    try:
        with os.scandir(path) as entries:
            return not _candidate([e.name for e in entries])
    except (OSError, ValueError):
        return False  # whoever opens it says what is wrong with it


def _below(root: str) -> list[tuple[str, str | None]]:
    """Every folder below ``root`` that looks like a model, with None for a draft, else why it is passed over."""
    search = _Search(root)
    while search.step():
        pass
    return sorted(search.found)


class _Search:
    """A walk that visits each folder once, however many links lead to it, and nothing below a draft.

    What lies below a draft belongs to it: earlier states of its training, the original weights. Names that start with
    a dot are left out. Links are followed last, so that a folder is known by its own name, and never upward: neither
    to a folder above the root nor to one that was visited.
    """

    def __init__(self, root: str) -> None:
        real = Path(os.path.realpath(root))
        self._seen = {_identity(str(parent)) for parent in real.parents} | {None}
        self._folders, self._links = [root], list[str]()
        self.found: list[tuple[str, str | None]] = []

    def step(self) -> bool:
        """Visit the next folder; False when there is none left."""
        if not self._folders and not self._links:
            return False
        folder = self._folders.pop() if self._folders else self._links.pop(0)
        identity = _identity(folder)
        if identity not in self._seen:
            self._seen.add(identity)
            self._visit(folder)
        return True

    def _visit(self, folder: str) -> None:
        entries = _entries(folder)
        if entries is None:
            self.found.append((folder, "the folder may not be read"))
            return
        if _candidate(e.name for e in entries):
            why = _why_not(folder)
            self.found.append((folder, why))
            if why is None:
                return
        below = [entry for entry in entries if _is_folder(entry)]
        self._links += (entry.path for entry in below if entry.is_symlink())
        self._folders += (entry.path for entry in reversed(below) if not entry.is_symlink())


def _identity(folder: str) -> tuple[int, int] | None:
    """What is the same for two paths to one folder; None when it is not there."""
    try:
        status = os.stat(folder)  # noqa: PTH116 - a Path for each folder would double the time of the walk
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _entries(folder: str) -> list[os.DirEntry[str]] | None:
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: e.name)
    except OSError:
        return None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads back to itself
        return False


def _candidate(names: Iterable[str]) -> bool:
    return any(
        name == CONFIG or name in INDEXES or (name.endswith(WEIGHT_SUFFIXES) and not name.startswith("."))
        for name in names
    )


def _why_not(folder: str) -> str | None:
    """Why the model in ``folder`` is no draft; None for a draft: its class or a key says so, or else its tensors."""
    config = _config(folder)
    names = config.architectures if config is not None else ()
    if any(map(is_draft_class, names)) or (config is not None and _has_draft_key(config)):
        return None
    try:
        checkpoint = open_checkpoint(folder)
    except (UsageError, NothingToCheck) as error:
        return str(error)
    return _judge(checkpoint, names)


def _has_draft_key(config: DraftConfig) -> bool:
    return any(config.text(key) for key in load_toml("discovery.toml")["draft_keys"])


def _config(folder: str) -> DraftConfig | None:
    document = read_document(LocalFile(Path(folder) / CONFIG))
    return DraftConfig(document) if document.data is not None else None


def _judge(checkpoint: Checkpoint, classes: tuple[str, ...]) -> str | None:
    of_class = f" ({', '.join(classes)})" if classes else ""
    if not checkpoint.files:
        return f"no weights, and no draft class{of_class}"
    if len(checkpoint.files) > MOST_FILES:
        return f"a whole model in {len(checkpoint.files)} files{of_class}"
    head = head_of(tensor for file in checkpoint.files for tensor in file.header.tensors)
    if head is None:
        return f"neither a draft class nor a draft head that is known{of_class}"
    # Whole models bring their own layers for multi-token prediction along.
    if head.kind == "mtp" and any(map(is_known_class, classes)):
        return f"a whole model{of_class} with {head.label}: `drafcheck {shlex.quote(checkpoint.given)}` checks that"
    return f"a whole model{of_class}" if head.kind == "model" else None
