"""Reads every tensor once, in stretches that fit the cache, by two threads with a buffer each.

numpy and the system let go of the interpreter while they work, so that one thread reads while the other looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING

from drafcheck.source import LocalFile, SourceError
from drafcheck.valuescan.model import Changed, Damaged, TensorValues, Unread, Values
from drafcheck.valuescan.sums import Summing

if TYPE_CHECKING:
    from drafcheck.checkpoint import WeightFile
    from drafcheck.source import Source
    from drafcheck.tensor import Summed, Tensor, View
    from drafcheck.valuescan.kernels import Stretch
    from drafcheck.valuescan.packed import Inflated
    from drafcheck.valuescan.views import Window

CHUNK = 2 << 20
"""Bytes that are read and looked at in one go: they stay in the cache of one core."""

THREADS = 2

_PIECES = 8
"""Of a tensor of which a part is to be read, so many pieces are, where it is large enough: one would tell of one end
only. ``_LEAST`` bytes is what a piece has at the least, as each costs a request to the system."""

_LEAST = 4096

SMALL = 1 << 15
"""Bytes of a tensor that is read together with its neighbours; of ``_LEAST`` where a part of each is to be read."""

_TOGETHER = 4096
"""So many tensors at the most."""

_GAP = 512  # bytes between two of them: what an archive has there

Progress = Callable[[int], None]
"""Told how many bytes were read since the last call."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A stretch of a tensor: from byte ``start`` to ``stop`` of its file, whole rows of ``row`` bytes from the
    row ``first`` on. ``whole`` is the stretch of all of the tensor. Of a view they count the bytes of its values alone,
    and ``window`` is where these lie. ``rest`` are those that can be read after this one alone, once; then ``done``
    is called.
    """

    values: TensorValues
    source: Source
    start: int
    stop: int
    row: int
    first: int
    whole: tuple[int, int]
    window: Window | None = None
    rest: Iterable[_Part] = ()
    done: Callable[[], object] = int

    @property
    def length(self) -> int:
        """The bytes that are read."""
        return self.window.length if self.window is not None else self.stop - self.start


@dataclass(frozen=True, slots=True)
class _Batch:
    """Small tensors of one file that follow each other, all of each."""

    values: list[TensorValues]
    source: Source


def scan(files: Sequence[WeightFile], share: float = 1.0, progress: Progress | None = None) -> Values:
    """Read the tensors of ``files``, or about a ``share`` of each, spread evenly. Never raises on content.

    An interruption ends both threads before it goes on.
    """
    found = Values()
    summed: list[tuple[WeightFile, Summing]] = []
    worker = _Worker(_parts(files, share, found, summed), found, progress or (lambda _: None))
    with _helpers(worker):
        worker.run()
    if worker.crash is not None:
        raise worker.crash
    lost = {id(u.tensor) for u in found.unread}
    found.tensors = [v for v in found.tensors if id(v.tensor) not in lost]
    for file, source in summed:
        found.damaged += source.differing(file)
    found.damaged = list(dict.fromkeys(found.damaged))  # two tensors may lie in one storage
    _forget(files, found)
    return found


def _forget(files: Sequence[WeightFile], found: Values) -> None:
    """Keep nothing of files that changed since their header was read: what was read is of no one file."""
    for file in files:
        told = file.source.changed() if isinstance(file.source, LocalFile) else None
        if told is not None:
            found.changed.append(Changed(file.name, *told))
    changed = {c.file: f"{c.file} {c.what}" for c in found.changed}
    if changed:
        lost = [u.tensor for u in found.unread if u.tensor.file in changed]
        lost += [v.tensor for v in found.tensors if v.tensor.file in changed]
        found.tensors = [v for v in found.tensors if v.tensor.file not in changed]
        found.unread = [u for u in found.unread if u.tensor.file not in changed]
        found.unread += [Unread(tensor, changed[tensor.file]) for tensor in lost]


def total(files: Sequence[WeightFile], share: float = 1.0) -> int:
    """How many bytes ``scan`` will read, about: for a bar of progress."""
    return int(share * sum(t.stop - t.start for file in files for t in file.header.tensors if t.start >= 0)) + sum(
        int(share * view.reach)
        for file in files
        for view in (*file.header.views.values(), *(packed.view for packed in file.header.packed.values()))
    )


class _Worker:
    """What both threads do; the interpreter's lock keeps the short steps between them apart."""

    def __init__(self, parts: Iterator[_Part | _Batch], found: Values, progress: Progress) -> None:
        self._parts = parts
        self._found = found
        self._progress = progress
        self._lock = threading.Lock()
        self._lost = set[int]()
        self.stopped = False
        self.crash: BaseException | None = None

    def run(self) -> None:
        """Take part after part until there is none. What goes wrong in a helper is raised by the first thread."""
        buffer = memoryview(bytearray(CHUNK))
        while not self.stopped:
            with self._lock:
                part = next(self._parts, None)
            if part is None:
                return
            if isinstance(part, _Batch):
                self._look_at_many(part, buffer)
                continue
            for piece in chain((part,), part.rest):
                if not self._look(piece, buffer):
                    break
            part.done()

    def _look(self, part: _Part, buffer: memoryview) -> bool:
        """Read a part and keep what it holds. Whether it could be read and another one may be."""
        from drafcheck.valuescan.kernels import look

        try:
            data = _read(part, buffer)
        except SourceError as error:
            with self._lock:
                self._give_up(part.values.tensor, error.message)
            return False
        stretch = look(part.values.tensor.dtype, data, part.row)
        with self._lock:
            _take(part, stretch)
            self._progress(part.length)
        return not self.stopped

    def _look_at_many(self, batch: _Batch, buffer: memoryview) -> None:
        """Read small tensors together; one by one where something is amiss, to tell which can not be read."""
        from drafcheck.valuescan.small import Small, look_at

        tensors = [v.tensor for v in batch.values]
        try:
            data = _bytes(batch.source, tensors[0].start, tensors[-1].stop, buffer)
        except SourceError:
            for v, t in zip(batch.values, tensors, strict=True):
                self._look(next(_stretches(v, batch.source, t.start, t.stop, 1)), buffer)
            return
        sizes = [t.stop - t.start for t in tensors]
        places = (
            Small(t.dtype, t.start - tensors[0].start, n, _row(t, n)) for t, n in zip(tensors, sizes, strict=True)
        )
        stretches = look_at(data, list(places))
        with self._lock:
            for values, size, stretch in zip(batch.values, sizes, stretches, strict=True):
                values.length = size
                _add(values, size, 0, 0, stretch)
            self._progress(sum(sizes))

    def _give_up(self, tensor: Tensor, why: str) -> None:
        if id(tensor) not in self._lost:  # the tensors of the headers outlive the scan
            self._lost.add(id(tensor))
            self._found.unread.append(Unread(tensor, why))

    def help(self) -> None:
        """``run`` in a thread of its own."""
        try:
            self.run()
        except BaseException as crash:
            self.crash = crash
            self.stopped = True


