"""What may stand in a contract of one's own: checked before it is used, so that a slip is said with its line.

The built-in book is held against the same models by the tests. What the entries mean is told in rules/README.md.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from drafcheck.contract_entries import (
    Computed,
    Flag,
    Loaders,
    Mapping,
    Param,
    Places,
    Proof,
    Quantised,
    Read,
    Refuse,
    Required,
    Revision,
    Sharing,
    Skip,
    Split,
    Texts,
    Unknown,
)
from drafcheck.contract_names import Names
from drafcheck.contract_strays import strays
from drafcheck.contract_words import Pair, Release, Table, Word, Words


class EngineBook(Table):
    """``<engine>/engine.toml``; what is given for an engine that is known already is added to it."""

    name: Word = ""
    package: Word = ""
    contracts: Words = []
    classes: dict[str, Words] = {}
    default_algorithm: Word = ""
    algorithms: Words = []
    dtypes: Words = []
    flags: dict[str, Word] = {}
    runners: Words = []
    runner_variable: Word = ""
    runner_values: dict[str, Word] = {}
    releases: list[Release] = []
    proof: Literal["executed", "read"] = "executed"


class Values(Table):
    """Keys for which null is as good as absent, and sizes that may be zero."""

    nullable: Words = []
    zero: Words = []


class NotDescribed(Table):
    """Config keys, and other values of them, with which the class is built in a way that is not described."""

    keys: Words = []
    other_than: dict[str, int | str] = {}
    flags: dict[str, Word] = {}


class ContractPart(Table):
    """What may stand in any file of a contract; one that others extend holds only some of it."""

    extends: Words = []
    architectures: Words = []
    algorithms: Words = []
    kind: str = ""
    states: Literal["aux", "last", "layers"] = "aux"
    proof: Proof | None = None
    revision: list[Revision] = []
    read: list[Read] = []
    values: Values = Values()
    not_described: NotDescribed = NotDescribed()
    defaults: dict[str, dict[str, int | bool]] = {}
    flag: list[Flag] = []
    refuse: list[Refuse] = []
    names: list[Names] = []
    skip: list[Skip] = []
    unknown: list[Unknown] = []
    stacked: dict[str, Pair] = {}
    loaders: list[Loaders] = []
    messages: list[Texts] = []
    mapping: list[Mapping] = []
    required: list[Required] = []
    sharing: list[Sharing] = []
    param: list[Param] = []
    expand: list[Places] = []
    computed: list[Computed] = []
    split: list[Split] = []
    quantised: list[Quantised] = []


class ContractBook(ContractPart):
    """``<engine>/<draft class>.toml``, with all that it extends."""

    architectures: Annotated[Words, Field(min_length=1)]
    kind: Word
    revision: Annotated[list[Revision], Field(min_length=1)]
    param: Annotated[list[Param], Field(min_length=1)]

    def stray(self) -> tuple[str, tuple[str | int, ...]] | None:
        """The first name that nothing in the book explains, in words, and the way to it: a flag or a placeholder."""
        flags = {flag.name for flag in self.flag}
        places = {"{" + key + "}" for entry in self.expand for key in entry}
        conditions: list[tuple[str, int, str, Any]] = [
            (section, number, key, getattr(entry, key, ""))
            for section in ("flag", "refuse", "skip", "required", "sharing", "param", "split")
            for number, entry in enumerate(getattr(self, section))
            for key in ("when", "unless")
        ]
        for section, number, key, value in conditions:
            if value and value not in flags:
                return f"{value!r} is no [[flag]] of this contract", (section, number, key)
        for name in self.not_described.flags:
            if name not in flags:
                return f"{name!r} is no [[flag]] of this contract", ("not_described", "flags", name)
        for number, param in enumerate(self.param):
            placeholder = re.search(r"\{.*?\}", param.name)
            if placeholder and placeholder[0] not in places:
                return f"no [[expand]] says what {placeholder[0]} in {param.name!r} is", ("param", number, "name")
        return next(strays(self), None)
