"""DC303 to DC308: which target token does each draft id become, and was that meant?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.checks.vocabulary import MASKS, at, help_without_d2t, parts, sure, whose
from drafcheck.decode import is_float
from drafcheck.finding import Confidence, Severity
from drafcheck.plan.inverse import FLAGS, INVERTED
from drafcheck.plan.model import VocabularyPlan
from drafcheck.plan.vocabulary import count_kept, is_another, is_padding, is_reduced, too_long
from drafcheck.registry import Hit, rule
from drafcheck.words import are, count, ends, plural

if TYPE_CHECKING:
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor

_EXACT = {"BF16": 1 << 8, "F16": 1 << 11, "F32": 1 << 24}  # the largest whole number below which all are exact
_NO_ARITHMETIC = ("U16", "U32", "U64", "F8", "F4", "F6", "C64")  # torch refuses to add these to int64


def _is_confirmed(v: VocabularyPlan) -> bool:
    """Whether t2d keeps exactly the tokens that d2t reaches, each once: the plan has looked already."""
    return v.meant == "offset" and v.certainty is Confidence.CERTAIN


def _lengths_agree(v: VocabularyPlan) -> bool:
    return v.raw is not None and v.head_rows in (None, len(v.raw))


@rule("DC303", "d2t-out-of-range", Severity.ERROR, needs=("load",), concerns="mapping", reads=("d2t",))
def d2t_out_of_range(s: Subject) -> Iterator[Hit]:
    """A draft id becomes a token that the target does not have.

    ## What it does
    Adds up draft id and d2t as the engine does and compares with the target's vocabulary (without `--target`, with
    `vocab_size` of the draft's own config). A d2t that holds target ids throughout is DC305's.

    ## Why is this bad?
    Most engines check nothing at load. The first such proposal indexes past the target's embedding: on SGLang
    0.5.15.post1 a device-side assert that ends the server.

    ## Fix
    Write the d2t that was made for this target: target token minus draft id.
    """
    v, _, _, _ = parts(s)
    if (
        v.targets is None
        or v.vocab is None
        or v.meant in ("absolute", *INVERTED)
        or _is_unusable(v)
        or _only_padding(v)
    ):
        return
    if _is_confirmed(v) and v.t2d is not None and len(v.t2d) <= v.vocab:
        return
    if not v.targets or (min(v.targets) >= 0 and max(v.targets) < v.vocab):
        return
    wrong = [(i, t) for i, t in enumerate(v.targets) if not 0 <= t < v.vocab]
    first, token = wrong[0]
    yield Hit(
        f"{len(wrong):,} of {count(len(v.targets), 'draft id')} fall{ends(len(wrong))} outside {whose(v)} "
        f"{plural(v.vocab, 'token')}, first draft id {first}: token {token}{_stops(s, 'outside')}",
        at(v.d2t_tensor),
        help="write the d2t that was made for this target (target token minus draft id)",
        confidence=sure(v),
        fixable=_replaced(s),
        stops=bool(_stops(s, "outside")),
    )


def _stops(s: Subject, what: str) -> str:
    """What an engine says that looks at the tokens when it reads the mapping; most do not look."""
    _, _, contract, _ = parts(s)
    error = contract.mapping.get(what)
    return f"; {s.engine} stops ({error})" if error is not None else ""


def _only_padding(v: VocabularyPlan) -> bool:
    """Whether the draft ids are the target's own and a few rows of padding, which are never proposed."""
    return v.meant == "identity" and v.raw is not None and v.vocab is not None and is_padding(len(v.raw), v.vocab)


