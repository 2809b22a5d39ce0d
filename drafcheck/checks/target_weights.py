"""DC804 and DC805: the draft's embedding and head beside the target's own. Only with ``--target-weights``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.finding import Confidence, Location, Severity
from drafcheck.plan.vocabulary import EMBEDDING
from drafcheck.registry import Hit, rule
from drafcheck.source import SourceError
from drafcheck.targethead import BAD, GOOD, own_embedding, target_head

if TYPE_CHECKING:
    from drafcheck.matrix import Matrix
    from drafcheck.plan.model import VocabularyPlan
    from drafcheck.subject import Subject
    from drafcheck.valuescan.heads import Alignment

_SAMPLE = 512  # rows of an embedding that are compared


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
    from drafcheck.matrix import matrix_called, matrix_in

    assert s.target_weights is not None
    tensor = own_embedding(s)
    ours = matrix_in(s.checkpoint, tensor) if tensor is not None else None
    theirs = matrix_called(s.target_weights, EMBEDDING)
    if ours is None or theirs is None:
        return
    told = _difference(ours, theirs)
    if told is not None:
        yield Hit(
            f"`{ours.tensor.name}` is not the target's `{theirs.tensor.name}`: {told}",
            (Location(file=ours.tensor.file, tensor=ours.tensor.name),),
            help="serve with the target that it was trained on, or copy that target's embedding",
        )


def _difference(ours: Matrix, theirs: Matrix) -> str | None:
    """How far the sampled rows are apart; None when they are the same, or can not be read."""
    from drafcheck.valuescan.compare import apart

    rows = min(ours.tensor.shape[0], theirs.tensor.shape[0])
    numbers = sorted({i * rows // min(rows, _SAMPLE) for i in range(min(rows, _SAMPLE))})
    try:
        found = apart(ours, theirs, numbers)
    except SourceError:
        return None
    if not found.differ:
        return None
    return (
        f"{found.differ:,} of {len(numbers):,} sampled rows differ, by up to {found.largest:.3g} "
        f"(median cosine {found.cosine:.3f})"
    )


@rule("DC805", "head-misaligned", Severity.ERROR, needs=("load", "target_weights", "target_head"), concerns="mapping")
def head_misaligned(s: Subject) -> Iterator[Hit]:
    """The rows of lm_head are those of other tokens than d2t says.

    ## What it does
    Takes 256 draft ids and looks which rows of `lm_head` lie near which others, and the same of the target's head
    (`--target-weights`): tokens that are used alike lie near each other in both. Reports when a row seldom has the
    neighbours of the token that this engine's d2t names; and how often other readings of the mapping would be right:
    absolute ids, offsets, the id itself, one off, the reference's. Says nothing about heads that nobody trained, whose
    rows are all equally far from each other. Weights that are not the target's, as their head has other rows than the
    target has tokens, are wrong usage; where only the draft says how many those are, a line says what was not done.

    ## Why is this bad?
    The drafter proposes one token and means another: accept length 2.30 -> 1.01 with permuted rows, 1.08 with the
    mapping of another corpus (SGLang 0.5.15.post1), and nothing in the files' shapes tells.

    ## Fix
    Use the mapping that `lm_head` was trained with; `drafcheck fix --reference` takes one over.
    """
    found = _alignment(s)
    if found is None or not found.tells:
        return
    named, *others = found.agree.items()
    if named[1] >= BAD:
        return
    best = max(others, key=lambda reading: reading[1])
    instead = f"; read as {best[0]} it is {best[1]:.0%}" if best[1] >= GOOD else ""
    v = s.vocabulary
    tensors = [t for t in (v.head_tensor, v.d2t_tensor) if t is not None] if v is not None else []
    yield Hit(
        f"{named[1]:.0%} of {found.sampled} sampled rows of lm_head have the neighbours of the token that d2t names "
        f"(by chance {found.chance:.1%}){instead}",
        tuple(Location(file=t.file, tensor=t.name) for t in tensors),
        help="find the mapping that lm_head was trained with, and compare with it (`--reference`)",
        confidence=Confidence.LIKELY,
    )


def _alignment(s: Subject) -> Alignment | None:
    from drafcheck.matrix import matrix_in
    from drafcheck.valuescan.heads import aligned

    v = s.vocabulary
    if v is None or v.head_tensor is None or not v.targets:
        return None
    theirs = target_head(s)
    ours = matrix_in(s.checkpoint, v.head_tensor)
    if ours is None or theirs is None:
        return None
    try:
        return aligned(ours, theirs, _readings(s, v))
    except SourceError:
        return None


def _readings(s: Subject, v: VocabularyPlan) -> dict[str, Sequence[int]]:
    """The mapping as this engine reads it, first, and as it could be meant."""
    assert v.targets is not None
    count = len(v.targets)
    readings: dict[str, Sequence[int]] = {"this engine reads it": v.targets}
    if v.raw is not None:
        readings["absolute token ids"] = v.raw
        readings["offsets"] = [i + raw for i, raw in enumerate(v.raw)]
    readings["the draft ids themselves"] = range(count)
    readings["one token further"] = [t + 1 for t in v.targets]
    readings["one token less"] = [t - 1 for t in v.targets]
    if s.reference is not None and s.reference.targets:
        readings["the reference's mapping"] = s.reference.targets
    return readings
