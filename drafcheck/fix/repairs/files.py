"""DC005, DC006, DC008, DC010, DC012: the index anew, copies that nobody reads left out, pickles as safetensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.fix.edits import Convert, DropFile, Edit, Reindex
from drafcheck.fix.layout import kept_by, name_in_safetensors, names_listed
from drafcheck.fix.registry import Wishes, repair
from drafcheck.plan.files import alike
from drafcheck.plan.names import route
from drafcheck.words import count

if TYPE_CHECKING:
    from drafcheck.checkpoint import Index, WeightFile
    from drafcheck.finding import Finding
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor

WHOLE = 64 << 20
"""Copies of no more bytes are compared to their ends before a repair is promised."""

SAMPLE = 64 << 10
"""So much of each tensor of larger ones: copies that differ, differ early. The repair itself compares everything."""


@repair("DC005")
def stale_index(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """An index of the files that are there, which hold everything that the old one promises."""
    if may_reindex(s):
        yield Reindex()


@repair("DC006")
def wrong_index(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """An index that agrees with the files, where these hold all that it lists and belong to the checkpoint."""
    if may_reindex(s):
        yield Reindex()


@repair("DC008")
def redundant_copy(s: Subject, findings: Sequence[Finding], _: Wishes) -> Iterator[Edit]:
    """A PyTorch file that holds nothing but what the files in use hold, byte by byte."""
    for name in dict.fromkeys(place.file for finding in findings for place in finding.locations[1:]):
        file = s.checkpoint.file(name or "")
        if file is not None and is_redundant(s, file, whole=True):
            yield DropFile(file.name, "a copy of what the safetensors files hold")
            index = s.checkpoint.pickle_index
            if index is not None and index.files == (file.name,):
                yield DropFile(index.file, "it lists nothing else")


@repair("DC010")
def pickles(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """The same tensors as safetensors, where the file holds nothing else."""
    if s.selection is not None and why_not_converted(s, s.selection.files) is None:
        yield from (Convert(file.name) for file in s.selection.files)


@repair("DC012")
def unread_weights(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """An index that names the files that are there; a pickle that this release does not look for as safetensors."""
    if s.selection is None or s.selection.refused is None or s.selection.refused.cause != "no-files":
        return
    if may_reindex(s):
        yield Reindex()
    elif (file := unread_pickle(s)) is not None:
        yield Convert(file.name)


def may_reindex(s: Subject) -> bool:
    """Whether the index can be written anew from the headers: no name in it is lost, and nothing strange is read."""
    index = _index(s)
    files = _safetensors(s)
    if index is None or not files or any(file.header.problems for file in files):
        return False
    if _promised_in_vain(s):
        return False
    left_out = [f for f in files if f.name not in index.files]
    return all(_belongs(s, file, [f for f in files if f is not file]) for file in left_out)


def _index(s: Subject) -> Index | None:
    return s.selection.index if s.selection is not None else None


def _safetensors(s: Subject) -> list[WeightFile]:
    return [file for file in s.checkpoint.files if file.is_safetensors]


def _promised_in_vain(s: Subject) -> set[str]:
    """The tensors of the index that no file has: it alone tells that they are missing, wherever it looks for them."""
    index = _index(s)
    promised = set(names_listed(index)) if index is not None else set()
    return promised - {t.name for file in _safetensors(s) for t in file.header.tensors}


def _belongs(s: Subject, file: WeightFile, others: Sequence[WeightFile]) -> bool:
    """Whether a file that the index leaves out is a part of the checkpoint.

    What it holds is nowhere else, or the same there; and unless the index is good for nothing the draft class wants it.
    """
    there = {t.name: t for other in others for t in other.header.tensors}
    twice = [(there[t.name], t) for t in file.header.tensors if t.name in there]
    if not all(alike(s.checkpoint, one, two) for one, two in twice):
        return False
    index = _index(s)
    if index is not None and (index.refused is not None or not set(index.files) & {o.name for o in others}):
        return True
    return _is_wanted(s, [t for t in file.header.tensors if t.name not in there])


def _is_wanted(s: Subject, tensors: Sequence[Tensor]) -> bool:
    """Whether all of these lead to parameters that nothing fills, or to nothing by design."""
    if s.load is None or s.contract is None:
        return False
    plan, contract = s.load, s.contract
    filled = {(w.parameter, w.shard) for w in plan.writes}
    for tensor in tensors:
        found = route(contract, tensor.name, plan.parameters)
        taken = found.end == "parameter" and (found.parameter, found.shard) in filled
        if found.end not in ("parameter", "mapping", "design") or taken or (found.end == "mapping" and plan.mappings):
            return False
    return True


def is_redundant(s: Subject, other: WeightFile, *, whole: bool) -> bool:
    """Whether every tensor of a PyTorch file is in the files that are read, with the same bytes.

    Without ``whole`` a large one is compared only as far as ``SAMPLE`` goes. Nothing is compared over a network.
    """
    if s.selection is None or s.checkpoint.place.remote or other.header.problems or other.header.lossy:
        return False
    read = {t.name: t for t in s.selection.tensors}
    pairs = [(read.get(t.name), t) for t in other.header.tensors]
    most = None if whole or sum(t.stop - t.start for _, t in pairs) <= WHOLE else SAMPLE
    return bool(pairs) and all(one is not None and alike(s.checkpoint, one, two, most) for one, two in pairs)


def why_not_converted(s: Subject, files: Sequence[WeightFile]) -> str | None:
    """What keeps pickles from being written as safetensors without loss and loaded alike then, in a clause; or None."""
    if s.load is not None and (s.load.collisions or len(s.load.mappings) > 1):
        return "two tensors lead to one place, and in safetensors another one would be the last"
    lossy = next((why for file in files if (why := _why_lossy(file)) is not None), None)
    if lossy is not None:
        return lossy
    names = [name_in_safetensors(file.name) for file in files]
    taken = next((n for n in names if s.checkpoint.place.holds(n) or names.count(n) > 1), None)
    if taken is not None:
        return f"there would be two files called {taken}"
    return None if files else "there is no file to convert"


def _why_lossy(file: WeightFile) -> str | None:
    """What of a pickle would not be in a safetensors file of its tensors, in a clause; None for nothing."""
    if file.header.problems:
        return kept_by(file)
    if not file.header.tensors:
        return f"{file.name} holds no tensors where loaders look for them"
    if file.header.uncopied:
        return f"in {file.name} {uncopied(file)}"
    if file.header.behind:
        return f"{file.name} has {count(file.header.behind, 'byte')} behind its last storage that belong to none"
    return None


def uncopied(file: WeightFile) -> str:
    """The first entry of a pickle that can not be copied into safetensors as it lies, with the reason; and how many."""
    first, why = next(iter(file.header.uncopied.items()))
    more = len(file.header.uncopied) - 1
    return f"`{first:.200}` {why.why}" + (f", and {more:,} more" if more else "")


def unread_pickle(s: Subject) -> WeightFile | None:
    """The one PyTorch file with tensors beside which this release finds nothing to load; None when there are more."""
    found = [f for f in s.selection.unwanted if not f.is_safetensors] if s.selection is not None else []
    return found[0] if len(found) == 1 and why_not_converted(s, found) is None else None