@rule("DC304", "d2t-not-unique", Severity.ERROR, needs=("load",), concerns="mapping", reads=("d2t",))
def d2t_not_unique(s: Subject) -> Iterator[Hit]:
    """Two draft ids become one target token.

    ## What it does
    Adds up draft id and d2t as the engine does and looks for a token that is reached twice. Zeros throughout are
    DC306's, target ids throughout DC305's.

    ## Why is this bad?
    No trainer maps two rows of a head to one token, so at least one of the two proposes a token that it was not trained
    for; a wholly wrong mapping brings the accept length to 1.01 to 1.08 (SGLang 0.5.15.post1).

    ## Fix
    Write the d2t that the head was trained with.
    """
    v, _, _, _ = parts(s)
    if v.targets is None or v.meant in ("absolute", "identity", *INVERTED) or _is_confirmed(v) or _is_unusable(v):
        return
    repeated = len(v.targets) - len(set(v.targets))
    if repeated:
        one, two, token = _first_twins(v.targets)
        yield Hit(
            f"{repeated:,} of {count(len(v.targets), 'draft id')} repeat{ends(repeated)} the token of an earlier one, "
            f"first draft ids {one} and {two}: token {token}{_stops(s, 'twice')}",
            at(v.d2t_tensor),
            help="write the d2t that this lm_head was trained with",
            fixable=_replaced(s),
            stops=bool(_stops(s, "twice")),
        )


def _replaced(s: Subject) -> bool:
    """Whether a repair knows the d2t that belongs here."""
    from drafcheck.fix.repairs.mapping import faulty_map  # a healthy map needs no repair

    return bool(faulty_map(s))


def _first_twins(tokens: Sequence[int]) -> tuple[int, int, int]:
    """The first two positions that hold the same token, and the token; there must be some."""
    seen: dict[int, int] = {}
    for i, token in enumerate(tokens):
        if token in seen:
            return seen[token], i, token
        seen[token] = i
    raise ValueError("no token twice")


@rule("DC305", "d2t-absolute", Severity.ERROR, needs=("load",), concerns="mapping", reads=("d2t",))
def d2t_absolute(s: Subject) -> Iterator[Hit]:
    """d2t holds target tokens where the engine expects offsets.

    ## What it does
    Decides by t2d: the values themselves are the kept tokens. Without t2d by the sequence: no value twice, all of them
    tokens, and as offsets they would leave the vocabulary or collide. Unsorted and negative offsets are healthy: some
    trainers order draft ids by frequency.

    ## Why is this bad?
    The engine adds the draft id once more. Most proposals are wrong tokens, and the first one past the vocabulary ends
    the server: a device-side assert at the first request on SGLang 0.5.15.post1.

    ## Fix
    Subtract the draft id from each value.
    """
    v, _, _, _ = parts(s)
    if v.raw is None or v.meant != "absolute" or v.semantics != "offset" or _is_unusable(v):
        return
    from drafcheck.fix.repairs.mapping import absolute_map

    by = "t2d keeps exactly these tokens" if v.certainty is Confidence.CERTAIN else "no value occurs twice"
    last = len(v.raw) - 1
    yield Hit(
        f"d2t holds target tokens ({by}) and {s.engine} adds the draft id: draft id {last} becomes token "
        f"{v.raw[last] + last} instead of {v.raw[last]}",
        at(v.d2t_tensor, v.t2d_tensor if v.certainty is Confidence.CERTAIN else None),
        help="store target token minus draft id",
        confidence=v.certainty,
        fixable=bool(absolute_map(s)),
    )


