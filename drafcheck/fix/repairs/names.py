"""DC101, DC104, DC105, DC108: tensors get the names that this release takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.checks.names import differing, lost, plans
from drafcheck.fix.edits import Drop, Edit, Rename
from drafcheck.fix.registry import Wishes, repair, tensors_of
from drafcheck.plan.files import alike
from drafcheck.plan.names import Route, route
from drafcheck.plan.wanted import Wanted, wanted_names

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor

LANDS = ("parameter", "mapping")
ALONG = ("design", "mapping")
"""What becomes of tensors that lose a wrapper along with the others although this release minds it not."""


@repair("DC101", "DC105", "DC108")
def take_names(s: Subject, findings: Sequence[Finding], _: Wishes) -> Iterator[Edit]:
    """The spelling that this loader takes; of two tensors for one place neither is lost unless they are the same."""
    for finding in findings:
        yield from renames(s, tensors_of(s, finding))


@repair("DC104")
def take_refused(s: Subject, findings: Sequence[Finding], _: Wishes) -> Iterator[Edit]:
    """The same for names at which the loader stops, and nothing for those that lead nowhere and change nothing."""
    for finding in findings:
        yield from refused(s, tensors_of(s, finding))


def refused(s: Subject, tensors: Sequence[Tensor]) -> list[Edit]:
    """New names, and tensors left out that no loader has to have; nothing unless the loader then passes all of them."""
    edits = renames(s, tensors)
    done = {edit.tensor.name for edit in edits}
    spare: list[Edit] = []
    for tensor in (t for t in tensors if t.name not in done):
        why = _needless(s, tensor)
        if why is None:
            return []
        spare.append(Drop(tensor, why))
    return [*edits, *spare]


def _needless(s: Subject, tensor: Tensor) -> str | None:
    """Why a tensor for which there is no parameter can be left out without loss; None when it can not."""
    _, contract = plans(s)
    maps = s.vocabulary
    if tensor.name == contract.names.get("mapping") and maps is not None and maps.d2t_tensor == tensor:
        idle = maps.meant == "identity" and maps.raw is not None and maps.head_rows == len(maps.raw)
        return "its zeros change no draft id" if idle else None
    plan, weight = plans(s)[0], tensor.name.removesuffix("bias") + "weight"
    if not tensor.name.endswith(".bias") or not is_zero(s, tensor):
        return None
    beside = route(contract, weight, plan.parameters).end == "parameter" and any(t.name == weight for t in plan.seen)
    return "a bias of zeros" if beside else None


def is_zero(s: Subject, tensor: Tensor) -> bool:
    """Whether a bias holds nothing but zeros; False when it can not be read or is larger than biases are."""
    from drafcheck.plan.load import BIAS_BYTES
    from drafcheck.source import SourceError

    if tensor.start < 0 or tensor.stop - tensor.start > BIAS_BYTES:
        return False
    try:
        return not any(s.checkpoint.read(tensor))
    except SourceError:
        return False


def renames(s: Subject, tensors: Sequence[Tensor]) -> list[Rename | Drop]:
    """The edits that bring ``tensors`` to where their names were meant to lead, as far as no other one is there.

    Along with them go those that stand behind the same wrapper.
    """
    wanted = [(t, spelling) for t, spelling in lost(s) if spelling is not None]
    asked = {(t.file, t.name) for t in tensors} if wanted else set()
    ours = [spelling for t, spelling in wanted if (t.file, t.name) in asked]
    if not ours:
        return []
    prefix = _around_everything(s, [spelling for _, spelling in wanted])
    if prefix:  # what else there is to mend shows once it is off
        off: list[Rename | Drop] = [Rename(t, t.name.removeprefix(prefix)) for t in plans(s)[0].seen]
        return off if any(spelling.wrapper.startswith(prefix) for spelling in ours) else []
    wanted += _biases(s, {(spelling.wrapper, spelling.dialect) for _, spelling in wanted})
    edits = _moves(s, wanted)
    found = [edit for edit, spelt in edits if (edit.tensor.file, edit.tensor.name) in asked or _goes_along(spelt, ours)]
    return [] if _tears_apart(s, found) else found


def _around_everything(s: Subject, wanted: Sequence[Wanted]) -> str:
    """The wrapper on every name of a checkpoint of which the head is one layer; nothing where there is none.

    There it is off the target's names too, or the head would no longer match what the target's class reads. Where a
    tensor reaches its place because of the prefix it is none that was left on by accident.
    """
    plan, contract = plans(s)
    if contract.names.get("loader") != "mtp":
        return ""
    for prefix in sorted({w.wrapper for w in wanted if w.wrapper}, key=len):
        if all(t.name.startswith(prefix) for t in plan.seen) and not _needed(s, prefix):
            return prefix
    return ""


def _needed(s: Subject, prefix: str) -> bool:
    plan, contract = plans(s)
    for tensor in plan.seen:
        now, then = (route(contract, n, plan.parameters) for n in (tensor.name, tensor.name.removeprefix(prefix)))
        if now.end in LANDS and (now.end != then.end or _place(now) != _place(then)):
            return True
    return False


def _tears_apart(s: Subject, edits: Sequence[Rename | Drop]) -> bool:
    """Whether edits would give the head's layer a spelling that the target's tensors beside it do not have.

    Names that the class itself reads begin alike whatever is renamed: those are no sign of it.
    """
    plan, contract = plans(s)
    if contract.names.get("loader") != "mtp":
        return False
    touched = {(e.tensor.file, e.tensor.name) for e in edits}
    read = tuple(contract.names.get("read", ()))
    moves = {_move(e.tensor.name, e.name) for e in edits if isinstance(e, Rename)}
    for old, new in moves:
        if old and not any(begin.startswith(old) for begin in read):
            stay = (t.name for t in plan.seen if t.name.startswith(old) and (t.file, t.name) not in touched)
            if any(route(contract, new + name[len(old) :], plan.parameters).end == "elsewhere" for name in stay):
                return True
    return False


def _move(name: str, new: str) -> tuple[str, str]:
    """The beginning that becomes another one, or what is taken off before a name that is kept."""
    return (name.removesuffix(new), "") if name.endswith(new) else differing(name, new)


def _goes_along(spelt: Wanted | str, ours: Sequence[Wanted]) -> bool:
    """Whether a tensor that is no finding by itself, a bias or one behind a wrapper, is spelt as those of a finding."""
    if isinstance(spelt, str):
        return any(spelt == w.wrapper for w in ours)
    return spelt.name.endswith(".bias") and any((spelt.wrapper, spelt.dialect) == (w.wrapper, w.dialect) for w in ours)


def _moves(s: Subject, wanted: Sequence[tuple[Tensor, Wanted]]) -> list[tuple[Rename | Drop, Wanted | str]]:
    """All edits of names with the spelling or the wrapper that they mend: one finding's hang on those of the others."""
    places = _Places(s, wanted)
    found: list[tuple[Rename | Drop, Wanted | str]] = []
    for tensor, spelling in wanted:
        edit = places.moved(tensor, spelling.name)
        if edit is not None:
            found.append((edit, spelling))
    moved = {(t.file, t.name) for t, _ in wanted}
    for prefix in sorted({w.wrapper for _, w in wanted if w.wrapper}, key=len, reverse=True):
        along = list(_along(s, places, prefix, moved))
        moved |= {(edit.tensor.file, edit.tensor.name) for edit in along}
        found += [(edit, prefix) for edit in along]
    return found


