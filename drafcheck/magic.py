"""How files begin that may be weights under another name."""

from __future__ import annotations

ZIP = b"PK\x03\x04"
"""What an archive with members begins with, as PyTorch writes it."""

_PROTOCOLS = range(2, 6)
_FIRST = frozenset(b"}])(cCGJKLMNUX\x88\x89\x8a\x8c\x8f\x95")


def begins_pickle(head: bytes) -> bool:
    """Whether the first three bytes of a file are those of a pickle as Python writes it.

    The first alone says nothing: one in 256 of all files without a format begins with it, and a safetensors file whose
    header is 128 bytes long, or 640, which begins with the second one too. Behind them comes what needs nothing on the
    stack: a FRAME, an empty dict, a global, a number.
    """
    return len(head) > 2 and head[0] == 0x80 and head[1] in _PROTOCOLS and head[2] in _FIRST
