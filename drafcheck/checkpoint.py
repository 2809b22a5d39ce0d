"""A checkpoint as it lies in its folder: its config, its weight files, its index, before any engine is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from drafcheck.config import DraftConfig, TargetConfig
from drafcheck.errors import NothingToCheck, UsageError
from drafcheck.finding import Location
from drafcheck.header import Header, read_header
from drafcheck.jsonpos import Document, read_document
from drafcheck.lfs import POINTER_LIMIT, lfs_pointer
from drafcheck.listing import Listing
from drafcheck.place import Place, locate
from drafcheck.source import Source, SourceError
from drafcheck.tensor import Problem, Tensor, Trouble

CONFIG = "config.json"
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
BESIDE = "target_config.json"
"""The target's config may lie under this name beside the draft."""

UNFINISHED = ".drafcheck-fix.complete"
"""The folder in a checkpoint that holds what a repair in place has not put in its place yet."""

FINISH = "drafcheck fix --in-place"
"""The command that completes it."""

INDEX_LIMIT = 256 << 20
"""Longer index files are not read. In bytes; those of the largest models have about 20 MB."""

MAPPINGS = ("d2t", "t2d")
MAPPING_LIMIT = 32 << 20
"""Bytes that d2t or t2d may have to be read along with a neighbour; those of the largest models have 2 MB."""

PROBLEMS_KEPT = 10
"""So many faulty entries of one index are told."""


class WeightFile:
    """One weight file of the top folder. Its header is read at the first use and kept."""

    def __init__(self, source: Source) -> None:
        """The file that ``source`` reads, under its name."""
        self.name = source.name
        self.source = source

    @property
    def is_safetensors(self) -> bool:
        """By its name, as engines decide; nothing is read."""
        return self.name.endswith(".safetensors")

    @cached_property
    def format(self) -> str:
        """``safetensors``, ``pickle`` (a zip archive) or ``legacy-pickle``."""
        if self.is_safetensors:
            return "safetensors"
        try:
            from drafcheck.torch_pickle import is_legacy  # most checkpoints have no pickles

            return "legacy-pickle" if is_legacy(self.source) else "pickle"
        except SourceError:
            return "pickle"

    @cached_property
    def header(self) -> Header:
        """The tensors of the file and what is wrong with it."""
        header = read_header(self.source) if self.is_safetensors else self._read_pickle()
        self.source.expect((t.start, t.stop) for t in header.tensors if is_mapping(t))
        self.source.close()  # a checkpoint may have more shards than a process may have open files
        return header

    def _read_pickle(self) -> Header:
        from drafcheck.torch_pickle import read_pickle

        return read_pickle(self.source)

    @property
    def is_pointer(self) -> bool:
        """Whether a Git LFS pointer lies here; reads no more than a pointer has."""
        if not 0 < self.size <= POINTER_LIMIT:
            return False
        try:
            return lfs_pointer(self.read(0, self.size), self.size, self.name) is not None
        except SourceError:
            return False

    @property
    def size(self) -> int:
        """The length in bytes; 0 when it cannot be had."""
        try:
            return self.source.size()
        except SourceError:
            return 0
        finally:
            self.source.close()

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from ``start`` to ``stop``. Raises SourceError when they are not all there."""
        try:
            data = self.source.read(start, stop)
        finally:
            self.source.close()
        if len(data) < stop - start:
            raise SourceError(f"{self.name} ends before byte {stop}")
        return data

    def values(self, tensor: Tensor) -> bytes:
        """The bytes of the values of one of its tensors, wherever they lie. Raises SourceError."""
        if tensor.start < 0:
            from drafcheck.unplaced import values_in  # in few files

            return values_in(self, tensor)
        return self.read(tensor.start, tensor.stop)


@dataclass(slots=True)
class Index:
    """``*.index.json``: which file holds which tensor.

    ``weight_map`` has only the entries that are names of files; ``refused`` is set when engines that read the
    index would stop at it (no ``weight_map``, or entries of a wrong type).
    """

    file: str
    document: Document
    weight_map: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    refused: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the index names, each once, in alphabetical order."""
        return tuple(sorted(_different(self.weight_map)))


