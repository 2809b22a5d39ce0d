"""DC309 to DC312 and DC102, where a head or an embedding is missing or in another order: what rests on other files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.conversion import route_to
from drafcheck.errors import UsageError
from drafcheck.fix.borrow import first_rows, picked_rows
from drafcheck.fix.edits import Add, Edit, Replace, SetKey
from drafcheck.fix.keys import edits_of
from drafcheck.fix.maps import FROM_REFERENCE, has_same_head, is_map, mask, mask_size, offsets, rows_of
from drafcheck.fix.registry import Wishes, repair
from drafcheck.lookup import in_question
from drafcheck.matrix import Matrix, embedding_of_target, head_of_target, matrix_in
from drafcheck.plan.names import route
from drafcheck.plan.vocabulary import EMBEDDING, HEAD, is_padding, named
from drafcheck.reference import settled
from drafcheck.trial import Changes, tried
from drafcheck.words import count

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.plan.model import LoadPlan, VocabularyPlan
    from drafcheck.reference import Reference
    from drafcheck.subject import Subject

OWN = "the drafter's own head is not there, and the target's was not trained with it"
FOREIGN = "the embedding is the target's, with which the drafter may not have been trained"
OTHER = "of two mappings for the same head the reference's is taken, which the head does not confirm"
MOVED = "the head drafts the reference's tokens, and rows that it lacks are zeros"


@repair("DC309", "DC310", cost=OWN, needs="--target-weights")
def borrow_head(s: Subject, _: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:
    """The rows of the target's head that the draft ids stand for (`--target-weights`)."""
    if wishes.target_weights is None or s.load is None or s.load.seen.has("lm_head"):
        return
    yield from _borrowed(s, head_of_target(wishes.target_weights, s.target))


def _borrowed(s: Subject, head: Matrix) -> list[Edit]:
    """The head, and what config.json has to say beside it; nothing where the engine would not take it."""
    v, contract = s.vocabulary, s.contract
    assert v is not None and contract is not None
    numbers = _tokens(v, head.tensor.shape[0])
    if numbers is None:
        return []
    changes = _beside_head(s, v, len(numbers))
    trial = tried(s, changes)
    plan = trial.load if trial is not None else None
    built = plan.parameters[HEAD].shape if plan is not None and HEAD in plan.parameters else ()
    fits = built[1:] == head.tensor.shape[1:] and built[:1] in ((len(numbers),), (-1,))  # -1: as many as the file has
    if plan is None or not fits or _is_replaced(s, plan, changes):
        return []
    content = first_rows(head, len(numbers)) if numbers == list(range(len(numbers))) else picked_rows(head, numbers)
    return [*edits_of(s, changes), Add(HEAD, content, f"rows of the target's {head.tensor.name}")]


def _tokens(v: VocabularyPlan, rows: int) -> list[int] | None:
    """The row of the target's head for each draft id; None where that is not known."""
    if v.d2t_tensor is None:
        ids = rows_of(v) or v.vocab or rows
        return list(range(ids)) if ids <= rows and is_padding(ids, rows) else None
    tokens = v.raw if v.meant == "absolute" else v.targets
    if tokens is None or len(set(tokens)) != len(tokens) or not tokens:
        return None
    return list(tokens) if min(tokens) >= 0 and max(tokens) < rows else None


def _beside_head(s: Subject, v: VocabularyPlan, rows: int) -> Changes:
    """What keeps the engine from taking another head, or one of another size."""
    said = {"draft_vocab_size": rows} if v.d2t_tensor is not None and v.draft_vocab != rows else {}
    wanted = {**said, **({"tie_word_embeddings": False} if v.tied else {})}
    return {way: value for key, value in wanted.items() if (way := route_to(s, key)) is not None}


def _is_replaced(s: Subject, plan: LoadPlan, changes: Changes) -> bool:
    """Whether the engine puts the target's head in place of whatever the file holds."""
    if HEAD not in plan.fills_from_target:
        return False
    trial = tried(s, changes)
    if trial is None or trial.contract is None:
        return True
    lent = [
        e for e in trial.contract.sharing if e["parameter"] == HEAD and in_question(trial.contract, e, trial.config)
    ]
    return not lent or any("absent" not in entry for entry in lent)


