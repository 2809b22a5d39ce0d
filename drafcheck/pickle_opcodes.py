"""The opcodes of a pickle, as C's unpickler takes them: also where pickletools finds an argument that it refuses.

``I0x10`` is a number in C, and text beyond ASCII is text. Long strings are passed over without being kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, NamedTuple

TEXT_KEPT = 4096
"""The longest text that is kept: names of globals are shorter."""

OPCODES_LISTED = 2_000_000
"""So many opcodes of one file are looked at."""

TEXT_LISTED = 64 << 20
"""So many bytes of text are kept for one file."""

UNPACKED = 512 << 20
"""So many bytes of one file are unpacked to be looked through."""

_PIECE = 1 << 20


class Budget:
    """What may be spent on one file, however many pickles it has; ``cut`` says what was not looked through."""

    def __init__(self) -> None:
        """Nothing is spent."""
        self.opcodes, self.text, self.bytes = OPCODES_LISTED, TEXT_LISTED, UNPACKED
        self.cut: str | None = None

    @property
    def spent(self) -> bool:
        """Whether nothing is left of one of them."""
        return min(self.opcodes, self.text, self.bytes) < 0

    def stop(self, why: str) -> None:
        """Keep the first reason."""
        self.cut = self.cut or why


class Opcode(NamedTuple):
    """``taken`` counts what it takes from the stack above a mark, if it looks for one; ``pushed`` is left there.

    ``special``: it names a global or handles the memo.
    """

    name: str
    kind: str
    width: int
    to_mark: bool
    taken: int
    pushed: int
    marks: bool
    special: bool


_KINDS = {
    "uint1": ("number", 1),
    "uint2": ("number", 2),
    "uint4": ("number", 4),
    "int4": ("number", 4),
    "uint8": ("number", 8),
    "float8": ("skip", 8),
    "long1": ("bytes", 1),
    "long4": ("bytes", 4),
    "bytes1": ("bytes", 1),
    "bytes4": ("bytes", 4),
    "bytes8": ("bytes", 8),
    "bytearray8": ("bytes", 8),
    "string1": ("latin", 1),
    "string4": ("latin", 4),
    "unicodestring1": ("text", 1),
    "unicodestring4": ("text", 4),
    "unicodestring8": ("text", 8),
    "stringnl": ("quoted", 0),
    "stringnl_noescape_pair": ("pair", 0),
}


_MEMO = ("DUP", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET")
_SPECIAL = frozenset({"GLOBAL", "INST", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4", *_MEMO})


HIDES = Opcode("HIDES", "", 0, to_mark=False, taken=0, pushed=0, marks=False, special=True)
"""No opcode: what comes before one whose argument, or frame, goes on behind the frame that it begins in.

C's unpickler reads a line or a text of a file from behind that frame and passes over what was left of it, so that other
readers see another pickle (``_Unpickler_ReadImpl``, CPython 3.10 to 3.13). No pickler writes that.
"""


def _table() -> dict[bytes, Opcode]:
    import pickletools

    found = {}
    for op in pickletools.opcodes:
        kind, width = _KINDS.get(op.arg.name, ("line", 0)) if op.arg is not None else ("", 0)
        before = [item.name for item in op.stack_before]
        mark = "mark" in before
        after = [item.name for item in op.stack_after]
        taken = before.index("mark") if mark else len(before)
        found[op.code.encode("latin-1")] = Opcode(
            op.name, kind, width, mark, taken, len(after), after == ["mark"], op.name in _SPECIAL
        )
    return found


def operations(stream: IO[bytes], budget: Budget) -> Iterator[tuple[Opcode, Any, int]]:
    """Opcode, argument and place of each until STOP. Raises ValueError where the unpickler would stop too."""
    table, read = _table(), stream.read
    at = stream.tell() if stream.seekable() else 0
    frame = 0
    while True:
        code = read(1)
        opcode = table.get(code)
        if opcode is None:
            raise ValueError("no opcode")
        budget.opcodes -= 1
        arg, length = _argument(stream, opcode, budget) if opcode.kind else (None, 0)
        stop = at + 1 + length
        framed = stop + int(arg) if opcode.name == "FRAME" and arg is not None else stop
        if at < frame < stop or stop < frame < framed:
            yield HIDES, None, at
        frame = max(frame, framed) if opcode.name == "FRAME" else frame
        yield opcode, arg, at
        at = stop
        if opcode.name == "STOP":
            return


def _argument(stream: IO[bytes], opcode: Opcode, budget: Budget) -> tuple[Any, int]:
    kind, width = opcode.kind, opcode.width
    if kind == "skip":
        return None, len(_exactly(stream, width))
    if kind == "number":
        return int.from_bytes(_exactly(stream, width), "little"), width
    if width:
        length = int.from_bytes(_exactly(stream, width), "little")
        raw = _counted(stream, length, keep=kind != "bytes")
        return _text(raw, "utf-8" if kind == "text" else "latin-1", budget), width + length
    first, length = _line(stream)
    if kind != "pair":
        text = first.strip(b" \t\r")[1:-1] if kind == "quoted" and first is not None else first
        return _text(text, "raw_unicode_escape" if opcode.name == "UNICODE" else "utf-8", budget), length
    second, more = _line(stream)
    return f"{_text(first, 'utf-8', budget)} {_text(second, 'utf-8', budget)}", length + more


def _text(raw: bytes | None, encoding: str, budget: Budget) -> str | None:
    if raw is None:
        return None
    budget.text -= len(raw)
    return raw.decode(encoding, "replace")


def _exactly(stream: IO[bytes], length: int) -> bytes:
    raw = stream.read(length)
    if len(raw) < length:
        raise ValueError("cut short")
    return raw


def _counted(stream: IO[bytes], length: int, *, keep: bool) -> bytes | None:
    """So many bytes; None when they are too many to be a name, which are passed over."""
    if length <= TEXT_KEPT:
        raw = _exactly(stream, length)
        return raw if keep else None
    if stream.seekable():
        if length > 1 << 62:
            raise ValueError("cut short")
        stream.seek(length - 1, 1)
        _exactly(stream, 1)
        return None
    while length > 0:
        length -= len(_exactly(stream, min(length, _PIECE)))
    return None


def _line(stream: IO[bytes]) -> tuple[bytes | None, int]:
    """What comes before the next line feed, and the bytes that were read; None for what is too long to be a name."""
    raw = stream.readline(TEXT_KEPT)
    length = len(raw)
    if raw.endswith(b"\n"):
        return raw[:-1], length
    while raw and not raw.endswith(b"\n"):
        raw = stream.readline(_PIECE)
        length += len(raw)
    if not raw:
        raise ValueError("cut short")
    return None, length
