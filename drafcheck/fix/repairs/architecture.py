"""Repairs of what decides which draft class is built: ``architectures``, ``model_type`` and the form of the config."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.fix.edits import Edit
from drafcheck.fix.keys import edits_of
from drafcheck.fix.registry import Wishes, repair
from drafcheck.flat import flattened, named_anew, nested_anew
from drafcheck.modeltypes import is_dispensable, knows, of_the_class
from drafcheck.trial import GONE, Route

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.subject import Subject


@repair("DC501", "DC504")
def name_the_class(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The class that fits the tensors, where this release has it, what it reads at other places, and the form."""
    yield from edits_of(s, named_anew(s) or nested_anew(s))


@repair("DC502")
def state_the_model_type(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """The model_type of the class's layer; a config class whose file is missing is not asked for any more."""
    if s.config is None:
        return
    changes: dict[Route, object] = {}
    meant = of_the_class(s)
    if s.config.text("auto_map", "AutoConfig") is not None:
        if not is_dispensable(s, s.config):
            return
        whole = len(s.config.get("auto_map", default={})) == 1
        changes[("auto_map",) if whole else ("auto_map", "AutoConfig")] = GONE
    if meant is not None and (s.config.model_type is None or knows(s.engine, s.config.model_type) is False):
        changes["model_type",] = meant
    yield from edits_of(s, changes)


@repair("DC503")
def write_it_flat(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:  # noqa: ARG001
    """A nested config as the flat one that this release reads."""
    yield from edits_of(s, flattened(s))
