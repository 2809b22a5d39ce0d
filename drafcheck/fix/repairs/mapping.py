"""DC301 to DC308, where they are about d2t and t2d: which token each draft id becomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.beside import confirms
from drafcheck.decode import DecodeError, decode, is_float
from drafcheck.finding import Confidence
from drafcheck.fix.edits import Add, Content, Edit, Rename, Replace
from drafcheck.fix.maps import Map, agrees, is_map, map_of, mask, mask_size, offsets, rows_of, whole
from drafcheck.fix.pieces import Span
from drafcheck.fix.registry import Wishes, repair
from drafcheck.plan.inverse import FLAGS, INVERSE, tokens_of
from drafcheck.plan.names import route
from drafcheck.plan.vocabulary import is_reduced, judge, kept_tokens, to_targets
from drafcheck.producers import BY_FREQUENCY, BY_TOKEN, order_of_draft_ids
from drafcheck.source import SourceError

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.plan.model import VocabularyPlan
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor

D2T = "d2t"
TRUST = "the reference's mapping is taken for that of this head, which nothing in the checkpoint confirms"
ORDERED = "draft ids are taken to rise with their tokens, which nothing confirms (`--target-weights` may)"
BELIEVED = "d2t is taken for the right one of the two, which nothing confirms"
_EXACT = {"BF16": 1 << 8, "F16": 1 << 11, "F32": 1 << 24, "F64": 1 << 53}
"""By dtype, the largest whole number below which it holds all of them: as large is one over the relative rounding."""


def _plan(s: Subject) -> VocabularyPlan:
    assert s.vocabulary is not None
    return s.vocabulary


@repair("DC301")
def add_map(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """The d2t that is known to be the head's; or zeros at full vocabulary, for releases that want some."""
    yield from missing_map(s)


def missing_map(s: Subject, *, assuming: bool = False) -> list[Edit]:
    """What gives the head its d2t; nothing where none is known, but for its order when ``assuming`` that one."""
    v, contract, load = _plan(s), s.contract, s.load
    if contract is None or load is None or not _takes_map(s):
        return []
    found = _misnamed(s) or map_of(s, assuming=assuming)
    if isinstance(found, Rename):
        return [found]
    if found is not None:
        return [Add(D2T, offsets(found.tokens), found.source)]
    rows = rows_of(v)
    asked = contract.mapping.get("wanted") or contract.mapping.get("required")
    if asked and rows and v.vocab is not None and not is_reduced(rows, v.vocab):
        return [Add(D2T, whole([0] * rows), "zeros: each draft id is its own token")]
    return []


def _takes_map(s: Subject) -> bool:
    assert s.contract is not None and s.load is not None
    return route(s.contract, D2T, s.load.parameters).end == "mapping"


def _misnamed(s: Subject) -> Rename | None:
    """A d2t under a name that the loader does not look for, which t2d proves to be one."""
    v, load = _plan(s), s.load
    assert load is not None
    rows = rows_of(v)
    alike = load.nameless.of_kind(("I64", "I32"), (rows,)) if rows is not None else []
    for tensor in alike:
        values = _values(s, tensor)
        if values is None or (meant := judge(values, v.t2d, v.vocab)) not in _PROVEN:
            continue
        if confirms(s, to_targets(values, str(meant[0]))) is not False:
            return Rename(tensor, D2T)
    return None


_PROVEN = [(meant, Confidence.CERTAIN) for meant in ("offset", "absolute")]


def _values(s: Subject, tensor: Tensor) -> list[int] | None:
    try:
        return decode(tensor.dtype, s.checkpoint.read(tensor))
    except (DecodeError, SourceError):
        return None