def _biases(s: Subject, spelt: set[tuple[str, str]]) -> list[tuple[Tensor, Wanted]]:
    """Biases that are spelt as the weights beside them: a bias that leads nowhere is no loss by itself."""
    plan, contract = plans(s)
    biases = [t for t in plan.seen if t.name.endswith(".bias")] if spelt else []
    ends = ((t, route(contract, t.name, plan.parameters).end) for t in biases)
    homeless = [t for t, end in ends if end in ("unknown", "refused")]
    found = zip(homeless, wanted_names(contract, plan, [t.name for t in homeless]), strict=True)
    return [(t, w) for t, w in found if w is not None and (w.wrapper, w.dialect) in spelt]


def _along(s: Subject, places: _Places, prefix: str, moved: set[tuple[str, str]]) -> Iterator[Rename | Drop]:
    """The other tensors under a wrapper: maps and what is skipped, and all of them where it stands before every name.

    Not those of a target in whose checkpoint the head lies: what the target's class takes is another matter.
    """
    plan, contract = plans(s)
    every = all(t.name.startswith(prefix) for t in plan.seen)
    for tensor in plan.seen:
        bare = tensor.name.removeprefix(prefix)
        if (tensor.file, tensor.name) in moved or bare == tensor.name:
            continue
        now, then = (route(contract, name, plan.parameters) for name in (tensor.name, bare))
        same = now.end == then.end and _place(now) == _place(then)
        free = now.end in ALONG or (every and now.end != "elsewhere") if same else now.end not in LANDS
        if free and then.end in (*ALONG, "parameter") and (edit := places.moved(tensor, bare)) is not None:
            yield edit


