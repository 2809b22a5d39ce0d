"""DC311: do the draft ids mean the same tokens as in the reference?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.vocabulary import at
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.plan.vocabulary import HEAD, named
from drafcheck.registry import Hit, rule
from drafcheck.words import count

if TYPE_CHECKING:
    from drafcheck.comparison import Comparison
    from drafcheck.subject import Subject


@rule("DC311", "mapping-differs", Severity.ERROR, needs=("reference", "comparison"), concerns="mapping")
def mapping_differs(s: Subject) -> Iterator[Hit]:
    """The draft ids mean other tokens than in the reference.

    ## What it does
    Compares d2t with that of `--reference` (a checkpoint, or the trainer's mapping file): how many draft ids agree, how
    many tokens both have, the first ten differences, and whether the rows of `lm_head` could be permuted to fit. A
    reference that is a t2d alone has no order: the same set of tokens is no finding then. With
    `--tokenizer`, or a tokenizer in the target's folder, tokens are shown as text.

    ## Why is this bad?
    Weights that start from a head with another mapping look random in training (loss 18 to 20) although the parent
    serves well; a head served with the mapping of another corpus falls from 2.30 to 1.08 (SGLang 0.5.15.post1).
    Sister models have the same sizes, so nothing but the mapping itself tells.

    ## Fix
    Use the reference's d2t if `lm_head` is its, or permute the rows of `lm_head`, knowing how many have no source.
    """
    found, reference = s.comparison, s.reference
    if found is None or reference is None or found.identical:
        return
    yield Hit(
        f"{found.agree:,} of {count(found.size_here, 'draft id')} agree with {reference.name} "
        f"({found.size_there:,}{_doubts(found)}); target tokens shared {found.shared:,}, only here "
        f"{found.only_here:,}, only there {found.only_there:,}; {_differences(found)}{_broken(found)}",
        _places(s),
        help=_fit(found),
        confidence=_less(reference.certainty) if found.faults else reference.certainty,
    )


def _places(s: Subject) -> tuple[Location, ...]:
    """The draft's d2t, else what stands in for it: its head, its config, its first weight file."""
    if s.vocabulary is not None:
        place = at(s.vocabulary.d2t_tensor) or at(s.vocabulary.head_tensor)
    else:
        tensors = [t for file in s.checkpoint.files for t in file.header.tensors]
        place = at(named(tensors, "d2t")) or at(named(tensors, HEAD))
    if place:
        return place
    file = s.config.document.file if s.config is not None else next((f.name for f in s.checkpoint.files), None)
    return (Location(file=file),) if file is not None else ()


def _broken(found: Comparison) -> str:
    return f"; the reference itself looks broken: {', '.join(found.faults)}" if found.faults else ""


def _less(sure: Confidence) -> Confidence:
    return Confidence.LIKELY if sure is Confidence.CERTAIN else Confidence.GUESS


def _doubts(found: Comparison) -> str:
    said = "" if found.ordered else ", a t2d alone, taken in the order of token ids"
    return said + (f", made for {count(found.other_vocab, 'target token')}" if found.other_vocab is not None else "")


def _differences(found: Comparison) -> str:
    if not found.differences:
        return "the lengths differ"
    told = [f"{d.draft_id}: {_token(d.here, d.here_text)}/{_token(d.there, d.there_text)}" for d in found.differences]
    return f"first differences (draft id: here/there) {', '.join(told)}"


def _token(token: int, text: str | None) -> str:
    return f"{token}" if text is None else f"{token} {text}"


def _fit(found: Comparison) -> str:
    if found.faults:
        return "mend the reference or compare with another: nothing can be made from a mapping that is broken"
    if found.full:
        return (
            f"the reference has the full vocabulary and no d2t to use: lm_head has rows for {found.shared:,} of its "
            f"{count(found.size_there, 'token')}; compare with a reference of the draft's vocabulary"
        )
    if found.unfilled:
        theirs = "the reference's d2t" if found.ordered else "a d2t made from the reference's t2d"
        return f"use {theirs} if lm_head came from it: the checkpoint has no mapping of its own"
    if found.permutation:
        return (
            f"a permutation: all {count(found.size_here, 'row')} of lm_head can be put into the reference's order "
            "without loss"
        )
    if not found.orphan_rows:
        theirs = count(found.size_there, "draft id")
        return f"lm_head has a row for each of the reference's {theirs}: take them in its order"
    theirs = "the reference's d2t" if found.ordered else "a d2t made from the reference's t2d"
    return (
        f"lm_head can be permuted to the reference's order except for {count(found.orphan_rows, 'row')} of "
        f"{found.size_there:,} without a source; use {theirs} instead if lm_head came from it"
    )
