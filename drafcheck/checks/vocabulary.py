"""DC301, DC302, DC309, DC310, DC312: is there a head and a mapping, and do their sizes agree?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.contract import Contract
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.heads import misfit
from drafcheck.lookup import MISSING, raw
from drafcheck.plan.inverse import INVERTED
from drafcheck.plan.model import LoadPlan, VocabularyPlan
from drafcheck.plan.vocabulary import EMBEDDING, HEAD, is_another, is_reduced, named
from drafcheck.registry import Hit, rule
from drafcheck.tensor import Tensor

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig
    from drafcheck.subject import Subject

MASKS = frozenset({"BOOL"})
"""Dtypes of a d2t that hold flags, not offsets."""


def parts(s: Subject) -> tuple[VocabularyPlan, LoadPlan, Contract, DraftConfig]:
    """The plans, the contract and the config; rules that need ``load`` have all four."""
    assert s.load is not None and s.contract is not None and s.config is not None and s.vocabulary is not None
    return s.vocabulary, s.load, s.contract, s.config


def at(*tensors: Tensor | None) -> tuple[Location, ...]:
    """Where the tensors are; those that are None are left out."""
    return tuple(Location(file=t.file, tensor=t.name) for t in tensors if t is not None)


def key(s: Subject, *route: str) -> Location:
    """Where a key of the draft's config is; rules that need ``load`` have a config."""
    assert s.config is not None
    return s.config.at(*route)


def whose(v: VocabularyPlan) -> str:
    """Whose vocabulary ``v.vocab`` is, for messages."""
    return {"target": "the target's", "config": "the config's", "t2d": "t2d's"}.get(v.vocab_source, "the")


def sure(v: VocabularyPlan) -> Confidence:
    """How sure a finding is that rests on the size of the target's vocabulary."""
    return Confidence.CERTAIN if v.vocab_source == "target" else Confidence.LIKELY


def _has_head(load: LoadPlan) -> bool:
    return any("lm_head" in t.name for t in load.seen)


def _rows_built(load: LoadPlan) -> int | None:
    """The rows of the head that this release builds from the config."""
    parameter = load.parameters.get(HEAD)
    return parameter.shape[0] if parameter is not None and parameter.shape[0] > 0 else None


def _refuses(load: LoadPlan, key: str) -> bool:
    return load.refused is not None and load.refused.key == key


@rule("DC301", "missing-d2t", Severity.ERROR, needs=("load", "weights"), concerns="mapping")
def missing_d2t(s: Subject) -> Iterator[Hit]:
    """The head has fewer rows than the target has tokens, and no d2t says which token a row stands for.

    ## What it does
    Compares the rows of `lm_head` with the target's vocabulary (without `--target`, with the config's `vocab_size`)
    when no tensor is read as d2t. Releases that ask for a d2t at any vocabulary are reported at any vocabulary.

    ## Why is this bad?
    Draft id 5 is proposed as token 5, whatever row 5 was trained for: accept length 2.30 -> 1.01 on SGLang
    0.5.15.post1, without a word. Before 0.4.9 the worker stops with an AttributeError, even at full vocabulary.

    ## Fix
    Write the trainer's d2t into the checkpoint: target token minus draft id, int64, one for each row of `lm_head`.
    It can be computed from t2d when the trainer orders draft ids by token.
    """
    v, load, contract, _ = parts(s)
    if v.d2t_tensor is not None or _refuses(load, "draft_vocab_size"):
        return
    rows = v.draft_vocab if v.head_rows is None else v.head_rows
    reduced = rows is not None and v.vocab is not None and is_reduced(rows, v.vocab)
    required = contract.mapping.get("required")
    if required:
        yield Hit(
            f"no d2t: {s.engine} asks every head for one, also at full vocabulary, and stops ({required})",
            at(v.head_tensor),
            help=help_without_d2t(v) if reduced else "add a d2t of zeros, int64, one for each row of lm_head",
        )
    elif reduced and not v.tied and not v.head_from_target:
        yield Hit(
            f"lm_head has {rows} rows for {whose(v)} {v.vocab} tokens and there is no d2t: "
            "draft ids are proposed as target tokens",
            at(v.head_tensor) or (key(s, "draft_vocab_size"),),
            help=_looks_like_d2t(load, rows) or help_without_d2t(v),
            confidence=sure(v),
        )


def _looks_like_d2t(load: LoadPlan, rows: int | None) -> str | None:
    """A row of whole numbers, one for each draft id, under a name that the loader does not look for."""
    found = next((t for t in load.nameless if t.dtype in ("I64", "I32") and t.shape == (rows,)), None)
    return f"call the tensor `{found.name}` d2t, if it holds target token minus draft id" if found is not None else None