def _place(found: Route) -> tuple[str, str | None]:
    return found.parameter, found.shard


class _Places:
    """Which names and which parameters have a tensor already, before those that are ``wanted`` elsewhere get theirs."""

    def __init__(self, s: Subject, wanted: Sequence[tuple[Tensor, Wanted]]) -> None:
        self._s = s
        plan, contract = plans(s)
        leaving = {(t.file, t.name) for t, _ in wanted}
        stay = [t for t in plan.seen if (t.file, t.name) not in leaving]
        self._names = {t.name: t for t in stay}
        self._filled: dict[tuple[str, str | None], Tensor] = {}
        for tensor in stay:
            found = route(contract, tensor.name, plan.parameters)
            if found.end in LANDS:
                self._filled[_place(found)] = tensor
        self._contested = self._rivals(wanted)

    def _rivals(self, wanted: Sequence[tuple[Tensor, Wanted]]) -> set[tuple[str, str | None]]:
        """The places that are wanted for tensors with other contents: nobody knows which one is meant."""
        plan, contract = plans(self._s)
        first: dict[tuple[str, str | None], Tensor] = {}
        contested = set()
        for tensor, spelling in wanted:
            place = _place(route(contract, spelling.name, plan.parameters))
            other = first.setdefault(place, tensor)
            if other is not tensor and not alike(self._s.checkpoint, other, tensor):
                contested.add(place)
        return contested

    def moved(self, tensor: Tensor, name: str) -> Rename | Drop | None:
        """The edit that gives ``tensor`` a name; None where another one with other contents has it, or its place."""
        plan, contract = plans(self._s)
        found = route(contract, name, plan.parameters)
        lands = found.end in LANDS
        other = self._names.get(name) or (self._in_place(found) if lands else None)
        if other is not None and other is not tensor:
            same = alike(self._s.checkpoint, other, tensor)
            if other.name != name and contract.names.get("loader") == "mtp":
                return Rename(tensor, name) if same else None  # the target's class reads both
            elsewhere = other.file != tensor.file
            where = f" of {other.file}" if elsewhere else ""
            return Drop(tensor, f"the same as `{other.name}`{where}", elsewhere) if same else None
        if lands and _place(found) in self._contested:
            return None
        self._names[name] = tensor
        if lands:
            self._filled[_place(found)] = tensor
        return Rename(tensor, name)

    def _in_place(self, found: Route) -> Tensor | None:
        """Who fills a place, or all of the fused parameter that it is a part of, or a part of it."""
        near = [place for place in self._filled if place[0] == found.parameter] if found.shard is None else []
        places = [_place(found), (found.parameter, None), *near]
        return next((self._filled[place] for place in places if place in self._filled), None)
