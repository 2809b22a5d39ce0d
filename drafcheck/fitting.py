"""The draft class that would take the tensors at hand in this release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from drafcheck.contract import load_toml
from drafcheck.draftmode import one_of
from drafcheck.heads import class_for, head_in, taken_since
from drafcheck.targets import draft_kind
from drafcheck.trial import tried

if TYPE_CHECKING:
    from drafcheck.subject import Subject


def fitting_class(s: Subject) -> str | None:
    """The class that fits the tensors, of any release of this engine; None when it has none."""
    head = head_in(s)
    if head is None or s.selection is None:
        return None
    return class_for(s.engine, head, (t.name for t in s.selection.tensors))


def fitting_here(s: Subject) -> str | None:
    """The class that fits the tensors, where this release builds it once ``architectures`` names it, and can run it.

    None as well where the engine chooses the class itself, as for a config that it converts.
    """
    head, name = head_in(s), fitting_class(s)
    if name is None or head is None or s.selection is None or (s.config is not None and s.config.settled):
        return None
    since = taken_since(s.engine, head, (t.name for t in s.selection.tensors))
    if since is None or Version(since) > s.engine.known:
        return None
    trial = tried(s, {("architectures",): [name]})
    refused = trial is None or (trial.refused is not None and trial.refused.cause == "architecture")
    if trial is None or refused or not _is_run(s, name, trial.algorithm):
        return None
    return name


def _is_run(s: Subject, name: str, algorithm: str) -> bool:
    """Whether the algorithm that was asked for drafts with such a class."""
    served = load_toml(s.engine.name, "registry.toml").get("algorithms", {}).get(draft_kind(s.engine, name), [])
    return not s.algorithm_given or not served or one_of(algorithm, served)
