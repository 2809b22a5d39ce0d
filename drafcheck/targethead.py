"""The head of the target's own weights (``--target-weights``), and what it says of a mapping."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from drafcheck.errors import UsageError
from drafcheck.plan.vocabulary import EMBEDDING, HEAD, is_another
from drafcheck.words import count

if TYPE_CHECKING:
    from drafcheck.checkpoint import Checkpoint
    from drafcheck.config import TargetConfig
    from drafcheck.matrix import Matrix
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor


def target_head(s: Subject) -> Matrix | None:
    """The target's head, its embedding where the two are one; None where these weights are not the target's."""
    return None if why_no_head(s) is not None else _found(s)


def why_no_head(s: Subject) -> str | None:
    """Why the weights that were named have no head of this target, a clause; None when they have one.

    It has a row for each token, padding aside: of the target's vocabulary, else of the one that the draft's config and
    t2d speak of.
    """
    head, v = _found(s), s.vocabulary
    if head is None:
        none = f"there is no {HEAD} in --target-weights of which rows can be compared"
        return f"the target's head, and {none}{_why_none(s, HEAD) or _untied(s)}"
    own = _own_why(s.checkpoint, v.head_tensor) if v is not None and v.head_tensor is not None else None
    if own is not None:
        return f"a head to compare with the target's: {own}"
    rows = head.tensor.shape[0]
    if v is None:
        return None
    told = [v.target_vocab] if v.target_vocab is not None else [v.vocab, len(v.t2d) if v.t2d is not None else None]
    other = next((size for size in told if size is not None and is_another(rows, size)), None)
    if other is None:
        return None
    return (
        f"the target's head: {head.tensor.name:.100} in --target-weights has {count(rows, 'row')} for "
        f"{count(other, 'token')}"
    )


def _why_none(s: Subject, name: str) -> str:
    """Why the weights that were named have no such matrix, behind a colon; "" where nothing is in its way."""
    from drafcheck.matrix import because

    return because(s.target_weights, name) if s.target_weights is not None else ""


def _untied(s: Subject) -> str:
    """What to say of an embedding that is there and is not the head."""
    from drafcheck.matrix import holds, is_tied, matrix_called

    weights = s.target_weights
    if weights is None or holds(weights, HEAD) or is_tied(weights, s.target) or not matrix_called(weights, EMBEDDING):
        return ""
    return f"; its {EMBEDDING} is not the head, as tie_word_embeddings is not true"


def own_embedding(s: Subject) -> Tensor | None:
    """The embedding that the engine loads from the draft and does not put the target's in place of."""
    load = s.load
    if load is None or any(name.endswith(EMBEDDING) for name in load.fills_from_target):
        return None
    return next((w.tensor for w in load.writes if w.parameter.endswith(EMBEDDING)), None)


def why_no_embedding(s: Subject) -> str | None:
    """Why the weights that were named say nothing of the draft's own embedding, a clause; None where they do.

    A draft without one asks nothing of them.
    """
    from drafcheck.matrix import matrix_called

    own = own_embedding(s)
    if own is None or s.target_weights is None:
        return None
    theirs = matrix_called(s.target_weights, EMBEDDING)
    why = _own_why(s.checkpoint, own)
    if why is not None:
        return f"an embedding to compare with the target's: {why}"
    if theirs is None:
        none = f"there is no {EMBEDDING} in --target-weights of which rows can be compared"
        return f"the target's embedding, and {none}{_why_none(s, EMBEDDING)}"
    if own.shape[1:] != theirs.tensor.shape[1:]:
        width, other = own.shape[1:], theirs.tensor.shape[1:]
        return f"an embedding as wide as the draft's: {list(width)} here, {list(other)} in --target-weights"
    return None


def _own_why(checkpoint: Checkpoint, tensor: Tensor) -> str | None:
    """Why the rows of a matrix of the draft can not be compared, a clause; None when they can."""
    from drafcheck.matrix import NUMBERS, compared_in

    if tensor.dtype not in NUMBERS:
        return f"{tensor.name:.100} is {tensor.dtype} here, whose values are not compared"
    if compared_in(checkpoint, tensor) is None:
        return f"the rows of {tensor.name:.100} do not lie one after another in its file"
    return None


REASONS: Mapping[str, Callable[[Subject], str | None]] = {
    "target_head": why_no_head,
    "target_embedding": why_no_embedding,
}
"""By what a rule needs of ``--target-weights``: why they do not have it."""


def refuse_foreign(s: Subject, path: str) -> None:
    """Raises UsageError for weights named that have nothing to compare with, or that are not those of the target."""
    from drafcheck.matrix import matrix_called

    head = _found(s) or (matrix_called(s.target_weights, EMBEDDING) if s.target_weights is not None else None)
    if head is None:
        why = _why_none(s, HEAD) or _why_none(s, EMBEDDING)
        raise UsageError(
            f"--target-weights {path}: no {HEAD} and no {EMBEDDING} there of which rows can be compared{why}"
        )
    rows, size = head.tensor.shape[0], s.target.vocab_size if s.target is not None else None
    if size is not None and size > 0 and is_another(rows, size):
        raise UsageError(
            f"--target-weights {path}: {head.tensor.name:.100} has {count(rows, 'row')}, and the target "
            f"{s.target_path} has {count(size, 'token')}: these are not its weights"
        )
    width, wide = head.tensor.shape[1], s.target.hidden_size if s.target is not None else None
    is_head = head.tensor.name.endswith(HEAD)  # of an embedding alone the rules say that it is of another width
    if is_head and s.target is not None and wide is not None and width != wide and not _says(s.target, width):
        raise UsageError(
            f"--target-weights {path}: {head.tensor.name:.100} takes {count(width, 'value')}, and the hidden states "
            f"of the target {s.target_path} have {wide}: these are not its weights"
        )


def _says(target: TargetConfig, width: int) -> bool:
    """Whether a size in the target's config is this one: some classes have embeddings of another width than states."""
    return any(value == width for value in target.language.values() if isinstance(value, int))


def _found(s: Subject) -> Matrix | None:
    """The head; the embedding only where the files have no head, not where it is of a dtype that is not compared."""
    from drafcheck.matrix import head_in

    return head_in(s.target_weights, s.target) if s.target_weights is not None else None