@rule("DC306", "d2t-identity", Severity.ERROR, needs=("load",), concerns="mapping", reads=("d2t",))
def d2t_identity(s: Subject) -> Iterator[Hit]:
    """d2t is all zeros although the vocabulary is reduced.

    ## What it does
    Reports a d2t without any value but zero when the draft vocabulary is smaller than the target's. Zeros at full
    vocabulary are what some trainers write, and zeros whose t2d keeps exactly the first tokens are meant.

    ## Why is this bad?
    The mapping was never filled: draft id 5 is proposed as token 5. Accept length 2.30 -> 1.01 on SGLang 0.5.15.post1.

    ## Fix
    Fill d2t from the vocabulary mapping of the training run, or compute it from t2d.
    """
    v, _, _, _ = parts(s)
    if v.raw is None or v.meant != "identity" or v.vocab is None or v.tied:
        return
    n = len(v.raw)
    if not is_reduced(n, v.vocab) or (v.t2d is not None and v.t2d.count(1) == n == v.t2d[:n].count(1)):
        return
    every = "the one value of d2t is" if n == 1 else f"all {n} values of d2t are"
    yield Hit(
        f"{every} zero, {whose(v)} vocabulary has {plural(v.vocab, 'token')}: the mapping was never filled",
        at(v.d2t_tensor),
        help=help_without_d2t(s, v),
        confidence=sure(v),
        fixable=_replaced(s),
    )


@rule(
    "DC307", "t2d-mismatch", Severity.ERROR, Severity.WARNING, needs=("load",), concerns="mapping", reads=("d2t", "t2d")
)
def t2d_mismatch(s: Subject) -> Iterator[Hit]:
    """t2d does not keep the tokens that d2t reaches.

    ## What it does
    Compares the mask with the set of tokens that d2t reaches, and its length with the target's vocabulary, padding
    aside; of a mask longer than any vocabulary the length alone. Where d2t is wrong by itself (DC302 to DC306, DC308)
    nothing more is said. A mask that keeps no token at all was never filled: a warning.

    ## Why is this bad?
    The engine reads d2t only, so t2d itself costs nothing; but a trainer writes both from one table, so one of them
    belongs to another head. The mapping of another corpus: accept length 2.30 -> 1.08 on SGLang 0.5.15.post1.

    ## Fix
    Find out which of the two is the head's own; t2d can be computed from d2t.
    """
    v, _, _, _ = parts(s)
    if v.t2d_tensor is not None and too_long(v.t2d_tensor):
        yield _endless(v, v.t2d_tensor)
        return
    if _is_confirmed(v) and v.t2d is not None:
        yield from _mask_length(v, len(v.t2d))
        return
    if v.t2d is None or v.targets is None or not v.targets or not is_sound(v):
        return
    kept, both = v.t2d.count(1), count_kept(v.t2d, v.targets)
    if both == kept == len(v.targets):
        yield from _mask_length(v, len(v.t2d))
        return
    from drafcheck.fix.repairs.mapping import right_mask

    outcome = f"t2d keeps {plural(kept, 'token')} and d2t reaches {len(v.targets)}; {both} {are(both)} the same"
    yield Hit(
        outcome if kept else f"t2d keeps no token at all and d2t reaches {len(v.targets)}: the mask was never filled",
        at(v.t2d_tensor, v.d2t_tensor),
        help="compute t2d from d2t when d2t is the one that lm_head was trained with",
        severity=Severity.ERROR if kept else Severity.WARNING,
        confidence=Confidence.LIKELY,
        fixable=bool(right_mask(s)),
    )


def is_sound(v: VocabularyPlan) -> bool:
    """Whether d2t is free of the faults that other rules report."""
    if v.meant == "absolute" or _is_unusable(v) or not _lengths_agree(v) or v.targets is None or v.vocab is None:
        return False
    if v.meant == "identity":
        return not is_reduced(len(v.targets), v.vocab) and len(v.targets) == v.vocab
    return min(v.targets) >= 0 and max(v.targets) < v.vocab and len(set(v.targets)) == len(v.targets)


def _mask_length(v: VocabularyPlan, length: int) -> Iterator[Hit]:
    if v.target_vocab is not None and is_another(length, v.target_vocab):
        yield Hit(
            f"t2d has {plural(length, 'flag')} for the target's {plural(v.target_vocab, 'token')}: it was made for "
            "another vocabulary",
            at(v.t2d_tensor),
            help="write the mapping that was made for this target",
            confidence=Confidence.LIKELY,
        )