@repair("DC102", cost=FOREIGN)
def borrow_embedding(s: Subject, findings: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:
    """The target's embedding, where the engine does not take it by itself (`--target-weights`)."""
    missing = {name for finding in findings for name in finding.about if name.endswith(EMBEDDING)}
    if wishes.target_weights is None or s.load is None or s.contract is None or len(missing) != 1:
        return
    parameter = s.load.parameters.get(missing.pop())
    names = (EMBEDDING, f"model.{EMBEDDING}")
    ways = [n for n in names if parameter and route(s.contract, n, s.load.parameters).parameter == parameter.name]
    matrix = embedding_of_target(wishes.target_weights)
    if parameter is None or not ways or parameter.shape[1:] != matrix.tensor.shape[1:]:
        return
    if 0 < parameter.shape[0] <= matrix.tensor.shape[0]:
        yield Add(ways[0], first_rows(matrix, parameter.shape[0]), f"the target's {matrix.tensor.name}")


@repair("DC312", cost=FOREIGN, needs="--target-weights")
def replace_embedding(s: Subject, _: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:
    """The target's embedding in place of one with too few rows (`--target-weights`)."""
    v, load = s.vocabulary, s.load
    if wishes.target_weights is None or v is None or load is None or s.contract is None or s.config is None:
        return
    size, tensor = s.contract.value("vocab_size", s.config), named(load.seen, EMBEDDING)
    own = any(p.endswith(EMBEDDING) and p not in load.fills_from_target for p in load.parameters)
    if v.target_vocab is None or tensor is None or size is None or size >= v.target_vocab or not own:
        return
    matrix = embedding_of_target(wishes.target_weights)
    way = route_to(s, "vocab_size")
    if way is None or matrix.tensor.shape[0] < v.target_vocab or matrix.tensor.shape[1:] != tensor.shape[1:]:
        return
    yield Replace(tensor, first_rows(matrix, v.target_vocab), f"the target's {matrix.tensor.name}")
    yield SetKey(way, v.target_vocab)


@repair("DC311", cost=OTHER)
def take_reference(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """The reference's mapping, where its head is the same byte by byte: which of the two is right no head tells."""
    yield from mapping_of_same_head(s)


def mapping_of_same_head(s: Subject) -> list[Edit]:
    """The mapping of a reference that has the same head; a map that has faults of its own is mended before."""
    v, there = s.vocabulary, _reference(s)
    if v is None or v.d2t_tensor is None or there is None or _here(s, v) is None or not has_same_head(s):
        return []
    return _mapping(v, there)


def _reference(s: Subject) -> Reference | None:
    """The reference as it is to be read beside this draft; None where nothing can be made from it."""
    v, found = s.vocabulary, s.comparison
    if s.reference is None or found is None or found.faults or found.full or found.identical or v is None:
        return None
    there = settled(s.reference, found.size_here, v.vocab)
    tokens = there.targets
    return there if tokens and min(tokens) >= 0 and max(tokens) < (v.vocab or max(tokens) + 1) else None


def _mapping(v: VocabularyPlan, there: Reference) -> list[Edit]:
    """The reference's d2t and t2d in place of those at hand."""
    content, how = offsets(there.targets), FROM_REFERENCE
    edits: list[Edit] = [Replace(v.d2t_tensor, content, how) if v.d2t_tensor else Add("d2t", content, how)]
    size = mask_size(v, there.targets)
    if v.t2d_tensor is not None and size is not None:
        edits.append(Replace(v.t2d_tensor, mask(there.targets, size), how))
    return edits


@repair("DC311", cost=MOVED)
def permute_head(s: Subject, _: Sequence[Finding], wishes: Wishes) -> Iterator[Edit]:
    """The rows of `lm_head` in the order of the reference, and its mapping beside them."""
    v, there = s.vocabulary, _reference(s)
    if v is None or there is None or v.head_tensor is None or mapping_of_same_head(s):
        return
    here = _here(s, v)
    matrix = matrix_in(s.checkpoint, v.head_tensor)
    if here is None or matrix is None or matrix.tensor.shape[0] < len(here):
        return
    numbers = {token: row for row, token in enumerate(here)}
    rows = [numbers.get(token) for token in there.targets]
    missing = rows.count(None)
    _accept(s, missing, len(rows), wishes.missing_rows)
    how = "rows in the reference's order" + (f", {missing:,} of them zeros" if missing else "")
    yield Replace(v.head_tensor, picked_rows(matrix, rows), how)
    yield from _mapping(v, there)
    way = route_to(s, "draft_vocab_size")
    if v.draft_vocab is not None and v.draft_vocab != len(rows) and way is not None:
        yield SetKey(way, len(rows))


def _here(s: Subject, v: VocabularyPlan) -> Sequence[int] | None:
    """The tokens of the rows of the head; None where the mapping has faults of its own, which are mended first."""
    if s.comparison is None or s.comparison.unfilled:
        return None
    if v.d2t_tensor is None:
        full = v.head_rows is not None and v.vocab is not None and is_padding(v.head_rows, v.vocab)
        return range(min(v.head_rows or 0, v.vocab or 0)) if full else None
    return v.targets if v.meant != "absolute" and v.targets is not None and is_map(v, v.targets) else None


def _accept(s: Subject, missing: int, of: int, most: int) -> None:
    """Raises UsageError when more rows have no source than the user accepts."""
    if missing > most:
        assert s.reference is not None
        raise UsageError(
            f"{count(missing, 'row')} of {of:,} in the order of {s.reference.name} "
            f"{'has' if missing == 1 else 'have'} no source in this head: "
            f"accept {'it' if missing == 1 else 'them'} as zeros with --max-missing-rows {missing}"
        )
