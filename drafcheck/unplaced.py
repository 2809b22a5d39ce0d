"""The values of tensors that do not lie in one piece: views with steps of a storage, and compressed storages.

torch loads both, so that what is wrong with their values is served as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from drafcheck.source import SourceError
from drafcheck.tensor import View

if TYPE_CHECKING:
    from drafcheck.checkpoint import WeightFile
    from drafcheck.tensor import Tensor

LIMIT = 64 << 20
"""Bytes between the first and the last value that are read at once, and bytes of the values."""

_NEAR = 4096  # values of a row that lie so near each other are read in one go


class _Reads(Protocol):
    def read(self, start: int, stop: int) -> bytes: ...


def values_in(file: WeightFile, tensor: Tensor) -> bytes:
    """The bytes of all values, in their order. Raises SourceError where they can not be had, with the why."""
    import numpy as np

    source, view = _placed(file, tensor)
    if not tensor.numel:
        return b""
    if max(view.reach, tensor.numel * view.width) > LIMIT:
        raise SourceError(f"{tensor.name:.100} lies apart over more than {LIMIT} bytes")
    data = source.read(view.start, view.start + view.reach)
    values: bytes = np.ndarray(view.shape, f"V{view.width}", data, strides=view.steps).tobytes()
    return values


class Rows:
    """The rows of a matrix that does not lie in one piece."""

    def __init__(self, file: WeightFile, tensor: Tensor) -> None:
        """The matrix in its file. Raises SourceError where its values can not be had."""
        self._source, self._view = _placed(file, tensor)
        self.width = self._view.shape[1] * self._view.width
        """Bytes of a row."""

    def read(self, row: int, length: int) -> bytes:
        """The first ``length`` bytes of a row, whole values; of values that repeat one. Raises SourceError."""
        from drafcheck.valuescan.views import windows

        view = self._view
        first = view.start + row * view.steps[0]
        part = View(first, (length // view.width,), view.steps[1:], view.width)
        reads = ((w, self._source.read(w.start, w.start + w.length)) for w in windows(part, _NEAR))
        return b"".join(window.picked(memoryview(data)) for window, data in reads)


def _placed(file: WeightFile, tensor: Tensor) -> tuple[_Reads, View]:
    """What reads the storage of a tensor, and where the values lie in it. Raises SourceError."""
    header = file.header
    packed, view = header.packed.get(tensor.name), header.views.get(tensor.name)
    if packed is not None and packed.view.shape == tensor.shape:
        from drafcheck.valuescan.packed import Inflated, refused

        if (why := refused(packed)) is not None:
            raise SourceError(f"{tensor.name:.100} is not unpacked: {why}")
        return Inflated(file.source, packed), packed.view
    if view is not None and view.shape == tensor.shape:
        return file, view
    known = header.uncopied.get(tensor.name)
    raise SourceError(
        f"{tensor.name:.100} {known.why}"
        if known is not None
        else f"the bytes of {tensor.name:.100} cannot be addressed in {tensor.file}"
    )
