"""DC012: a loader finds no weight file, or cannot read the one that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.entries import no_tensors
from drafcheck.checks.files import is_config, problems
from drafcheck.checks.values import changed
from drafcheck.contract import load_toml
from drafcheck.finding import Location, Severity
from drafcheck.registry import Hit, rule
from drafcheck.tensor import Trouble
from drafcheck.words import listed

if TYPE_CHECKING:
    from drafcheck.subject import Subject


@rule("DC012", "unreadable-weights", Severity.ERROR, Severity.NOTE)
def unreadable_weights(s: Subject) -> Iterator[Hit]:
    """There is no weight file that this engine's loader would take, or it cannot read the one it takes.

    ## What it does
    Reports folders without a weight file of a name that the loader looks for (in the top folder only), and files that
    cannot be opened, are no regular files, or hold no tensors where the loader looks for them. Also files that changed
    while their values were read (`--values`), of which nothing else is said then: where size or name are others, and as
    a note where the time of change alone is.

    ## Why is this bad?
    The engine stops, or loads nothing without a word.

    ## Fix
    Put the weights into the top folder as `model.safetensors`.
    """
    yield from (hit for hit in problems(s, Trouble.UNREADABLE) if not is_config(hit, s))
    yield from changed(s)
    yield from no_tensors(s)
    refused = s.selection.refused if s.selection is not None else None
    if refused is not None and refused.cause == "no-files":
        from drafcheck.fix.repairs.files import may_reindex, unread_pickle

        yield Hit(
            _no_weights(s),
            tuple(Location(file=name) for name in _passed_over(s)[:1]),
            help=_where_weights(s),
            fixable=may_reindex(s) or unread_pickle(s) is not None,
        )


def _passed_over(s: Subject) -> list[str]:
    ignored = [name for name, _ in s.selection.ignored] if s.selection is not None else []
    return [*ignored, *s.checkpoint.weights_below]


def _no_weights(s: Subject) -> str:
    endings = load_toml(s.engine.name, "loader.toml").get("patterns", [])
    text = f"{s.engine} finds no weight file to load ({', '.join('*' + e for e in endings)} in the top folder)"
    ignored = s.selection.ignored if s.selection is not None else ()
    reasons = [f"{name} is passed over: {why}" for name, why in ignored[:2]]
    below = [f"it does not look into subfolders, where {listed(s.checkpoint.weights_below, 2)} lies"]
    return "; ".join([text, *reasons, *(below if s.checkpoint.weights_below else [])])


def _where_weights(s: Subject) -> str:
    below = s.checkpoint.weights_below
    if below:
        return f"move {below[0]} into the top folder, or point the engine at the subfolder"
    if s.selection is not None and s.selection.ignored:
        return "write the index again from the headers of the files, or rename the weight file to model.safetensors"
    return "put the weights into the top folder as model.safetensors"
