"""DC312: does vocab_size agree with the embedding, the target and the tokens that are drafted?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.vocabulary import at, key, parts, rows_built
from drafcheck.finding import Confidence, Severity
from drafcheck.plan.model import LoadPlan, Refusal
from drafcheck.plan.vocabulary import EMBEDDING, is_another, named
from drafcheck.registry import Hit, rule
from drafcheck.words import plural

if TYPE_CHECKING:
    from drafcheck.subject import Subject


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
    if size is None or _settles(load.refused):
        return
    rows = tensor.shape[0] if tensor is not None and tensor.shape and tensor not in load.nameless else size
    if rows != size and any(t is tensor for t in load.lost.tensors()):
        yield Hit(
            f"vocab_size is {size}, embed_tokens has {plural(rows, 'row')}: {s.engine} refuses it at load",
            (*at(tensor), key(s, "vocab_size")),
            help=f"set vocab_size to {rows}",
            fixable=_fitted(s),
        )
    elif (too_wide := _spread(s, size)) is not None:
        yield too_wide
    elif v.target_vocab is not None and is_another(size, v.target_vocab):
        yield _unlike_target(s, load, size, v.target_vocab)


def _settles(refused: Refusal | None) -> bool:
    """Whether the release stops at a key of the config, or because there is no embedding: then all is said."""
    return refused is not None and (
        refused.key is not None or (refused.cause == "missing" and str(refused.parameter).endswith(EMBEDDING))
    )


def _fitted(s: Subject) -> bool:
    """Whether a repair knows the number with which everything fits."""
    from drafcheck.fix.repairs.vocabulary import vocabulary_fitted

    return vocabulary_fitted(s) is not None


def _spread(s: Subject, size: int) -> Hit | None:
    """The first draft token, or the rows of the head, that do not fit the width over which the logits are spread."""
    v, load, contract, _ = parts(s)
    table, built = contract.mapping.get("parameter"), rows_built(load)
    if "width" not in contract.mapping or load.refused is not None:
        return None
    last = max(v.targets, default=-1) if v.targets is not None else -1
    if table in load.parameters and size <= last < (v.vocab or 0):
        outcome = f"d2t reaches token {last}, and {s.engine} has no place for it (IndexError at the first logits)"
    elif contract.mapping.get("asserts") and table not in load.parameters and built not in (None, size):
        outcome = f"the head has {plural(built or 0, 'row')}, and {s.engine} stops at the first logits (AssertionError)"
    else:
        return None
    vocab = v.target_vocab or built
    wanted = f"set vocab_size to {vocab}"
    return Hit(f"vocab_size is {size}: {outcome}", (key(s, "vocab_size"),), help=wanted, fixable=_fitted(s))


def _unlike_target(s: Subject, load: LoadPlan, size: int, target: int) -> Hit:
    own = next((p for p in load.parameters if p.endswith(EMBEDDING) and p not in load.fills_from_target), None)
    fatal = own is not None and size < target
    idle = "the target's embedding is used" if own is None else f"no token has the rows from {target} on"
    outcome = f"tokens from {size} on have no row in its own embedding" if fatal else idle
    return Hit(
        f"vocab_size is {size}, the target's {target}: {outcome}",
        (key(s, "vocab_size"),),
        help=f"set vocab_size to {target}"
        if not fatal
        else "export the drafter with an embedding for every target token",
        severity=Severity.ERROR if fatal else Severity.NOTE,
        confidence=Confidence.LIKELY if fatal else Confidence.CERTAIN,
    )
