"""The directory of a zip archive, entry by entry, as torch's reader (miniz) takes it.

Python's zipfile takes it otherwise: it cuts names at a NUL, replaces them by what an extra field says, and refuses
versions and extra fields that miniz never looks at.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from drafcheck.words import plural
from drafcheck.zip_ends import End

if TYPE_CHECKING:
    from zipfile import ZipInfo

ENTRY, ENTRY_BYTES = b"PK\x01\x02", 46
LOCAL = 30
"""Bytes of a local header, before the name and the extra field."""

STORED = 0
_UTF8 = 1 << 11
_MASKED = 1 << 13
_WIDE, _WIDE_FIELD = 0xFFFFFFFF, 1
_LONGEST = 511  # bytes of a name that torch looks at when it lists all


class BrokenDirectoryError(Exception):
    """A directory at which miniz stops. The message continues the file's name."""


def entries_of(data: bytes, end: End, size: int) -> tuple[list[ZipInfo], str | None]:
    """The files of a directory, in a file of ``size`` bytes, and why others may find more of them; None for most.

    Each has the name that is written there, whole: ``raw_name`` gives its bytes. Raises BrokenDirectoryError where
    miniz stops.
    """
    found: list[ZipInfo] = []
    at = 0
    for number in range(end.files):
        fixed, name, extra, at = _cut(data, at, number, end.files)
        info = _entry(fixed, name, extra)
        _check(info, end, size)
        _check_name(name)
        found.append(info)
    return found, f"its directory goes on behind the {plural(end.files, 'file')} that it says" if at < len(
        data
    ) else None


def raw_name(info: ZipInfo) -> bytes:
    """The bytes of a name, by which torch compares."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437", "surrogateescape")


def found_first(names: list[bytes], wanted: bytes) -> int:
    """Which of several files of one name miniz takes: it sorts the directory by a heap and halves it to find one."""
    order = _heap_sorted(names)
    low, high = 0, len(order) - 1
    while low <= high:
        middle = (low + high) // 2
        name = names[order[middle]]
        if name == wanted:
            return order[middle]
        low, high = (middle + 1, high) if name < wanted else (low, middle - 1)
    raise KeyError(wanted)


def _heap_sorted(names: list[bytes]) -> list[int]:
    """The numbers of names in their order; which of equal ones comes first is that of this very sort."""
    order = list(range(len(names)))

    def sift(root: int, end: int) -> None:
        while (child := 2 * root + 1) < end:
            child += child + 1 < end and names[order[child]] < names[order[child + 1]]
            if names[order[root]] >= names[order[child]]:
                return
            order[root], order[child] = order[child], order[root]
            root = child

    for start in range((len(order) - 2) >> 1, -1, -1):
        sift(start, len(order))
    for end in range(len(order) - 1, 0, -1):
        order[end], order[0] = order[0], order[end]
        sift(0, end)
    return order


def _cut(data: bytes, at: int, number: int, files: int) -> tuple[bytes, bytes, bytes, int]:
    """The fixed part of an entry, its name, its extra fields, and where it ends."""
    behind = at + ENTRY_BYTES
    if not data.startswith(ENTRY, at) or behind > len(data):
        raise BrokenDirectoryError(
            f"is a broken zip archive: its directory has {plural(number, 'file')} and says {files}"
        )
    named, extra, comment = struct.unpack_from("<3H", data, at + 28)
    stop = behind + named + extra + comment
    if stop > len(data):
        raise BrokenDirectoryError(f"is a broken zip archive: its directory ends in its file number {number + 1}")
    return data[at:behind], data[behind : behind + named], data[behind + named : stop - comment], stop


def _entry(fixed: bytes, name: bytes, extra: bytes) -> ZipInfo:
    from zipfile import ZipInfo

    flags, method, time, crc, packed, length = struct.unpack("<3H2x3I", fixed[8:28])
    disk, external, place = struct.unpack("<H2x2I", fixed[34:])
    if extra and _WIDE in (packed, length, place):
        length, packed, place = _widened(extra, length, packed, place)
    info = ZipInfo("", (1980, 1, 1, time >> 11, (time >> 5) & 0x3F, (time & 0x1F) * 2))
    text = name.decode("utf-8" if flags & _UTF8 else "cp437", "surrogateescape")
    info.orig_filename, info.filename = text, text.encode("utf-8", "replace").decode()
    info.flag_bits, info.compress_type, info.CRC = flags, method, crc
    info.compress_size, info.file_size, info.header_offset = packed, length, place
    info.volume, info.external_attr = disk, external
    return info


def _widened(extra: bytes, *values: int) -> list[int]:
    """Numbers that do not fit into 32 bits, from the field of the extra ones that has them."""
    at, found = 0, list(values)
    while at < len(extra):
        kind, length = struct.unpack_from("<2H", extra, at) if at + 4 <= len(extra) else (0, len(extra))
        if at + 4 + length > len(extra):
            raise BrokenDirectoryError("is a broken zip archive: an extra field of its directory is cut off")
        if kind == _WIDE_FIELD:
            field = extra[at + 4 : at + 4 + length]
            wide = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
            return [next(wide, value) if value == _WIDE else value for value in found]
        at += 4 + length
    return found


def _check(info: ZipInfo, end: End, size: int) -> None:
    """What miniz asks of each entry when it opens an archive (mz_zip_reader_read_central_dir)."""
    name = f"{info.filename:.200}"
    # Its test for a file that is not packed takes in the time, which torch.save leaves at zero.
    plain = info.compress_type == STORED and info.date_time[3:] == (0, 0, 0)
    if plain and info.file_size != info.compress_size:
        raise BrokenDirectoryError(
            f"is a broken zip archive: its {name} is not packed, and {plural(info.compress_size, 'byte')} of "
            f"{info.file_size}"
        )
    if info.file_size and not info.compress_size:
        raise BrokenDirectoryError(
            f"is a broken zip archive: its {name} has {plural(info.file_size, 'byte')} packed in none"
        )
    if info.volume not in (end.disk, 1):
        raise BrokenDirectoryError(f"is a broken zip archive: its {name} is on disk {info.volume} of several")
    if info.header_offset + LOCAL + info.compress_size > size:
        raise BrokenDirectoryError(f"is a broken zip archive: its {name} needs bytes behind the end of the file")
    if info.flag_bits & _MASKED:
        raise BrokenDirectoryError(f"is a zip archive whose {name} has a masked header, which torch refuses")


def _check_name(name: bytes) -> None:
    """Torch lists all names as text, up to a NUL (``torch.load`` looks for TorchScript among them)."""
    try:
        name[:_LONGEST].partition(b"\0")[0].decode()
    except UnicodeDecodeError as error:
        shown = name.decode("cp437")
        raise BrokenDirectoryError(
            f"is a zip archive whose {shown:.200} has a name that is no UTF-8, which torch refuses"
        ) from error
