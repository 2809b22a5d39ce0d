"""Addresses of checkpoints that are not on this machine: ``hf://``, ``https://``, ``s3://`` and ``gs://``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafcheck.errors import UsageError

if TYPE_CHECKING:
    from drafcheck.place import Place

WEB = ("https", "http")
BUCKETS = ("s3", "gs")
SCHEMES = ("hf", *WEB, *BUCKETS)


def is_remote(path: str) -> bool:
    """Whether a path on the command line is an address. ``://`` with an unknown scheme is one too: no file is meant."""
    scheme, mark, _ = path.partition("://")
    return bool(mark) and scheme.isalnum()


def join(address: str, name: str) -> str:
    """The address of a file in the folder at ``address``."""
    return f"{address.rstrip('/')}/{name}"


def open_address(address: str) -> tuple[Place, str | None]:
    """The folder at an address and, when it names a file, the file's name in that folder.

    Raises UsageError when nothing is there, when it may not be read or cannot be reached.
    """
    scheme = address.partition("://")[0]
    if scheme == "hf":
        from drafcheck.hub import open_hub

        return open_hub(address)
    if scheme in WEB:
        from drafcheck.web import open_web

        return open_web(address)
    if scheme in BUCKETS:
        from drafcheck.bucket import open_bucket

        return open_bucket(address)
    known = ", ".join(f"{word}://" for word in SCHEMES)
    raise UsageError(f"{address}: addresses begin with one of {known}")
