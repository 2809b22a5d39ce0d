"""Which weight files an engine's loader takes, and in which order it yields their tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from drafcheck.contract import Engine, in_force, load_toml
from drafcheck.header import all_differ
from drafcheck.listing import Listing
from drafcheck.plan.model import Refusal
from drafcheck.source import SourceError
from drafcheck.tensor import Tensor
from drafcheck.tensors import Tensors

if TYPE_CHECKING:
    from drafcheck.checkpoint import Checkpoint, Index, WeightFile

_CHUNK = 8 << 20  # bytes compared at a time
_REMOTE = 64 << 10  # bytes of a tensor that are compared when they have to be fetched: copies that differ, differ early


_KNOWN = ("name", "natural")
_CHANCE = {
    "folder": "depends on the disk's order",
    "chance": "is chance, as several files are read at once",
    "library": "depends on the release of the safetensors library",
}


@dataclass(slots=True)
class Twice:
    """One name in two files that the loader reads: the later one wins.

    ``alike`` says whether dtype, shape and bytes are the same; None when the bytes cannot be had.
    """

    first: Tensor
    second: Tensor
    alike: bool | None


@dataclass
class Selection:
    """The files that the loader reads, in its order, and those that it passes over with the reason.

    ``chosen`` are the files that it opens; ``files`` are the same unless it stops (``refused``): then there are none.
    ``missing`` are the files that the index names and that are not there. ``order`` says how files are ordered:
    by ``name``, by name with numbers as numbers (``natural``), as the ``folder`` on the server's disk lists them, or by
    ``chance``, as several are read at once; ``within`` how tensors in a file are, where that too is not certain.
    ``index`` describes the files; ``index_read`` says whether the loader looks at it.
    ``unwanted`` are weight files of a format that the loader does not come to. ``told``: a long index has just the
    names that are in these files; False too where that is not sure.
    """

    files: tuple[WeightFile, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    refused: Refusal | None = None
    chosen: tuple[WeightFile, ...] = ()
    missing: tuple[str, ...] = ()
    order: str = "name"
    within: str = "name"
    index: Index | None = None
    index_read: bool = True
    unwanted: tuple[WeightFile, ...] = ()
    twice: tuple[Twice, ...] = ()
    told: bool = False

    @cached_property
    def tensors(self) -> Tensors:
        """Every tensor that the loader yields, in its order; reads the headers at the first use."""
        return Tensors(chain.from_iterable(map(yielded, self.files)))

    @cached_property
    def stops(self) -> dict[Tensor, str]:
        """The tensors that torch loads and copies into no plain parameter, with what it says there."""
        told = [(file, file.header.uncopied) for file in self.files if file.header.uncopied]
        return {t: u[t.name].stops for file, u in told for t in file.header.tensors if t.name in u and u[t.name].stops}

    @property
    def ordered(self) -> bool:
        """Whether the order of the files is known here."""
        return self.order in _KNOWN or len(self.chosen) < 2

    def chance(self, one: Tensor, other: Tensor) -> str | None:
        """In a clause, what decides which of two tensors comes last, where that is not known here; None where it is."""
        return _CHANCE.get(self.within if one.file == other.file else self.order)

    @property
    def uses_pickles(self) -> bool:
        """Whether the weights come from .bin or .pt files."""
        return bool(self.chosen) and not self.chosen[0].is_safetensors


def yielded(file: WeightFile) -> Sequence[Tensor]:
    """The tensors of one file as a loader meets them: by name in safetensors, in the dict's order in a pickle."""
    tensors = file.header.tensors
    return sorted(tensors, key=itemgetter(0)) if file.is_safetensors else tensors


def select_files(checkpoint: Checkpoint, engine: Engine) -> Selection:
    """What this release's loader takes of a checkpoint, by ``rules/<engine>/loader.toml``.

    Nothing at all for a config that was given by itself.
    """
    if checkpoint.config_only:
        return Selection()
    rules = load_toml(engine.name, "loader.toml")
    revision = in_force(rules.get("revision", []), engine) or {}
    return _Selector(checkpoint, rules, revision).select()


