"""DC309 and DC310: is there a head in the file, and is it the one that is served?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.entries import without_tensors
from drafcheck.checks.vocabulary import at, has_head, help_headless, key, parts, refuses, rows_built, sure
from drafcheck.finding import Confidence, Severity
from drafcheck.heads import misfit
from drafcheck.plan.model import VocabularyPlan
from drafcheck.plan.vocabulary import HEAD, is_reduced
from drafcheck.registry import Hit, rule
from drafcheck.words import plural

if TYPE_CHECKING:
    from drafcheck.subject import Subject


@rule("DC309", "missing-lm-head", Severity.ERROR, needs=("load", "weights"), concerns="head", reads=("d2t",))
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
    if v.tied or has_head(load) or refuses(load, "draft_vocab_size") or misfit(s) is not None:
        return
    if load.stops_in_place_of(HEAD) or without_tensors(s):
        return  # DC104's and DC012's
    if v.head_from_target:
        yield from _borrowed_in_vain(s, v) if contract.mapping.get("parameter") else _borrowed_and_renumbered(v)
    elif HEAD in load.parameters:
        stays = "stay uninitialised" if load.refused is None else "are in no tensor"
        wanted = load.refused is not None and load.refused.cause == "missing" and load.refused.parameter == HEAD
        stops = f", and it stops ({load.refused.error})" if load.refused is not None and wanted else ""
        rows = rows_built(load) or v.draft_vocab
        yield Hit(
            f"no lm_head in the checkpoint: the {plural(rows, 'row') if rows else '? rows'} that {s.engine} builds "
            f"{stays}{stops}",
            (key(s, "draft_vocab_size"),),
            help=help_headless(s),
        )


def _borrowed_and_renumbered(v: VocabularyPlan) -> Iterator[Hit]:
    if v.raw is not None and any(v.raw):
        yield Hit(
            "the target's head is borrowed (draft_vocab_size is null), but d2t renumbers its first "
            f"{plural(len(v.raw), 'row')}",
            at(v.d2t_tensor),
            help="export the reduced lm_head that belongs to this d2t, or leave d2t out",
        )


def _borrowed_in_vain(s: Subject, v: VocabularyPlan) -> Iterator[Hit]:
    """The target's head in the place of a smaller one: its first rows are taken, whatever the draft ids stand for."""
    _, load, _, _ = parts(s)
    rows = rows_built(load) or (len(v.raw) if v.raw is not None else None)
    if rows is None or v.vocab is None or not is_reduced(rows, v.vocab):
        return
    renumbered = v.raw is not None and any(v.raw)
    outcome = "and d2t makes other tokens of them" if renumbered else f"and no token from {rows} on is ever proposed"
    first = f"of which it uses the rows 0 to {rows - 1} (draft_vocab_size {rows}) {outcome}"
    lent = next((entry for entry in parts(s)[2].sharing if entry["parameter"] == HEAD and "outcome" in entry), None)
    yield Hit(
        f"no lm_head in the checkpoint: {s.engine} takes the target's, "
        f"{lent['outcome'].replace('{rows}', str(rows)) if lent is not None else first}",
        (key(s, "draft_vocab_size"), *at(v.d2t_tensor)),
        help="export the drafter again with lm_head.weight",
        confidence=sure(v),
    )


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
    v, load, contract, _ = parts(s)
    renumbered = v.raw is not None and any(v.raw)
    if not v.tied or not (has_head(load) or renumbered):
        return
    copy = v.head_rows is not None and v.head_rows == v.vocab and not renumbered and _target_ties(s)
    what = (
        f"the lm_head in the file ({plural(v.head_rows or 0, 'row')}) is dropped"
        if has_head(load)
        else "no head of its own is left"
    )
    mapped = f", while d2t maps {plural(len(v.raw), 'draft id')}" if v.raw is not None and renumbered else ""
    from drafcheck.fix.repairs.vocabulary import untied

    usual = "the target's embedding table is the head"
    head = next((flag["says"] for flag in contract.flags if flag["name"] == "tied" and "says" in flag), usual)
    yield Hit(
        f"tie_word_embeddings is true: {what} and {head}{mapped}",
        (key(s, "tie_word_embeddings"), *at(v.head_tensor, v.d2t_tensor if renumbered else None)),
        help="set tie_word_embeddings to false"
        if has_head(load)
        else "export lm_head, set tie_word_embeddings to false",
        severity=Severity.WARNING if copy else Severity.ERROR,
        confidence=Confidence.LIKELY if copy else Confidence.CERTAIN,
        fixable=untied(s) is not None,
    )


def _target_ties(s: Subject) -> bool:
    return s.target is not None and (s.target.flag("tie_word_embeddings") or False)
