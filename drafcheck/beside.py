"""What ``--target-weights`` say of the draft's head and embedding: read once, for the rules and for the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.plan.vocabulary import EMBEDDING, HEAD, is_another
from drafcheck.source import SourceError
from drafcheck.targethead import own_embedding, target_head
from drafcheck.words import plural

if TYPE_CHECKING:
    from drafcheck.matrix import Matrix, Scattered
    from drafcheck.plan.model import VocabularyPlan
    from drafcheck.subject import Subject
    from drafcheck.valuescan.compare import Apart
    from drafcheck.valuescan.heads import Alignment

EMBEDDINGS = 512
"""So many rows of an embedding are compared."""

_NEIGHBOURS = 16  # of which so many lie together


class HeadBeside(NamedTuple):
    """The rows of the draft's head beside the target's; ``why``: the clause that says why nothing follows."""

    found: Alignment | None = None
    why: str | None = None


class EmbeddingBeside(NamedTuple):
    """The draft's own embedding beside the target's; ``why`` as of the head. ``names`` are those of the two."""

    found: Apart | None = None
    why: str | None = None
    names: tuple[str, str] = ("", "")


def head_beside(s: Subject) -> HeadBeside:
    """Told at the first use; neither says anything where there is nothing to compare."""
    if s.head_beside is None:
        s.head_beside = _head(s)
    return s.head_beside


def embedding_beside(s: Subject) -> EmbeddingBeside:
    """Told at the first use; neither says anything where the draft has no embedding of its own."""
    if s.embedding_beside is None:
        s.embedding_beside = _embedding(s)
    return s.embedding_beside


def why_untold(s: Subject, need: str) -> str | None:
    """Why the comparison that a rule needs (``target_head``, ``target_embedding``) came to nothing: a clause."""
    told = head_beside(s) if need == "target_head" else embedding_beside(s)
    return told.why


def confirms(s: Subject, tokens: Sequence[int]) -> bool | None:
    """Whether the rows of the draft's head stand for these tokens by the target's weights; None when nothing tells."""
    pair = _heads(s)
    try:
        found = _aligned(pair, {"as given": tokens}) if pair is not None else None
    except SourceError:
        return None
    return None if found is None or found.verdict == "untold" else found.verdict == "right"


def _head(s: Subject) -> HeadBeside:
    v, pair = s.vocabulary, _heads(s)
    targets = tokens_of_rows(s) if pair is not None else None
    if v is None or pair is None:
        return HeadBeside()
    if not targets:
        return HeadBeside(why=_why_no_tokens(s, v))
    try:
        found = _aligned(pair, _readings(s, v, targets))
    except SourceError as error:
        return HeadBeside(why=f"rows of lm_head that can not be read: {error.message:.300}")
    if found is None or found.verdict != "untold":
        return HeadBeside(found)
    ours, theirs = (f"{matrix.tensor.name:.100}" for matrix in pair)
    why = found.why_untold(ours, f"{theirs} in --target-weights")
    return HeadBeside(found, f"a head of which the target's tells the tokens: {why}")


def _heads(s: Subject) -> tuple[Matrix | Scattered, Matrix] | None:
    """The draft's head and the target's, where their rows can be compared."""
    from drafcheck.matrix import NUMBERS, compared_in

    v, theirs = s.vocabulary, target_head(s)
    ours = compared_in(s.checkpoint, v.head_tensor) if v is not None and v.head_tensor is not None else None
    if ours is None or theirs is None or ours.tensor.dtype not in NUMBERS:
        return None
    return ours, theirs


def _aligned(pair: tuple[Matrix | Scattered, Matrix], readings: dict[str, Sequence[int]]) -> Alignment | None:
    from drafcheck.valuescan.heads import aligned

    return aligned(*pair, readings)


def tokens_of_rows(s: Subject) -> Sequence[int] | None:
    """The token that this engine takes each row of the draft's head for; its own number where there is no d2t.

    None where that is not known, or the head in the file is not the one that is served.
    """
    v, theirs = s.vocabulary, target_head(s)
    if v is None or v.targets or v.d2t_tensor is not None:
        return v.targets if v is not None else None
    full = v.head_rows is not None and theirs is not None and not is_another(v.head_rows, theirs.tensor.shape[0])
    return range(v.head_rows or 0) if full and _is_served(s, v) else None


def _why_no_tokens(s: Subject, v: VocabularyPlan) -> str | None:
    """Why nothing says which tokens the rows of the draft's head stand for; None where the head is not served."""
    if v.d2t_tensor is not None:
        return f"values of d2t that can be read: {v.unreadable}" if v.unreadable else None
    if not _is_served(s, v):
        return None
    return f"a d2t: nothing else says which tokens the {plural(v.head_rows or 0, 'row')} of lm_head stand for"


def _is_served(s: Subject, v: VocabularyPlan) -> bool:
    """Whether the head in the file is the one that is served."""
    return not v.tied and not v.head_from_target and s.load is not None and HEAD not in s.load.fills_from_target


def _readings(s: Subject, v: VocabularyPlan, targets: Sequence[int]) -> dict[str, Sequence[int]]:
    """The mapping as this engine reads it, first, and as it could be meant."""
    count = len(targets)
    readings: dict[str, Sequence[int]] = {"this engine reads it": targets}
    if v.raw is not None:
        readings["absolute token ids"] = v.raw
        readings["offsets"] = [i + raw for i, raw in enumerate(v.raw)]
    readings["the draft ids themselves"] = range(count)
    readings["one token further"] = [t + 1 for t in targets]
    readings["one token less"] = [t - 1 for t in targets]
    readings["those of the next draft ids"] = [*targets[1:], -1]
    readings["those of the draft ids before"] = [-1, *targets[:-1]]
    if s.reference is not None and s.reference.targets:
        readings["the reference's mapping"] = s.reference.targets
    return readings


def _embedding(s: Subject) -> EmbeddingBeside:
    from drafcheck.matrix import compared_in, matrix_called
    from drafcheck.valuescan.compare import apart

    tensor = own_embedding(s)
    ours = compared_in(s.checkpoint, tensor) if tensor is not None else None
    theirs = matrix_called(s.target_weights, EMBEDDING) if s.target_weights is not None else None
    if ours is None or theirs is None:
        return EmbeddingBeside()
    names = (ours.tensor.name, theirs.tensor.name)
    try:
        return EmbeddingBeside(
            apart(ours, theirs, _numbers(min(ours.tensor.shape[0], theirs.tensor.shape[0]))), names=names
        )
    except SourceError as error:
        return EmbeddingBeside(why=f"rows of {names[0]:.100} that can not be read: {error.message:.300}", names=names)


def _numbers(rows: int) -> list[int]:
    """Rows that are compared, all over the vocabulary: stretches of neighbours."""
    if rows <= EMBEDDINGS:
        return list(range(rows))
    stretches = EMBEDDINGS // _NEIGHBOURS
    starts = (i * (rows - _NEIGHBOURS) // (stretches - 1) for i in range(stretches))
    return sorted({start + i for start in starts for i in range(_NEIGHBOURS)})
