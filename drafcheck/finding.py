"""What drafcheck says: findings, where they point, how bad and how sure they are."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _encodable(value: object) -> object:
    """A lone surrogate, which JSON can smuggle into a name, becomes the six characters ``\\udXXX``."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def _all_encodable(values: object) -> object:
    """The same of many texts: a checkpoint may name a million tensors, nearly always in ASCII."""
    if not isinstance(values, (tuple, list)) or (set(map(type, values)) <= {str} and all(map(str.isascii, values))):
        return values
    return tuple(map(_encodable, values))


Text = Annotated[str, BeforeValidator(_encodable)]
"""Text that may come from a checkpoint: always encodable as UTF-8, otherwise untouched."""

Texts = Annotated[tuple[str, ...], BeforeValidator(_all_encodable)]
"""Many of them."""


class Severity(str, Enum):
    """How bad a finding is, decided by what the fault costs on a real server.

    ``error``: the engine refuses the draft model or silently serves a broken one.
    ``warning``: it loads and loses accept length, or will under a named condition.
    ``note``: worth one quiet line.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the worst, so that sorting by rank puts errors first."""
        return list(Severity).index(self)


class Confidence(str, Enum):
    """How sure a finding is: ``certain``, ``likely`` or ``guess``."""

    CERTAIN = "certain"
    LIKELY = "likely"
    GUESS = "guess"


class Location(BaseModel):
    """A place that a finding points to; every field is optional but ``file``.

    ``key`` is a dotted path inside a JSON file; ``line`` and ``column`` count from 1.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    file: Text | None = None
    tensor: Text | None = None
    key: Text | None = None
    line: int | None = None
    column: int | None = None


class Finding(BaseModel):
    """One fault, for one engine version. Field names are fixed: gates parse them."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    rule: Annotated[str, Field(description="code, such as DC101")]
    name: Annotated[str, Field(description="kebab name, such as dropped-weight")]
    severity: Severity
    confidence: Confidence
    message: Text
    locations: tuple[Location, ...] = ()
    help: Text | None = None
    fixable: bool = False
    about: Annotated[
        tuple[str, ...], Field(exclude=True, repr=False, description="all that is meant where locations are cut short")
    ] = ()
