"""What a repair changes, as data for people: each tensor from what it was to what it will be, and the files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from drafcheck.checkpoint import CONFIG, Checkpoint
from drafcheck.fix.edits import Add, Convert, Drop, Rename, Replace
from drafcheck.fix.layout import name_in_safetensors
from drafcheck.fix.mend import Mended, Round
from drafcheck.fix.state import State
from drafcheck.tensor import Tensor

Key = tuple[str, str]
Writes = (Rename, Drop, Replace, Convert)
"""The edits for which a weight file is written anew."""


@dataclass(slots=True)
class TensorChange:
    """``before`` and ``after`` are names; None: it was not there, or will not be. ``notes`` say what was done."""

    before: str | None
    after: str | None
    notes: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """``renamed``, ``dropped``, ``added`` or ``re-encoded``."""
        if self.after is None:
            return "dropped"
        if self.before is None:
            return "added"
        return "renamed" if self.before != self.after and not self.notes else "re-encoded"


@dataclass(frozen=True, slots=True)
class FileChange:
    """``before`` and ``after`` are names of files; None: there was none, or will be none."""

    before: str | None
    after: str | None


def tensor_changes(mended: Mended) -> list[TensorChange]:
    """Every tensor that becomes another one, in the order in which the repairs came to it."""
    changes: dict[Key, TensorChange] = {}
    gone: list[TensorChange] = []
    for one in mended.rounds:
        changes = _taken(one, changes, gone)
    kept = [c for c in changes.values() if c.before != c.after or c.notes]
    return [*kept, *(c for c in gone if c.before is not None)]


def _taken(one: Round, changes: dict[Key, TensorChange], gone: list[TensorChange]) -> dict[Key, TensorChange]:
    """The changes once a round was made, by the file and the name that each tensor has after it."""
    now: dict[Key, TensorChange] = dict(changes)
    moved: dict[Key, Key] = {}
    for edit in one.edits:
        if isinstance(edit, Add):
            now["", edit.name] = TensorChange(None, edit.name, [edit.why])
        elif isinstance(edit, (Rename, Drop, Replace)):
            change = now.setdefault(_key(edit.tensor), TensorChange(edit.tensor.name, edit.tensor.name))
            _note(change, edit)
            if isinstance(edit, Rename):
                moved[_key(edit.tensor)] = edit.tensor.file, edit.name
    gone += [change for change in now.values() if change.after is None]
    converted = {e.file if isinstance(e, Convert) else e.tensor.file for e in one.edits if isinstance(e, Writes)}
    after: dict[Key, TensorChange] = {}
    for key, change in now.items():
        file, name = moved.get(key, key)
        if change.after is not None:
            after[name_in_safetensors(file) if file in converted else file, name] = change
    return after


def _key(tensor: Tensor) -> Key:
    return tensor.file, tensor.name


def _note(change: TensorChange, edit: Rename | Drop | Replace) -> None:
    if isinstance(edit, Rename):
        change.after = edit.name
    elif isinstance(edit, Drop):
        change.after = None
        change.notes.append(edit.why)
    else:
        change.notes.append(edit.how)


def file_changes(state: State) -> Iterator[FileChange]:
    """The weight files and indexes that are written anew, become others, or are left out; the config has its diff."""
    removed = dict.fromkeys(sorted(state.removed))
    for name in sorted(state.files):
        if name == CONFIG:
            continue
        old = next((r for r in removed if r != name and name_in_safetensors(r) == name), None)
        if old is not None:
            del removed[old]
        yield FileChange(old or (name if state.base.holds(name) else None), name)
    for name in removed:
        yield FileChange(name, None)


def config_texts(before: Checkpoint, state: State) -> tuple[str, str] | None:
    """The config as it is and as it will be; None when it stays."""
    if CONFIG not in state.files or before.config is None:
        return None
    new = state.files[CONFIG]
    return before.config.document.text, new.read(0, new.size()).decode("utf-8")
