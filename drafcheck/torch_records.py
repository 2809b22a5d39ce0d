"""The files of a torch archive: those that torch.load opens beside the pickle, and the storages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from drafcheck.pickle_machine import PickleError
from drafcheck.tensor import Uncopied
from drafcheck.torch_zip import Archive, UnreadableError
from drafcheck.words import plural
from drafcheck.zip_members import DEFLATED, STORED

if TYPE_CHECKING:
    from zipfile import ZipInfo

    from drafcheck.pickle_places import Sum
    from drafcheck.pickle_records import Storage

RECORD_LIMIT = 1 << 16
"""The longest of the small files in bytes that is read; torch writes no more than 40."""

_VERSIONS = (1, 10)
"""The oldest and the newest version of its zip format that torch reads."""

_UNUSED: tuple[tuple[str, Callable[[bytes], object] | None], ...] = (
    (".data/serialization_id", bytes.decode),
    (".format_version", None),
    (".storage_alignment", int),
)
"""What torch reads though nothing of the tensors hangs on it, and what it makes of that."""


def check_records(archive: Archive) -> None:
    """What torch asks of an archive before it looks at the pickle: caffe2/serialize/inline_container.cc 2.13.

    Raises PickleError, and UnreadableError for what is an archive of another kind.
    """
    for info in archive.entries:
        if not archive.prefix or not info.filename.startswith(archive.prefix):
            raise PickleError(
                f"is a zip archive with {info.filename:.200} outside of its first file's folder, which torch refuses"
            )
    version = archive.named(".data/version") or archive.named("version")
    if version is None:
        raise PickleError("is a zip archive that says no version of its format, which torch refuses")
    text = archive.content(version, RECORD_LIMIT)
    number = re.match(rb"[\t-\r ]*\+?(\d+)", text)
    if number is None or not _VERSIONS[0] <= int(number[1]) <= _VERSIONS[1]:
        said = text[:40].decode("latin-1").strip()
        raise PickleError(f"has the version {said!r} of its format, where torch reads {_VERSIONS[0]} to {_VERSIONS[1]}")
    names = (info.filename.partition("\0")[0] for info in archive.entries)
    if archive.prefix + "constants.pkl" in names:
        raise UnreadableError("is a TorchScript archive (it has constants.pkl), no file of tensors")
    _check_more(archive)


def _check_more(archive: Archive) -> None:
    """The records that torch reads though nothing of the tensors is in them. Raises PickleError."""
    for name, made in _UNUSED:
        info = archive.named(name)
        if info is None:
            continue
        if made is None:
            archive.opened(info)
            continue
        try:
            made(archive.content(info, RECORD_LIMIT))
        except ValueError as error:
            raise PickleError(f"has a {info.filename:.200} at which torch stops: {error}") from error


class Places:
    """Finds the bytes of storages in an archive."""

    def __init__(self, archive: Archive) -> None:
        """Raises PickleError for an order of bytes that torch does not know."""
        self._archive = archive
        self._read: set[str] = set()  # torch reads a storage where it is first mentioned, and believes that mention
        order = archive.named("byteorder")
        said = archive.content(order, RECORD_LIMIT) if order is not None else b"little"
        if said not in (b"little", b"big"):  # torch.load raises
            raise PickleError("does not say whether its bytes are little-endian or big-endian")
        self._swapped = said == b"big"
        self.hidden = Uncopied("is big-endian" if self._swapped else "is compressed")
        """Why bytes cannot be addressed, where they cannot."""

    def find(self, storage: Storage) -> tuple[int, int] | None:
        """(start, stop) of a storage, start -1 when it is hidden, None when the archive has no such file."""
        info = self._named(storage)
        if info is None:
            return None
        wanted = storage.numel * storage.width
        if wanted != info.file_size and storage.key not in self._read:
            raise PickleError(
                f"has {plural(info.file_size, 'byte')} in {info.filename:.200}, where its pickle says {wanted}"
            )
        self._read.add(storage.key)
        start = self._archive.opened(info)
        if info.compress_type != STORED or self._swapped:
            return -1, info.file_size - 1
        return start, start + info.file_size

    def packed(self, storage: Storage) -> tuple[int, int, int] | None:
        """(start, stop) of a compressed storage and its length unpacked; None for another, or a big-endian one."""
        info = self._named(storage)
        if info is None or self._swapped or info.compress_type != DEFLATED:
            return None
        start = self._archive.opened(info)
        return start, start + info.compress_size, info.file_size

    def summed(self, storage: Storage) -> Sum | None:
        """(start, stop) of a storage, its CRC-32 as the archive gives it, and whether it is compressed."""
        info = self._named(storage)
        if info is None:
            return None
        start = self._archive.opened(info)
        packed = info.compress_type == DEFLATED
        return start, start + (info.compress_size if packed else info.file_size), info.CRC, packed

    def _named(self, storage: Storage) -> ZipInfo | None:
        return self._archive.named(f"data/{storage.key}")
