"""The values of a tensor that is a view with steps of a storage: slices, transposes, rows that are repeated.

A view is cut into windows, stretches of the file that hold whole parts of it; of each the values are picked out. The
windows of a view do not overlap, so that no byte is read twice, and what is not its own lies between its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from drafcheck.tensor import View


class Window(NamedTuple):
    """``length`` bytes of the file from ``start`` on, in which ``sizes`` values lie ``steps`` bytes apart."""

    start: int
    length: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    width: int

    @property
    def held(self) -> int:
        """The bytes of its values."""
        return prod(self.sizes) * self.width

    def picked(self, data: memoryview) -> memoryview:
        """The values one after the other, of the bytes of the window."""
        if self.held == self.length:
            return data
        values = np.ndarray(self.sizes, f"u{self.width}", data, strides=self.steps)
        return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def windows(view: View, most: int) -> Iterator[Window]:
    """The windows of a view, none longer than ``most`` bytes. Repeated values come once."""
    sides = view.sides()
    length, inner = view.width, len(sides)
    while inner and length + (sides[inner - 1][0] - 1) * sides[inner - 1][1] <= most:
        inner -= 1
        length += (sides[inner][0] - 1) * sides[inner][1]
    sizes, steps = tuple(size for size, _ in sides[inner:]), tuple(step for _, step in sides[inner:])
    if not inner:
        yield Window(view.start, length, sizes, steps, view.width)
        return
    size, step = sides[inner - 1]
    group = max((most - length) // step + 1, 1)
    for places in product(*(range(count) for count, _ in sides[: inner - 1])):
        base = view.start + sum(place * far for place, (_, far) in zip(places, sides, strict=False))
        for at in range(0, size, group):
            count = min(group, size - at)
            yield Window(base + at * step, length + (count - 1) * step, (count, *sizes), (step, *steps), view.width)


def row_of(view: View, most: int) -> int | None:
    """The bytes of a row, where the windows hold whole rows in the order of the tensor; None where they do not."""
    if len(view.shape) < 2 or view.shape[-1] == 1 or not view.ordered:
        return None
    size, step = view.sides()[-1]  # of one row, or of several without a gap between them
    return view.shape[-1] * view.width if view.width + (size - 1) * step <= most else None