def help_without_d2t(v: VocabularyPlan) -> str:
    """What to do when the mapping is missing or was never filled."""
    if v.t2d is not None and v.t2d.count(1) == v.head_rows:
        return "compute d2t from t2d, if the trainer orders draft ids by token: the i-th kept token minus i, int64"
    return "add the trainer's d2t (target token minus draft id, int64), from the vocabulary mapping it was trained with"


@rule("DC302", "draft-vocab-size", Severity.ERROR, Severity.WARNING, needs=("load",), concerns="head")
def draft_vocab_size(s: Subject) -> Iterator[Hit]:
    """The sizes of the draft vocabulary do not agree.

    ## What it does
    Compares the rows of `lm_head`, the length of d2t and `draft_vocab_size`, and reports configs in which this release
    needs `draft_vocab_size` and does not get it. A d2t that is longer than the head is a warning, unless it is the map
    the wrong way round (an entry for each target token): an error. The count of t2d is
    named, and judged by DC307.

    ## Why is this bad?
    A head of another size, or a config without the key, is refused at load. A d2t that is too short loads and ends the
    server at the first draft id past its end (SGLang 0.5.15.post1: CUDA error at the first request); vLLM refuses it.

    ## Fix
    Set `draft_vocab_size` to the rows of `lm_head`; write the d2t that belongs to this head.
    """
    v, load, _, _ = parts(s)
    if _refuses(load, "draft_vocab_size") and load.refused is not None:
        yield _unusable_size(s, v, load.refused.error)
        return
    built = _rows_built(load)
    if v.head_rows is not None and built is not None and v.head_rows != built and not v.tied:
        config_is_wrong = v.raw is None or len(v.raw) != built
        yield Hit(
            f"lm_head has {v.head_rows} rows, {s.engine} builds {built} {_why_built(s, v)} and stops{_others(v)}",
            (*at(v.head_tensor), key(s, "draft_vocab_size")),
            help=f"set draft_vocab_size to {v.head_rows}" if config_is_wrong else f"export the lm_head of {built} rows",
            fixable=config_is_wrong,
        )
        return
    yield from _mapping_refused(s, v) or _mapping_length(s, v, built)


def _unusable_size(s: Subject, v: VocabularyPlan, error: str) -> Hit:
    assert s.config is not None
    value = raw(s.config, "draft_vocab_size")
    is_what = "is missing" if value is MISSING else f"is {'null' if value is None else repr(value)[:40]}"
    wanted = v.head_rows if v.head_rows is not None else v.vocab
    return Hit(
        f"draft_vocab_size {is_what}, and {s.engine} needs a number there ({error}){_others(v)}",
        (key(s, "draft_vocab_size"), *at(v.head_tensor)),
        help=f"set draft_vocab_size to {wanted}, the rows of lm_head" if v.head_rows else _help_headless(s),
        fixable=v.head_rows is not None,
    )


def _why_built(s: Subject, v: VocabularyPlan) -> str:
    assert s.config is not None
    if raw(s.config, "draft_vocab_size") is None:
        return "(draft_vocab_size is null: vocab_size)"
    return f"(draft_vocab_size {v.draft_vocab})"


def _others(v: VocabularyPlan) -> str:
    """The other sizes of the draft vocabulary, for comparison."""
    known = [f"d2t has {len(v.raw)} values" if v.raw is not None else "", _kept(v)]
    return "".join(f"; {text}" for text in known if text)


def _kept(v: VocabularyPlan) -> str:
    return f"t2d keeps {v.t2d.count(1)} tokens" if v.t2d is not None else ""


def _mapping_refused(s: Subject, v: VocabularyPlan) -> list[Hit]:
    """Where d2t is loaded into a parameter, which has a shape."""
    _, load, contract, _ = parts(s)
    name = contract.mapping.get("parameter")
    refused = next((r for r in load.lost if r.cause == "shape" and r.parameter == name), None)
    if refused is None or refused.tensor is None or name is None:
        return []
    built = load.parameters[name].shape[0]
    return [
        Hit(
            f"d2t has the shape {list(refused.tensor.shape)}, {s.engine} builds {built} values for it "
            f"{_why_built(s, v)} and refuses: {refused.error}",
            (*at(refused.tensor, v.head_tensor), key(s, "draft_vocab_size")),
            help="write the d2t that this lm_head was trained with",
        )
    ]


