"""The draft checkpoints below a folder that is none itself, such as a store of models."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from drafcheck.address import is_remote
from drafcheck.checkpoint import CONFIG, INDEXES, WEIGHT_SUFFIXES, Checkpoint, open_checkpoint
from drafcheck.config import DraftConfig
from drafcheck.contract import load_toml
from drafcheck.errors import NothingToCheck, UsageError
from drafcheck.heads import head_of
from drafcheck.jsonpos import read_document
from drafcheck.source import LocalFile
from drafcheck.targets import is_draft_class, is_known_class
from drafcheck.unjudged import config_hides, config_problem, holds_code, weights_hide, why_unread

MOST_FILES = 4
"""A folder with more weight files holds a whole model: their headers are not read to find that out."""


LOST_AND_FOUND = "lost+found"
"""The folder that a file system keeps for itself at its top, where only root may look."""

Lfs = Literal["error", "config-only"]


class Judged(NamedTuple):
    """A place that may be a draft. ``why`` it is none, None for a draft and for what has to be checked to be told.

    ``unread``: it may not be opened, so that nothing is known of it. ``told``: False where damage hides what it is.
    """

    place: str
    why: str | None = None
    unread: bool = False
    told: bool = True


@dataclass(slots=True)
class Found:
    """``drafts`` are the paths to check, ``passed_over`` folders that look like a model and are no draft, with why.

    ``unread`` are the places that may not be opened, with why.
    """

    drafts: tuple[str, ...]
    passed_over: tuple[tuple[str, str], ...] = ()
    unread: tuple[tuple[str, str], ...] = ()


def expand(paths: Iterable[str], lfs: Lfs = "error") -> Found:
    """``paths``, but in the place of a folder that is no checkpoint itself the draft checkpoints below it.

    Among them are the folders of which damage hides what they are. A folder without any stays, so that it is reported
    as nothing to check. ``lfs``: what weights that are Git LFS pointers lead to.
    """
    found: list[Judged] = []
    for path in paths:
        below = _below(path, lfs) if _is_tree(path) else [Judged(path)]
        found += below if any(judged.why is None for judged in below) else [*below, Judged(path)]
    return _found(found)


def only_drafts(paths: Iterable[str], lfs: Lfs = "error") -> Found:
    """Of ``paths`` those that are drafts, by the judgement of ``expand``; the others are passed over.

    For whoever is handed every changed file, such as a hook. What is not there, and addresses, stay: opening them says
    what is wrong.
    """
    return _found([judged for path in paths for judged in _judged(path, lfs)])


def _found(all_of_them: Iterable[Judged]) -> Found:
    drafts: dict[str, None] = {}
    passed: dict[str, str] = {}
    unread: dict[str, str] = {}
    for place, why, shut, _ in all_of_them:
        if why is None:
            drafts[place] = None
        else:
            (unread if shut else passed)[place] = why
    return Found(tuple(drafts), tuple(passed.items()), tuple(unread.items()))


def _judged(path: str, lfs: Lfs) -> list[Judged]:
    """A path, or what is below it."""
    if is_remote(path) or not os.path.lexists(path):
        return [Judged(path)]
    if _is_tree(path):
        return _below(path, lfs) or [Judged(path, "no checkpoint in it")]
    return [_judge(path, lfs)]


def _is_tree(path: str) -> bool:
    """Whether ``path`` is a folder with nothing in it that belongs to a checkpoint."""
    try:
        with os.scandir(path) as entries:
            return not _candidate([e.name for e in entries])
    except (OSError, ValueError):
        return False  # whoever opens it says what is wrong with it


def _below(root: str, lfs: Lfs) -> list[Judged]:
    """Every folder below ``root`` that looks like a model, or may not be read."""
    search = _Search(root, lfs)
    while search.step():
        pass
    return sorted(search.found, key=lambda judged: judged.place)


class _Search:
    """A walk that visits each folder once, however many links lead to it, and nothing below a draft.

    What lies below a draft belongs to it: earlier states of its training, the original weights. Names that start with
    a dot are left out. Links are followed last, so that a folder is known by its own name, and never upward: neither
    to a folder above the root nor to one that was visited.
    """

    def __init__(self, root: str, lfs: Lfs) -> None:
        real = Path(os.path.realpath(root))
        self._seen = {_identity(str(parent)) for parent in real.parents} | {None}
        self._folders, self._links = [root], list[str]()
        self._lfs = lfs
        self.found: list[Judged] = []

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
            of_the_system = os.path.basename(folder) == LOST_AND_FOUND  # noqa: PTH119 - a string, as above
            self.found.append(Judged(folder, "the folder may not be read", unread=not of_the_system))
            return
        if _candidate(e.name for e in entries):
            judged = _judge(folder, self._lfs)
            self.found.append(judged)
            if judged.why is None and judged.told:
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
        os.stat(os.path.join(folder, "."))  # noqa: PTH116, PTH118 - a folder may be listed that may not be entered
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


def _judge(folder: str, lfs: Lfs) -> Judged:
    """What the model in ``folder`` is: a draft as its class or a key says, or else its tensors."""
    config = _config(folder)
    names = config.architectures if config is not None else ()
    if any(map(is_draft_class, names)) or (config is not None and _has_draft_key(config)):
        return Judged(folder)
    try:
        checkpoint = open_checkpoint(folder)
    except NothingToCheck as error:
        return Judged(folder, str(error))
    except UsageError as error:
        return Judged(folder, str(error), unread=True)
    if lfs == "config-only":
        checkpoint.without_weights()
    return _by_contents(checkpoint, f" ({', '.join(names)})" if names else "", names)


def _has_draft_key(config: DraftConfig) -> bool:
    return any(config.text(key) for key in load_toml("discovery.toml")["draft_keys"])


def _config(folder: str) -> DraftConfig | None:
    document = read_document(LocalFile(Path(folder) / CONFIG))
    return DraftConfig(document) if document.data is not None else None


def _by_contents(checkpoint: Checkpoint, of_class: str, classes: tuple[str, ...]) -> Judged:
    place = checkpoint.given
    if not checkpoint.files:
        return Judged(place, told=False) if config_hides(checkpoint) else Judged(place, _without(checkpoint, of_class))
    if len(checkpoint.files) > MOST_FILES:
        whole = f"a whole model in {len(checkpoint.files)} files{of_class}"
        return Judged(place, told=False) if holds_code(checkpoint) else Judged(place, whole)
    head = head_of(tensor for file in checkpoint.files for tensor in file.header.tensors)
    if (head is None and weights_hide(checkpoint)) or holds_code(checkpoint):
        return Judged(place, told=False)
    if head is None:
        unknown = "neither a draft class nor a draft head that is known"
        return Judged(place, f"{why_unread(checkpoint) or unknown}{of_class}")
    # Whole models bring their own layers for multi-token prediction along.
    if head.kind == "mtp" and any(map(is_known_class, classes)):
        command = f"`drafcheck {shlex.quote(place)}` checks that"
        return Judged(place, f"a whole model{of_class} with {head.label}: {command}")
    return Judged(place, f"a whole model{of_class}" if head.kind == "model" else None)


def _without(checkpoint: Checkpoint, of_class: str) -> str:
    """Why a folder without weights is passed over."""
    if checkpoint.pointers:
        return f"its weights are Git LFS pointers, and no draft class{of_class}"
    problem = config_problem(checkpoint)
    return f"no weights, and {problem.message}" if problem is not None else f"no weights, and no draft class{of_class}"
