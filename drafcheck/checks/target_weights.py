"""DC804 and DC805: the draft's embedding and head beside the target's own. Only with ``--target-weights``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.beside import embedding_beside, head_beside, tokens_of_rows
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.registry import Hit, rule
from drafcheck.targethead import own_embedding
from drafcheck.words import count, ends, plural

if TYPE_CHECKING:
    from drafcheck.subject import Subject
    from drafcheck.valuescan.heads import Alignment

_GOOD = 0.5  # of the rows: so many agree with a reading only where it is the right one

_MUCH = 0.2  # of the rows: with so many wrong ones the drafter is broken
_SHOWN = 3


@rule("DC804", "embedding-differs", Severity.WARNING, needs=("load", "target_weights", "target_embedding"))
def embedding_differs(s: Subject) -> Iterator[Hit]:
    """The drafter's embedding is not the target's.

    ## What it does
    Compares rows of `embed_tokens`, spread over the vocabulary, with those of the target (`--target-weights`), where
    this engine loads the drafter's own and does not put the target's in its place.

    ## Why is this bad?
    Trainers freeze the target's embedding; another one is that of a sister model or of another revision, or was never
    copied, and the drafter then reads tokens that it does not know.

    ## Fix
    Copy the target's embedding (`drafcheck fix --unsafe --target-weights`), or serve with the target it was trained on.
    """
    (found, _, (ours, theirs)), tensor = embedding_beside(s), own_embedding(s)
    if found is not None and found.differ and tensor is not None:
        yield Hit(
            f"`{ours}` is not the target's `{theirs}`: {found.differ:,} of {count(found.rows, 'sampled row')} "
            f"differ{ends(found.differ)}, by up to {found.largest:.3g} (median cosine {found.cosine:.3f})",
            (Location(file=tensor.file, tensor=tensor.name),),
            help="serve with the target that it was trained on, or copy that target's embedding",
        )


@rule(
    "DC805",
    "head-misaligned",
    Severity.ERROR,
    Severity.WARNING,
    needs=("load", "target_weights", "target_head"),
    concerns="mapping",
    reads=("d2t",),
)
def head_misaligned(s: Subject) -> Iterator[Hit]:
    """The rows of lm_head are those of other tokens than d2t says, all of them or some.

    ## What it does
    Takes 256 draft ids and looks which rows of `lm_head` lie near which others, and the same of the target's head
    (`--target-weights`): tokens that are used alike lie near each other in both. Reports when a row seldom has the
    neighbours of the token that this engine's d2t names; and how often other readings of the mapping would be right:
    absolute ids, offsets, the id itself, one off, the reference's. Without d2t the rows of a head of full vocabulary
    are taken for the tokens of their numbers. Where these do not tell, or some lie as far from the token that d2t names
    as from any, 1,024 ids are looked at. A mapping is wrong where how near the rows lie to each other has nothing to do
    with how near their tokens do: that tells also of heads that were trained for a few steps. It is wrong in part where
    some of the rows lie anywhere and the others near their tokens; the report names the share and rows to look at, a
    warning below a fifth. The report says the shares for a right mapping too. A line says what was not done where
    nothing follows, and what would settle it: of heads that nobody trained, whose rows are all equally far from each
    other, of those trained so little that rows of other tokens may hide among the right ones, and of weights that only
    the draft says are not the target's, as their head has other rows than the target has tokens. Beside a target that
    says so too these are wrong usage.

    ## Why is this bad?
    The drafter proposes one token and means another: accept length 2.30 -> 1.01 with permuted rows, 1.08 with the
    mapping of another corpus (SGLang 0.5.15.post1), and nothing in the files' shapes tells.

    ## Fix
    Use the mapping that `lm_head` was trained with; `drafcheck fix --reference` takes one over.
    """
    found, v = head_beside(s).found, s.vocabulary
    if found is None or v is None or found.verdict not in ("wrong", "partly"):
        return
    wrong, named = found.verdict == "wrong", "that d2t names" if v.targets else "of their number"
    yield Hit(
        _wrong(found, named) if wrong else _partly(found, named, tokens_of_rows(s) or ()),
        tuple(Location(file=t.file, tensor=t.name) for t in (v.head_tensor, v.d2t_tensor) if t is not None),
        help="find the mapping that lm_head was trained with, and compare with it (`--reference`)",
        severity=Severity.ERROR if wrong or found.amiss >= _MUCH else Severity.WARNING,
        confidence=Confidence.LIKELY,
    )


def _wrong(found: Alignment, named: str) -> str:
    reading, share = max(list(found.agree.items())[1:], key=lambda told: told[1], default=("", 0.0))
    instead = f"; read as {reading} it is {share:.0%}" if share >= _GOOD else ""
    return (
        f"{found.named:.0%} of {plural(found.sampled, 'sampled row')} of lm_head have the neighbours of the token "
        f"{named} (by chance {found.chance:.1%}){instead or _unrelated(found)}"
    )


def _unrelated(found: Alignment) -> str:
    """How little the rows follow their tokens, where that is what tells."""
    told = found.concord
    if not told.unrelated(found.structure):
        return ""
    return (
        f"; how near {told.rows:,} of them lie to each other has nothing to do with how near these tokens do "
        f"(correlation {abs(told.correlation):.2f}, p = {told.p:.2f})"
    )


def _partly(found: Alignment, named: str, targets: Sequence[int]) -> str:
    reading, share = max(found.instead.items(), key=lambda told: told[1], default=("", 0.0))
    instead = f"; read as {reading}, {share:.0%} of these have" if share >= _GOOD else ""
    rows = ", ".join(f"{row} (token {targets[row]})" for row in found.doubted[:_SHOWN])
    return (
        f"about {found.amiss:.0%} of the rows of lm_head are those of other tokens than those {named}: "
        f"{found.named:.0%} of {plural(found.sampled, 'sampled one')} have the neighbours of their token (by chance "
        f"{found.chance:.1%}), and {len(found.doubted)} lie{ends(len(found.doubted))} farther from it than from half "
        f"of the others, such as {rows}{instead}"
    )
