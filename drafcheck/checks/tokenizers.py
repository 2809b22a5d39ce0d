"""DC604: a whole model as a draft, and the tokens that it shares with its target."""

from __future__ import annotations

from collections.abc import Iterator

from drafcheck.draftmode import drafts_whole
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.registry import Hit, rule
from drafcheck.subject import Subject
from drafcheck.words import count

SHOWN = 3
"""So many tokens are shown with both their texts."""


@rule("DC604", "tokenizer", Severity.ERROR, needs=("target", "tokenizers"))
def tokenizers_differ(s: Subject) -> Iterator[Hit]:
    """A whole model is to draft (STANDALONE) for a target with other tokens.

    ## What it does
    Reads the tokens of both models, by id: those of the draft from its own folder, those of the target from
    `--tokenizer` or the target's folder. Tokens that only one of the two has are no fault: the draft proposes none that
    it does not have, and a target turns down those that it has not.

    ## Why is this bad?
    The server hands the draft's ids to the target as they are. An id that stands for two different texts is never what
    the target would say: it is turned down every time, and drafting only costs.

    ## Fix
    Draft with a model of the target's own family and generation, whose tokens have the same ids.
    """
    from drafcheck.tokenizer import tables

    found = tables(s) if s.contract is None and drafts_whole(s.engine, s.algorithm) else None
    if found is None:
        return
    ours, theirs = found
    differing = sorted(token for token, text in ours.items() if theirs.get(token, text) != text)
    if not differing:
        return
    shared = len(ours.keys() & theirs.keys())
    some = "; ".join(f"{t} is {_text(ours[t])} here and {_text(theirs[t])} there" for t in differing[:SHOWN])
    yield Hit(
        f"{count(len(differing), 'token id')} of the {shared} that draft and target share stand for different texts "
        f"({some}): {s.engine} takes the draft's ids for the target's",
        (Location(file=s.own_tokenizer.file if s.own_tokenizer is not None else None),),
        help="draft with a model that has the target's tokenizer",
        confidence=Confidence.CERTAIN if 20 * len(differing) > shared else Confidence.LIKELY,
    )


def _text(piece: bytes) -> str:
    """A token as a quoted text of no control characters."""
    return ascii(piece.decode("utf-8", "replace")[:24])
