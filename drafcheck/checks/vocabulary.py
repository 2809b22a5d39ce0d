"""DC301 and DC302: is there a mapping, and do the sizes of the draft vocabulary agree?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.entries import without_tensors
from drafcheck.contract import Contract
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.lookup import MISSING, raw
from drafcheck.plan.inverse import INVERTED
from drafcheck.plan.model import MAPPING, LoadPlan, VocabularyPlan
from drafcheck.plan.vocabulary import HEAD, is_reduced, kept_tokens, too_long
from drafcheck.registry import Hit, rule
from drafcheck.tensor import Tensor
from drafcheck.words import plural

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


def has_head(load: LoadPlan) -> bool:
    """Whether there is a head in the file, under whatever name."""
    return load.seen.has("lm_head")


def rows_built(load: LoadPlan) -> int | None:
    """The rows of the head that this release builds from the config."""
    parameter = load.parameters.get(HEAD)
    return parameter.shape[0] if parameter is not None and parameter.shape[0] >= 0 else None


def refuses(load: LoadPlan, key: str) -> bool:
    """Whether the engine stops at a key of the config."""
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
    if v.d2t_tensor is not None or refuses(load, "draft_vocab_size") or load.stops_in_place_of(MAPPING):
        return
    if without_tensors(s):
        return  # DC012's
    rows = v.draft_vocab if v.head_rows is None else v.head_rows
    reduced = rows is not None and v.vocab is not None and is_reduced(rows, v.vocab)
    required = contract.mapping.get("required")
    without = contract.mapping.get("without", "draft ids are proposed as target tokens")
    if load.wants and contract.mapping.get("parameter") in load.parameters:
        yield from _no_table(s, v, load)
    elif contract.mapping.get("wanted"):
        zeros = "add a d2t of zeros, int64, one for each row of lm_head"
        yield Hit(
            f"no d2t: {without}",
            at(v.head_tensor),
            help=help_without_d2t(s, v) if reduced else zeros,
            fixable=_mapped(s),
        )
    elif required:
        yield Hit(
            f"no d2t: {s.engine} asks every head for one, also at full vocabulary, and stops ({required})",
            at(v.head_tensor),
            help=help_without_d2t(s, v) if reduced else "add a d2t of zeros, int64, one for each row of lm_head",
            fixable=_mapped(s),
            stops=True,
        )
    elif reduced and not v.tied and not v.head_from_target and not _other_rows(v, load):
        yield Hit(
            f"lm_head has {plural(rows or 0, 'row')} for {whose(v)} {plural(v.vocab or 0, 'token')} and "
            f"{_is_none(s, load)}: {without}",
            at(v.head_tensor) or (key(s, "draft_vocab_size"),),
            help=_help_to_map(s, v, load, rows),
            confidence=sure(v),
            fixable=_mapped(s),
            stops="without" in contract.mapping,
        )


def _mapped(s: Subject) -> bool:
    """Whether a repair knows the d2t that is missing, or why it is not read."""
    from drafcheck.fix.repairs.mapping import missing_map  # where there is one nothing is to be mended
    from drafcheck.fix.repairs.vocabulary import vocabulary_said

    return bool(missing_map(s) or vocabulary_said(s))


def _other_rows(v: VocabularyPlan, load: LoadPlan) -> bool:
    """Whether the head is refused for its rows where the mapping is not read for the same reason: DC302's."""
    return _ignored(load) and v.head_rows is not None and rows_built(load) not in (None, v.head_rows)


def _ignored(load: LoadPlan) -> bool:
    """Whether there is a d2t under its right name, and the release builds no table for it."""
    if not any(t.name == "d2t" for t in load.seen.ending("d2t")):
        return False
    return "d2t" in load.dropped.names or (load.refused is not None and any(t.name == "d2t" for t in load.nameless))


