"""What may stand in producers.toml: the tests hold the built-in one against these models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from drafcheck.contract_words import Range, Word, Words


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Entry(_Table):
    """One entry of a list; it holds for the releases in ``versions``, for all without it."""

    versions: Range = ""
    source: str = ""


Order = Literal["by token", "by frequency", ""]
Sure = Literal["certain", "likely", "guess"]
Points = Annotated[int, Field(ge=1)]


class Marks(_Table):
    """What is asked of a checkpoint's files: all of it has to be there."""

    keys: Words = []
    is_: dict[str, str | int | float | bool] = Field(default={}, alias="is")
    without: Words = []
    architectures: Words = []
    tensors: Words = []
    no_tensors: Words = []
    files: Words = []
    metadata: list[str] = []
    dtype: Word = ""
    d2t: Literal["unsorted", ""] = ""


class Clue(Marks):
    """Marks that speak for a producer, or against it with points below zero."""

    points: int


class Norms(_Table):
    """What the norm flags of a producer mean."""

    before_residual: Literal["never", "stated", ""] = ""
    output: Literal["head", "recurrence", ""] = ""


class Means(_Entry):
    """What the files of a producer mean."""

    when: Marks = Marks()
    export: Word = ""
    ids: Literal["outputs", "inputs", ""] = ""
    ids_key: Word = ""
    ids_confidence: Sure = "certain"
    default: Words = []
    default_confidence: Sure = "certain"
    lost: Word = ""
    norms: Norms = Norms()
    draft_ids: Order = ""
    theta: Literal["absent", ""] = ""


class Writer(_Entry):
    """One producer: its marks, and what it means."""

    name: Word
    version: Word = ""
    draft_ids: Order = ""
    clue: Annotated[list[Clue], Field(min_length=1)]
    means: list[Means] = []


class Levels(_Table):
    """The points that a name takes, and by how many it has to lead."""

    certain: Points
    likely: Points
    guess: Points
    lead: Points


class Usual(_Table):
    """The layer inputs that nearly everybody trains on."""

    inputs: Annotated[Words, Field(min_length=1)]


class ProducerBook(_Table):
    """``producers.toml``."""

    confidence: Levels
    usual: Usual
    producer: Annotated[list[Writer], Field(min_length=1)]
