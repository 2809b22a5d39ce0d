"""DC802 and DC803: weights of zeros, and weights that nobody trained. Only with ``--values``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from drafcheck.checks.values import Goals, goals_of, partly, place, seen_in
from drafcheck.contract import load_toml
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.plan.files import alike
from drafcheck.plan.vocabulary import is_another
from drafcheck.registry import Hit, rule
from drafcheck.source import SourceError
from drafcheck.words import are, count, listed

if TYPE_CHECKING:
    from drafcheck.plan.model import Parameter
    from drafcheck.subject import Subject
    from drafcheck.tensor import Tensor, View
    from drafcheck.valuescan.model import TensorValues
    from drafcheck.valuescan.signature import Fit

_PACKED = (".weight", ".qweight", ".weight_packed")
_SCALES = ("weight_scale", "weight_global_scale", "scales")
"""What the parts of a quantised matrix are called: its numbers, several in one, and what they are multiplied by."""

_FEW = 3  # matrices that have to look untouched at the least


@rule("DC802", "all-zero", Severity.ERROR, Severity.WARNING, needs=("values",))
def all_zero(s: Subject) -> Iterator[Hit]:
    """A weight is zero, or some of its rows are.

    ## What it does
    Reports projections and norms that hold nothing but zeros, and rows without a value inside of other projections
    (`--values`); of quantised ones the packed numbers and the scales, that hold nothing else. Biases, embeddings with
    rows of zeros, rows at the end where they are past the vocabulary or few enough for padding, and norms that start
    from zero in this class are left out, and so are tensors that the engine does not load.

    ## Why is this bad?
    What passes through a matrix of zeros is gone: the drafter then proposes without it, as with a tensor that is not
    loaded at all (accept length 2.30 -> 1.14 without `q_proj`, 1.01 without `o_proj`, on SGLang 0.5.15.post1).

    ## Fix
    Export the drafter again; shards that were never gathered are written as zeros.
    """
    goals = goals_of(s)
    for v in seen_in(s).tensors:
        writes = goals.get(v.tensor) if goals is not None else None
        parameter = s.load.parameters[writes[0].parameter] if s.load is not None and writes else None
        if not _weighs(v) or v.tensor.name.endswith(".bias") or (s.load is not None and not parameter):
            continue
        if v.zero:
            yield from _zero(v, parameter)
        elif len(v.tensor.shape) > 1 and not v.scattered and "embed" not in v.tensor.name:
            yield from _rows(v, _tokens(s, v.tensor))


def _weighs(v: TensorValues) -> bool:
    """Whether zeros in a tensor are zeros of a weight: it holds numbers, or packed ones."""
    from drafcheck.valuescan.formats import FLOATS

    return v.tensor.dtype in FLOATS or (len(v.tensor.shape) > 1 and v.tensor.name.endswith(_PACKED))


def _tokens(s: Subject, tensor: Tensor) -> int | None:
    """Of a head the number of tokens that it has rows for; None for other matrices, and where nothing says it."""
    vocabulary = s.vocabulary
    if vocabulary is None or vocabulary.head_tensor != tensor:
        return None
    if vocabulary.targets:
        return len(vocabulary.targets)
    return vocabulary.draft_vocab if vocabulary.draft_vocab is not None else vocabulary.vocab


def _zero(v: TensorValues, parameter: Parameter | None) -> Iterator[Hit]:
    vector = len(v.tensor.shape) < 2
    scales = any(part in v.tensor.name.rpartition(".")[2] for part in _SCALES)
    needed = parameter.initial == "ones" if parameter is not None else "norm" in v.tensor.name
    if vector and not scales and not needed:
        return  # a norm that is added to one, or no norm
    yield Hit(
        f"`{v.tensor.name}` holds nothing but zeros{partly(v)}",
        place(v.tensor),
        help="export the drafter again with its trained weight",
        confidence=Confidence.CERTAIN if v.whole and parameter is not None else Confidence.LIKELY,
    )


def _rows(v: TensorValues, tokens: int | None) -> Iterator[Hit]:
    held = v.rows - v.empty.last  # rows behind these, at the end, fill up to a round number
    known = min(v.rows, tokens) if tokens is not None and v.whole else v.rows
    fills = held >= known or not is_another(held, known)
    empty = v.empty.count - (v.empty.last if fills else v.rows - known)
    if empty > 0:
        many, hold = f"{count(empty, 'row')} of {v.rows:,}", "holds" if empty == 1 else "hold"
        yield Hit(
            f"{many} of `{v.tensor.name}` {hold} nothing but zeros{partly(v)}, such as row {v.empty.first}",
            place(v.tensor),
            help="export the drafter again, or look whether a shard was left out",
            severity=Severity.WARNING,
        )


@rule("DC803", "untrained", Severity.WARNING, Severity.NOTE, needs=("values", "weights"))
def untrained(s: Subject) -> Iterator[Hit]:
    """Weights look as if nobody had trained them, or two of them are one.

    ## What it does
    Compares the matrices of the head (`--values`) with the ways in which trainers initialise one: spread, shape, mean,
    and whether rows and columns are still independent of each other, as the first steps of training end that. It
    speaks when all of them pass for untouched and every norm is exactly one; one alone proves nothing, as norms stay
    at one in bfloat16 for long. A few hundred steps at a low rate leave no more trace than chance in matrices behind
    the first: so it is a note, unless `lm_head`, which moves most, is untouched too, or all is in float32, in which a
    single step moves every norm off one. Heads too small to tell are passed over. Also reports matrices of one class
    that hold the same bytes under two names.

    ## Why is this bad?
    The drafter guesses at random: accept length 1.01 with random weights (SGLang 0.5.15.post1). Checkpoints of step 0
    and exports of the wrong object look like this.

    ## Fix
    Export the training state that you meant.
    """
    yield from _initial(s)
    yield from _identical(s)


def _initial(s: Subject) -> Iterator[Hit]:
    from drafcheck.valuescan.signature import judged, together, untouched

    values = seen_in(s)
    copied = tuple(load_toml("initial.toml")["copied"]["parts"])
    matrices = [v for v in values.tensors if judged(v.tensor) and not any(part in v.tensor.name for part in copied)]
    norms = [v for v in values.tensors if len(v.tensor.shape) == 1 and "norm" in v.tensor.name]
    if len(matrices) < _FEW or values.unread or not all(v.ones for v in norms):
        return
    config = s.config.data if s.config is not None else {}
    fits: list[Fit] = []
    for v in matrices:
        try:
            fit = None if v.even else untouched(s.checkpoint, v.tensor, config)
        except SourceError as error:
            from drafcheck.valuescan.model import Unread

            values.unread.append(Unread(v.tensor, error.message))
            return
        if fit is None:
            return
        fits.append(fit)
    if not together(fits):
        return
    still = bool(norms) and all(_in_float32(s, v) for v in (*norms, *matrices))
    sure = still or _untouched_head(s, config)
    little = "" if sure else ", or was trained very little"
    ones = f", and {count(len(norms), 'norm')} {are(len(norms))} exactly one" if norms else ""
    these, them = ("1 matrix is", "it") if len(matrices) == 1 else (f"{len(matrices):,} matrices are", "them")
    step = ", which a step of training in float32 ends" if still else ""
    yield Hit(
        f"the head looks as it came from its initialisation{little}: {these} spread as {fits[0].by} draws "
        f"{them}{ones}{step}",
        tuple(Location(file=v.tensor.file, tensor=v.tensor.name) for v in matrices[:3]),
        help="export the training state that you meant: this one was saved before the first step, or is another object"
        if sure
        else "if it was trained for longer than some hundred steps, export the training state that you meant",
        severity=Severity.WARNING if sure else Severity.NOTE,
        confidence=Confidence.LIKELY if sure else Confidence.GUESS,
        about=tuple(v.tensor.name for v in matrices),
    )


def _in_float32(s: Subject, v: TensorValues) -> bool:
    """Whether a tensor is float32, and not one of 16 bits that was made longer: a norm of ones may be either."""
    from drafcheck.valuescan.signature import is_fine

    try:
        return v.tensor.dtype == "F32" and (v.ones or is_fine(s.checkpoint, v.tensor))
    except SourceError:
        return False


def _untouched_head(s: Subject, config: Mapping[str, Any]) -> bool:
    """Whether a head of its own is as it was drawn: each step of training moves all of its rows."""
    from drafcheck.valuescan.signature import judged, untouched

    heads = [v for v in seen_in(s).tensors if "lm_head" in v.tensor.name and judged(v.tensor) and not v.even]
    fits = (untouched(s.checkpoint, v.tensor, config) for v in heads)
    try:
        return bool(heads) and all(fit is not None for fit in fits)
    except SourceError:
        return False


def _steps(s: Subject, tensor: Tensor) -> tuple[int, ...]:
    """How far the values of a tensor lie apart along each side, where they are not in their order."""
    view = _view(s, tensor)
    return view.steps if view is not None else ()


def _in_one_piece(s: Subject, tensor: Tensor) -> Tensor:
    """A tensor at the place of its bytes, also where these are all there in another order."""
    view = _view(s, tensor)
    if view is None or view.reach != tensor.numel * view.width:
        return tensor
    return tensor._replace(start=view.start, stop=view.start + view.reach)


def _view(s: Subject, tensor: Tensor) -> View | None:
    file = s.checkpoint.file(tensor.file)
    return file.header.views.get(tensor.name) if file is not None else None


def _identical(s: Subject) -> Iterator[Hit]:
    copied = tuple(load_toml("initial.toml")["copied"]["parts"])
    goals = goals_of(s)
    groups: dict[tuple[object, ...], list[Tensor]] = defaultdict(list)
    for v in seen_in(s).tensors:
        if v.whole and not v.even and _weighs(v) and not any(part in v.tensor.name for part in copied):
            groups[v.tensor.dtype, v.tensor.shape, v.digest, _steps(s, v.tensor)].append(v.tensor)
    for group in groups.values():
        first, *others = group
        there = (t for t in others if _elsewhere(goals, first, t))
        same = [t for t in there if alike(s.checkpoint, _in_one_piece(s, first), _in_one_piece(s, t), fetch=True)]
        if same:
            names = [first.name, *(t.name for t in same)]
            yield Hit(
                f"{listed(names)} hold the same bytes",
                tuple(Location(file=t.file, tensor=t.name) for t in (first, *same[:2])),
                help="export the drafter again: no two trained weights are the same",
                about=tuple(names),
            )


def _elsewhere(goals: Goals | None, one: Tensor, two: Tensor) -> bool:
    """Whether two tensors are meant for different places: copies under two spellings of one name are no fault."""
    if goals is None:
        return True
    first, second = ({(w.parameter, w.shard) for w in goals.get(t, ())} for t in (one, two))
    return bool(first and second) and first != second
