"""What a repair may change, and what of it goes together.

A repair says what is to become of tensors, config keys and files; it writes nothing and reads no more than it must.
The edits of all repairs are merged; where two rules want different things of one object nothing is done at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drafcheck.errors import UsageError
from drafcheck.fix.pieces import Piece
from drafcheck.tensor import Tensor


class Content(NamedTuple):
    """What a tensor holds: ``dtype`` as safetensors spells it, the bytes in storage order, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


class Rename(NamedTuple):
    """``tensor`` gets another name."""

    tensor: Tensor
    name: str


class Drop(NamedTuple):
    """``tensor`` is left out; ``why`` continues its name: "no loader reads it"; ``elsewhere``: of another file."""

    tensor: Tensor
    why: str
    elsewhere: bool = False


class Replace(NamedTuple):
    """``tensor`` gets other contents; ``how`` says in a few words what was done: "offsets instead of ids"."""

    tensor: Tensor
    content: Content
    how: str


class Add(NamedTuple):
    """A tensor that was not there; ``why`` as in ``Replace``: "zeros", "from d2t"."""

    name: str
    content: Content
    why: str


class SetKey(NamedTuple):
    """A key of config.json gets a value; objects on the way are made where there are none."""

    route: tuple[str, ...]
    value: Any


class RemoveKey(NamedTuple):
    """A key is taken out of config.json."""

    route: tuple[str, ...]


class DropFile(NamedTuple):
    """A file of the checkpoint is left out; ``why`` as in ``Drop``."""

    file: str
    why: str


class Convert(NamedTuple):
    """A weight file is written as safetensors, whatever it is now; pickles are whenever a tensor in them changes."""

    file: str


class Reindex(NamedTuple):
    """The index is written anew, or left out when one file has everything."""


Edit = Rename | Drop | Replace | Add | SetKey | RemoveKey | DropFile | Convert | Reindex


@dataclass(slots=True)
class Edits:
    """Edits that go together, each with the rules that asked for it."""

    by_rule: dict[int, list[str]] = field(default_factory=dict)
    _edits: list[Edit] = field(default_factory=list)
    _claims: dict[tuple[object, ...], int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Edit]:
        """The edits in the order in which they were asked for."""
        return iter(self._edits)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._edits)

    def add(self, rule: str, edit: Edit) -> None:
        """Take in an edit that ``rule`` asks for. Raises UsageError when it contradicts another one."""
        claims = claims_of(edit)
        for claim in claims:
            number = self._claims.get(claim)
            if number is None:
                continue
            if self._edits[number] != edit:
                raise _contradiction(self.by_rule[number][0], rule, claim)
            if rule not in self.by_rule[number]:
                self.by_rule[number].append(rule)
            return
        for claim in self._nested(edit):
            raise _contradiction(self.by_rule[self._claims[claim]][0], rule, claim)
        for claim in claims:
            self._claims[claim] = len(self._edits)
        self.by_rule[len(self._edits)] = [rule]
        self._edits.append(edit)

    def _nested(self, edit: Edit) -> Iterator[tuple[object, ...]]:
        """The keys claimed already that lie in the one that ``edit`` changes, or around it."""
        if isinstance(edit, (SetKey, RemoveKey)):
            for claim in self._claims:
                short, long = sorted((claim[1:], edit.route), key=len)
                if claim[0] == "key" and long[: len(short)] == short:
                    yield claim


def claims_of(edit: Edit) -> list[tuple[object, ...]]:
    """What an edit takes for itself: an object, and what of it is changed."""
    if isinstance(edit, Drop):
        return [("name", edit.tensor.file, edit.tensor.name), ("content", edit.tensor.file, edit.tensor.name)]
    if isinstance(edit, Rename):
        return [("name", edit.tensor.file, edit.tensor.name), ("new", edit.name)]
    if isinstance(edit, Replace):
        return [("content", edit.tensor.file, edit.tensor.name)]
    if isinstance(edit, Add):
        return [("new", edit.name)]
    if isinstance(edit, (SetKey, RemoveKey)):
        return [("key", *edit.route)]
    return [("file", edit.file)] if isinstance(edit, DropFile) else [(type(edit).__name__, *edit)]


def merged(asked: Iterable[tuple[str, Edit]]) -> Edits:
    """The edits of several rules in one list. Raises UsageError when two of them contradict each other."""
    edits = Edits()
    for rule, edit in asked:
        edits.add(rule, edit)
    return edits


def _contradiction(one: str, two: str, claim: tuple[object, ...]) -> UsageError:
    thing = ".".join(map(str, claim[1:])) if claim[0] == "key" else str(claim[-1])
    who = f"{one} and {two} want" if one != two else f"two findings of {one} want"
    return UsageError(f"{who} different things of `{thing}`: mend one at a time with --select, nothing was changed")
