"""The draft vocabulary of a checkpoint beside that of a reference: what agrees, and whether the head could follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import eq
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.decode import DecodeError
from drafcheck.errors import UsageError
from drafcheck.plan.inverse import INVERSE, tokens_of
from drafcheck.plan.vocabulary import is_another, is_reduced
from drafcheck.reference import settled
from drafcheck.source import SourceError
from drafcheck.words import count

if TYPE_CHECKING:
    from drafcheck.checkpoint import Checkpoint
    from drafcheck.plan.model import VocabularyPlan
    from drafcheck.reference import Reference
    from drafcheck.subject import Subject

FIRST = 10
"""So many differences are told."""


class Difference(NamedTuple):
    """A draft id and the target tokens that it means in the checkpoint and in the reference.

    The texts are quoted, without control characters; None where no tokenizer tells.
    """

    draft_id: int
    here: int
    there: int
    here_text: str | None = None
    there_text: str | None = None


class Comparison(NamedTuple):
    """Two mappings side by side; ``here`` is the checkpoint, ``there`` the reference.

    ``size_here`` and ``size_there`` count draft ids, of which ``agree`` mean the same token; ``shared``, ``only_here``
    and ``only_there`` count target tokens. ``permutation``: the same tokens in another order. ``ordered`` is False when
    the reference is a set of tokens (t2d alone): then ``agree`` takes it in the order of token ids, as most trainers
    do. ``other_vocab`` is the size of the reference's target vocabulary when it cannot be this target's. ``unfilled``:
    the draft ids of the checkpoint are their own tokens although its vocabulary is reduced. ``faults`` are clauses on
    what is wrong with the reference itself, whatever it is compared with. ``full``: the reference is a head of full
    vocabulary, which has no d2t.
    """

    size_here: int
    size_there: int
    agree: int
    shared: int
    only_here: int
    only_there: int
    ordered: bool = True
    other_vocab: int | None = None
    unfilled: bool = False
    faults: tuple[str, ...] = ()
    full: bool = False
    differences: tuple[Difference, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether each draft id means the same token in both, as far as the reference says."""
        return self.size_here == self.size_there and (self.agree == self.size_here or self._same_set_unordered)

    @property
    def permutation(self) -> bool:
        """Whether both have the same tokens in different orders: the rows of lm_head could be put in order."""
        alike = self.size_here == self.size_there == self.shared and self.ordered
        return alike and not self.only_there and self.agree < self.size_here

    @property
    def orphan_rows(self) -> int:
        """How many rows of a head in the reference's order would have no source in this head."""
        return self.only_there

    @property
    def _same_set_unordered(self) -> bool:
        return not self.ordered and self.shared == self.size_here


def compare(s: Subject, reference: Reference) -> Comparison | None:
    """The two mappings side by side; None when the checkpoint has neither a mapping nor a head.

    Raises UsageError for a tokenizer that was given and cannot be read, if there is a difference to show.
    """
    plan = s.vocabulary
    ours = _own_tokens(plan) if plan is not None else _tokens_in(s.checkpoint)
    if ours is None:
        return None
    vocab = plan.vocab if plan is not None else None
    reference = settled(reference, len(ours), vocab)
    here, there = ours if isinstance(ours, list) else list(ours), reference.targets
    tokens_here, tokens_there = set(here), set(there)
    shared = len(tokens_here & tokens_there)
    agree = sum(map(eq, here, there))
    theirs = len(reference.t2d) if reference.t2d else None
    return Comparison(
        size_here=len(here),
        size_there=len(there),
        agree=agree,
        shared=shared,
        only_here=len(tokens_here) - shared,
        only_there=len(tokens_there) - shared,
        ordered=reference.ordered,
        other_vocab=theirs if vocab and theirs and is_another(vocab, theirs) else None,
        unfilled=vocab is not None and is_reduced(len(here), vocab) and here == list(range(len(here))),
        faults=tuple(_faults(reference, tokens_there, vocab)),
        full=reference.full,
        differences=_differences(s, here, there) if agree < min(len(here), len(there)) else (),
    )


def _faults(reference: Reference, tokens: set[int], vocab: int | None) -> Iterator[str]:
    """What is wrong with a reference by itself. ``vocab`` stands in for the size of its own target vocabulary."""
    if reference.sound or reference.full:
        return
    repeated = len(reference.targets) - len(tokens)
    if repeated:
        yield f"{count(repeated, 'draft id')} of it {'repeats' if repeated == 1 else 'repeat'} a token"
    mask = reference.t2d
    size = len(mask) if mask else vocab
    if size and tokens and (min(tokens) < 0 or max(tokens) >= size):
        worst = min(tokens) if min(tokens) < 0 else max(tokens)
        yield f"it holds token {worst}, outside {'its t2d' if mask else 'the vocabulary'} of {size:,}"
    elif mask and 1 in mask and reference.ordered and not _keeps(mask, tokens):
        yield "its d2t contradicts its own t2d"


def _keeps(mask: bytes, tokens: set[int]) -> bool:
    """Whether a t2d keeps these tokens, which are in its range, and no others."""
    return sum(map(mask.__getitem__, tokens)) == len(tokens) == mask.count(1)


def _own_tokens(v: VocabularyPlan) -> Sequence[int] | None:
    """The token of each draft id as it was meant; a head of full vocabulary without d2t maps to itself."""
    if v.d2t_tensor is None and v.head_rows is not None:
        return range(min(v.head_rows, v.vocab or v.head_rows))
    if v.meant == INVERSE and v.raw is not None and (v.head_rows or v.draft_vocab):
        return tokens_of(v.raw, v.head_rows or v.draft_vocab or 0)
    return v.raw if v.meant == "absolute" else v.targets


def _tokens_in(checkpoint: Checkpoint) -> list[int] | None:
    """The same for a draft class without a contract: by the names that every trainer uses."""
    from drafcheck.reference import mapping_in

    try:
        return mapping_in(checkpoint).targets
    except (DecodeError, SourceError, UsageError):
        return None


def _differences(s: Subject, here: list[int], there: list[int]) -> tuple[Difference, ...]:
    first = list(islice((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), FIRST))
    if not first:
        return ()
    from drafcheck.tokenizer import shown  # nothing to show at a healthy mapping

    return tuple(Difference(i, here[i], there[i], shown(s, here[i]), shown(s, there[i])) for i in first)
