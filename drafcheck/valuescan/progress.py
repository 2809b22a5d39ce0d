"""How far a long reading has come, for whoever looks at standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from drafcheck.bar import restored

WORTH = 256 << 20
"""Fewer bytes are read before a bar would be seen."""

_STEP = 16 << 20


@contextmanager
def watched(size: int) -> Iterator[Callable[[int], None] | None]:
    """What to call with every number of bytes that was read, of ``size`` in all; None when that is not worth a bar."""
    if size < WORTH:
        yield None
        return
    import click

    with restored(click.progressbar(length=size, label="reading", file=sys.stderr, update_min_steps=_STEP)) as bar:
        yield bar.update
