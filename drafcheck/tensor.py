"""What the readers tell of a tensor and of what is wrong with a file, before any engine is asked."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from drafcheck.finding import Location


class Tensor(NamedTuple):
    """One tensor as its file declares it.

    ``dtype`` is spelled as safetensors spells it (``BF16``, ``F32``, ``I64``, ``BOOL`` ...), for pickles too.
    ``file`` is the path of its file relative to the checkpoint; ``start`` and ``stop`` are absolute
    byte offsets in that file (for a zip checkpoint: of the stored bytes), both -1 when the bytes
    cannot be addressed.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int = -1
    stop: int = -1

    @property
    def numel(self) -> int:
        """How many elements; 1 for a scalar, 0 for an empty tensor."""
        n = 1
        for d in self.shape:
            n *= d
        return n


class Uncopied(NamedTuple):
    """Why an entry of a file of torch.save can not become a tensor of safetensors by a copy of its bytes.

    ``why`` continues its name: "is a sparse tensor". ``call`` is the method of a torch tensor that gives one that can
    be written, "" where it takes none or there is none. ``stops`` is what torch 2.13 says where such a tensor is copied
    into a plain one, as loaders do; "" where it copies it.
    """

    why: str
    call: str = ""
    stops: str = ""


class Trouble(str, Enum):
    """The kinds of trouble a reader can meet; each belongs to one rule of the 0xx family."""

    NO_CONFIG = "no-config"
    BAD_CONFIG = "bad-config"
    LFS_POINTER = "lfs-pointer"
    CORRUPT = "corrupt"
    UNSAFE_PICKLE = "unsafe-pickle"
    UNREADABLE = "unreadable"
    BAD_INDEX = "bad-index"


class Problem(NamedTuple):
    """A fault found while reading; a check of the 0xx family turns it into a finding.

    ``message`` is one lower-case sentence with the numbers; ``location`` says where.
    """

    trouble: Trouble
    message: str
    location: Location
    help: str | None = None
