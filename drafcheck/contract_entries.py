"""The entries of a contract, one model for each kind; ``drafcheck.contract_models`` has the files that they stand in.

What they mean is told in rules/README.md.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from drafcheck.contract_words import Entry, Pair, Release, Table, Word, Words, is_range

State = Literal[
    "absent",
    "null",
    "nothing",
    "any",
    "no flag",
    "not one",
    "empty",
    "mixed",
    "repeated",
    "not a table",
    "not a list",
    "no list",
    "not a flag",
    "not an integer",
    "not a float",
    "a number",
    "a text",
    "no table",
    "set, no integer",
    "set, no text",
    "",
]
LoadKind = Literal[
    "plain",
    "vocab",
    "qkv",
    "merged",
    "row",
    "column",
    "replicated",
    "bias",
    "exact",
    "copied",
    "joined",
    "experts",
    "experts_row",
    "squeezed",
]


class Revision(Entry):
    """An era of the class, in short."""

    summary: str = ""


def _is_read(table: dict[str, Any]) -> dict[str, Any]:
    """``quantity = [config keys, expressions, numbers]``."""
    for key, value in table.items():
        if key not in ("versions", "source") and not _is_list(value):
            raise ValueError(f"{key} should be a list of strings and numbers")
    return _in_force(table)


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, (int, str)) for item in value)


def _is_text(table: dict[str, Any]) -> dict[str, Any]:
    """``name = "text"``: what an engine says, or what a placeholder stands for and the quantity that counts it."""
    for key in (key for key, value in table.items() if not isinstance(value, str)):
        raise ValueError(f"{key} should be a string")
    return _in_force(table)


def _in_force(table: dict[str, Any]) -> dict[str, Any]:
    for key in ("versions", "source"):
        if not isinstance(table.get(key, ""), str):
            raise ValueError(f"{key} should be a string")
    is_range(table.get("versions", ""))
    return table


Read = Annotated[dict[str, Any], AfterValidator(_is_read)]
Texts = Annotated[dict[str, Any], AfterValidator(_is_text)]


def _is_place(table: dict[str, Any]) -> dict[str, Any]:
    """``placeholder = "text"``, or a list of the texts that it stands for, one after the other."""
    for key, value in table.items():
        if not isinstance(value, str) and not (_is_list(value) and all(isinstance(item, str) for item in value)):
            raise ValueError(f"{key} should be a string, or a list of strings")
    return _in_force(table)


Places = Annotated[dict[str, Any], AfterValidator(_is_place)]


class Flag(Entry):
    """When a flag is set."""

    name: Word
    any: Words = []
    first: Words = []
    is_: str | Words = Field(default="", alias="is")
    any_case: bool = False
    null: Word = ""
    nothing: Word = ""
    falsy: Word = ""
    differ: list[Pair] = []
    same: Pair | None = None
    less: Pair | None = None
    always: bool = False
    converted: bool = False
    launched: Word = ""
    text: Pair | None = None
    unless: Word = ""
    says: Word = ""


class Refuse(Entry):
    """A config with which the class is not built."""

    key: Word
    error: Word
    is_: State = Field(default="", alias="is")
    is_not: int = 0
    not_in: list[str | int] = []
    below: int = 0
    of: Word = ""
    beyond: Word = ""
    length: Word = ""
    strange: Words = []
    indivisible: Pair | None = None
    when: Word = ""
    unless: Word = ""
    cause: Word = ""
    stage: Literal["config", "class", "construct", "load", "serve"] = "construct"
    late: bool = False
    read: bool = False

    @model_validator(mode="after")
    def _says_when(self) -> Refuse:
        states = {"is_", "is_not", "not_in", "below", "beyond", "length", "strange", "indivisible"}
        if len(states & self.model_fields_set) != 1:
            raise ValueError(
                "one of `is`, `is_not`, `not_in`, `below`, `beyond`, `length`, `strange` and `indivisible` is wanted"
            )
        return self


class Skip(Entry):
    """Parts of names that the loader passes over for some configs."""

    parts: Annotated[Words, Field(min_length=1)]
    when: Word = ""
    unless: Word = ""
    absent: Word = ""


class Unknown(Entry):
    """What a loader of the modules ``under`` a name says to a name that leads nowhere."""

    error: Word = ""
    under: str = ""
    inside: Word = ""
    having: Words = []
    nested: Word = ""
    ignored: Word = ""
    modules: Words = []
    dropped: bool = False

    @model_validator(mode="after")
    def _says_what(self) -> Unknown:
        if bool(self.error) == self.dropped:
            raise ValueError("either `error` or `dropped` is wanted")
        return self


class Proof(Table):
    """The releases in which the class was run (``executed``, with a number of checkpoints), and where it was read."""

    executed: dict[Release, Annotated[int, Field(ge=1)]] | list[Release] = []
    read: list[Release] = []


class Long(Table):
    """What a sharded loader does with a side that is too long or too short."""

    long: Literal["cut", "refuse"]
    short: Literal["refuse", "pad", "leave"]
    across: Literal["refuse", "leave"] = "refuse"


class Loaders(Entry):
    """How the sharded kinds are loaded."""

    qkv: Long | None = None
    merged: Long | None = None
    column: Long | None = None
    row: Long | None = None
    experts: Long | None = None


class Mapping(Entry):
    """How d2t is read."""

    attribute: Word
    semantics: Literal["offset", "absolute", "none"]
    required: Word = ""
    parameter: Word = ""
    casts: bool = False
    width: Word = ""
    asserts: bool = False
    without: Word = ""
    wanted: bool = False
    long: Word = ""
    short: Word = ""
    outside: Word = ""
    twice: Word = ""
    sides: Word = ""
    scalar: Word = ""


class Required(Entry):
    """Parameters that the loader insists on once everything is read; ``{missing}`` in the error lists those left."""

    when: Word = ""
    unless: Word = ""
    parameters: Words = []
    under: Words = []
    having: Words = []
    stray: Word = ""
    every: bool = False
    unwritten_only: bool = False
    waiting: bool = False
    loads: list[LoadKind] = []
    within: Word = ""
    runs: bool = False
    shared_too: bool = False
    named: Word = ""
    error: Word

    @model_validator(mode="after")
    def _says_which(self) -> Required:
        if [bool(self.parameters), self.every, self.waiting, bool(self.under or self.having)].count(True) != 1:
            raise ValueError("one of `parameters`, `every`, `waiting`, and `under` or `having` is wanted")
        return self


class Sharing(Entry):
    """A parameter that is taken from the target."""

    parameter: Word
    when: Word = ""
    unless: Word = ""
    unless_differ: Words = []
    absent: Word = ""
    outcome: Word = ""


class Param(Entry):
    """A parameter of the class: a shape, or shards side by side."""

    name: Word
    load: LoadKind
    initial: Literal["ones", "zeros", "random", "empty"]
    shape: Words = []
    shards: dict[str, Word] = {}
    in_: Word = Field(default="", alias="in")
    experts: Word = ""
    when: Word = ""
    unless: Word = ""
    layers: Literal["first", "later", ""] = ""
    spare: bool = False
    spare_shards: Words = []
    whole: bool = False
    says: Word = ""
    rows: Word = ""
    unsplit: bool = False
    pads: dict[str, int] = {}

    @model_validator(mode="after")
    def _has_a_shape(self) -> Param:
        if bool(self.shape) == bool(self.shards) or (self.in_ and not self.shards):
            raise ValueError("either `shape`, or `shards` (and `in`, but for a bias) are wanted")
        if (self.load == "exact") > bool(self.says):
            raise ValueError("`says` names the message of a parameter that is loaded `exact`")
        return self


class Quantised(Entry):
    """By which names the constructor asks a quantisation for its layers, and whose ``quantization_config`` that is."""

    of: Literal["draft", "target", "nobody"] = "draft"
    asked: list[Pair] = []
    after_target: bool = False
    plain: Words = []
    heads: Words = []
    plain_for: Words = []
    upcast: Words = []
    experts: Words = []


class Split(Entry):
    """What tensor parallelism has to divide: a quantity, or the sharded side of the parameters that are loaded so.

    ``replicated``: or it divides the number of ranks; ``padded``: rounded up to a multiple of this first; ``fewest``:
    it need not be divided, and is at least the number of ranks. ``read``: it was read and not run.
    """

    quantity: Word = ""
    loads: list[LoadKind] = []
    replicated: bool = False
    padded: int = 1
    fewest: bool = False
    read: bool = False
    error: Word
    when: Word = ""
    unless: Word = ""

    @model_validator(mode="after")
    def _says_what(self) -> Split:
        if bool(self.quantity) == bool(self.loads):
            raise ValueError("either `quantity` or `loads` is wanted")
        return self


class Computed(Entry):
    """A key that changes what is computed and leaves no trace in the tensors."""

    key: Word
    always: bool | None = None
    reads: str = ""
    yes: Word
    no: Word
    about: str = ""
    others: dict[str, Word] = {}
    harmless: bool = False
    read_by: str = ""

    @model_validator(mode="after")
    def _says_what(self) -> Computed:
        if (self.always is None) is not bool(self.reads):
            raise ValueError("either `always` or `reads` is wanted")
        return self