def _mapping_length(s: Subject, v: VocabularyPlan, built: int | None) -> Iterator[Hit]:
    rows = v.head_rows if v.head_rows is not None else built
    tensor = v.d2t_tensor
    if tensor is None or rows is None or v.tied or v.head_from_target or tensor.dtype in MASKS:
        return
    if len(tensor.shape) != 1:
        yield Hit(
            f"d2t has the shape {list(tensor.shape)}; one value for each of the {rows} rows of lm_head is read",
            at(tensor, v.head_tensor),
            help=f"store d2t with the shape [{rows}]",
        )
    elif v.meant in INVERTED:
        from drafcheck.checks.mapping import other_map  # which builds on this module

        yield other_map(v, rows)
    elif tensor.numel != rows:
        short = tensor.numel < rows
        outcome = f"draft ids from {tensor.numel} on end the server" if short else "it is another head's mapping"
        yield Hit(
            f"d2t has {tensor.numel} values, lm_head {rows} rows: {outcome}{'; ' + _kept(v) if _kept(v) else ''}",
            (*at(tensor, v.head_tensor), key(s, "draft_vocab_size")),
            help="write the d2t that this lm_head was trained with",
            severity=Severity.ERROR if short else Severity.WARNING,
            confidence=Confidence.CERTAIN if short else Confidence.LIKELY,
        )


@rule("DC309", "missing-lm-head", Severity.ERROR, needs=("load", "weights"), concerns="head")
def missing_lm_head(s: Subject) -> Iterator[Hit]:
    """The checkpoint has no lm_head, and the engine takes none, or the wrong one, from the target.

    ## What it does
    Reports heads without `lm_head` where this release leaves its own uninitialised, and those where it borrows the
    target's head while d2t renumbers the tokens. A head under a name that is dropped is DC101's or DC105's.

    ## Why is this bad?
    A random head proposes random tokens: accept length 2.30 -> 1.01 on SGLang 0.5.15.post1, without a word. vLLM since
    0.16 takes the target's head: right at full vocabulary, and the wrong rows under a d2t (run on 0.16.0 to 0.33.0: the
    logits are those of the target's first rows).

    ## Fix
    Export `lm_head`. For SGLang since 0.5.2 a drafter of full vocabulary that uses the target's head says so with
    `draft_vocab_size: null`; for vLLM it just has none.
    """
    v, load, contract, _ = parts(s)
    if v.tied or _has_head(load) or _refuses(load, "draft_vocab_size") or misfit(s) is not None:
        return
    if v.head_from_target:
        yield from _borrowed_in_vain(s, v) if contract.mapping.get("parameter") else _borrowed_and_renumbered(v)
    elif HEAD in load.parameters:
        yield Hit(
            f"no lm_head in the checkpoint: the {_rows_built(load) or v.draft_vocab or '?'} rows "
            f"that {s.engine} builds stay uninitialised",
            (key(s, "draft_vocab_size"),),
            help=_help_headless(s),
        )


def _borrowed_and_renumbered(v: VocabularyPlan) -> Iterator[Hit]:
    if v.raw is not None and any(v.raw):
        yield Hit(
            f"the target's head is borrowed (draft_vocab_size is null), but d2t renumbers its first {len(v.raw)} rows",
            at(v.d2t_tensor),
            help="export the reduced lm_head that belongs to this d2t, or leave d2t out",
        )


def _borrowed_in_vain(s: Subject, v: VocabularyPlan) -> Iterator[Hit]:
    """The target's head in the place of a smaller one: its first rows are taken, whatever the draft ids stand for."""
    _, load, _, _ = parts(s)
    rows = _rows_built(load)
    if rows is None or v.vocab is None or not is_reduced(rows, v.vocab):
        return
    renumbered = v.raw is not None and any(v.raw)
    outcome = "and d2t makes other tokens of them" if renumbered else f"and no token from {rows} on is ever proposed"
    yield Hit(
        f"no lm_head in the checkpoint: {s.engine} takes the target's, of which it uses the rows 0 to {rows - 1} "
        f"(draft_vocab_size {rows}) {outcome}",
        (key(s, "draft_vocab_size"), *at(v.d2t_tensor)),
        help="export the drafter again with lm_head.weight",
        confidence=sure(v),
    )


def _help_headless(s: Subject) -> str:
    v, _, contract, _ = parts(s)
    export = "export the drafter again with lm_head.weight"
    full = v.draft_vocab is None or (v.vocab is not None and v.draft_vocab >= v.vocab)
    if full and any(f.get("null") == "draft_vocab_size" for f in contract.flags):
        return f"{export}, or set draft_vocab_size to null if it drafts with the target's own head"
    return export


