"""DC313: do the rows of lm_head repeat where d2t does?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.checks.mapping import is_sound
from drafcheck.checks.vocabulary import at, parts
from drafcheck.finding import Confidence, Severity
from drafcheck.registry import Hit, rule
from drafcheck.source import SourceError
from drafcheck.words import count

if TYPE_CHECKING:
    from drafcheck.plan.model import VocabularyPlan
    from drafcheck.rows import Repeats
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor

_SURE = 4  # so many pairs of rows that are the same are no accident


@rule("DC313", "repeated-head-rows", Severity.WARNING, needs=("load", "weights"), reads=("d2t", "lm_head"))
def repeated_head_rows(s: Subject) -> Iterator[Hit]:
    """Rows of lm_head repeat where d2t does: the head was cut with the offsets as row numbers.

    ## What it does
    Reads the first bytes of a few rows of `lm_head` whose values of d2t are the same, and of some whose are not. In a
    trained head no two rows are the same; where d2t holds offsets and was used as an index, they are exactly where d2t
    repeats. Rows of zeros say nothing. Of a checkpoint at an address no rows are read.

    ## Why is this bad?
    Row i holds the weights of token d2t[i], and the engine proposes token i + d2t[i]: a head in another order than its
    mapping was measured at 1.01 instead of 2.30 (SGLang 0.5.15.post1). TorchSpec's `--prune-vocab` cuts heads so.

    ## Fix
    Cut `lm_head` from the full head again: row i is the row of token i + d2t[i]. The tokens that are missing cannot be
    had from this file.
    """
    v, _, _, _ = parts(s)
    head, raw = v.head_tensor, v.raw
    if head is None or raw is None or v.semantics != "offset" or s.checkpoint.place.remote:
        return
    if len(head.shape) != 2 or head.shape[0] != len(raw) or not head.shape[1] or 0 <= head.start > head.stop - len(raw):
        return
    found = _repeats(s, v, head, raw)
    if found is not None and is_sound(v):  # in this order: the first pair of rows nearly always settles it
        one, two = found.first
        yield Hit(
            f"lm_head has the same row for different tokens, exactly where d2t repeats ({count(found.pairs, 'pair')} "
            f"read, such as rows {one} and {two} for tokens {one + raw[one]} and {two + raw[two]}): it was cut with "
            "the offsets of d2t as row numbers",
            at(head, v.d2t_tensor),
            help="cut lm_head from the full head again: row i is the row of token i + d2t[i]",
            confidence=Confidence.CERTAIN if found.pairs >= _SURE else Confidence.LIKELY,
        )


def _repeats(s: Subject, v: VocabularyPlan, head: Tensor, raw: Sequence[int]) -> Repeats | None:
    """What the rows say; where they can not be had it is noted why."""
    from drafcheck.rows import rows_repeat_with

    try:
        return rows_repeat_with(s.checkpoint, head, raw)
    except SourceError as error:
        v.unread["lm_head"] = error.message
        return None
