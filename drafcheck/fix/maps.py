"""Draft vocabularies that are known to be a head's own, wherever they are written down, and how they are stored."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import eq
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.beside import confirms
from drafcheck.contract import load_toml
from drafcheck.decode import DecodeError
from drafcheck.errors import UsageError
from drafcheck.fix.edits import Content
from drafcheck.plan.vocabulary import is_another, kept_tokens
from drafcheck.producers import BY_FREQUENCY, BY_TOKEN, order_of_draft_ids
from drafcheck.reference import Reference, from_file, settled
from drafcheck.source import SourceError

if TYPE_CHECKING:
    from drafcheck.plan.model import VocabularyPlan
    from drafcheck.subject import Subject


FROM_REFERENCE = "from the reference"


class Map(NamedTuple):
    """The target token of each draft id, and what says so: ``from t2d``.

    ``sure``: whatever the d2t at hand says. ``assumed``: which tokens there are is known, and that draft ids rise with
    them is not.
    """

    tokens: Sequence[int]
    source: str
    sure: bool = False
    assumed: bool = False


def map_of(s: Subject, *, trusting: bool = False, assuming: bool = False) -> Map | None:
    """The map that the head was trained with, where something beside d2t tells it for certain; None otherwise.

    In this order: ``--reference``, when its head is the same, or the checkpoint's t2d keeps exactly its tokens, or when
    ``trusting`` the user; a mapping file in the folder, of the right size; t2d alone, where draft ids are known to rise
    with their tokens, or when ``assuming`` that they do. The target's weights, where they are named, have the last
    word: what they contradict is passed over, and what they confirm is no more assumed.
    """
    found = (_weighed(s, told) for told in _maps(s, trusting=trusting))
    return next((told for told in found if told is not None and (assuming or not told.assumed)), None)


def _weighed(s: Subject, told: Map) -> Map | None:
    verdict = confirms(s, told.tokens)
    if verdict is None:
        return told
    return told._replace(sure=True, assumed=False) if verdict else None


def _maps(s: Subject, *, trusting: bool) -> Iterator[Map]:
    v = s.vocabulary
    rows = rows_of(v) if v is not None else None
    if v is None or rows is None:
        return
    kept = kept_tokens(v.t2d) if v.t2d is not None else []
    if s.reference is not None:
        found = settled(s.reference, rows, v.vocab)
        if has_same_head(s) and is_map(v, found.targets):
            yield Map(found.targets, FROM_REFERENCE, sure=True)
        if (kept or trusting) and found.ordered and not found.full and is_map(v, found.targets, kept):
            yield Map(found.targets, FROM_REFERENCE)
    order = order_of_draft_ids(s)
    for name, told in _beside(s):
        found = settled(told, rows, v.vocab)
        fits = is_map(v, found.targets, kept or kept_tokens(found.t2d or b""))
        if fits and (found.ordered or order != BY_FREQUENCY):
            yield Map(found.targets, f"from {name}", assumed=not found.ordered and order != BY_TOKEN)
    if kept and is_map(v, kept, kept) and order != BY_FREQUENCY:
        yield Map(kept, "from t2d", assumed=order != BY_TOKEN)


def has_same_head(s: Subject) -> bool:
    """Whether the reference is a checkpoint whose head is the one at hand, so that its mapping is this head's too."""
    from drafcheck.fix.borrow import same_head  # few references have a head

    head = s.vocabulary.head_tensor if s.vocabulary is not None else None
    there = s.reference
    if there is None or head is None or not there.ordered or there.full or there.head_rows != head.shape[0]:
        return False
    return len(there.targets) == there.head_rows and same_head(there.path, s.checkpoint, head)


def rows_of(v: VocabularyPlan) -> int | None:
    """How many draft ids there are: the rows of the head, else what the config says."""
    return v.head_rows if v.head_rows is not None else v.draft_vocab


def is_map(v: VocabularyPlan, tokens: Sequence[int], kept: Sequence[int] = ()) -> bool:
    """Whether these can be the tokens of the draft ids: one for each, all different, there, and those ``kept``."""
    distinct = set(tokens)
    if not tokens or len(tokens) != rows_of(v) or len(distinct) != len(tokens) or min(tokens) < 0:
        return False
    size = v.vocab if v.vocab is not None else len(v.t2d or b"")
    return max(tokens) < size and (not kept or distinct == set(kept))


def _beside(s: Subject) -> Iterator[tuple[str, Reference]]:
    """The mapping files that a trainer left in the folder, by ``rules/mappings.toml``."""
    facts = load_toml("mappings.toml")
    place = s.checkpoint.place
    for name in place.names() or []:
        known = any(part in name for part in facts["parts"]) and name.endswith(tuple(facts["endings"]))
        if known and not name.startswith(".") and place.is_file(name) and not _is_in_use(s, name):
            try:
                yield name, from_file(place, name)
            except (DecodeError, SourceError, UsageError, OSError):
                continue  # something else under such a name


def _is_in_use(s: Subject, name: str) -> bool:
    return s.selection is not None and any(file.name == name for file in s.selection.chosen)


def agrees(stored: Sequence[int], tokens: Sequence[int]) -> bool:
    """Whether most of the tokens that a faulty d2t leads to are those of a map."""
    common = min(len(stored), len(tokens))
    return common > 0 and 2 * sum(map(eq, stored, tokens)) > common


def offsets(tokens: Sequence[int]) -> Content:
    """d2t as engines read it: target token minus draft id, one for each draft id."""
    return whole([token - draft for draft, token in enumerate(tokens)])


def whole(values: Iterable[int]) -> Content:
    """Whole numbers as I64."""
    packed = array("q", values)
    count = len(packed)
    if sys.byteorder == "big":
        packed.byteswap()
    return Content("I64", (count,), (packed.tobytes(),))


def mask(tokens: Iterable[int], size: int) -> Content:
    """t2d: a flag for each of ``size`` target tokens."""
    flags = bytearray(size)
    for token in tokens:
        flags[token] = 1
    return Content("BOOL", (size,), (bytes(flags),))


def mask_size(v: VocabularyPlan, tokens: Sequence[int]) -> int | None:
    """How many flags a t2d has: as many as that of the file where that may be, else one for each target token."""
    there = len(v.t2d) if v.t2d is not None else 0
    if there > max(tokens, default=0) and not (v.target_vocab is not None and is_another(there, v.target_vocab)):
        return there
    return v.vocab
