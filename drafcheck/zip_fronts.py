"""The files of a zip archive without its directory, such as one whose download was cut short.

Each file has a header of its own in front of it. No loader goes by them, but what they hold is there for whoever
mends the archive, and for programs that read it as a stream.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from drafcheck.magic import ZIP
from drafcheck.source import Source

if TYPE_CHECKING:
    from zipfile import ZipInfo

FRONT_BYTES = 30
"""The length of the header in front of a file, before the name and the extra field; it begins with ``ZIP``."""

REACH = 16 << 20
"""So many bytes from the start of a file are searched for headers; torch writes its pickle first."""

MOST = 20_000
"""So many headers are looked at."""

_PIECE = 1 << 20
_METHODS = (0, 8, 12, 14)  # stored, deflated, bzip2, lzma
_NAME_BYTES = 512  # longer ones are taken for bytes that happen to look like a header


def fronts(source: Source) -> list[ZipInfo]:
    """The files that have a header, in the order of their bytes: each goes on until the next one. Raises SourceError.

    Sizes are not believed: torch writes none there, and a wrong one could hide what follows.
    """
    found = [info for at in _places(source) if (info := _entry(source, at)) is not None]
    ends = [*(info.header_offset for info in found[1:]), source.size()]
    for info, end in zip(found, ends, strict=False):  # of no file there is an end too many
        start = info.header_offset + FRONT_BYTES + info.compress_size
        info.file_size = info.compress_size = max(end - start, 0)
    return found


def _places(source: Source) -> list[int]:
    places: list[int] = []
    for start in range(0, min(REACH, source.size()), _PIECE):
        if len(places) >= MOST:
            break
        data = source.read(start, start + _PIECE + len(ZIP) - 1)
        at = data.find(ZIP)
        while at >= 0:
            places.append(start + at)
            at = data.find(ZIP, at + len(ZIP))
    return places[:MOST]


def _entry(source: Source, at: int) -> ZipInfo | None:
    """What a header says of its file, whose ``compress_size`` is that of name and extra field; None for no header."""
    from zipfile import ZipInfo

    head = source.read(at, at + FRONT_BYTES + _NAME_BYTES)
    if len(head) < FRONT_BYTES:
        return None
    flags, method = struct.unpack_from("<2H", head, 6)
    named, extra = struct.unpack_from("<2H", head, FRONT_BYTES - 4)
    name = head[FRONT_BYTES : FRONT_BYTES + named].decode("utf-8", "replace")
    if method not in _METHODS or not 0 < named <= _NAME_BYTES or not name.isprintable():
        return None
    info = ZipInfo(name)
    info.header_offset, info.flag_bits, info.compress_type = at, flags, method
    info.compress_size = named + extra
    return info
