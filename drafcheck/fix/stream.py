"""The bytes of files that are made of pieces, on their way to disk: in small steps, whatever their size."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from drafcheck.fix.pieces import Piece, Span
from drafcheck.matrix import APART
from drafcheck.source import LocalFile, Source, SourceError

BUFFER = 4 << 20
"""Bytes that are gathered before they are written: thousands of rows of a head cost few writes."""

LARGE = 1 << 20
"""A stretch of so many bytes is copied by the system itself, without passing through this process."""

STEP = 32 << 20
"""Bytes that the system copies at once: Ctrl-C and a line of progress are not kept waiting."""

REMOTE = 8 << 20
"""Bytes that are asked for at once of a file far away."""

OPEN = 32
"""Files that are held open at a time."""

Tick = Callable[[int], object]
"""Is told how many more bytes were written."""


class Stream:
    """Writes files from pieces, one after another, through one buffer. Use as a context: it holds files open."""

    def __init__(self, tick: Tick) -> None:
        """``tick`` is told of the bytes as they are written."""
        self._tick = tick
        self._buffer = memoryview(bytearray(BUFFER))
        self._filled = 0
        self._goal, self._at, self._begun = -1, 0, 0
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._by_system = hasattr(os, "copy_file_range")  # Linux has it

    def __enter__(self) -> Stream:
        """Nothing is opened before it is read."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was opened."""
        while self._open:
            os.close(self._open.popitem()[1])

    def write(self, pieces: Iterable[Piece], goal: int) -> int:
        """Write pieces one after another into the empty file with the descriptor ``goal``; answers their length.

        Raises SourceError when a piece can not be read whole, OSError when the goal takes no more.
        """
        self._goal, self._at, self._begun, self._filled = goal, 0, 0, 0
        for run in _together(pieces):
            first = run[0]
            if isinstance(first, bytes):
                self._put(first)
            elif isinstance(first.source, LocalFile):
                self._copy(first.source, first.start, first.stop)
            else:
                self._fetch(first.source, [(span.start, span.stop) for span in run if isinstance(span, Span)])
        self._flush()
        return self._at

    def _put(self, data: bytes | memoryview) -> None:
        """Bytes that are in memory."""
        view = memoryview(data)
        while view:
            part = view[: self._room()]
            self._buffer[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            view = view[len(part) :]

    def _fetch(self, source: Source, spans: Sequence[tuple[int, int]]) -> None:
        """Stretches, in ascending order, of a file that is no file of this machine: one long one, or a few near."""
        first, last = spans[0][0], spans[-1][1]
        for start in range(first, last, REMOTE):
            stop = min(start + REMOTE, last)
            data = source.read(start, stop)
            if len(data) < stop - start:
                raise _too_short(source)
            for begin, end in spans:
                self._put(memoryview(data)[max(begin - start, 0) : max(end - start, 0)])
        source.close()

    def _copy(self, source: LocalFile, start: int, stop: int) -> None:
        """A stretch of a file of this machine."""
        file = self._opened(source)
        if self._by_system and stop - start >= LARGE:
            self._flush()
            start = self._copied(file, start, stop)
        while start < stop:
            room = min(self._room(), stop - start)
            try:
                got = os.preadv(file, [self._buffer[self._filled : self._filled + room]], start)
            except OSError as error:
                raise SourceError(f"{source.name} could not be read: {_words(error)}") from error
            if not got:
                raise _too_short(source)
            self._filled += got
            start += got

    def _copied(self, file: int, start: int, stop: int) -> int:
        """Let the system copy as much as it will, and answer where it stopped.

        What it refuses (two file systems, one that can not do it, a sandbox) is copied through the buffer, which also
        tells a fault of the source from one of the goal.
        """
        while start < stop:
            try:
                done = os.copy_file_range(file, self._goal, min(STEP, stop - start), start, self._at)
            except OSError:
                break
            if not done:  # the end of the file; some file systems of old kernels say so anywhere
                break
            start += done
            self._wrote(done)
        return start

    def _room(self) -> int:
        """How many more bytes the buffer takes, after writing it out when it is full."""
        if self._filled == BUFFER:
            self._flush()
        return BUFFER - self._filled

    def _flush(self) -> None:
        done = 0
        while done < self._filled:
            wrote = os.pwrite(self._goal, self._buffer[done : self._filled], self._at)
            done += wrote
            self._wrote(wrote)
        self._filled = 0

    def _wrote(self, count: int) -> None:
        """Go on behind the ``count`` bytes that were written, and have the disk begin with them meanwhile."""
        self._at += count
        self._tick(count)
        if self._at - self._begun >= STEP and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # Linux begins to write what is called not needed
                os.posix_fadvise(self._goal, self._begun, self._at - self._begun, os.POSIX_FADV_DONTNEED)
            self._begun = self._at

    def _opened(self, source: LocalFile) -> int:
        """A descriptor of the file, which ``source`` has made sure is a regular one."""
        if source.path not in self._open:
            source.size()
            if len(self._open) == OPEN:
                os.close(self._open.popitem(last=False)[1])
            try:
                self._open[source.path] = os.open(source.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                raise SourceError(f"{source.name} could not be read: {_words(error)}") from error
            source.close()
        return self._open[source.path]


def _together(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """The pieces, those of a file far away that lie near each other in its order together: at most ``REMOTE`` bytes."""
    run: list[Piece] = []
    for piece in pieces:
        if run and not _is_near(run[0], run[-1], piece):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _is_near(first: Piece, last: Piece, piece: Piece) -> bool:
    if not isinstance(first, Span) or not isinstance(last, Span) or not isinstance(piece, Span):
        return False
    source = piece.source
    near = 0 <= piece.start - last.stop <= APART and piece.stop - first.start <= REMOTE
    return near and source is first.source and not isinstance(source, LocalFile)


def _too_short(source: Source) -> SourceError:
    return SourceError(f"{source.name} has fewer bytes than it had: it has changed while it was read")


def _words(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)
