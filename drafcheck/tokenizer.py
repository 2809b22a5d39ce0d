"""The target's tokens as text, for messages: ``tokenizer.json``, or tiktoken ranks with a ``tokenizer_config.json``.

Nothing is read before somebody asks, and the added tokens alone cost a few kilobytes: a vocabulary of megabytes
is parsed only to show ordinary tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from drafcheck.errors import UsageError
from drafcheck.jsonpos import DOCUMENT_LIMIT, read_document
from drafcheck.place import Place, locate
from drafcheck.source import Source, SourceError

if TYPE_CHECKING:
    from drafcheck.subject import Subject

VOCABULARY = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
RANKS = ("tiktoken.model", "qwen.tiktoken")

VOCABULARY_LIMIT = 64 << 20
"""Longer files are not read. In bytes; the largest public ones have 33 MB."""

START = 1 << 18
"""So many bytes of ``tokenizer.json`` are read to look for the added tokens, which come first in it."""

LONGEST = 24
"""More characters of one token are not shown."""

_MOST = 1 << 22  # tokens; more than any vocabulary has
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


T = TypeVar("T")


class TokenizerError(Exception):
    """The files cannot be understood; the text is one lower-case clause that names the file."""


class Added(NamedTuple):
    """A token that is no piece of the vocabulary: ``special`` as the tokenizer says, for control tokens."""

    text: str
    special: bool


class Tokenizer:
    """Token ids to text. ``name`` is what messages call it."""

    def __init__(self, place: Place, file: str | None = None) -> None:
        """The tokenizer in a folder; ``file`` is the one file of it that counts, None for whatever is there."""
        self._place = place
        self._file = file
        self.name = place.address(file or "")

    @cached_property
    def added(self) -> dict[int, Added]:
        """The added tokens by id. Raises TokenizerError."""
        if self._has(SETTINGS) and (found := _decoder(self._object(SETTINGS, DOCUMENT_LIMIT))):
            return found
        name = self._vocabulary
        if name is None:
            return {}
        head = _members(self._read(name, START).decode("utf-8", "replace"), "added_tokens")
        return _listed(head if head is not None else self._whole.get("added_tokens"))

    def shown(self, token: int) -> str | None:
        """A token as a quoted text without control characters; None when there is none of that id.

        Raises TokenizerError.
        """
        piece = self.added[token].text if token in self.added else self._pieces(token)
        if piece is None:
            return None
        return _quoted(piece)

    @cached_property
    def table(self) -> dict[int, bytes]:
        """What every token stands for, by id; empty without a vocabulary. Raises TokenizerError."""
        found: dict[int, str | bytes] = {}
        if self._vocabulary is not None:
            by_id, read = _by_id(self._whole, self._vocabulary)
            found.update((token, read(piece)) for token, piece in by_id.items())
        elif self._ranks is not None:
            found.update(_ranked(self._read(self._ranks, VOCABULARY_LIMIT, whole=True), self._ranks))
        if found:
            found.update((token, added.text) for token, added in self.added.items())
        return {t: text.encode(errors="replace") if isinstance(text, str) else text for t, text in found.items()}

    @property
    def is_known(self) -> bool:
        """Whether there are files to look into; they may still be broken."""
        return self._vocabulary is not None or self._ranks is not None or self._has(SETTINGS)

    @property
    def file(self) -> str | None:
        """The name of the file that holds the tokens."""
        return self._vocabulary or self._ranks

    @property
    def _vocabulary(self) -> str | None:
        if self._file is not None:
            return self._file if self._file.endswith(".json") and self._file != SETTINGS else None
        return VOCABULARY if self._place.is_file(VOCABULARY) else None

    @property
    def _ranks(self) -> str | None:
        if self._file is not None:
            return None if self._file.endswith(".json") else self._file
        return next((name for name in RANKS if self._place.is_file(name)), None)

    def _has(self, name: str) -> bool:
        """Whether ``name`` belongs to it: a single file of ranks has its settings beside it."""
        beside = self._file in (None, name) or self._ranks is not None
        return beside and self._place.is_file(name)

    @cached_property
    def _whole(self) -> dict[str, Any]:
        return self._object(self._vocabulary or VOCABULARY, VOCABULARY_LIMIT)

    @cached_property
    def _pieces(self) -> Callable[[int], str | bytes | None]:
        if self._vocabulary is not None:
            return _of_vocabulary(self._whole, self._vocabulary)
        if self._ranks is not None:
            return _ranked(self._read(self._ranks, VOCABULARY_LIMIT, whole=True), self._ranks).get
        return _nothing

    def _object(self, name: str, limit: int) -> dict[str, Any]:
        document = read_document(self._place.source(name), limit=limit)
        if document.data is None:
            raise TokenizerError(document.problems[0].message)
        found: dict[str, Any] = document.data
        return found

    def _read(self, name: str, most: int, *, whole: bool = False) -> bytes:
        source: Source = self._place.source(name)
        try:
            if whole and source.size() > most:
                raise TokenizerError(f"{name} has {source.size()} bytes, more than the {most} that are read")
            return source.read(0, most)
        except SourceError as error:
            raise TokenizerError(error.message) from error
        finally:
            source.close()


def open_tokenizer(path: str | Path) -> Tokenizer:
    """A tokenizer file (``tokenizer.json``, tiktoken ranks) or a folder with one. Raises UsageError without one."""
    try:
        place, name = locate(path)
    except UsageError as error:
        raise UsageError(f"--tokenizer {error}") from error
    found = Tokenizer(place, name)
    if not found.is_known:
        if not place.remote and place.names() is None:
            raise UsageError(f"--tokenizer {path}: the folder may not be read")
        raise UsageError(f"--tokenizer {path}: no {VOCABULARY}, no {RANKS[0]} and no {SETTINGS} there")
    return found


def tokenizer_of(s: Subject) -> Tokenizer | None:
    """The tokenizer of ``--tokenizer``, else the one in the target's folder on this machine; None without one."""
    if s.tokenizer is None and s.target_place is not None and not s.target_place.remote:
        found = Tokenizer(s.target_place)
        s.tokenizer = found if found.is_known else None
    return s.tokenizer


