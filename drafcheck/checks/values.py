"""DC801, DC802 and DC806: numbers that no drafter can work with. Only with ``--values``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.contract import load_toml
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.modelconfig import dtype_built
from drafcheck.registry import Hit, rule
from drafcheck.width import of_another_width
from drafcheck.words import are, count, listed

if TYPE_CHECKING:
    from drafcheck.checkpoint import WeightFile
    from drafcheck.plan.model import Write
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor
    from drafcheck.valuescan.model import TensorValues, Values

Goals = dict["Tensor", list["Write"]]
"""What the loader writes of each tensor that reaches a parameter."""


def seen_in(s: Subject) -> Values:
    """What the tensors hold; rules that need ``values`` have it."""
    assert s.values is not None
    return s.values


def goals_of(s: Subject) -> Goals | None:
    """The parameters that each tensor reaches and that stay what it made them; None without a load plan.

    Those are left out which the engine then takes from the target. For a whole model they are many: ask once.
    """
    if s.load is None:
        return None
    goals: Goals = {}
    gone = _taken(s)
    for write in s.load.writes:
        if write.parameter not in gone:
            goals.setdefault(write.tensor, []).append(write)
    return goals


def _taken(s: Subject) -> frozenset[str]:
    """The parameters that the engine takes from the target, whose own fit there."""
    return frozenset(s.load.fills_from_target if s.load is not None and not of_another_width(s) else ())


def place(tensor: Tensor) -> tuple[Location, ...]:
    """Where a tensor is."""
    return (Location(file=tensor.file, tensor=tensor.name),)


def partly(values: TensorValues) -> str:
    """What to say of a tensor of which only a part was read."""
    if values.whole:
        return ""
    were = "was" if values.seen == 1 else "were"
    return f" in the {values.seen:,} of {count(values.tensor.numel, 'value')} that {were} read"


def changed(s: Subject) -> Iterator[Hit]:
    """Files that changed while their values were read, for DC012."""
    for file, what, sure in s.values.changed if s.values is not None else []:
        yield Hit(
            f"{file} {what}: its values are not judged",
            (Location(file=file),),
            help="run drafcheck again once nothing writes to it",
            severity=Severity.ERROR if sure else Severity.NOTE,
        )


def damaged(s: Subject) -> Iterator[Hit]:
    """PyTorch files whose bytes are not those that were summed up when they were saved, for DC004.

    Those that lie on this machine as they are, are read once more for it, in order: the values are read in pieces by
    two threads.
    """
    if s.values is None or s.selection is None or not all(v.whole for v in s.values.tensors):
        return
    changed = {one.file for one in s.values.changed}
    for file in (file for file in s.selection.files if file.name not in changed):
        found = [one for one in s.values.damaged if one.file == file.name]
        if names := [*_resummed(file), *(one.tensor for one in found if not one.broken)]:
            yield _other_bytes(file.name, names)
        if names := [one.tensor for one in found if one.broken]:
            yield Hit(
                f"{file.name} has compressed bytes that do not unpack, of {listed(names)}: torch does not ask, and "
                f"{s.engine} loads what lay in memory",
                tuple(Location(file=file.name, tensor=name) for name in names[:3]),
                help="download the file again, or save it again with torch.save",
                about=tuple(names),
            )


def _other_bytes(file: str, names: list[str]) -> Hit:
    return Hit(
        f"{file} has other bytes than were saved: the archive's checksum is another one at {listed(names)} (torch "
        "does not compare it, so that engines load them)",
        tuple(Location(file=file, tensor=name) for name in names[:3]),
        help="download the file again; if it was written so, save it again with torch.save",
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
        about=tuple(names),
    )


def _resummed(file: WeightFile) -> list[str]:
    if not file.header.sums:
        return []
    from drafcheck.checksums import damaged  # for these files alone

    return list(damaged(file))


@rule("DC801", "non-finite", Severity.ERROR, Severity.NOTE, needs=("values",))
def non_finite(s: Subject) -> Iterator[Hit]:
    """A tensor holds infinities or NaN.

    ## What it does
    Reads every tensor (`--values`) and counts the values that are no finite numbers, with the place of the first. A
    note when this engine does not load the tensor or puts the target's in its place, or when it is of the training and
    no part of a drafter.

    ## Why is this bad?
    One NaN in one matrix spreads to every state behind it: a single one in `fc.weight` took the accept length from 2.30
    to 1.01 on SGLang 0.5.15.post1, and nothing was printed.

    ## Fix
    Go back to a training state from before the loss became NaN, or export again: files are also damaged on the way.
    """
    goals = goals_of(s)
    replaced = _replaced(s)
    others = () if goals is not None else load_toml("discovery.toml")["of_training"]
    for v in seen_in(s).tensors:
        if v.bad:
            matters = v.tensor.name not in others if goals is None else v.tensor in goals
            many = count(v.bad, "value")
            fate = "" if matters or v.tensor not in replaced else f"; {s.engine} replaces it with the target's"
            yield Hit(
                f"`{v.tensor.name}` holds {many} that {are(v.bad)} Inf or NaN{partly(v)}{_first(v)}{fate}",
                place(v.tensor),
                help="export the drafter again from a training state that has none",
                severity=Severity.ERROR if matters else Severity.NOTE,
                confidence=Confidence.CERTAIN if goals is not None else Confidence.LIKELY,
            )


def _replaced(s: Subject) -> set[Tensor]:
    """The tensors in whose place the engine puts the target's."""
    gone = _taken(s)
    return {write.tensor for write in s.load.writes if write.parameter in gone} if s.load is not None else set()


def _first(values: TensorValues) -> str:
    return "" if values.scattered or not values.tensor.shape else f", the first at {_index(values)}"


def _index(values: TensorValues) -> list[int]:
    """The place of the first value that is none, an index for each dimension."""
    at, index = values.first, list[int]()
    for size in reversed(values.tensor.shape):
        at, place = divmod(at, size)
        index.insert(0, place)
    return index


@rule("DC806", "overflow-on-cast", Severity.ERROR, needs=("values",))
def overflow_on_cast(s: Subject) -> Iterator[Hit]:
    """A value is too large for the dtype that the engine casts it to.

    ## What it does
    Compares the largest magnitude in every tensor (`--values`) with the number from which on the dtype that this engine
    builds the draft model in makes infinity: half a step past its largest one, as a cast takes the nearest.

    ## Why is this bad?
    The value becomes infinite when it is loaded, and the drafter proposes nonsense from then on; float16 ends at 65504.

    ## Fix
    Serve the drafter in bfloat16 or float32.
    """
    dtype = dtype_built(s)
    from drafcheck.valuescan.formats import BUILT

    built = BUILT.get(dtype or "")
    if built is None:
        return
    last, limit = built.value(built.finite), built.limit
    goals = goals_of(s)
    for v in seen_in(s).tensors:
        if (goals is None or v.tensor in goals) and (largest := v.absmax) is not None and largest >= limit:
            yield Hit(
                f"`{v.tensor.name}` holds {largest:.6g}, and the {dtype} that {s.engine} casts it to ends at {last:g}",
                place(v.tensor),
                help="serve the drafter in the dtype that it was trained in",
            )
