"""Every global that a pickle names, also in one that is broken or means harm: a list, not a verdict on its tensors.

``drafcheck.pickle_machine`` decides whether a file is a plain state dict and stops at the first fault. This reader goes
on to the end of the stream: it keeps just as much of the stack as names of globals are made of. Nothing is run.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from drafcheck.pickle_globals import HARMLESS, resolved

if TYPE_CHECKING:
    from pickletools import OpcodeInfo

OPCODES_LISTED = 1_000_000
"""So many opcodes of one stream are looked at."""

ASKED_KEPT = 10_000
"""So many places of one pickle are kept."""

COMPUTED = "a name that is computed"
"""What stands for a global whose module or name is no text of the pickle."""

_EVIDENT = re.compile(r"[\w.]+ [\w.<>]+")
_EXTENSION = "the registered extension"


class Asked(NamedTuple):
    """A global beyond those of a state dict, and the byte at which a pickle asks for it; ``member``: of an archive."""

    path: str
    at: int
    member: str = ""


class Listing:
    """Lists the foreign globals of a stream of pickles, one after the other."""

    def __init__(self, stream: IO[bytes], member: str = "") -> None:
        """``stream`` stands at the first byte of a pickle; ``member`` is the file inside an archive."""
        self._stream, self._member = stream, member
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._left = OPCODES_LISTED
        self.ended = False
        """Whether the last pickle that was listed came to its end."""

    def all(self) -> list[Asked]:
        """The globals of all pickles, up to the first byte that belongs to none."""
        found = self.one()
        while self.ended and self._left > 0:
            found += self.one()
        return found

    def one(self) -> list[Asked]:
        """Those of the next pickle."""
        import pickletools

        self._stack, self._memo, self.ended = [], {}, False
        found: list[Asked] = []
        try:
            with warnings.catch_warnings():  # odd escapes in a stranger's strings are not our user's concern
                warnings.simplefilter("ignore")
                self.ended = self._walk(pickletools.genops(self._stream), found)
        except (ValueError, IndexError, OverflowError, EOFError, UnicodeError, RecursionError):
            pass  # what was found before the fault stands
        return found

    def _walk(self, operations: Iterator[tuple[OpcodeInfo, Any, int | None]], found: list[Asked]) -> bool:
        for opcode, arg, at in operations:
            self._left -= 1
            path = self._step(opcode, arg)
            if path is not None and len(found) < ASKED_KEPT:
                found.append(Asked(path, at or 0, self._member))
            if self._left <= 0:
                return False
        return True

    def _step(self, opcode: OpcodeInfo, arg: Any) -> str | None:
        name, path = opcode.name, None
        if name in ("GLOBAL", "INST"):
            path = _foreign(*arg.split(" ", 1))
        elif name == "STACK_GLOBAL":
            path = self._stack_global()
        elif name.startswith("EXT"):
            path = f"{_EXTENSION} {arg}"
        if name in _STORES:
            self._memo[len(self._memo) if name == "MEMOIZE" else int(arg)] = self._stack[-1] if self._stack else None
        elif name in _RECALLS:
            self._stack.append(self._memo.get(int(arg)))
        elif name == "DUP":
            self._stack.append(self._stack[-1] if self._stack else None)
        else:
            self._move(opcode, arg if isinstance(arg, str) and name not in ("GLOBAL", "INST") else None)
        return path

    def _stack_global(self) -> str | None:
        module, name = (None, None, *self._stack)[-2:]
        return _foreign(module, name) if isinstance(module, str) and isinstance(name, str) else COMPUTED

    def _move(self, opcode: OpcodeInfo, value: str | None) -> None:
        """Take from the stack and put there as many as the opcode does; all that is known of a value is its text."""
        before = [item.name for item in opcode.stack_before]
        if "mark" in before:
            while self._stack and self._stack.pop() is not _MARK:
                pass
            before = before[: before.index("mark")]
        if before:
            del self._stack[-len(before) :]
        self._stack += [_MARK if item.name == "mark" else value for item in opcode.stack_after]


_MARK = object()
_STORES = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_RECALLS = frozenset({"GET", "BINGET", "LONG_BINGET"})


def _foreign(module: str, name: str = "") -> str | None:
    path = resolved(module, name)
    return None if path in HARMLESS else path


def listed(stream: IO[bytes], member: str = "") -> list[Asked]:
    """The foreign globals of all pickles of a stream."""
    return Listing(stream, member).all()


def evident(stream: IO[bytes], member: str = "") -> list[Asked]:
    """The same for bytes that are meant to be numbers: only what no accident looks like."""
    listing = Listing(stream, member)
    found = listing.one()
    named = [asked for asked in found if asked.path != COMPUTED and not asked.path.startswith(_EXTENSION)]
    if listing.ended:
        return found
    return [asked for asked in named if _EVIDENT.fullmatch(asked.path.replace(".", " ", 1))]


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
    return f"{text}, and {len(first) - most} other names" if len(first) > most else text