def tables(s: Subject) -> tuple[dict[int, bytes], dict[int, bytes]] | None:
    """What the tokens of draft and target stand for; None where one of the two has no tokenizer that can be read.

    The draft's lies in its own folder. Files of other machines are not fetched for this. Raises UsageError for a broken
    --tokenizer.
    """
    if s.own_tokenizer is None and not s.checkpoint.place.remote:
        s.own_tokenizer = Tokenizer(s.checkpoint.place)
    try:
        ours = s.own_tokenizer.table if s.own_tokenizer is not None else None
    except TokenizerError:
        return None
    theirs = _attempt(s, lambda tokenizer: tokenizer.table) if ours else None
    return (ours, theirs) if ours and theirs else None


def added_tokens(s: Subject) -> dict[int, Added]:
    """The added tokens of the target by id; none without a tokenizer. Raises UsageError for a broken --tokenizer."""
    return _attempt(s, lambda tokenizer: tokenizer.added) or {}


def shown(s: Subject, token: int) -> str | None:
    """A target token as quoted text; None where it is not known. Raises UsageError as ``added_tokens`` does."""
    return _attempt(s, lambda tokenizer: tokenizer.shown(token))


def _attempt(s: Subject, work: Callable[[Tokenizer], T]) -> T | None:
    """Texts are an extra: a broken file in the target's folder is passed over, one that was asked for is not."""
    tokenizer = tokenizer_of(s)
    if tokenizer is None:
        return None
    try:
        return work(tokenizer)
    except TokenizerError as error:
        if s.tokenizer_given:
            raise UsageError(f"--tokenizer {tokenizer.name}: {error}") from error
        return None


def _decoder(settings: dict[str, Any]) -> dict[int, Added]:
    """``added_tokens_decoder``: the added tokens under their ids, as texts."""
    found = settings.get("added_tokens_decoder")
    entries = found.items() if isinstance(found, dict) else ()
    return _added((int(key) if _is_id(key) else None, entry) for key, entry in entries)


