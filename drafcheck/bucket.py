"""Checkpoints in buckets, ``s3://bucket/path`` and ``gs://bucket/path``, with the credentials that fsspec finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drafcheck.errors import UsageError
from drafcheck.place import ListedPlace, Place, inside
from drafcheck.remote import Part, RemoteFile
from drafcheck.source import Source
from drafcheck.words import plural

_PACKAGES = {"s3": "s3fs", "gs": "gcsfs"}


def open_bucket(address: str) -> tuple[Place, str | None]:
    """The folder at a bucket's address and, when it names a file, the file's name.

    Raises UsageError when the extra is not installed, nothing is there, or it may not be read.
    """
    scheme, _, path = address.rstrip("/").partition("://")
    system = _system(scheme)
    files = _listing(system, path, address)
    folder, name = (path, None) if path not in files else (path.rpartition("/")[0], path.rpartition("/")[2])
    if name is not None:
        files = _listing(system, folder, address)
    here = f"{scheme}://{folder}"

    def opener(file: str) -> Source:
        full = f"{folder}/{file}"
        return RemoteFile(file, BucketReader(system, full, f"{here}/{file}", files[full]), files[full])

    return ListedPlace(here, inside(files, folder), opener), name


class BucketReader:
    """One file of a bucket."""

    def __init__(self, system: Any, path: str, what: str, size: int) -> None:
        """The file at ``path`` of an fsspec file system, called ``what`` in messages, of ``size`` bytes."""
        self._system = system
        self._path = path
        self._what = what
        self._bytes = size

    def part(self, start: int, stop: int, size: int | None) -> Part:  # noqa: ARG002 - the list of files said it
        """The bytes from ``start`` to ``stop``. Raises UsageError."""
        stop = min(stop, self._bytes)
        data = _ask(self._what, lambda: self._system.cat_file(self._path, start=start, end=stop))
        if len(data) != stop - start:
            raise UsageError(f"{self._what}: {plural(len(data), 'byte')} came where {stop - start} were asked for")
        return Part(data, self._bytes)

    def whole(self, limit: int) -> Part:
        """The first ``limit`` bytes. Raises UsageError."""
        return self.part(0, min(limit, self._bytes), None) if self._bytes else Part(b"", 0)


def _system(scheme: str) -> Any:
    try:
        import fsspec

        return fsspec.filesystem(scheme)
    except ImportError as error:
        package = _PACKAGES[scheme]
        raise UsageError(
            f"{scheme}:// addresses need {package}: install it, or drafcheck with its extra [{scheme}]"
        ) from error


def _listing(system: Any, path: str, address: str) -> dict[str, int]:
    """Every file at most one folder down, by its full path, with its size."""
    found = _ask(address, lambda: system.find(path, maxdepth=2, detail=True))
    files = {name.lstrip("/"): info for name, info in found.items() if info.get("type") == "file"}
    if not files:
        raise UsageError(f"{address}: there is nothing")
    return {name: int(info.get("size") or 0) for name, info in files.items()}


def _ask(what: str, question: Callable[[], Any]) -> Any:
    """The answer of a file system; its libraries raise errors of a hundred kinds, some of them many lines long."""
    try:
        return question()
    except FileNotFoundError as error:
        raise UsageError(f"{what}: there is nothing") from error
    except PermissionError as error:
        raise UsageError(f"{what}: may not be read with the credentials at hand") from error
    except Exception as error:
        first = "".join(f": {line}" for line in str(error).splitlines()[:1])
        raise UsageError(f"{what}: cannot be read ({type(error).__name__}{first})") from error