@rule("DC310", "tied-head", Severity.ERROR, Severity.WARNING, needs=("load",), concerns="head")
def tied_head(s: Subject) -> Iterator[Hit]:
    """`tie_word_embeddings` makes the engine ignore the head in the file.

    ## What it does
    Reports a true `tie_word_embeddings` beside an `lm_head` in the file or a d2t. A head-less drafter of full
    vocabulary may be tied; an `lm_head` of full vocabulary under a tied target may be a copy of it: a warning.

    ## Why is this bad?
    The head becomes the target's embedding table, with a row for each target token; the one in the file is dropped
    without a word. Accept length 2.30 -> 1.01 on SGLang 0.5.15.post1, with and without an `lm_head` in the file.

    ## Fix
    Set `tie_word_embeddings` to false (a config copied from a tied target often says true).
    """
    v, load, _, _ = parts(s)
    renumbered = v.raw is not None and any(v.raw)
    if not v.tied or not (_has_head(load) or renumbered):
        return
    copy = v.head_rows is not None and v.head_rows == v.vocab and not renumbered and _target_ties(s)
    what = (
        f"the lm_head in the file ({v.head_rows} rows) is dropped" if _has_head(load) else "no head of its own is left"
    )
    mapped = f", while d2t maps {len(v.raw)} draft ids" if v.raw is not None and renumbered else ""
    yield Hit(
        f"tie_word_embeddings is true: {what} and the target's embedding table is the head{mapped}",
        (key(s, "tie_word_embeddings"), *at(v.head_tensor, v.d2t_tensor if renumbered else None)),
        help="set tie_word_embeddings to false"
        if _has_head(load)
        else "export lm_head, set tie_word_embeddings to false",
        severity=Severity.WARNING if copy else Severity.ERROR,
        confidence=Confidence.LIKELY if copy else Confidence.CERTAIN,
        fixable=_has_head(load),
    )


def _target_ties(s: Subject) -> bool:
    return s.target is not None and (s.target.flag("tie_word_embeddings") or False)


@rule("DC312", "vocab-size", Severity.ERROR, Severity.NOTE, needs=("load",))
def vocab_size(s: Subject) -> Iterator[Hit]:
    """`vocab_size` disagrees with the embedding in the file, or with the target.

    ## What it does
    Compares `vocab_size` with the rows of `embed_tokens` and with the target's vocabulary, padding aside; for vLLM,
    which spreads the logits over `vocab_size` tokens, with the tokens that d2t reaches.

    ## Why is this bad?
    An embedding with other rows than `vocab_size` is refused at load. A draft that keeps its own embedding, with fewer
    rows than the target has tokens, indexes past it. Otherwise the target's embedding is used and the number does not
    matter: accept length unchanged on SGLang 0.5.15.post1 with half and with twice the target's.

    ## Fix
    Set `vocab_size` to the rows of `embed_tokens`, which are the target's.
    """
    v, load, contract, config = parts(s)
    size = contract.value("vocab_size", config)
    tensor = named(load.seen, EMBEDDING)
    if size is None or (load.refused is not None and load.refused.key is not None):
        return
    rows = tensor.shape[0] if tensor is not None and tensor.shape and tensor not in load.nameless else size
    if rows != size:
        yield Hit(
            f"vocab_size is {size}, embed_tokens has {rows} rows: {s.engine} refuses it at load",
            (*at(tensor), key(s, "vocab_size")),
            help=f"set vocab_size to {rows}",
            fixable=True,
        )
    elif (too_wide := _spread(s, size)) is not None:
        yield too_wide
    elif v.target_vocab is not None and is_another(size, v.target_vocab):
        yield _unlike_target(s, load, size, v.target_vocab)


def _spread(s: Subject, size: int) -> Hit | None:
    """The first draft token, or the rows of the head, that do not fit the width over which the logits are spread."""
    v, load, contract, _ = parts(s)
    table, built = contract.mapping.get("parameter"), _rows_built(load)
    if "width" not in contract.mapping or load.refused is not None:
        return None
    last = max(v.targets, default=-1) if v.targets is not None else -1
    if table in load.parameters and size <= last < (v.vocab or 0):
        outcome = f"d2t reaches token {last}, and {s.engine} has no place for it (IndexError at the first logits)"
    elif table not in load.parameters and built is not None and built != size:
        outcome = f"the head has {built} rows, and {s.engine} stops at the first logits (AssertionError)"
    else:
        return None
    vocab = v.target_vocab or built
    return Hit(
        f"vocab_size is {size}: {outcome}", (key(s, "vocab_size"),), help=f"set vocab_size to {vocab}", fixable=True
    )


def _unlike_target(s: Subject, load: LoadPlan, size: int, target: int) -> Hit:
    own = next((p for p in load.parameters if p.endswith(EMBEDDING) and p not in load.fills_from_target), None)
    fatal = own is not None and size < target
    outcome = f"tokens from {size} on have no row in its own embedding" if fatal else "the target's embedding is used"
    return Hit(
        f"vocab_size is {size}, the target's {target}: {outcome}",
        (key(s, "vocab_size"),),
        help=f"set vocab_size to {target}"
        if not fatal
        else "export the drafter with an embedding for every target token",
        severity=Severity.ERROR if fatal else Severity.NOTE,
        confidence=Confidence.LIKELY if fatal else Confidence.CERTAIN,
    )
