"""The table of repairs, by the code of the rule whose findings they mend."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.fix.edits import Edit

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user allows beyond repairs without loss.

    ``unsafe``: repairs that change what the drafter computes, or rest on files that are not the checkpoint's.
    ``target_weights`` is the target's folder or address, for its head and embedding. ``missing_rows`` is how many rows
    of a head that is brought into the order of a reference may be without a source.
    """

    unsafe: bool = False
    target_weights: str | None = None
    missing_rows: int = 0


Repair = Callable[["Subject", Sequence["Finding"], Wishes], Iterator[Edit]]


class Known(NamedTuple):
    """One repair. ``cost`` is None for one without loss, else what an unsafe one costs, in a clause.

    ``needs`` is the option without which it has nothing to work with.
    """

    code: str
    work: Repair
    cost: str | None
    needs: str = ""


_REPAIRS: dict[str, list[Known]] = {}


def repair(*codes: str, cost: str | None = None, needs: str = "") -> Callable[[Repair], Repair]:
    """Declare the decorated generator as a repair of the findings of these rules.

    It gets the Subject, the findings of one of the rules (never none, in the order of the report) and the user's
    wishes, and yields edits; none when this finding is beyond it. It changes nothing and raises UsageError only when
    what the user gave cannot be used. With ``cost`` it runs on ``--unsafe`` alone.
    """

    def declare(work: Repair) -> Repair:
        for code in codes:
            _REPAIRS.setdefault(code, []).append(Known(code, work, cost, needs))
        return work

    return declare


def load_repairs() -> dict[str, list[Known]]:
    """All repairs by the code of their rule; imports the modules once."""
    for module in sorted((Path(__file__).parent / "repairs").glob("[a-z]*.py")):
        importlib.import_module(f"drafcheck.fix.repairs.{module.stem}")
    return _REPAIRS


def tensors_of(s: Subject, finding: Finding) -> list[Tensor]:
    """The tensors that a finding names, those too that its locations leave out, in the order of the files."""
    named = set(finding.about) | {place.tensor for place in finding.locations if place.tensor is not None}
    return [t for file in s.checkpoint.files for t in file.header.tensors if t.name in named]
