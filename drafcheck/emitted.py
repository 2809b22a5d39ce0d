"""The special tokens that a target emits while it answers: what ends an answer, what marks a tool call or a thought."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from drafcheck.contract import load_toml
from drafcheck.finding import Location
from drafcheck.jsonpos import Document, read_document

if TYPE_CHECKING:
    from drafcheck.subject import Subject

END = "end"  # as in rules/tokens.toml
GENERATION = "generation_config.json"


class Emitted(NamedTuple):
    """A token that answers of the target hold. ``kind`` as in rules/tokens.toml; ``text`` is None when not known.

    ``certain`` when a config of the target names it for itself: not the table of known names, nor a lone number in
    config.json, where classes fill in a default that the tokenizer need not have. ``place`` is where a config names it.
    """

    token: int
    kind: str
    text: str | None
    certain: bool = False
    place: Location | None = None


def emitted_tokens(s: Subject) -> list[Emitted]:
    """Those that the target's configs and its tokenizer tell of, in order of token id.

    Raises UsageError for a tokenizer that was given and cannot be read.
    """
    from drafcheck.tokenizer import added_tokens

    added = added_tokens(s)
    found = {e.token: e for token, one in added.items() if (e := _by_name(token, one.text)) is not None}
    ends = _ends(s)
    if ends:  # what the configs say is all there is: other ends belong to other uses of the tokenizer
        found = {token: e for token, e in found.items() if e.kind != END}
    for token, place, stated in ends:
        text = added[token].text if token in added else None
        found[token] = Emitted(token, END, text, certain=stated or text is not None, place=place)
    return [found[token] for token in sorted(found)]


def _by_name(token: int, name: str) -> Emitted | None:
    book = load_toml("tokens.toml")
    if any(part in name for part in book["never"]["contains"]):
        return None
    fits = (e for e in book["emitted"] if name in e.get("is", ()) or any(p in name for p in e.get("contains", ())))
    entry = next(fits, None)
    return Emitted(token, entry["kind"], name) if entry is not None else None


def _ends(s: Subject) -> list[tuple[int, Location, bool]]:
    """The ends of an answer, where they are named, and whether they cannot be a default.

    Those of generation_config.json, else those of config.json: of a chat model made from a base model, the former knows
    the new end and the latter often not.
    """
    if s.target is None:
        return []
    generation = _generation(s)
    if generation is not None and (found := _ids(generation.data.get("eos_token_id"))):
        place = generation.at("eos_token_id")
        return [(token, place, True) for token in found]
    for route in ((*s.target.route, "eos_token_id"), ("eos_token_id",)):
        if found := _ids(s.target.get(*route)):
            stated, place = isinstance(s.target.get(*route), list), s.target.at(*route)
            return [(token, place, stated) for token in found]
    return []


def _generation(s: Subject) -> Document | None:
    """The target's generation_config.json, if it lies on this machine and can be read."""
    place = s.target_place
    if place is None or place.remote or not place.is_file(GENERATION):
        return None
    document = read_document(place.source(GENERATION))
    document.file = place.address(GENERATION)
    return document if document.data is not None else None


def _ids(value: Any) -> list[int]:
    values: Iterable[Any] = value if isinstance(value, list) else (value,)
    return [v for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0]