class _Selector:
    """The loader's choice, step by step as the loader makes it."""

    def __init__(self, checkpoint: Checkpoint, rules: dict[str, Any], revision: dict[str, Any]) -> None:
        self._checkpoint = checkpoint
        self._rules = rules
        self._revision = revision
        self._ignored: list[tuple[str, str]] = []

    def select(self) -> Selection:
        files = self._consolidated() or self._by_pattern()
        unwanted = tuple(f for f in self._checkpoint.files if f not in files and not self._is_leftover(f))
        index, missing, refused = self._index(files), tuple[str, ...](), None
        if index is not None:
            missing = tuple(name for name in index.files if self._is_missing(name))
        heeded = index if index is not None and self._reads_index(files) else None
        if heeded is not None and files[0].is_safetensors:
            refused = self._refusal_by(heeded, missing)
            files = self._listed(files, heeded)
        chosen = tuple(self._sorted(self._without_consolidated(files, heeded), heeded))
        refused = refused or self._refusal_of(chosen)
        return Selection(
            files=() if refused else chosen,
            ignored=tuple(self._ignored),
            refused=refused,
            chosen=chosen,
            missing=missing,
            order=self._order(chosen, heeded),
            within=self._within(chosen),
            index=index,
            index_read=heeded is not None,
            unwanted=unwanted,
            told=(told := refused is None and _is_told(index, chosen)),
            twice=tuple(_twice(self._checkpoint, chosen)) if refused is None and not told else (),
        )

    def _order(self, files: Sequence[WeightFile], index: Index | None) -> str:
        """How the files are ordered; pickles may have an order of their own, and a pair that is looked at is sorted."""
        usual = str(self._revision.get("order", "folder"))
        if files and not files[0].is_safetensors:
            return str(self._revision.get("pickle_order", usual))
        pair = len(files) == 2 and index is None and self._revision.get("skip_consolidated")
        return "name" if pair and usual == "folder" else usual

    def _within(self, chosen: Sequence[WeightFile]) -> str:
        """How the tensors of a file are ordered: those of a pickle always as its dict has them."""
        return str(self._revision.get("within", "name")) if chosen and chosen[0].is_safetensors else "name"

    def _sorted(self, files: list[WeightFile], index: Index | None) -> list[WeightFile]:
        return sorted(files, key=_natural) if self._order(files, index) == "natural" else files

    def _refusal_of(self, chosen: tuple[WeightFile, ...]) -> Refusal | None:
        if not chosen:
            return Refusal("files", self._say(self._rules.get("no_files", "no weight files")), "no-files")
        for file in chosen:
            for problem in (problem for problem in file.header.problems if problem.stops):
                return Refusal("files", f"{file.name} cannot be loaded: {problem.message}", "unreadable")
        return None

    def _by_pattern(self) -> list[WeightFile]:
        taken: list[WeightFile] = []
        for suffix in self._rules.get("patterns", []):
            files = [f for f in self._checkpoint.files if f.name.endswith(suffix)]
            if not taken:
                taken, winner = files, suffix
            else:
                self._ignored += ((f.name, f"the loader takes {winner} files when there are any") for f in files)
        return taken if taken and taken[0].is_safetensors else self._without_leftovers(taken)

    def _consolidated(self) -> list[WeightFile]:
        """The files in Mistral's form, which leave the others unread where the release looks for that form."""
        files = self._checkpoint.files
        taken = [f for f in files if self._is_mistral(f)]
        if taken:
            why = f"the loader takes {'*'.join(self._revision['mistral_format'])} alone when there is any"
            self._ignored += ((f.name, why) for f in files if f not in taken)
        return taken

    def _is_leftover(self, file: WeightFile) -> bool:
        endings = tuple(self._rules.get("not_weights", []))
        return bool(endings) and file.name.endswith(endings)

    def _without_leftovers(self, files: list[WeightFile]) -> list[WeightFile]:
        self._ignored += ((f.name, "the loader takes it for training state") for f in files if self._is_leftover(f))
        return [f for f in files if not self._is_leftover(f)]

    def _index(self, files: list[WeightFile]) -> Index | None:
        """The index that describes these files; the loader itself only looks at the one of safetensors."""
        if not files or self._is_mistral(files[0]):
            return None
        return self._checkpoint.index if files[0].is_safetensors else self._checkpoint.pickle_index

    def _reads_index(self, files: Sequence[WeightFile]) -> bool:
        """Whether the loader looks at an index of such files."""
        return "index" in self._rules and (files[0].is_safetensors or bool(self._rules.get("pickle_index", True)))

    def _is_mistral(self, file: WeightFile) -> bool:
        """Whether a file is in Mistral's form where that is looked for; the usual index does not apply to it."""
        form = self._revision.get("mistral_format")
        return form is not None and file.name.startswith(form[0]) and file.name.endswith(form[1])

    def _is_missing(self, name: str) -> bool:
        if self._checkpoint.place.is_file(name):
            return False
        self._checkpoint.place.confirm_absent(name)
        return True

    def _refusal_by(self, index: Index, missing: tuple[str, ...]) -> Refusal | None:
        if index.refused is not None:
            stops = self._say(self._rules.get("index_unusable", "the loader stops at {index}"))
            return Refusal("files", f"{stops}: {index.refused}", "index")
        if missing and self._revision.get("missing_shard") == "error":
            shown = [name.rpartition("/")[2] for name in missing]
            said = self._revision.get("missing_error", "{count} files of {index} are missing: {files}")
            text = self._say(said, count=len(missing), files=shown)
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


