"""fc, the projection of the concatenated hidden states: where it lies in the file, and words about what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.contract import load_toml
from drafcheck.finding import Location
from drafcheck.plan.wiring import is_fc, reading_of
from drafcheck.subject import Subject

if TYPE_CHECKING:
    from drafcheck.contract import Table
    from drafcheck.tensor import Tensor


_SHOWN = 12


class Fc(NamedTuple):
    """The projection of the concatenated states: ``rows`` by ``columns``."""

    tensor: Tensor
    rows: int
    columns: int

    @property
    def place(self) -> Location:
        """Where the tensor lies."""
        return Location(file=self.tensor.file, tensor=self.tensor.name)


def fc_of(s: Subject, *, skipped: bool = False) -> Fc | None:
    """The fc weight that this engine would load, or None when the file has none that it looks at.

    ``skipped``: also one that it skips by design, as where the config says that the drafter has none.
    """
    if s.selection is None:
        return None
    found = [t for t in s.selection.tensors.holding("fc.weight") if is_fc(t.name) and len(t.shape) == 2]
    drops = s.load.dropped if s.load is not None and found else ()
    dropped = {d.tensor.name for d in drops if is_fc(d.tensor.name) and not (skipped and d.why == "design")}
    return next((Fc(tensor, *tensor.shape) for tensor in found if tensor.name not in dropped), None)


def at(s: Subject, key: str) -> Location:
    """Where a dotted key of the draft's config stands."""
    assert s.config is not None
    return s.config.at(*key.split("."))


def states(number: int | None, width: int | None) -> str:
    """``3 x 7168``."""
    return f"{'?' if number is None else number} x {'?' if width is None else width}"


def layers(outputs: Sequence[int]) -> str:
    """``layers 1, 3 and 4``; -1 is the embedding. Cut after twelve: a list in a config may have thousands."""
    names = ["the embedding" if k < 0 else str(k) for k in outputs[:_SHOWN]]
    names += [f"{len(outputs) - _SHOWN:,} more"] if len(outputs) > _SHOWN else []
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{'layer' if len(names) == 1 else 'layers'} {listed}"


def ids_key(s: Subject) -> str:
    """The config key in which the engine reads layer ids, this release or else its newest; empty when it reads none."""
    return next((str(reading["ids"][0]["key"]) for reading in _readings(s) if reading["ids"]), "")


def switch_key(s: Subject) -> str:
    """The config key with which the engine switches capturing off, in this release or else in its newest."""
    return next((str(reading["use_aux"]) for reading in _readings(s) if reading["use_aux"]), "")


def ids_option(s: Subject) -> str:
    """The launch option that takes layers, as the numbers of outputs, where the config is not asked; else empty."""
    return next((str(reading["option"]) for reading in _readings(s) if "option" in reading), "")


def unless_told(s: Subject) -> str:
    """The end of a sentence about the layers that an engine picks where no launch option names others."""
    return f", unless {ids_option(s)} names others" if ids_option(s) else ""


def list_layers(s: Subject, outputs: Sequence[int] | None = None) -> str:
    """What to do for other layers to be captured; ``outputs`` are those that are wanted, where they are known."""
    if ids_key(s):
        return f"list the layers that the drafter was trained on in {ids_key(s)}"
    if ids_option(s):
        wanted = str(list(outputs)) if outputs else "the layers whose outputs the drafter was trained on"
        return f"give {wanted} to {ids_option(s)}"
    return f"serve it with another engine, or train on these layers: {s.engine.name} captures no others"


def _readings(s: Subject) -> list[Table]:
    here = reading_of(s.engine, s.wiring.runner) if s.wiring is not None else None
    every = load_toml(s.engine.name, "targets.toml").get("hidden_states", [])
    return [*([here] if here is not None else []), *reversed(every)]