@repair("DC302", "DC303", "DC304", "DC306")
def replace_map(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """The d2t that is known to be the head's, in place of one that can not be."""
    yield from faulty_map(s)


def faulty_map(s: Subject, *, assuming: bool = False) -> list[Edit]:
    """What mends a d2t of the wrong length, with impossible tokens, or turned round, where that is known.

    ``assuming`` as for ``missing_map``.
    """
    v = _plan(s)
    tensor = v.d2t_tensor
    if tensor is None or _right(v):
        return []
    rows = rows_of(v)
    if (
        len(tensor.shape) != 1
        and tensor.numel == rows
        and (file := s.checkpoint.file(tensor.file))
        and tensor.start >= 0
    ):
        content = Content(tensor.dtype, (rows,), (Span(file.source, tensor.start, tensor.stop),))
        return [Replace(tensor, content, "one row of values")]
    found = _turned(s, assuming=assuming) or _cut(s) or _known(s, assuming=assuming)
    return [Replace(tensor, offsets(found.tokens), found.source)] if found is not None else []


def _right(v: VocabularyPlan) -> bool:
    """Whether the tokens are possible as they are: then it is something else that does not agree."""
    return v.targets is not None and v.meant != "identity" and is_map(v, v.targets)


def _turned(s: Subject, *, assuming: bool) -> Map | None:
    """The map in a d2t that has an entry for each target token; only where t2d confirms it."""
    v = _plan(s)
    if v.raw is None or v.certainty is not Confidence.CERTAIN or not (rows := rows_of(v)):
        return None
    if v.meant == INVERSE:
        tokens = tokens_of(v.raw, rows)
        return Map(tokens, "offsets in place of the inverse map") if confirms(s, tokens) is not False else None
    if v.meant != FLAGS:
        return None
    tokens = [token for token, flag in enumerate(v.raw) if flag]
    told, order = confirms(s, tokens), order_of_draft_ids(s)
    known = told or (told is None and order == BY_TOKEN)
    may_be = assuming and told is None and order != BY_FREQUENCY
    return Map(tokens, "offsets in place of t2d's flags") if known or may_be else None


def _cut(s: Subject) -> Map | None:
    """The first values of a d2t that is longer than the head, where they lead to exactly the tokens of t2d."""
    v = _plan(s)
    rows = rows_of(v)
    if v.targets is None or v.t2d is None or not rows or len(v.targets) <= rows:
        return None
    tokens = list(v.targets[:rows])
    fits = is_map(v, tokens, kept_tokens(v.t2d)) and confirms(s, tokens) is not False
    return Map(tokens, "its first value" if rows == 1 else f"its first {rows} values") if fits else None


def _known(s: Subject, *, assuming: bool) -> Map | None:
    """A map from elsewhere that agrees in most places with the d2t at hand; zeros say nothing."""
    v = _plan(s)
    found = map_of(s, assuming=True)
    if v.meant == "identity" or found is None:
        return map_of(s, assuming=assuming)
    if v.targets is None:
        return found if found.sure else None
    return found if found.sure or agrees(v.targets, found.tokens) else None


@repair("DC301", "DC306", cost=TRUST)
def trust_reference(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """The reference's d2t, on the user's word."""
    v = _plan(s)
    tensor = v.d2t_tensor
    if s.reference is None or (faulty_map(s) if tensor is not None else missing_map(s) or not _takes_map(s)):
        return
    found = map_of(s, trusting=True)
    if found is not None:
        content = offsets(found.tokens)
        yield Replace(tensor, content, found.source) if tensor is not None else Add(D2T, content, found.source)


@repair("DC301", "DC302", "DC306", "DC308", cost=ORDERED)
def trust_order(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:
    """The tokens of t2d in rising order, where who wrote the head is not known to order them so."""
    if list(trust_reference(s, findings, wishes)):
        return
    of_dtype = integral_map if findings[0].rule == "DC308" else faulty_map
    work = missing_map if _plan(s).d2t_tensor is None else of_dtype
    if not work(s):
        yield from work(s, assuming=True)


@repair("DC305")
def subtract_ids(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """Target token minus draft id."""
    yield from absolute_map(s)


def absolute_map(s: Subject) -> list[Edit]:
    """Offsets in place of target tokens; where there is a t2d, only if it keeps exactly these."""
    v = _plan(s)
    if v.d2t_tensor is None or v.raw is None or not is_map(v, v.raw, kept_tokens(v.t2d or b"")):
        return []
    if confirms(s, v.raw) is False:
        return []
    return [Replace(v.d2t_tensor, offsets(v.raw), "offsets in place of target tokens")]


@repair("DC307")
def mend_mask(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """t2d from d2t, where it is sure that it is t2d that is wrong."""
    yield from right_mask(s)


@repair("DC307", cost=BELIEVED)
def believe_map(s: Subject, findings: Sequence[Finding], _: Wishes) -> Iterator[Edit]:
    """t2d from d2t, on the user's word."""
    v = _plan(s)
    length_alone = v.t2d is not None and v.targets is not None and set(kept_tokens(v.t2d)) == set(v.targets)
    if findings and not length_alone and not _mask_is_wrong(s) and not _differs(s):
        yield from _mask(v)


def right_mask(s: Subject) -> list[Edit]:
    """The t2d that goes with d2t; nothing where it may be d2t that is wrong."""
    return _mask(_plan(s)) if _mask_is_wrong(s) and not _differs(s) else []


def _differs(s: Subject) -> bool:
    """Whether a reference has another map: then DC311 says what becomes of t2d."""
    return s.comparison is not None and not s.comparison.identical


def _mask(v: VocabularyPlan) -> list[Edit]:
    if v.t2d_tensor is None or v.targets is None or not is_map(v, v.targets):
        return []
    size = mask_size(v, v.targets)
    if size is None or max(v.targets) >= size:
        return []
    return [Replace(v.t2d_tensor, mask(v.targets, size), "the tokens that d2t reaches")]


def _mask_is_wrong(s: Subject) -> bool:
    """Whether it is sure that d2t is the head's own: t2d was never filled or is a part, or a reference says so."""
    v = _plan(s)
    if v.t2d is None or v.targets is None or v.t2d_tensor is None:
        return False
    tokens = set(v.targets)
    kept = set(kept_tokens(v.t2d))
    if kept == tokens:
        return False
    if not kept or (len(v.t2d) < (v.vocab or 0) and kept == {t for t in tokens if t < len(v.t2d)}):
        return True
    found = s.comparison
    return found is not None and found.identical and found.ordered and not found.faults and not found.full


@repair("DC308")
def whole_numbers(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """The same numbers as int64, or those of which they were rounded."""
    yield from integral_map(s)


def integral_map(s: Subject, *, assuming: bool = False) -> list[Edit]:
    """d2t as I64; nothing where numbers were lost and nothing tells them. ``assuming`` as for ``missing_map``."""
    v = _plan(s)
    tensor, raw = v.d2t_tensor, v.raw
    if tensor is None or raw is None:
        return []
    if tensor.dtype == "BOOL":
        found = _turned(s, assuming=assuming)
        return [Replace(tensor, offsets(found.tokens), found.source)] if found is not None else []
    most = _EXACT.get(tensor.dtype) if is_float(tensor.dtype) else None
    proven = v.meant in ("offset", "absolute") and v.certainty is Confidence.CERTAIN and v.t2d is not None
    if proven or not is_float(tensor.dtype) or (most is not None and all(abs(value) <= most for value in raw)):
        return [Replace(tensor, whole(raw), "the same numbers as I64")] if max(raw, default=0) < 1 << 63 else []
    known = map_of(s, assuming=True)  # the numbers that are left tell the order
    if known is None or most is None or len(raw) != len(known.tokens):
        return []
    ids = [token - draft for draft, token in enumerate(known.tokens)]
    if not any(_rounds(raw, exact, most) for exact in (ids, known.tokens)):
        return []
    return [Replace(tensor, offsets(known.tokens), f"the numbers before they were rounded, {known.source}")]


def _rounds(raw: Sequence[int], exact: Sequence[int], most: int) -> bool:
    """Whether ``raw`` is ``exact`` in floats of ``most``, rounded or cut."""
    return all(abs(a - b) * most <= 2 * abs(b) for a, b in zip(raw, exact, strict=True))
