"""What DC012 and DC104 say of PyTorch files whose dict holds something other than tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.contract import load_toml
from drafcheck.finding import Confidence, Location
from drafcheck.plan.model import MAPPING
from drafcheck.registry import Hit
from drafcheck.words import listed, plural

if TYPE_CHECKING:
    from drafcheck.plan.model import LoadPlan, Stopper
    from drafcheck.subject import Subject
    from drafcheck.tensor import Entry


def without_tensors(s: Subject) -> bool:
    """Whether PyTorch files are read in which a loader finds no tensor at all: DC012 speaks of all that comes of it."""
    selection = s.selection
    return selection is not None and bool(selection.files) and selection.uses_pickles and not len(selection.tensors)


def no_tensors(s: Subject) -> Iterator[Hit]:
    """PyTorch files in which a loader finds no tensor, with where they are and what the release does then."""
    if s.selection is None or not without_tensors(s):
        return
    file = s.selection.files[0]
    entries = [entry for chosen in s.selection.files for entry in chosen.header.entries]
    inner = next((entry for entry in entries if entry.inside), None)
    if inner is not None:
        what = (
            f"{inner.file} keeps its {plural(inner.inside, 'tensor')} inside the key {inner.key!r:.60}; loaders take "
            "the top-level items"
        )
        help_ = f"save the inner dict alone: torch.save(torch.load(path, weights_only=True)[{inner.key!r:.60}], path)"
    else:
        only = f", only {listed([entry.key for entry in entries])}" if entries else ""
        what = f"{file.name} holds no tensors{only}"
        help_ = "export the drafter again: torch.save(model.state_dict(), path)"
    yield Hit(
        f"{what}{_outcome(s)}",
        (Location(file=inner.file, key=inner.key) if inner is not None else Location(file=file.name),),
        help=help_,
    )


def _outcome(s: Subject) -> str:
    plan = s.load
    if plan is None or "entries" not in load_toml(s.engine.name, "loader.toml"):
        return ""
    if plan.refused is None:
        return f": {s.engine} starts with nothing of it loaded"
    return f"; {s.engine} stops: {plan.refused.error}"


def stopped(s: Subject, plan: LoadPlan) -> Iterator[Hit]:
    """The first entry that is no tensor at which the loader stops."""
    if not plan.stoppers or without_tensors(s):
        return
    first = plan.stoppers[0]
    more = f" (and {len(plan.stoppers) - 1} more)" if len(plan.stoppers) > 1 else ""
    yield Hit(
        f"{s.engine} stops at {_described(first.entry)}{more}: {first.error}",
        tuple(Location(file=each.entry.file, key=each.entry.key) for each in plan.stoppers[:3]),
        help=_help(first),
        confidence=Confidence.CERTAIN if _is_known(s, plan, first) else Confidence.LIKELY,
        about=tuple(each.entry.key for each in plan.stoppers),
    )


def _is_known(s: Subject, plan: LoadPlan, stopper: Stopper) -> bool:
    """Whether it was seen: what is said to a name does not hang on the value, what is said to a value may."""
    asked = load_toml(s.engine.name, "loader.toml")["entries"]["asked"]
    return not stopper.place or plan.contract.rpartition("/")[2] in asked


def _described(entry: Entry) -> str:
    if entry.odd:
        return "a key that is no text" + (f" (`{entry.key:.60}`)" if entry.key != "?" else "")
    return f"`{entry.key:.200}`, which is no tensor" + (f" ({entry.kind})" if entry.kind else "")


def _help(stopper: Stopper) -> str:
    if stopper.place == MAPPING:
        return "save it as a tensor: torch.tensor(d2t)"
    if stopper.place:
        return "export the drafter again with this tensor"
    return (
        "save the tensors alone: torch.save({n: t for n, t in torch.load(path, weights_only=True).items() "
        "if isinstance(n, str) and isinstance(t, torch.Tensor)}, path)"
    )
