"""DC301, DC302, DC310, DC312, where config.json is at fault: sizes that follow from the head, and the tied flag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from drafcheck.conversion import route_to
from drafcheck.fix.edits import Edit
from drafcheck.fix.keys import edits_of
from drafcheck.fix.registry import Wishes, repair
from drafcheck.plan.vocabulary import EMBEDDING, HEAD, is_another, named
from drafcheck.trial import Changes, Trial, tried

if TYPE_CHECKING:
    from drafcheck.contract import Contract
    from drafcheck.finding import Finding
    from drafcheck.plan.model import LoadPlan
    from drafcheck.subject import Subject

KEY = "draft_vocab_size"


@repair("DC302")
def say_the_rows(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """`draft_vocab_size` as many as `lm_head` has rows."""
    yield from edits_of(s, rows_said(s))


@repair("DC301")
def say_the_vocabulary(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """The target's `vocab_size`, without which this release reads no d2t."""
    yield from edits_of(s, vocabulary_said(s))


@repair("DC310")
def untie(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """No `tie_word_embeddings` beside a head of its own."""
    yield from edits_of(s, untied(s))


@repair("DC312")
def fit_the_vocabulary(s: Subject, _: Sequence[Finding], __: Wishes) -> Iterator[Edit]:
    """The `vocab_size` of the embedding in the file, or the target's."""
    yield from edits_of(s, vocabulary_fitted(s))


def rows_said(s: Subject) -> Changes | None:
    """The change with which the engine builds as many rows as the head has; None where d2t says that the head is wrong.

    None too where this release takes the number of rows from elsewhere.
    """
    v, load = s.vocabulary, s.load
    if v is None or load is None or v.head_rows is None:
        return None
    built = rows_built(load)
    agreed = v.head_rows == built or (v.raw is not None and len(v.raw) == built)
    if agreed and not _stops(load, KEY):
        return None
    changes, trial = _with(s, KEY, v.head_rows)
    if trial is None or trial.load is None or rows_built(trial.load) not in (v.head_rows, None):
        return None
    return None if _stops(trial.load, KEY) else changes


def rows_built(load: LoadPlan) -> int | None:
    """The rows of the head that this release builds from the config."""
    parameter = load.parameters.get(HEAD)
    return parameter.shape[0] if parameter is not None and parameter.shape[0] > 0 else None


def vocabulary_said(s: Subject) -> Changes | None:
    """The change with which a d2t that is there is read; None where that does not hang on the vocabulary."""
    v, load = s.vocabulary, s.load
    if v is None or load is None or v.d2t_tensor is not None or v.vocab_source != "target":
        return None
    if not any(t.name == "d2t" for t in load.seen):
        return None
    changes, trial = _with(s, "vocab_size", v.vocab)
    read = trial is not None and trial.load is not None and trial.load.mappings and trial.load.refused is None
    return changes if read else None


def untied(s: Subject) -> Changes | None:
    """The change with which the head in the file is the one that is served; None where there is none."""
    if s.load is None or not s.load.seen.has("lm_head"):
        return None
    changes, trial = _with(s, "tie_word_embeddings", False)
    free = trial is not None and trial.contract is not None and not trial.contract.flag("tied", trial.config)
    return changes if free else None


def vocabulary_fitted(s: Subject) -> Changes | None:
    """The change with which the embedding in the file, and the logits, have the room that they need."""
    v, load, config = s.vocabulary, s.load, s.config
    if v is None or load is None or config is None or s.contract is None:
        return None
    size = s.contract.value("vocab_size", config)
    tensor = named(load.seen, EMBEDDING)
    refused = tensor is not None and tensor.shape and any(t is tensor for t in load.lost.tensors())
    wanted = tensor.shape[0] if tensor is not None and refused else v.target_vocab or rows_built(load)
    if wanted in (None, size):
        return None
    too_few = refused and v.target_vocab is not None and wanted < v.target_vocab and is_another(wanted, v.target_vocab)
    changes, trial = _with(s, "vocab_size", wanted)
    if too_few or trial is None or trial.load is None or trial.contract is None or trial.load.refused is not None:
        return None
    if refused or (not _has_room(s, s.contract, load, size or 0) and _has_room(s, trial.contract, trial.load, wanted)):
        return changes
    return None


def _has_room(s: Subject, contract: Contract, load: LoadPlan, width: int) -> bool:
    """Whether logits that are spread over so many tokens reach all that d2t does, or are as many as the head's."""
    assert s.vocabulary is not None
    if "width" not in contract.mapping:
        return True  # then the number does not matter
    if contract.mapping.get("parameter") in load.parameters:
        return max(s.vocabulary.targets or (), default=-1) < width
    return not contract.mapping.get("asserts") or rows_built(load) in (None, width)


def _with(s: Subject, key: str, value: Any) -> tuple[Changes | None, Trial | None]:
    """The change of one key, and what follows from it; nothing where it says so already, or is read as another one."""
    route = route_to(s, key)
    changes = {route: value} if route is not None else None
    return (changes, tried(s, changes)) if changes and any(edits_of(s, changes)) else (None, None)


def _stops(load: LoadPlan, key: str) -> bool:
    return load.refused is not None and load.refused.key == key