def _help_to_map(s: Subject, v: VocabularyPlan, load: LoadPlan, rows: int | None) -> str:
    if _ignored(load):
        return f"set vocab_size to {v.vocab}, the target's" if v.vocab_source == "target" else "set vocab_size"
    return _looks_like_d2t(load, rows) or help_without_d2t(s, v)


def _no_table(s: Subject, v: VocabularyPlan, load: LoadPlan) -> Iterator[Hit]:
    """A mapping that the loader insists on because the config gives it a table of its own."""
    _, _, contract, _ = parts(s)
    table = load.parameters[contract.mapping["parameter"]]
    spelt_otherwise = any(t.name.endswith(".d2t") for t in load.nameless.ending("d2t"))  # DC105's
    if load.refused is not None and not load.mappings and not spelt_otherwise:
        yield Hit(
            f"no d2t: {s.engine} builds one of {plural(table.shape[0], 'value')} (draft_vocab_size is not vocab_size) "
            f"and stops ({load.refused.error})",
            (*at(v.head_tensor), key(s, "draft_vocab_size")),
            help=help_without_d2t(s, v),
            fixable=_mapped(s),
        )


def _is_none(s: Subject, load: LoadPlan) -> str:
    """That there is no d2t, or that there is one which is not read."""
    return f"{s.engine} reads no d2t where vocab_size is draft_vocab_size" if _ignored(load) else "there is no d2t"


def _looks_like_d2t(load: LoadPlan, rows: int | None) -> str | None:
    """A row of whole numbers, one for each draft id, under a name that the loader does not look for."""
    found = next(iter(load.nameless.of_kind(("I64", "I32"), (rows,)) if rows is not None else ()), None)
    return f"call the tensor `{found.name}` d2t, if it holds target token minus draft id" if found is not None else None


def help_without_d2t(s: Subject, v: VocabularyPlan) -> str:
    """What to do when the mapping is missing or was never filled."""
    theirs = (
        "add the trainer's d2t (target token minus draft id, int64), from the vocabulary mapping it was trained with"
    )
    if v.t2d is not None and v.t2d.count(1) == v.head_rows:
        from drafcheck.beside import confirms  # which reads the target's weights, where they are named

        if confirms(s, kept_tokens(v.t2d)) is False:
            return f"{theirs}: the tokens of t2d in rising order are not those of lm_head, by --target-weights"
        return "compute d2t from t2d, if the trainer orders draft ids by token: the i-th kept token minus i, int64"
    return theirs


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
    if refuses(load, "draft_vocab_size") and load.refused is not None:
        yield _unusable_size(s, v, load.refused.error)
        return
    built = rows_built(load)
    if v.head_rows is not None and built is not None and v.head_rows != built and not v.tied:
        config_is_wrong = v.raw is None or len(v.raw) != built
        yield Hit(
            f"lm_head has {plural(v.head_rows, 'row')}, {s.engine} builds {built} {_why_built(s, v)} and "
            f"stops{_others(v)}",
            (*at(v.head_tensor), key(s, "draft_vocab_size")),
            help=f"set draft_vocab_size to {v.head_rows}"
            if config_is_wrong
            else f"export the lm_head of {plural(built, 'row')}",
            fixable=_resized(s),
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
        help=f"set draft_vocab_size to {wanted}, the rows of lm_head" if v.head_rows else help_headless(s),
        fixable=_resized(s),
    )


def _why_built(s: Subject, v: VocabularyPlan) -> str:
    assert s.config is not None
    said = raw(s.config, "draft_vocab_size")
    if said is None or said is MISSING:
        return f"(draft_vocab_size is {'null' if said is None else 'missing'}: vocab_size)"
    return f"(draft_vocab_size {v.draft_vocab})"


def _others(v: VocabularyPlan) -> str:
    """The other sizes of the draft vocabulary, for comparison."""
    known = [f"d2t has {plural(len(v.raw), 'value')}" if v.raw is not None else "", _kept(v)]
    return "".join(f"; {text}" for text in known if text)