@dataclass
class Checkpoint:
    """What was found. ``files`` are the weight files of the top folder in alphabetical order.

    ``other`` names every other file there. ``config_only`` is set when no weights are expected: a JSON file was given,
    or ``without_weights`` was called. ``pointers`` names the weight files that were left out by it.
    ``problems`` concern the config and the index; those of a weight file are in its header. ``no_index`` says what lies
    under the name of an index and is no regular file.
    """

    given: str
    place: Place
    config: DraftConfig | None = None
    files: tuple[WeightFile, ...] = ()
    index: Index | None = None
    pickle_index: Index | None = None
    no_index: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    other: tuple[str, ...] = ()
    config_only: bool = False
    pointers: tuple[str, ...] = ()

    def file(self, name: str) -> WeightFile | None:
        """The weight file of that name, if there is one."""
        return self._by_name.get(name)

    def read(self, tensor: Tensor) -> bytes:
        """The bytes of the values of one tensor, wherever they lie. Raises SourceError when they cannot be had."""
        file = self.file(tensor.file)
        if file is None:
            raise SourceError(f"there is no {tensor.file}")
        return file.values(tensor)

    def without_weights(self) -> None:
        """Expect no weights when some of them are Git LFS pointers: what is left to look at is the config."""
        self.pointers = tuple(file.name for file in self.files if file.is_pointer)
        if self.pointers:
            self.files, self.config_only = (), True

    @cached_property
    def _by_name(self) -> dict[str, WeightFile]:
        return {file.name: file for file in self.files}

    @cached_property
    def weights_below(self) -> tuple[str, ...]:
        """Weight files one folder down, such as ``original/model.safetensors``: engines do not look there."""
        found: list[str] = []
        for name in self._folders:
            entries = self.place.below(name)
            found += (f"{name}/{e}" for e in entries if e.endswith(WEIGHT_SUFFIXES) and not e.startswith("."))
        return tuple(sorted(found))

    @cached_property
    def _folders(self) -> list[str]:
        return [name for name in self.other if self.place.is_folder(name) and not name.startswith(".")]


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a folder, a single weight file (with the config beside it) or a JSON config.

    Raises UsageError when the path does not exist or may not be opened, NothingToCheck when it holds nothing
    that belongs to a checkpoint. Whatever is wrong inside becomes ``problems``.
    """
    given = str(path)
    place, name = locate(path)
    if name is None:
        return open_folder(given, place)
    if not place.remote and place.holds(UNFINISHED):
        raise _unfinished(given, place)
    if name.endswith(".json"):
        return _open_config(given, place, name)
    if name.endswith(WEIGHT_SUFFIXES):
        checkpoint = Checkpoint(given, place, files=(WeightFile(place.source(name)),))
        _add_config(checkpoint, CONFIG)
        return checkpoint
    raise NothingToCheck(
        f"{path} is neither a folder nor a weight file ({', '.join(WEIGHT_SUFFIXES)}) nor a .json file"
    )


def open_target(path: str | Path) -> TargetConfig:
    """The config of a target: a folder with a config.json, or the file itself.

    Raises UsageError when there is none or it cannot be read.
    """
    place, name = locate(path)
    return read_target(place, name or CONFIG)


def read_target(place: Place, name: str) -> TargetConfig:
    """The config of a target in the file ``name`` of a folder. Raises UsageError when it cannot be read."""
    document = read_document(place.source(name))
    if document.data is None:
        message = document.problems[0].message
        raise UsageError(f"the target's config cannot be read: {message} ({place.address(name)})")
    return TargetConfig(document)


def is_mapping(tensor: Tensor) -> bool:
    """Whether a tensor is one of the small ones that are read wherever they are, by its name and size."""
    kind = tensor.name.rpartition(".")[2]
    return kind in MAPPINGS and tensor.start >= 0 and tensor.stop - tensor.start <= MAPPING_LIMIT


def open_folder(given: str, place: Place) -> Checkpoint:
    """Open a folder that was found already; ``given`` is what the user calls it. Raises as ``open_checkpoint`` does."""
    names = place.names()
    if names is None:
        raise UsageError(f"{given}: the folder may not be read")
    if UNFINISHED in names:
        raise _unfinished(given, place)
    files = [n for n in names if n.endswith(WEIGHT_SUFFIXES) and not n.startswith(".")]
    if not files and not {CONFIG, *INDEXES} & set(names):
        raise NothingToCheck(f"{given} holds no config.json, no weight file and no index")
    if not files:
        place.confirm_absent("the weights")
    checkpoint = Checkpoint(given, place, files=tuple(WeightFile(place.source(n)) for n in files))
    weights = set(files)
    checkpoint.other = tuple(n for n in names if n not in weights)
    _add_config(checkpoint, CONFIG)
    checkpoint.index = _add_index(checkpoint, INDEXES[0])
    checkpoint.pickle_index = _add_index(checkpoint, INDEXES[1])
    return checkpoint


def _unfinished(given: str, place: Place) -> UsageError:
    folder = given if place.remote else place.address("").rstrip("/")
    return UsageError(f"{given}: a repair in place was cut off half-way here: `{FINISH} {folder}` completes it")


def _open_config(given: str, place: Place, name: str) -> Checkpoint:
    """A config given by itself: with the weights beside it when there are any, else alone."""
    checkpoint = Checkpoint(given, place, config_only=True)
    if name in INDEXES:
        return open_folder(given, place)
    if name == CONFIG and any(n.endswith(WEIGHT_SUFFIXES) for n in place.names() or []):
        return open_folder(given, place)
    _add_config(checkpoint, name)
    return checkpoint


def _add_config(checkpoint: Checkpoint, name: str) -> None:
    if not checkpoint.place.holds(name):
        checkpoint.place.confirm_absent(name)
        message = f"there is no {name}: engines read the draft's class and sizes from it"
        problem = Problem(Trouble.NO_CONFIG, message, Location(file=name), f"put the draft's {name} beside its weights")
        checkpoint.problems.append(problem)
        return
    document = read_document(checkpoint.place.source(name))
    checkpoint.problems += document.problems
    if document.data is not None:
        checkpoint.config = DraftConfig(document)


def _add_index(checkpoint: Checkpoint, name: str) -> Index | None:
    if not checkpoint.place.holds(name):
        return None
    source = checkpoint.place.source(name)
    document = read_document(source, trouble=Trouble.BAD_INDEX, limit=INDEX_LIMIT)
    if not checkpoint.place.remote and not checkpoint.place.is_file(name):
        # To every loader there is none then, as it asks isfile: weight_utils.py of SGLang 0.4.5:313 and 0.5.23:766,
        # of vLLM 0.9.2:359 and 0.33.0:596, LMDeploy's model_weight_loader.py, llama.cpp's conversion/base.py.
        checkpoint.no_index += document.problems
        return None
    index = parse_index(document)
    if not checkpoint.place.remote:
        document.forget(source)
    return index


def parse_index(document: Document) -> Index:
    """The index in a JSON file. Entries that are no plain file names are left out and never followed."""
    problems = list(document.problems)
    index = Index(document.file, document)
    entries: Any = document.data.get("weight_map") if document.data is not None else None
    if document.data is None:
        index.refused = problems[0].message
    elif not isinstance(entries, Mapping):
        index.refused = f"{index.file} has no weight_map that is an object"
        problems.append(_bad(index, index.refused, "weight_map"))
    else:
        _take_entries(index, entries, problems)
    index.problems = tuple(problems)
    return index


def _take_entries(index: Index, entries: Mapping[str, Any], problems: list[Problem]) -> None:
    rest = entries.rest if isinstance(entries, Listing) else entries
    if set(map(type, rest.values())) <= {str} and not any(_fault(index, "", f) for f in _different(entries)):
        index.weight_map = entries  # as usual; there may be a million
        return
    taken: dict[str, str] = {}
    for tensor, file in entries.items():
        message = _fault(index, tensor, file)
        if message is None:
            taken[tensor] = file
        elif len(problems) < PROBLEMS_KEPT:  # finding the place of a key takes a scan of the file
            problems.append(_bad(index, message, "weight_map", tensor))
        if not isinstance(file, str):
            index.refused = f"{index.file} gives {file!r:.40} as the file of a tensor"
    index.weight_map = taken


def _different(table: Mapping[str, str]) -> set[str]:
    """The files of an index, each once."""
    return {*table.files, *table.rest.values()} if isinstance(table, Listing) else set(table.values())


def _fault(index: Index, tensor: str, file: Any) -> str | None:
    if not isinstance(file, str):
        return f"{index.file} gives {file!r:.40} as the file of {tensor:.200}"
    if file.startswith(("/", "\\")) or ".." in file.replace("\\", "/").split("/") or "\0" in file or not file:
        return f"{index.file} names a file outside the checkpoint for {tensor:.200}: {file!r:.200}"
    return None


def _bad(index: Index, message: str, *route: str) -> Problem:
    place = index.document.at(*route)
    return Problem(Trouble.BAD_INDEX, message, place, "write the index again from the files' headers, or remove it")
