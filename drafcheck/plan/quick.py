"""The usual verdict on a healthy mapping in a twentieth of the time, for a process that checks many checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from drafcheck.tensor import Tensor

_TYPES = {"I64": "<i8", "I32": "<i4"}


class Ids(Sequence[int]):
    """Whole numbers that stay in a numpy array until somebody looks: at a healthy mapping hardly anyone does."""

    def __init__(self, values: Any) -> None:
        """``values`` is a one-dimensional array in the byte order of this machine."""
        self._values = values

    def __len__(self) -> int:
        """How many."""
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        """One of them, or several as a list."""
        found: int | list[int] = self._values[index].tolist()
        return found

    def __iter__(self) -> Iterator[int]:
        """Plain integers in order."""
        return iter(memoryview(self._values))  # one at a time: whoever asks for any() needs the first few

    def __eq__(self, other: object) -> bool:
        """Whether ``other`` is a sequence of the same numbers."""
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        """By the bytes."""
        return hash(self._values.tobytes())


def warm_up() -> None:
    """Import numpy, which ``confirmed`` then uses: worth its time for some tens of checkpoints."""
    import numpy  # noqa: F401


def confirmed(tensor: Tensor, data: bytes, mask: bytes | None) -> tuple[Ids, Ids] | None:
    """The offsets in ``data`` and the target tokens they lead to, when ``mask`` keeps exactly these, each reached once.

    That is what ``judge`` calls ``offset`` and certain. None when it is not so, and always when numpy is not loaded:
    for one checkpoint its import takes longer than the plain way, which decides then.
    """
    if "numpy" not in sys.modules or not mask or tensor.dtype not in _TYPES:
        return None
    if len(data) != tensor.numel * _width(tensor):
        return None
    import numpy  # another thread may be amid importing it: this waits, what is in sys.modules would be half of it

    offsets = numpy.frombuffer(data, _TYPES[tensor.dtype]).astype(numpy.int64)
    if not offsets.any():
        return None
    tokens = offsets + numpy.arange(offsets.size)
    if tokens.min() < 0 or tokens.max() >= len(mask):
        return None
    reached = numpy.zeros(len(mask), numpy.uint8)
    reached[tokens] = 1
    if reached.tobytes() != mask or numpy.count_nonzero(reached) != offsets.size:
        return None
    return Ids(offsets), Ids(tokens)


def _width(tensor: Tensor) -> int:
    return int(_TYPES[tensor.dtype][-1])
