"""Zip archives with two directories: torch's reader finds one of them, Python's zipfile may find the other."""

from __future__ import annotations

import struct
import zlib

Members = list[tuple[str, bytes]]


def _local(name: str, data: bytes) -> bytes:
    sizes = (zlib.crc32(data), len(data), len(data), len(name), 0)
    return struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, *sizes) + name.encode() + data


def _entry(name: str, data: bytes, at: int) -> bytes:
    sizes = (zlib.crc32(data), len(data), len(data), len(name), 0, 0, 0, 0, 0, at)
    return struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 33, *sizes) + name.encode()


def laid(members: Members, at: int, shift: int = 0) -> tuple[bytes, bytes]:
    """The files from byte ``at`` on, and their directory, whose places are ``shift`` too small."""
    body = entries = b""
    for name, data in members:
        entries += _entry(name, data, at + len(body) - shift)
        body += _local(name, data)
    return body, entries


def end(files: int, length: int, at: int, comment: bytes = b"") -> bytes:
    return struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, files, files, length, at, len(comment)) + comment


def wide(files: int, length: int, at: int) -> bytes:
    return struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, files, files, length, at)


def locator(at: int) -> bytes:
    return struct.pack("<4sIQI", b"PK\6\7", 0, at, 1)


def plain(members: Members, *, large: bool = False, comment: bytes = b"") -> bytes:
    """As every writer has it, ``large`` with the records of large archives."""
    body, entries = laid(members, 0)
    at, total = len(body), len(body) + len(entries)
    more = wide(len(members), len(entries), at) + locator(total) if large else b""
    return body + entries + more + end(len(members), len(entries), at, comment)


def doubled(torchs: Members, others: Members) -> dict[str, bytes]:
    """Files in which torch reads ``torchs`` and something else, if it reads the file at all, reads ``others``."""
    ours, first = laid([*torchs, ("a/pad", bytes(40960))], 0)
    head, files = ours + first, len(others) + 1
    room = len(first)
    body, _ = laid([*others, ("a/pad", b"x")], len(head))
    _, second = laid([*others, ("a/pad", b"x")], len(head), shift=len(head) + len(body) - len(ours))
    assert len(second) == room
    straight, second_straight = laid(others, len(head))
    at = len(head) + wide_size()
    far, far_entries = laid(others, at)
    record = wide(files, room, len(ours))
    base = head + record + far + far_entries
    last = locator(len(head)) + end(len(others), len(far_entries), at + len(far))
    behind = head + straight + second_straight
    comment = end(files, room, len(ours))
    return {
        "the end names another directory": head + body + second + end(files, room, len(ours)),
        "the locator names another record": base + wide(len(others), len(far_entries), at + len(far)) + last,
        "the locator names a record elsewhere": base + last,
        "an end in the comment": behind + end(len(others), len(second_straight), len(head + straight), comment),
        "an end behind the end": behind + end(len(others), len(second_straight), len(head + straight)) + comment,
    }


def wide_size() -> int:
    return len(wide(0, 0, 0))
