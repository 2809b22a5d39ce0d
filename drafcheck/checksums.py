"""The checksums that torch.save writes beside the storages of a PyTorch file, and that torch.load does not compare."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.source import LocalFile, SourceError

if TYPE_CHECKING:
    from drafcheck.checkpoint import WeightFile
    from drafcheck.source import Source
    from drafcheck.tensor import Summed

_PIECE = 1 << 20


def damaged(file: WeightFile) -> Iterator[str]:
    """The first tensor of each storage whose bytes are not those that were summed up; reads all of them.

    Nothing of a file at an address, which would have to be fetched once more, and nothing that can not be read. A
    storage that is packed is not unpacked for it. torch writes 0 where it was told to sum up nothing
    (``torch.serialization.set_crc32_options``, 2.13).
    """
    if isinstance(file.source, LocalFile):
        source = LocalFile(file.source.path, file.name)
        source.expect_all()
        yield from (one.tensor for one in file.header.sums if one.crc and not one.packed and _differs(source, one))
        source.close()


def _differs(source: Source, one: Summed) -> bool:
    crc = 0
    try:
        for start in range(one.start, one.stop, _PIECE):
            stop = min(start + _PIECE, one.stop)
            data = source.read(start, stop)
            if len(data) < stop - start:
                return False  # said elsewhere
            crc = zlib.crc32(data, crc)
    except SourceError:
        return False
    return crc != one.crc
