"""A checkpoint in the course of its repair: the files that are there, and those that will be in place of them.

Nothing is written: the rules read what would be. The state after some edits is a new one, made from the one before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drafcheck.checkpoint import CONFIG, INDEXES, Checkpoint, open_folder
from drafcheck.checks.names import differing
from drafcheck.errors import UsageError
from drafcheck.fix.edits import (
    Add,
    Content,
    Convert,
    Drop,
    DropFile,
    Edit,
    Edits,
    Reindex,
    RemoveKey,
    Rename,
    Replace,
    SetKey,
)
from drafcheck.fix.jsontext import with_key, without_key
from drafcheck.fix.layout import Entry, index_text, kept_by, name_in_safetensors, names_listed, safetensors
from drafcheck.fix.pieces import Span, Spliced
from drafcheck.words import count

if TYPE_CHECKING:
    from drafcheck.checkpoint import Index, WeightFile
    from drafcheck.place import Place
    from drafcheck.source import Source
    from drafcheck.tensor import Tensor

_METADATA: Mapping[str, str] = MappingProxyType({"format": "pt"})  # what torch's own writer says: loaders ask for it


NOTHING_CHANGED = ": nothing was changed"
"""How an error ends that stops the whole repair."""


class MendedPlace:
    """A folder in which some files are others than those that lie there, and some are no more."""

    def __init__(self, base: Place, files: Mapping[str, Spliced], removed: Iterable[str]) -> None:
        """``files`` in place of or beside those of ``base``, and ``removed`` no more there."""
        self.base = base
        self._files = files
        self._removed = frozenset(removed) - set(files)

    @property
    def remote(self) -> bool:
        """As the folder below: what is not changed is read from there."""
        return self.base.remote

    @property
    def complete(self) -> bool:
        """As the folder below."""
        return self.base.complete

    def names(self) -> list[str] | None:
        """The files and folders in it in alphabetical order, None when it may not be read. Raises UsageError."""
        there = self.base.names()
        return None if there is None else sorted({*there, *self._files} - self._removed)

    def below(self, folder: str) -> list[str]:
        """The files and folders in a folder of it: repairs change none of these."""
        return self.base.below(folder)

    def holds(self, name: str) -> bool:
        """Whether there is something of that name. Raises UsageError."""
        return name in self._files or (name not in self._removed and self.base.holds(name))

    def is_file(self, name: str) -> bool:
        """Whether there is a file of that name. Raises UsageError."""
        return name in self._files or (name not in self._removed and self.base.is_file(name))

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder of that name."""
        return name not in self._files and self.base.is_folder(name)

    def source(self, name: str) -> Source:
        """The bytes of a file, changed or not."""
        return self._files[name] if name in self._files else self.base.source(name)

    def address(self, name: str) -> str:
        """The path or address of a file, as it would be given on the command line."""
        return self.base.address(name)

    def confirm_absent(self, what: str) -> None:
        """As the folder below. Raises UsageError."""
        if what not in self._removed:
            self.base.confirm_absent(what)


@dataclass(frozen=True)
class State:
    """``files`` are those that are new or changed, ``removed`` the names of those that are left out."""

    given: str
    base: Place
    files: Mapping[str, Spliced] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()

    @property
    def changed(self) -> bool:
        """Whether anything is to be written or left out."""
        return bool(self.files or self.removed)

    def opened(self) -> Checkpoint:
        """The checkpoint as it would be. Raises as ``open_folder`` does."""
        return open_folder(self.given, MendedPlace(self.base, self.files, self.removed) if self.changed else self.base)


def after(state: State, checkpoint: Checkpoint, edits: Edits) -> State:
    """The state once ``edits`` are made; ``checkpoint`` is the one that they were asked for.

    Raises UsageError when they can not be made: a file that can not be read again, a name that would be there twice.
    """
    changes = _taken(checkpoint, edits)
    state = _with_index(_with_weights(state, changes), checkpoint, changes)
    text = changes.config()
    return state if text is None else _with_file(state, Spliced(CONFIG, [text]), CONFIG)