@contextmanager
def _helpers(worker: _Worker) -> Iterator[None]:
    threads = [threading.Thread(target=worker.help, daemon=True) for _ in range(THREADS - 1)]
    for thread in threads:
        thread.start()
    try:
        yield
    except BaseException:
        worker.stopped = True
        raise
    finally:
        for thread in threads:
            thread.join()


def _parts(
    files: Sequence[WeightFile], share: float, found: Values, summed: list[tuple[WeightFile, Summing]]
) -> Iterator[_Part | _Batch]:
    """The stretches to read, in the order of the bytes; what can not be read goes to ``found``.

    Of files to ``summed`` the checksums are kept on the way, where all of them is read: storage by storage.
    """
    for file in files:
        own = _reopened(file.source)
        source, small = own, min(SMALL if share >= 1 else _LEAST, CHUNK)
        few: list[TensorValues] = []
        if share >= 1 and file.header.sums and not isinstance(own, LocalFile):
            source, small = Summing(own), 0
            summed.append((file, source))
        for tensor in file.header.tensors:
            view = file.header.views.get(tensor.name)
            if view is not None:
                from drafcheck.valuescan.views import row_of  # for these files alone

                values = TensorValues(tensor, scattered=row_of(view, CHUNK) is None)
                found.tensors.append(values)
                yield from _seen(values, source, view, share)
            elif tensor.name in file.header.packed:
                yield from _inflated(tensor, own, file, share, found)
            elif tensor.start < 0:
                known = file.header.uncopied.get(tensor.name)
                found.unread.append(
                    Unread(tensor, f"it {known.why}" if known else "its bytes have no place in the file")
                )
            elif tensor.stop > tensor.start:
                values = TensorValues(tensor)
                found.tensors.append(values)
                if tensor.stop - tensor.start > small:
                    yield from _stretches(values, source, tensor.start, tensor.stop, share)
                    continue
                if few and not _follows(few, tensor):
                    yield _Batch(few, source)
                    few = []
                few.append(values)
        if few:
            yield _Batch(few, source)


def _follows(few: list[TensorValues], tensor: Tensor) -> bool:
    """Whether a small tensor can be read together with those before it."""
    gap = tensor.start - few[-1].tensor.stop
    return 0 <= gap <= _GAP and tensor.stop - few[0].tensor.start <= CHUNK and len(few) < _TOGETHER


