"""The strings of a pickle, in case what it calls takes them for files of torch once more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from drafcheck.pickle_opcodes import Budget, Opcode, operations
from drafcheck.pickle_sweep import STREAM_LIMIT
from drafcheck.source import Bounded, Memory, Source
from drafcheck.zip_members import Window

LOADS = "torch.storage._load_from_bytes"
"""What a pickle of a tensor calls with the bytes of a file that torch.save wrote (torch 2.13, torch/storage.py)."""

STRINGS = 10_000
"""So many strings are looked at; a model has fewer tensors."""

_SHORTEST = 12  # a call is longer
_LINE = 1 << 20
_NAME = "a string.bin"


def strings(source: Source) -> Iterator[Source | None]:
    """Each string of the pickles of a file, as bytes, text as its characters below 256. Raises SourceError.

    None, as the last one, stands for what is not looked at.
    """
    stream, budget, left = Bounded(source, STREAM_LIMIT), Budget(), STRINGS
    with suppress(ValueError, IndexError, OverflowError, EOFError):
        while True:
            for opcode, arg, at in operations(stream, budget):
                piece = _piece(source, opcode, arg, at, budget)
                left -= piece is not None
                if budget.spent or left < 0:
                    yield None
                    return
                if piece is not None:
                    yield piece


def _piece(source: Source, opcode: Opcode, arg: str | None, at: int, budget: Budget) -> Source | None:
    start = at + 1 + opcode.width
    if opcode.name in {"UNICODE", "STRING"}:
        return Memory(_line(source, opcode.name, arg, start, budget), _NAME)
    if opcode.kind not in {"bytes", "text", "latin"}:
        return None
    stop = start + int.from_bytes(source.read(at + 1, start), "little")
    if stop - start < _SHORTEST:
        return None
    if opcode.kind != "text":
        return Window(source, start, stop, _NAME)
    budget.text -= stop - start
    return Memory(source.read(start, stop).decode("utf-8", "ignore").encode("latin-1", "ignore"), _NAME)


def _line(source: Source, opcode: str, arg: str | None, start: int, budget: Budget) -> bytes:
    """A text that is a line of the pickle; of a long one the first part, in which its pickles are."""
    if arg is None:
        budget.text -= _LINE
        raw = source.read(start, start + _LINE).partition(b"\n")[0]
        arg = raw.decode("raw_unicode_escape" if opcode == "UNICODE" else "latin-1", "ignore")
    if opcode == "STRING":
        arg = arg.strip("'\"").encode("latin-1", "ignore").decode("unicode_escape", "ignore")
    return arg.encode("latin-1", "ignore")