def refuse_unwritable(checkpoint: Checkpoint, edits: Iterable[Edit]) -> None:
    """Raises UsageError as ``after`` does for weight files that can not be written; nothing is read for it."""
    _with_weights(State(checkpoint.given, checkpoint.place), _taken(checkpoint, edits))


def _taken(checkpoint: Checkpoint, edits: Iterable[Edit]) -> _Changes:
    changes = _Changes(checkpoint)
    for edit in edits:
        changes.take(edit)
    return changes


def _with_weights(state: State, changes: _Changes) -> State:
    for old, new in changes.weights():
        state = _with_file(state, new, old)
    for name in changes.dropped:
        state = _without(state, name)
    return state


class _Changes:
    """The edits of one round, sorted by what they change."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._tensors: dict[tuple[str, str], list[Rename | Drop | Replace]] = defaultdict(list)
        self._touched: dict[str, None] = {}  # files to write anew
        self._added: list[Add] = []
        self._keys: list[SetKey | RemoveKey] = []
        self.dropped: list[str] = []
        self.reindex = False

    def take(self, edit: object) -> None:
        if isinstance(edit, (Rename, Drop, Replace)):
            self._tensors[edit.tensor.file, edit.tensor.name].append(edit)
            self._touched[edit.tensor.file] = None
        elif isinstance(edit, Add):
            self._added.append(edit)
        elif isinstance(edit, (SetKey, RemoveKey)):
            self._keys.append(edit)
        elif isinstance(edit, DropFile):
            self.dropped.append(edit.file)
        elif isinstance(edit, Convert):
            self._touched[edit.file] = None
        elif isinstance(edit, Reindex):
            self.reindex = True

    def weights(self) -> Iterator[tuple[str, Spliced]]:
        """The weight files that become others: the old name, and the new file."""
        home = self._home() if self._added else ""
        touched = [name for name in {**self._touched, **({home: None} if home else {})} if name not in self.dropped]
        for name in touched:
            file = self._checkpoint.file(name)
            if file is None or file.header.problems:
                why = kept_by(file) if file is not None else f"{name} can not be read whole"
                raise UsageError(f"{why}; it can not be written again without loss{NOTHING_CHANGED}")
            self._refuse_loss(file)
            added = [Entry(add.name, add.content) for add in self._added] if name == home else []
            metadata = file.header.metadata or (_METADATA if not file.is_safetensors else {})
            yield name, safetensors(name_in_safetensors(name), [*self._entries(file), *added], metadata)

    def _refuse_loss(self, file: WeightFile) -> None:
        """Raises UsageError for what is in a pickle and would not be in the file that takes its place."""
        if file.header.behind:
            lost = f"the {count(file.header.behind, 'byte')} behind its last storage would be lost"
            raise UsageError(f"{file.name} would have to become safetensors, and {lost}{NOTHING_CHANGED}")
        replaced = {e.tensor.name for edits in self._tensors.values() for e in edits if not isinstance(e, Rename)}
        for name, uncopied in file.header.uncopied.items():
            if name not in replaced:
                lost = f"`{name:.200}` {uncopied.why}, which is not copied as it lies"
                raise UsageError(f"{file.name} would have to become safetensors, and {lost}{NOTHING_CHANGED}")

    def _home(self) -> str:
        """The file that takes new tensors: the first of those that change anyway, else the last that a loader takes."""
        kept = [file for file in self._checkpoint.files if file.name not in self.dropped]
        names = {file.name for file in kept}
        found = next((name for name in self._touched if name in names), None)
        if found is None and not kept:
            raise UsageError("there is no weight file to add a tensor to")
        return found or max(kept, key=self._fitness).name

    def _fitness(self, file: WeightFile) -> tuple[bool, bool, bool, str]:
        """How well new tensors are kept in a file: safetensors come before pickles, which may be something else."""
        index = self._checkpoint.index
        listed = index is not None and file.name in index.files
        return file.is_safetensors, listed, not file.header.problems, file.name

    def _entries(self, file: WeightFile) -> Iterator[Entry]:
        for tensor in file.header.tensors:
            edits = self._tensors.get((tensor.file, tensor.name), [])
            if any(isinstance(edit, Drop) for edit in edits):
                continue
            name = next((e.name for e in edits if isinstance(e, Rename)), tensor.name)
            new = next((e.content for e in edits if isinstance(e, Replace)), None)
            yield Entry(name, new or content_of(file, tensor))

    def moves(self) -> set[tuple[str, str]]:
        """The beginnings of names that become others: ``("layers.0.", "midlayer.")``; none that is only put before."""
        renames = [e for edits in self._tensors.values() for e in edits if isinstance(e, Rename)]
        return {move for e in renames if (move := differing(e.tensor.name, e.name))[0]}

    def config(self) -> bytes | None:
        """The text of the config as it will be; None when it stays."""
        if not self._keys or self._checkpoint.config is None:
            return None
        text = self._checkpoint.config.document.text
        for edit in self._keys:
            text = with_key(text, edit.route, edit.value) if isinstance(edit, SetKey) else without_key(text, edit.route)
        return text.encode("utf-8")


def content_of(file: WeightFile, tensor: Tensor) -> Content:
    """What a tensor holds now. Raises UsageError when its bytes do not lie in one piece in the file."""
    if tensor.start < 0:
        raise UsageError(f"{file.name}: the bytes of {tensor.name:.200} do not lie in one piece: it can not be copied")
    return Content(tensor.dtype, tensor.shape, (Span(file.source, tensor.start, tensor.stop),))


def _with_file(state: State, new: Spliced, old: str) -> State:
    """The state with a file, which takes the place of ``old``."""
    if new.name != old and MendedPlace(state.base, state.files, state.removed).holds(new.name):
        raise UsageError(f"{old} would become {new.name}, and there is one already{NOTHING_CHANGED}")
    state = _without(state, old) if new.name != old else state
    return replace(state, files={**state.files, new.name: new}, removed=state.removed - {new.name})


def _without(state: State, name: str) -> State:
    files = {other: file for other, file in state.files.items() if other != name}
    return replace(state, files=files, removed=state.removed | ({name} if state.base.holds(name) else set()))


def _with_index(state: State, before: Checkpoint, changes: _Changes) -> State:
    """The state with an index that fits the weight files, where there was one or one is asked for."""
    checkpoint = state.opened()
    files = [f for f in checkpoint.files if f.is_safetensors]
    old = before.index or (before.pickle_index if files else None)
    if not changes.reindex and (old is None or _fits(old, before, checkpoint)):
        return state
    if not changes.reindex and old is not None:
        named = {name_in_safetensors(name) for name in old.files}
        files = [f for f in files if f.name in named]
    if old is not None and (old is before.pickle_index or (len(files) < 2 and changes.reindex)):
        state = _without(state, old.file)
    if len(files) < 2 and (changes.reindex or old is None or not files):
        return state
    said = (old.document.data or {}) if old is not None else {}
    lost = _lost_entries(old, before, changes) if old is not None and not changes.reindex else {}
    text = index_text({f.name: [(t.name, t.stop - t.start) for t in f.header.tensors] for f in files}, said, lost)
    return _with_file(state, Spliced(INDEXES[0], [text.encode("utf-8")]), INDEXES[0])


def _lost_entries(old: Index, before: Checkpoint, changes: _Changes) -> dict[str, Any]:
    """What an index lists that no file had, under the names that tensors spelt alike have now: a sign of what is lost.

    Each leads to what it led to, under the name that a pickle gets as safetensors.
    """
    there = {t.name for f in before.files for t in f.header.tensors}
    moves = changes.moves()
    pickles = old is before.pickle_index
    found: dict[str, Any] = {}
    for name, file in names_listed(old).items():
        if name not in there:
            start, new = max((m for m in moves if name.startswith(m[0])), key=lambda m: len(m[0]), default=("", ""))
            found[new + name[len(start) :]] = name_in_safetensors(file) if pickles and isinstance(file, str) else file
    return found


def _fits(index: Index, before: Checkpoint, now: Checkpoint) -> bool:
    """Whether no tensor that the index lists has gone elsewhere, and the files it lists have no new ones."""

    def listed(checkpoint: Checkpoint) -> dict[str, set[str]]:
        files = [f for f in checkpoint.files if f.name in index.files]
        return {f.name: {t.name for t in f.header.tensors} for f in files}

    return listed(before) == listed(now)
