"""DC105, DC108: names that a wrapper or another trainer has left, which this loader would take otherwise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.names import Lost, lost, names, places, plans, quietly, renamed, weight_of
from drafcheck.finding import Confidence, Severity
from drafcheck.plan.wanted import writer_of
from drafcheck.registry import Hit, rule
from drafcheck.words import count, listed

if TYPE_CHECKING:
    from drafcheck.subject import Subject


@rule("DC105", "wrapper-prefix", Severity.ERROR, needs=("contract", "load"), concerns="fit")
def wrapper_prefix(s: Subject) -> Iterator[Hit]:
    """Names carry a prefix that a training wrapper left on them.

    ## What it does
    Reports names that this loader would take without `module.`, `_orig_mod.`, `draft_model.`, a doubled `model.` and
    the like. The `model.` prefix is no fault where the loader adds or takes it.

    ## Why is this bad?
    The loader drops the tensors without a word: accept length 2.30 -> 1.01 on SGLang 0.5.15.post1 with `module.` on the
    decoder layer, and with `model.` on `lm_head`. SGLang before 0.4.9 stops with a KeyError instead.

    ## Fix
    Take the prefix off the names.
    """
    plan, contract = plans(s)
    groups: dict[str, Lost] = defaultdict(list)
    for tensor, wanted in lost(s):
        if wanted is not None and wanted.wrapper:
            groups[wanted.wrapper].append((tensor, wanted))
    for prefix, group in groups.items():
        tensors = [t for t, _ in group]
        first = group[0][1]
        loud = plan.refused is not None and not plan.wants
        outcome = f"refused ({plan.refused.error})" if plan.refused and loud else f"dropped {quietly(plan, contract)}"
        yield Hit(
            f"the prefix `{prefix}` stands before {count(len(tensors), 'name')} ({weight_of(tensors, plan)}), "
            f"which {s.engine} does not know: {outcome}",
            places(tensors),
            help=f"take `{prefix}` off the names: `{first.name if first else ''}`",
            fixable=renamed(s, tensors),
            about=names(tensors),
        )


@rule("DC108", "foreign-naming", Severity.ERROR, needs=("contract", "load"), concerns="fit")
def foreign_naming(s: Subject) -> Iterator[Hit]:
    """The names are another trainer's or engine's dialect.

    ## What it does
    Recognises names that no release of this draft class has read and that a known exporter writes, and gives the names
    that are wanted. (`layers.N.*` and `midlayer.*` are both this class's own, by release: DC101 speaks of those.)

    ## Why is this bad?
    Every tensor is dropped without a word, or the loader stops at the first one.

    ## Fix
    Convert the checkpoint with the trainer's own exporter for this engine, or rename the tensors.
    """
    plan, _ = plans(s)
    groups: dict[str, Lost] = defaultdict(list)
    for tensor, wanted in lost(s):
        if wanted is not None and wanted.foreign and not wanted.wrapper:
            groups[wanted.dialect].append((tensor, wanted))
    for dialect, group in groups.items():
        tensors = [t for t, _ in group]
        wanted = group[0][1]
        yield Hit(
            f"{count(len(tensors), 'name')} ({weight_of(tensors, plan)}) in the dialect of {writer_of(dialect)}, "
            f"which {s.engine} does not read: {listed([t.name for t in tensors])}",
            places(tensors),
            help=f"rename them: `{tensors[0].name}` is `{wanted.name if wanted else ''}` here",
            confidence=Confidence.LIKELY,
            fixable=renamed(s, tensors),
            about=names(tensors),
        )
