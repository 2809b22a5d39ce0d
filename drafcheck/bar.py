"""A line of progress that leaves the terminal as it was, whenever Ctrl-C comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

V = TypeVar("V")


@contextmanager
def restored(bar: ProgressBar[V]) -> Iterator[ProgressBar[V]]:
    """Enter a bar of click's and finish it, also where it is interrupted while it draws itself for the first time.

    It hides the cursor then, and a ``with`` of its own begins only behind that.
    """
    try:
        yield bar.__enter__()
    finally:
        bar.render_finish()
