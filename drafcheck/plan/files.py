"""Which weight files an engine's loader takes, and in which order it yields their tensors."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from drafcheck.contract import Engine, in_force, load_toml
from drafcheck.plan.model import Refusal
from drafcheck.tensor import Tensor

if TYPE_CHECKING:
    from drafcheck.checkpoint import Checkpoint, Index, WeightFile


@dataclass
class Selection:
    """The files that the loader reads, in its order, and those that it passes over with the reason.

    ``refused`` is set when it stops before any tensor. ``missing`` are the files that the index names and that are
    not there. ``ordered`` is False when the order of the files is that of the folder on the server's disk, which
    cannot be known here.
    """

    files: tuple[WeightFile, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    refused: Refusal | None = None
    missing: tuple[str, ...] = ()
    ordered: bool = True
    index: Index | None = None
    unwanted: tuple[WeightFile, ...] = field(default=(), repr=False)  # .bin beside .safetensors, and the like

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that the loader yields, in its order; reads the headers at the first use."""
        return tuple(tensor for file in self.files for tensor in yielded(file))

    @property
    def uses_pickles(self) -> bool:
        """Whether the weights come from .bin or .pt files."""
        return bool(self.files) and not self.files[0].is_safetensors


def yielded(file: WeightFile) -> tuple[Tensor, ...]:
    """The tensors of one file as a loader meets them: by name in safetensors, in the dict's order in a pickle."""
    tensors = file.header.tensors
    return tuple(sorted(tensors, key=lambda t: t.name)) if file.is_safetensors else tensors


def select_files(checkpoint: Checkpoint, engine: Engine) -> Selection:
    """What this release's loader takes of a checkpoint, by ``rules/<engine>/loader.toml``."""
    rules = load_toml(engine.name, "loader.toml")
    revision = in_force(rules.get("revision", []), engine) or {}
    return _Selector(checkpoint, rules, revision).select()


class _Selector:
    def __init__(self, checkpoint: Checkpoint, rules: dict[str, Any], revision: dict[str, Any]) -> None:
        self._checkpoint = checkpoint
        self._rules = rules
        self._revision = revision
        self._ignored: list[tuple[str, str]] = []

    def select(self) -> Selection:
        files = self._by_pattern()
        unwanted = tuple(f for f in self._checkpoint.files if f not in files and not self._is_leftover(f))
        index = self._index() if files and files[0].is_safetensors else None
        missing: tuple[str, ...] = ()
        refused: Refusal | None = None
        if index is not None:
            missing = tuple(name for name in index.files if not self._is_file(name))
            refused = self._refusal_by(index, missing)
            files = self._listed(files, index)
        files = self._without_consolidated(files, index)
        if not files and refused is None:
            refused = Refusal("files", self._say(self._rules.get("no_files", "no weight files")), "no-files")
        ordered = self._revision.get("order") == "name" or len(files) < 2
        taken = () if refused else tuple(files)
        return Selection(taken, tuple(self._ignored), refused, missing, ordered, index, unwanted)

    def _by_pattern(self) -> list[WeightFile]:
        taken: list[WeightFile] = []
        for suffix in self._rules.get("patterns", []):
            files = [f for f in self._checkpoint.files if f.name.endswith(suffix)]
            if not taken:
                taken, winner = files, suffix
            else:
                self._ignored += ((f.name, f"the loader takes {winner} files when there are any") for f in files)
        return taken if taken and taken[0].is_safetensors else self._without_leftovers(taken)

    def _is_leftover(self, file: WeightFile) -> bool:
        endings = tuple(self._rules.get("not_weights", []))
        return bool(endings) and file.name.endswith(endings)

    def _without_leftovers(self, files: list[WeightFile]) -> list[WeightFile]:
        self._ignored += ((f.name, "the loader takes it for training state") for f in files if self._is_leftover(f))
        return [f for f in files if not self._is_leftover(f)]

    def _index(self) -> Index | None:
        index = self._checkpoint.index
        return index if index is not None and index.file == self._rules.get("index") else None

    def _is_file(self, name: str) -> bool:
        # os.path, not pathlib: it says False also to names that no file system takes.
        return os.path.isfile(os.path.join(self._checkpoint.root, name))  # noqa: PTH113, PTH118

    def _refusal_by(self, index: Index, missing: tuple[str, ...]) -> Refusal | None:
        if index.refused is not None:
            return Refusal("files", f"{self._say(self._rules['index_unusable'])}: {index.refused}", "index")
        if missing and self._revision.get("missing_shard") == "error":
            shown = [name.rpartition("/")[2] for name in missing]
            text = self._say(self._revision["missing_error"], count=len(missing), files=shown)
            return Refusal("files", text, "missing-shard")
        return None

    def _listed(self, files: list[WeightFile], index: Index) -> list[WeightFile]:
        """Only the files that the index names, spelled alike: the loader compares whole paths."""
        names = set(index.files)
        self._ignored += ((f.name, f"{index.file} does not name it") for f in files if f.name not in names)
        return [f for f in files if f.name in names]

    def _without_consolidated(self, files: list[WeightFile], index: Index | None) -> list[WeightFile]:
        """Exactly two files without an index, ``*consolidated.safetensors`` and ``*model.safetensors``: the second."""
        if index is not None or not self._revision.get("skip_consolidated") or len(files) != 2:
            return files
        first, second = files
        if first.name.endswith("consolidated.safetensors") and second.name.endswith("model.safetensors"):
            self._ignored.append((first.name, "the loader takes model.safetensors alone when both are there"))
            return [second]
        return files

    def _say(self, template: str, **words: object) -> str:
        for key, value in {"folder": self._checkpoint.given, "index": self._rules.get("index"), **words}.items():
            template = template.replace("{" + key + "}", str(value))
        return template