def _listed(entries: object) -> dict[int, Added]:
    """``added_tokens``: a list of tokens that hold their ids."""
    return _added((e.get("id"), e) for e in (entries if isinstance(entries, list) else ()) if isinstance(e, dict))


def _added(entries: Any) -> dict[int, Added]:
    found: dict[int, Added] = {}
    for token, entry in entries:
        text = entry.get("content") if isinstance(entry, dict) else None
        if isinstance(token, int) and not isinstance(token, bool) and 0 <= token < _MOST and isinstance(text, str):
            found[token] = Added(text, entry.get("special") is True)
    return found


def _is_id(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 9


def _members(text: str, wanted: str) -> object:
    """The value of a member of the object that ``text`` begins with; None when it does not end within the text."""
    decoder, at = json.JSONDecoder(), _skip(text, 0)
    if not text.startswith("{", at):
        return None
    try:
        while True:
            key, at = decoder.raw_decode(text, _skip(text, at + 1))
            value, at = decoder.raw_decode(text, _skip(text, text.index(":", at) + 1))
            if key == wanted:
                return value
            at = _skip(text, at)
            if not text.startswith(",", at):
                return None
    except (ValueError, RecursionError):
        return None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _of_vocabulary(whole: dict[str, Any], name: str) -> Callable[[int], str | bytes | None]:
    """What a token of ``model.vocab`` stands for. Raises TokenizerError when there is no such vocabulary."""
    by_id, read = _by_id(whole, name)
    return lambda token: read(by_id[token]) if token in by_id else None


def _by_id(whole: dict[str, Any], name: str) -> tuple[dict[int, str], Callable[[str], str | bytes]]:
    """The pieces of ``model.vocab`` by id, and how one is read. Raises TokenizerError without such a vocabulary."""
    model = whole.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        by_id: dict[int, str] = {i: piece for piece, i in vocab.items() if isinstance(i, int)}
    elif isinstance(vocab, list):  # Unigram: pieces with their scores, in order
        by_id = {i: e[0] for i, e in enumerate(vocab) if isinstance(e, list) and e and isinstance(e[0], str)}
    else:
        raise TokenizerError(f"{name} has no model.vocab: it is no tokenizer")
    return by_id, _from_bytes if _is_byte_level(whole.get("decoder")) else _from_pieces


def _nothing(token: int) -> None:
    """The pieces of a tokenizer of which only the added tokens are there."""


def _is_byte_level(decoder: object) -> bool:
    if not isinstance(decoder, dict):
        return False
    inner = decoder.get("decoders")
    steps = inner if isinstance(inner, list) else []
    return decoder.get("type") == "ByteLevel" or any(
        isinstance(s, dict) and s.get("type") == "ByteLevel" for s in steps
    )


def _from_bytes(piece: str) -> str | bytes:
    """Byte-level pieces write each byte as one visible character."""
    table = _visible_bytes()
    return bytes(table[c] for c in piece) if all(c in table for c in piece) else piece


def _visible_bytes() -> dict[str, int]:
    """The bytes by the characters that stand for them: printable ones for themselves, the rest from U+0100 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain}, **{chr(256 + i): byte for i, byte in enumerate(rest)}}


def _from_pieces(piece: str) -> str | bytes:
    """SentencePiece: a low line for a space, and bytes by their numbers."""
    byte = _BYTE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace("▁", " ")


def _ranked(data: bytes, name: str) -> dict[int, bytes]:
    """tiktoken: a line for each token, its bytes in base64 and its rank. Raises TokenizerError."""
    import base64

    found: dict[int, bytes] = {}
    try:
        for line in data.splitlines():
            if line.strip():
                piece, rank = line.split()
                found[int(rank)] = base64.b64decode(piece, validate=True)
    except ValueError as error:
        raise TokenizerError(f"{name} is no list of base64 tokens and ranks") from error
    return found


def _quoted(piece: str | bytes) -> str:
    if isinstance(piece, bytes):
        try:
            piece = piece.decode("utf-8")
        except UnicodeDecodeError:
            return repr(piece[:LONGEST])
    cut = piece[:LONGEST]
    return repr(cut) + ("..." if len(piece) > LONGEST else "")
