"""What may stand in ``[[names]]`` of a contract: how a loader gets from the names of tensors to those of parameters.

What the keys mean is told in rules/README.md.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from drafcheck.contract_words import Entry, Pair, Table, Triple, Word, Words


class RefusedName(Table):
    """Names without a parameter at which the loader stops."""

    start: Annotated[Words, Field(min_length=1)]
    error: Word
    having: Word = ""
    lacking: Word = ""
    shows: Word = ""


class Move(Table):
    """A part of a name that another one takes the place of."""

    from_: Word = Field(alias="from")
    to: str
    any: Words = []
    whole: Words = []
    start: bool = False
    through: bool = False


class Layer(Table):
    """Which layer of the checkpoint the head is: the number after the last one, and that of a head stored alone."""

    count: Word
    alone: int | None = None


class Names(Entry):
    """From the names of tensors to those of parameters; ``loader`` names another way than the usual one."""

    loader: Literal["mtp", ""] = ""
    layer: Layer | None = None
    heads: Word = ""
    numbered: Word = ""
    every: Word = ""
    beyond: Word = ""
    read: list[str] = []
    read_with: Words = []
    move: list[Move] = []
    becomes: list[Pair] = []
    stacked: dict[str, Pair] = {}
    unstacked: Words = []
    experts: list[Triple] = []
    halves: list[Triple] = []
    whole_experts: list[Pair] = []
    experts_in_turn: bool = False
    unknown_other: Word = ""
    unknown_whole: Word = ""
    unknown_expert: Word = ""
    unknown_bias: bool = False
    none_read: Word = ""
    none_of: list[Pair] = []

    at_sight: list[Pair] = []
    gathered: bool = False
    rename: list[Pair] = []
    rename_once: bool = False
    rename_start: list[Pair] = []
    spelled: list[Pair] = []
    spelled_already: Words = []
    unspelled: Word = ""
    words: dict[str, Word] = {}
    relaid: list[Triple] = []
    alias: dict[str, Word] = {}
    mapping: Word = ""
    mapping_word: Word = ""
    drop: Words = []
    drop_word: Words = []
    drop_start: Words = []
    direct: Words = []
    strip: Words = []
    order: Words = []
    ahead: Words = []
    unknown: Word = ""
    refuse: list[RefusedName] = []
    prefixes: list[str] = []
    prefix_first: bool = False
    bare: Words = []
    harmless: Words = []
    unknown_stacked: Word = ""
    logs: bool = False
