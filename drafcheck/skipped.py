"""Why a rule can not run, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drafcheck.subject import NEEDS
from drafcheck.words import listed

if TYPE_CHECKING:
    from drafcheck.registry import Rule
    from drafcheck.subject import Subject

OF_TARGET_WEIGHTS = ("target_head", "target_embedding")
"""What is asked about only once ``--target-weights`` is there: that it is missing is said however little else is."""


ASKED = (*OF_TARGET_WEIGHTS, "comparison")
"""What an option asked for that was given: a rule that needs it, and does not have it, was asked for in vain."""


def why_skipped(subject: Subject, missing: str) -> str:
    """A line on what a rule needs and the subject has not; ``missing`` is a key of NEEDS."""
    if missing == "values" and not subject.has("weights"):
        missing = "weights"  # without them the option gives nothing
    pointers = subject.checkpoint.pointers
    if subject.undescribed is not None and missing in ("contract", "load"):
        return f"needs a contract for drafts with {subject.undescribed}, which drafcheck does not have yet"
    if missing in OF_TARGET_WEIGHTS:
        from drafcheck.targethead import REASONS

        return f"needs {REASONS[missing](subject)}"
    if missing == "comparison" and (lost := _lost(subject, ("d2t", "t2d"))) is not None:
        return f"needs {NEEDS[missing]}, and for that {lost}"
    if missing != "weights" or not pointers:
        return f"needs {NEEDS[missing]}"
    verb = "is a git lfs pointer" if len(pointers) == 1 else "are git lfs pointers"
    return f"{listed(pointers, 2)} {verb}, so only the config was checked"


def why_partly(subject: Subject, rule: Rule) -> str | None:
    """A line on what a rule that ran could not look at, as ``why_skipped`` has it; None when it was everything."""
    if "values" in rule.needs and (why := _unread(subject)) is not None:
        return why
    if (lost := _lost(subject, rule.reads)) is not None:
        return f"needs {lost}"
    from drafcheck.beside import why_untold

    compared = (why_untold(subject, need) for need in OF_TARGET_WEIGHTS if need in rule.needs)
    return next((f"needs {why}" for why in compared if why is not None), None)


def _unread(subject: Subject) -> str | None:
    """A line on the tensors whose values could not be read."""
    unread = subject.values.unread if subject.values is not None else []
    if not unread:
        return None
    names = listed([f"{u.tensor.name:.100}" for u in unread], 2)
    return f"needs the values of {names}, not read: {unread[0].why:.300}"


def _lost(subject: Subject, names: Sequence[str]) -> str | None:
    """A clause on tensors of the draft vocabulary whose values could not be had, by what ``Rule.reads`` calls them."""
    unread = subject.vocabulary.unread if subject.vocabulary is not None else {}
    lost = [name for name in names if name in unread]
    return f"the values of {listed(lost)}, not read: {unread[lost[0]]:.300}" if lost else None
