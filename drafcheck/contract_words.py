"""What the models of the contract book are made of: words, releases, ranges, and tables that hold for some releases."""

from __future__ import annotations

from typing import Annotated

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from drafcheck.contract import bounds


def is_range(text: str) -> str:
    """The range itself. Raises ValueError for one that is none, and for one that no release can be in."""
    parts = bounds(text)
    lowest = max((bound for sign, bound in parts if sign in (">=", "==")), default=None)
    for sign, bound in parts:
        over = lowest is not None and (lowest > bound if sign in ("<=", "==") else lowest >= bound)
        if over and sign in ("<", "<=", "=="):
            raise ValueError(f"no release is in the range {text!r}")
    return text


def _is_version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        raise ValueError(f"not a version: {text!r}") from None
    return text


Word = Annotated[str, StringConstraints(min_length=1)]
Words = list[Word]
Range = Annotated[str, AfterValidator(is_range)]
Release = Annotated[str, AfterValidator(_is_version)]
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
Triple = Annotated[list[str], Field(min_length=3, max_length=3)]


class Table(BaseModel):
    """A table of the book; it has no other keys than those of its model."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Entry(Table):
    """One entry of a list; it holds for the releases in ``versions``, for all without it."""

    versions: Range = ""
    source: str = ""