def _endless(v: VocabularyPlan, tensor: Tensor) -> Hit:
    """A mask of more flags than are read: its shape tells enough."""
    tokens = f" for the target's {plural(v.target_vocab, 'token')}" if v.target_vocab is not None else ""
    return Hit(
        f"t2d has {plural(tensor.numel, 'flag')}{tokens}, more than any vocabulary has tokens: it is no mask",
        at(tensor),
        help="write the mapping that was made for this target",
        confidence=Confidence.LIKELY,
    )


def _is_unusable(v: VocabularyPlan) -> bool:
    """Whether d2t has a dtype that DC308 reports: what its values say does not matter then."""
    return v.d2t_tensor is not None and (v.d2t_tensor.dtype in MASKS or _why_unusable(v, v.d2t_tensor) is not None)


def _why_unusable(v: VocabularyPlan, tensor: Tensor) -> str | None:
    """What the engine makes of a dtype that is none of a signed integer; None when it takes the values as they are."""
    if v.casts:
        return _lost_by_casting(v, tensor)
    if tensor.dtype.startswith(_NO_ARITHMETIC):
        return "which cannot be added to int64: loading stops (RuntimeError: promotion is not supported)"
    if is_float(tensor.dtype):
        return "so the token ids become floats and the server ends at the first request"
    return None


def _lost_by_casting(v: VocabularyPlan, tensor: Tensor) -> str | None:
    most = _EXACT.get(tensor.dtype)
    if not is_float(tensor.dtype):
        return None
    if v.raw is None:
        return "and cut to whole numbers without a word"
    if most is None or all(abs(value) <= most for value in v.raw):
        return None
    return f"which holds no whole numbers above {most} exactly: the offsets were rounded when it was written"


@rule("DC308", "d2t-dtype", Severity.ERROR, needs=("load",), concerns="mapping", reads=("d2t",))
def d2t_dtype(s: Subject) -> Iterator[Hit]:
    """d2t has a dtype that the engine cannot use as token ids.

    ## What it does
    Reports floating point d2t tensors, unsigned ones that cannot be added to int64, and masks stored under the name.
    Signed integers of any width, and uint8, become int64: they are fine.

    ## Why is this bad?
    Floats load without a word and end the server at the first request: "Expected 'candidates' to be of type long"
    (SGLang 0.5.15.post1). In bf16 ids above 256 are rounded as well. vLLM casts any dtype to int64, so there only what
    was rounded is lost.

    ## Fix
    Store d2t as int64. From bf16 or fp16 it cannot be restored once ids were rounded: take the trainer's mapping.
    """
    v, _, _, _ = parts(s)
    tensor = v.d2t_tensor
    if tensor is None:
        return
    outcome = _why_unusable(v, tensor)
    if outcome is None and tensor.dtype in MASKS and v.raw is not None and any(v.raw):
        outcome = "a mask, not offsets"
    if outcome is None:
        return
    from drafcheck.fix.repairs.mapping import integral_map

    loss = f"; {v.unreadable}" if v.unreadable else ""
    yield Hit(
        f"d2t is stored as {tensor.dtype}, {outcome}{loss}",
        at(tensor),
        help="store d2t as I64, from the trainer's mapping" if loss or tensor.dtype in MASKS else "store d2t as I64",
        fixable=bool(integral_map(s)),
    )


def other_map(s: Subject, v: VocabularyPlan, rows: int) -> Hit:
    """DC302's finding on a d2t that is there the wrong way round: an entry for each target token."""
    holds = "t2d's flags" if v.meant == FLAGS else "the inverse map, the draft id of each token"
    return Hit(
        f"d2t has {plural(len(v.raw or ()), 'value')}, one for each target token, and lm_head {plural(rows, 'row')}: "
        f"it holds {holds}",
        at(v.d2t_tensor, v.head_tensor),
        help="write target token minus draft id for each draft id",
        confidence=v.certainty,
        fixable=_replaced(s),
    )
