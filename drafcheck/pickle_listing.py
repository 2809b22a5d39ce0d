"""Every global that a pickle names, also in one that is broken or means harm: a list, not a verdict on its tensors.

``drafcheck.pickle_machine`` decides whether a file is a plain state dict and stops at the first fault. This reader goes
on to the end of the stream: it keeps just as much of the stack as names of globals are made of. Nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import IO, Any, NamedTuple

from drafcheck.pickle_globals import HARMLESS, resolved
from drafcheck.pickle_opcodes import OPCODES_LISTED, Budget, Opcode, operations
from drafcheck.words import plural

ASKED_KEPT = 10_000
"""So many places of one pickle are kept."""

COMPUTED = "a name that is computed"
"""What stands for a global whose module or name is no text of the pickle."""

HIDDEN = "what a frame that ends too early hides"
"""What stands for the bytes that only some readers come to."""

_EVIDENT = re.compile(r"[\w.]+ [\w.<>]+")
_EXTENSION = "the registered extension"


class Asked(NamedTuple):
    """A global beyond those of a state dict, and the byte at which a pickle asks for it; ``member``: of an archive."""

    path: str
    at: int
    member: str = ""


class Listing:
    """Lists the foreign globals of a stream of pickles, one after the other."""

    def __init__(self, stream: IO[bytes], budget: Budget, member: str = "") -> None:
        """``stream`` stands at the first byte of a pickle; ``member`` is the file inside an archive."""
        self._stream, self._budget, self._member = stream, budget, member
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self.ended = False
        """Whether the last pickle that was listed came to its end."""
        self.called = False
        """Whether it calls something, with arguments."""

    def all(self) -> list[Asked]:
        """The globals of all pickles, up to the first byte that belongs to none."""
        found = self.one()
        while self.ended and not self._budget.spent:
            found += self.one()
        return found

    def one(self) -> list[Asked]:
        """Those of the next pickle."""
        self._stack, self._memo, self.ended, self.called = [], {}, False, False
        found: list[Asked] = []
        with suppress(ValueError, IndexError, OverflowError, EOFError, UnicodeError, RecursionError):
            self.ended = self._walk(operations(self._stream, self._budget), found)
        return found  # what was found before the fault stands

    def _walk(self, steps: Iterator[tuple[Opcode, Any, int]], found: list[Asked]) -> bool:
        for opcode, arg, at in steps:
            path = None
            self.called = self.called or (opcode.name in _CALLS and self._can_call(opcode))
            if opcode.special:
                path = self._step(opcode, arg)
            else:
                self._move(opcode, arg)
            if path is not None and len(found) < ASKED_KEPT:
                found.append(Asked(path, at, self._member))
            if self._budget.spent:
                self._budget.stop(f"{self._member or 'its pickle'} and those before have over {OPCODES_LISTED} opcodes")
                return False
        return True

    def _can_call(self, opcode: Opcode) -> bool:
        """Whether what the opcode calls, and with what, is there: letters of a text call nothing."""
        return _MARK in self._stack if opcode.to_mark else len(self._stack) >= opcode.taken

    def _step(self, opcode: Opcode, arg: Any) -> str | None:
        name, path = opcode.name, None
        if name in _NAMES:
            path = _foreign(*arg.split(" ", 1)) if name != "STACK_GLOBAL" else self._stack_global()
            arg = None
        elif name in _STORES:
            if name == "MEMOIZE" or arg is not None:  # what is too long to be a number is passed over
                place = len(self._memo) if name == "MEMOIZE" else int(arg)
                self._memo[place] = self._stack[-1] if self._stack else None
            return None
        elif name in _RECALLS:
            self._stack.append(self._memo.get(int(arg)) if arg is not None else None)
            return None
        elif name == "DUP":
            self._stack.append(self._stack[-1] if self._stack else None)
            return None
        elif name.startswith("EXT"):
            path = f"{_EXTENSION} {arg}"
        elif name == "HIDES":
            path = HIDDEN
        self._move(opcode, None)
        return path

    def _stack_global(self) -> str | None:
        module, name = (None, None, *self._stack)[-2:]
        return _foreign(module, name) if isinstance(module, str) and isinstance(name, str) else COMPUTED

    def _move(self, opcode: Opcode, value: Any) -> None:
        """Take from the stack and put there as many as the opcode does; all that is known of a value is its text."""
        if opcode.to_mark:
            while self._stack and self._stack.pop() is not _MARK:
                pass
        if opcode.taken:
            del self._stack[-opcode.taken :]
        if opcode.pushed:
            self._stack.append(_MARK if opcode.marks else value)


_MARK = object()
# DUP alone pushes two things, and is treated by itself.
_NAMES = frozenset({"GLOBAL", "INST", "STACK_GLOBAL"})
_CALLS = frozenset({"REDUCE", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BUILD"})
_STORES = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_RECALLS = frozenset({"GET", "BINGET", "LONG_BINGET"})


def _foreign(module: str, name: str = "") -> str | None:
    path = resolved(module, name)
    return None if path in HARMLESS else path


def listed(stream: IO[bytes], budget: Budget, member: str = "") -> list[Asked]:
    """The foreign globals of all pickles of a stream."""
    return Listing(stream, budget, member).all()


def evident(stream: IO[bytes], budget: Budget, member: str = "") -> list[Asked]:
    """The same for bytes that are meant to be numbers: only what no accident looks like."""
    listing = Listing(stream, budget, member)
    found = listing.one()
    return found if listing.ended else _named(found)


def _named(found: list[Asked]) -> list[Asked]:
    named = [asked for asked in found if asked.path not in (COMPUTED, HIDDEN) and not asked.path.startswith(_EXTENSION)]
    return [asked for asked in named if _EVIDENT.fullmatch(asked.path.replace(".", " ", 1))]


def spoken(stream: IO[bytes], budget: Budget, member: str = "") -> list[Asked]:
    """The same for bytes that may be any text: only what is named like a function and then called."""
    listing = Listing(stream, budget, member)
    found = listing.one()
    return _named(found) if listing.called else []


def told(found: list[Asked], most: int = 40) -> str:
    """The globals and their places as one phrase, each global of a member once: ``os.system at byte 30 of a.pkl``."""
    first: dict[tuple[str, str], list[int]] = {}
    for asked in found:
        first.setdefault((asked.member, asked.path), []).append(asked.at)
    members: dict[str, list[str]] = {}
    for (member, path), places in list(first.items())[:most]:
        again = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
        members.setdefault(member, []).append(f"{path:.200} at byte {places[0]}{again}")
    text = " and ".join(", ".join(asks) + (f" of {member:.200}" if member else "") for member, asks in members.items())
    return f"{text}, and {plural(len(first) - most, 'other name')}" if len(first) > most else text