def _kept(v: VocabularyPlan) -> str:
    return f"t2d keeps {plural(v.t2d.count(1), 'token')}" if v.t2d is not None else ""


def _mapping_refused(s: Subject, v: VocabularyPlan) -> list[Hit]:
    """Where d2t is loaded into a parameter, which has a shape."""
    _, load, contract, _ = parts(s)
    name = contract.mapping.get("parameter")
    refused = next((r for r in load.lost.because("shape") if r.parameter == name), None)
    if refused is None or refused.tensor is None or name is None:
        return []
    built = load.parameters[name].shape[0]
    return [
        Hit(
            f"d2t has the shape {list(refused.tensor.shape)}, {s.engine} builds {plural(built, 'value')} for it "
            f"{_why_built(s, v)} and refuses: {refused.error}",
            (*at(refused.tensor, v.head_tensor), key(s, "draft_vocab_size")),
            help="write the d2t that this lm_head was trained with",
            fixable=_resized(s),
        )
    ]


def _resized(s: Subject) -> bool:
    """Whether a repair knows the d2t, or the number in the config, that goes with the head."""
    from drafcheck.fix.repairs.mapping import faulty_map
    from drafcheck.fix.repairs.vocabulary import rows_said

    return bool(faulty_map(s) or rows_said(s))


def _mapping_length(s: Subject, v: VocabularyPlan, built: int | None) -> Iterator[Hit]:
    rows = v.head_rows if v.head_rows is not None else built
    tensor = v.d2t_tensor
    if tensor is None or rows is None or v.tied or v.head_from_target or _is_a_mask(v, tensor):
        return
    if len(tensor.shape) != 1:
        yield Hit(
            f"d2t has the shape {list(tensor.shape)}; one value for each of the {plural(rows, 'row')} of lm_head is "
            "read",
            at(tensor, v.head_tensor),
            help=f"store d2t with the shape [{rows}]",
            fixable=_resized(s),
        )
    elif v.meant in INVERTED:
        from drafcheck.checks.mapping import other_map  # which builds on this module

        yield other_map(s, v, rows)
    elif tensor.numel != rows:
        short = tensor.numel < rows
        said = parts(s)[2].mapping.get("short" if short else "long")
        endless = too_long(tensor)  # so many tokens are no vocabulary's, so that some repeat or are none
        other = "it is another head's mapping" if not endless else "more than any vocabulary has tokens"
        outcome = f"draft ids from {tensor.numel} on end the server" if short else other
        outcome = f"{s.engine} stops ({said})" if said else outcome
        yield Hit(
            f"d2t has {plural(tensor.numel, 'value')}, lm_head {plural(rows, 'row')}: "
            f"{outcome}{'; ' + _kept(v) if _kept(v) else ''}",
            (*at(tensor, v.head_tensor), key(s, "draft_vocab_size")),
            help="write the d2t that this lm_head was trained with",
            severity=Severity.ERROR if short or said or endless else Severity.WARNING,
            confidence=Confidence.CERTAIN if short or said else Confidence.LIKELY,
            fixable=_resized(s),
            stops=bool(said),
        )


def _is_a_mask(v: VocabularyPlan, tensor: Tensor) -> bool:
    """Whether a d2t holds flags, which DC308 says. Zeros are offsets, whatever they are stored as."""
    return tensor.dtype in MASKS and v.raw is not None and any(v.raw)


def help_headless(s: Subject) -> str:
    """What to do about a head that the file does not have."""
    v, _, contract, _ = parts(s)
    export = "export the drafter again with lm_head.weight"
    full = v.draft_vocab is None or (v.vocab is not None and v.draft_vocab >= v.vocab)
    if full and any(f.get("null") == "draft_vocab_size" for f in contract.flags):
        return f"{export}, or set draft_vocab_size to null if it drafts with the target's own head"
    return export
