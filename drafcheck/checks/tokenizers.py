"""DC604: a whole model as a draft, and the tokens that it shares with its target."""

from __future__ import annotations

from collections.abc import Iterator

from drafcheck.contract import Table, in_force, load_toml
from drafcheck.draftmode import drafts_whole
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.registry import Hit, rule
from drafcheck.subject import Subject
from drafcheck.words import count

Tokens = dict[int, bytes]
HELP = "draft with a model that has the target's tokenizer"
TAKEN = "takes the draft's ids for the target's"
SHOWN = 3
"""So many tokens are shown with both their texts."""


@rule("DC604", "tokenizer", Severity.ERROR, needs=("target", "tokenizers"))
def tokenizers_differ(s: Subject) -> Iterator[Hit]:
    """A whole model is to draft (STANDALONE) for a target with other tokens.

    ## What it does
    Reads the tokens of both models, by id: those of the draft from its own folder, those of the target from
    `--tokenizer` or the target's folder; and `vocab_size` of both. Some releases start only when the tables or the
    sizes are the same, and then any difference counts. Elsewhere tokens that only one of the two has are no fault: the
    draft proposes none that it does not have, and a target turns down those that it has not.

    ## Why is this bad?
    The server hands the draft's ids to the target as they are. An id that stands for two different texts is never what
    the target would say: it is turned down every time, and drafting only costs. Where the release asks, it stops.

    ## Fix
    Draft with a model of the target's own family and generation, whose tokens have the same ids.
    """
    from drafcheck.tokenizer import tables

    if s.contract is not None or not drafts_whole(s.engine, s.algorithm):
        return
    entries = load_toml(s.engine.name, "registry.toml").get("whole_models", {}).get("equal", [])
    equal = in_force(entries, s.engine) or {}
    found = tables(s)
    if found is None or _is_translated(s, equal):
        return
    said = equal.get("tables")
    hit = _differing(s, *found, said) or (_unlike(s, *found, said) if said else None) or _sizes(s, equal.get("sizes"))
    if hit is not None:
        yield hit


def _is_translated(s: Subject, equal: Table) -> bool:
    """Whether the launch has the server translate between the two tables."""
    key, options = equal.get("unless"), s.launch.options if s.launch is not None else []
    return key is not None and any(key in word.text for option in options for word in option.values)


def _differing(s: Subject, ours: Tokens, theirs: Tokens, said: str | None) -> Hit | None:
    differing = sorted(token for token, text in ours.items() if theirs.get(token, text) != text)
    if not differing:
        return None
    shared = len(ours.keys() & theirs.keys())
    some = "; ".join(f"{t} is {_text(ours[t])} here and {_text(theirs[t])} there" for t in differing[:SHOWN])
    sure = 20 * len(differing) > shared
    return Hit(
        f"{count(len(differing), 'token id')} of the {shared} that draft and target share stand for different texts "
        f"({some}): {s.engine} {f'stops ({said})' if said else TAKEN}",
        (_place(s),),
        help=HELP,
        confidence=Confidence.CERTAIN if sure and said is None else Confidence.LIKELY,
        stops=said is not None,
    )


def _unlike(s: Subject, ours: Tokens, theirs: Tokens, said: str) -> Hit | None:
    """A token that only one of the two has, where the release compares the whole tables."""
    lone = sorted(ours.keys() ^ theirs.keys())
    if not lone:
        return None
    one = lone[0]
    whose, text = ("draft", ours[one]) if one in ours else ("target", theirs[one])
    return Hit(
        f"{count(len(lone), 'token')} that only one of draft and target has ({one}, {_text(text)}, of the {whose}): "
        f"{s.engine} stops ({said})",
        (_place(s),),
        help=HELP,
        confidence=Confidence.LIKELY,
        stops=True,
    )


def _sizes(s: Subject, said: str | None) -> Hit | None:
    """Embeddings of other sizes, padding included, where the release compares those."""
    ours = s.config.integer("vocab_size") if s.config is not None else None
    theirs = s.target.vocab_size if s.target is not None else None
    if said is None or ours is None or theirs is None or ours == theirs or s.config is None:
        return None
    return Hit(
        f"vocab_size is {ours} in the draft and {theirs} in the target: {s.engine} stops ({said})",
        (s.config.at("vocab_size"),),
        help=HELP,
        confidence=Confidence.LIKELY,
        stops=True,
    )


def _place(s: Subject) -> Location:
    return Location(file=s.own_tokenizer.file if s.own_tokenizer is not None else None)


def _text(piece: bytes) -> str:
    """A token as a quoted text of no control characters."""
    return ascii(piece.decode("utf-8", "replace")[:24])