def _stretches(values: TensorValues, source: Source, begin: int, end: int, share: float) -> Iterator[_Part]:
    row, most = _row(values.tensor, end - begin), _most(end - begin, share)
    step = max(most // row, 1) * row
    if row > (CHUNK if len(values.tensor.shape) > 1 else most):
        step = row = most  # a vector, or rows as long as a book: parts that count as a row each
    for number in _spread(-(-(end - begin) // step), share):
        start = begin + number * step
        stop = min(start + step, end)
        yield _Part(values, source, start, stop, min(row, stop - start), number * (step // row), (begin, end))


def _seen(values: TensorValues, source: Source, view: View, share: float) -> Iterator[_Part]:
    """The windows of a view."""
    from drafcheck.valuescan.views import row_of, windows

    row, at = row_of(view, CHUNK), 0
    whole = 0, prod(size for size, _ in view.sides()) * view.width
    most = _most(whole[1], share)
    if row_of(view, most) != row:
        most = CHUNK
    chosen = _spread(sum(1 for _ in windows(view, most)), share)
    wanted = next(chosen)
    for number, window in enumerate(windows(view, most)):
        if number == wanted:
            first = at // row if row is not None else number
            yield _Part(values, source, at, at + window.held, row or window.held, first, whole, window)
            wanted = next(chosen, -1)
        at += window.held


def _inflated(tensor: Tensor, source: Source, file: WeightFile, share: float, found: Values) -> Iterator[_Part]:
    """The parts of a compressed tensor as one: they are unpacked one after the other."""
    from drafcheck.valuescan.packed import Inflated, refused
    from drafcheck.valuescan.views import row_of

    packed = file.header.packed[tensor.name]
    if (why := refused(packed)) is not None:
        found.unread.append(Unread(tensor, why))
        return
    unpacked, view = Inflated(source, packed), packed.view
    dense = view.reach == tensor.numel * view.width and view.ordered
    values = TensorValues(tensor, scattered=not dense and row_of(view, CHUNK) is None)
    found.tensors.append(values)
    parts = (
        _stretches(values, unpacked, view.start, view.start + view.reach, share)
        if dense
        else _seen(values, unpacked, view, share)
    )
    one = next((one for one in file.header.sums if one.start == packed.start), None)
    done = partial(_compare, unpacked, one, found) if one is not None and share >= 1 else int
    yield replace(next(parts), rest=parts, done=done)


def _compare(unpacked: Inflated, one: Summed, found: Values) -> None:
    """Keep a compressed storage that holds something else than was saved."""
    if unpacked.differs(one):
        found.damaged.append(Damaged(unpacked.name, one.tensor, unpacked.broken))


def _row(tensor: Tensor, size: int) -> int:
    """The bytes of a row: of a matrix a row, of a vector all of it."""
    rows = tensor.numel // tensor.shape[-1] if len(tensor.shape) > 1 and tensor.shape[-1] else 1
    return size // rows if rows and size % rows == 0 and size // rows else size


def _most(length: int, share: float) -> int:
    """The bytes of a piece, of ``length`` of which a share is read."""
    if share >= 1:
        return CHUNK
    return min(CHUNK, max(int(length * share / _PIECES) // _LEAST, 1) * _LEAST)


def _spread(count: int, share: float) -> Iterator[int]:
    """An even selection of so many pieces; the first one always."""
    wanted = count if share >= 1 else max(round(share * count), 1)
    return (i * count // wanted for i in range(wanted))


def _reopened(source: Source) -> Source:
    """A local file gets a descriptor of its own, to be read from one end to the other; other sources stay."""
    if not isinstance(source, LocalFile):
        return source
    own = LocalFile(source.path, source.name)
    own.expect_all()
    return own


def _read(part: _Part, buffer: memoryview) -> memoryview:
    start = part.window.start if part.window is not None else part.start
    data = _bytes(part.source, start, start + part.length, buffer)
    return part.window.picked(data) if part.window is not None else data


def _bytes(source: Source, start: int, stop: int, buffer: memoryview) -> memoryview:
    if isinstance(source, LocalFile):
        return source.read_into(buffer[: stop - start], start)
    data = source.read(start, stop)
    if len(data) < stop - start:
        raise SourceError(f"{source.name} ends before byte {stop}")
    return memoryview(data)


def _take(part: _Part, stretch: Stretch) -> None:
    """Add what a stretch holds to what its tensor holds."""
    values = part.values
    values.length = part.whole[1] - part.whole[0]
    at = (part.start - part.whole[0]) * values.tensor.numel // values.length
    _add(values, part.stop - part.start, part.first, at, stretch)


def _add(values: TensorValues, size: int, first: int, at: int, stretch: Stretch) -> None:
    """Add a stretch of so many bytes, whose first row is that of the number, and its first value ``at`` so many."""
    values.read += size
    values.rows += stretch.empty.rows
    values.empty.add(first, stretch.empty)
    if stretch.bad:
        place = at + stretch.first
        values.first = place if values.first < 0 else min(values.first, place)
        values.bad += stretch.bad
    values.largest = max(values.largest, stretch.largest)
    values.even = values.even and stretch.even and values.value in (-1, stretch.value)
    values.value = stretch.value
    values.digest = (values.digest + hash((first, stretch.total, stretch.tail))) & (1 << 64) - 1
