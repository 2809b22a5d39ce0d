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


class View(NamedTuple):
    """Where the values of a tensor lie that is a view of a storage, in bytes of its file.

    The first one is at ``start``; ``steps`` has, for each side of ``shape``, how far the next one is. No two values
    share a place, but along a side whose step is 0.
    """

    start: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    width: int

    def sides(self) -> list[tuple[int, int]]:
        """Size and step of the sides, the widest step first; those that repeat values, or have one, are left out.

        Two sides that lie one in the other without a gap are one.
        """
        found: list[tuple[int, int]] = []
        sides = [(step, size) for size, step in zip(self.shape, self.steps, strict=True) if size != 1 and step]
        for step, size in sorted(sides, reverse=True):
            if found and found[-1][1] == size * step:
                found[-1] = found[-1][0] * size, step
            else:
                found.append((size, step))
        return found

    @property
    def ordered(self) -> bool:
        """Whether the values come in the order of their places, none of them repeated."""
        steps = [step for size, step in zip(self.shape, self.steps, strict=True) if size != 1]
        return 0 not in steps and steps == sorted(steps, reverse=True)

    @property
    def reach(self) -> int:
        """The bytes from the first value to the end of the last one."""
        return self.width + sum((size - 1) * step for size, step in self.sides())


class Packed(NamedTuple):
    """Where the storage of a tensor lies deflated: from ``start`` to ``stop`` of its file; ``size`` bytes unpacked.

    ``view`` has the places of the values in the storage.
    """

    start: int
    stop: int
    size: int
    view: View


class Summed(NamedTuple):
    """A storage from ``start`` to ``stop`` of its file, its CRC-32 as the archive says, and its first tensor's name.

    ``packed``: it lies there deflated, and the checksum is that of what unpacks.
    """

    start: int
    stop: int
    crc: int
    packed: bool
    tensor: str


class Uncopied(NamedTuple):
    """Why an entry of a file of torch.save can not become a tensor of safetensors by a copy of its bytes.

    ``why`` continues its name: "is a sparse tensor". ``call`` is the method of a torch tensor that gives one that can
    be written, "" where it takes none or there is none. ``stops`` is what torch 2.13 says where such a tensor is copied
    into a plain one, as loaders do; "" where it copies it.
    """

    why: str
    call: str = ""
    stops: str = ""


class Entry(NamedTuple):
    """What the dict of a PyTorch file holds beside tensors; loaders are given it like one.

    ``key`` is a text, or for a key that is none its ``repr``; then ``odd`` is the name that Python has for its type.
    ``kind`` is that of the value: ``int``, ``dict``, ``NoneType``; "" for one that is not told apart, or of an odd key.
    ``inside`` is how many tensors a dict holds, ``before`` how many of the file come before the entry.
    """

    key: str
    kind: str
    file: str
    odd: str = ""
    inside: int = 0
    before: int = 0


class Trouble(str, Enum):
    """The kinds of trouble a reader can meet; each belongs to one rule of the 0xx family."""

    NO_CONFIG = "no-config"
    BAD_CONFIG = "bad-config"
    LFS_POINTER = "lfs-pointer"
    CORRUPT = "corrupt"
    ODD = "odd"  # nothing that a reader stops at or takes otherwise
    UNSAFE_PICKLE = "unsafe-pickle"
    UNREADABLE = "unreadable"
    BAD_INDEX = "bad-index"


class Problem(NamedTuple):
    """A fault found while reading; a check of the 0xx family turns it into a finding.

    ``message`` is one lower-case sentence with the numbers; ``location`` says where. ``stops`` is false where loaders
    take the file all the same.
    """

    trouble: Trouble
    message: str
    location: Location
    help: str | None = None
    stops: bool = True

    @property
    def said(self) -> str:
        """The message alone, with what the file is where the help tells it."""
        return f"{self.message}: {self.help}" if self.help and self.help.startswith("this is ") else self.message
