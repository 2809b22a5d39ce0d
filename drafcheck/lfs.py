"""Git LFS pointers: the small text that stands for a big file after a clone without LFS."""

from __future__ import annotations

import re

from drafcheck.finding import Location
from drafcheck.tensor import Problem, Trouble
from drafcheck.words import plural

_FIRST_LINE = b"version https://git-lfs.github.com/spec/v1"
POINTER_LIMIT = 1024
"""Pointers are shorter than this many bytes, by the specification of Git LFS."""


def lfs_pointer(head: bytes, size: int, file: str) -> Problem | None:
    """The problem of a file that is a Git LFS pointer, or None.

    ``head`` holds the file's first bytes (POINTER_LIMIT of them will do), ``size`` its length in bytes.
    """
    if not head.startswith(_FIRST_LINE):
        return None
    meant = re.search(rb"^size (\d{1,19})$", head[:POINTER_LIMIT], re.MULTILINE)
    stands_for = f"a file of {plural(int(meant[1]), 'byte')}" if meant else "a file that was not fetched"
    return Problem(
        Trouble.LFS_POINTER,
        f"{file} is a git lfs pointer of {size} bytes that stands for {stands_for}",
        Location(file=file),
        help="fetch the file: run `git lfs pull` in the clone, or download the checkpoint with `hf download`",
    )