def _natural(file: WeightFile) -> list[int | str]:
    """The name of a file with the numbers in it as numbers: 2 comes before 10."""
    return [int(part) if odd % 2 else part for odd, part in enumerate(re.split(r"(\d+)", file.name))]


def _is_told(index: Index | None, files: Sequence[WeightFile]) -> bool:
    """Whether a long index has just the names in the files: no name is then in two of them, as none is in it twice."""
    listing = index.weight_map if index is not None else None
    names = ((file.name, list(map(itemgetter(0), file.header.tensors))) for file in files)
    return isinstance(listing, Listing) and listing.tells(names)


def _twice(checkpoint: Checkpoint, files: tuple[WeightFile, ...]) -> Iterator[Twice]:
    """Names that two files have. Their bytes are compared only when there are any."""
    if len(files) < 2 or all_differ([file.header.tensors for file in files]):
        return
    seen: dict[str, Tensor] = {}
    for file in files:
        for tensor in file.header.tensors:
            first = seen.get(tensor.name)
            if first is not None:
                yield Twice(first, tensor, alike(checkpoint, first, tensor))
            seen[tensor.name] = tensor


def alike(checkpoint: Checkpoint, a: Tensor, b: Tensor, most: int | None = None, *, fetch: bool = False) -> bool | None:
    """Whether dtype, shape and bytes of two tensors are the same; None when the bytes can not be had.

    With ``most``, whether they are as far as so many bytes go. ``fetch``: also where many bytes cost requests.
    """
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    files = checkpoint.file(a.file), checkpoint.file(b.file)
    if files[0] is None or files[1] is None or a.start < 0 or b.start < 0:
        return None
    length = a.stop - a.start if most is None else min(most, a.stop - a.start)
    affordable = min(length, _REMOTE) if checkpoint.place.remote and not fetch else length
    try:
        for at in range(0, affordable, _CHUNK):
            one = files[0].read(a.start + at, a.start + min(at + _CHUNK, affordable))
            two = files[1].read(b.start + at, b.start + min(at + _CHUNK, affordable))
            if one != two:
                return False
    except SourceError:
        return None
    return True if affordable == length else None
