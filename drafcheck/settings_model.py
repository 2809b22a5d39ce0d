"""What may stand in a settings file, and what is said when something else does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from drafcheck.selection import suggestion
from drafcheck.settings import SettingsFile

SCHEMA_FILE = Path(__file__).with_name("settings.schema.json")

_SHOULD = {
    "string_too_short": "should not be empty",
    "model_type": "should be a table",
    "date_type": "should be a date without quotes, such as 2027-01-31",
}

Word = Annotated[str, StringConstraints(min_length=1)]


class _Table(BaseModel):
    """Unknown keys are errors, and so are values of another type. What is not given is empty."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Suppression(_Table):
    """Findings that are known and accepted: one [[suppress]]."""

    rule: Word = Field(description="The code or the name of the rule, such as DC402 or aux-not-captured.")
    path: Word = Field(
        default="",
        description="Only for these checkpoints or files, relative to this file; * stands for any characters.",
    )
    tensor: Word = Field(
        default="", description="Only when every tensor (or parameter) of the finding is one of these; * as above."
    )
    key: Word = Field(default="", description="Only when every config key of the finding is one of these; * as above.")
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] = Field(
        description="Why that is accepted: shown with -v."
    )
    until: date = Field(default=date.max, description="The last day on which it counts, such as 2027-01-31.")


class Settings(_Table):
    """The settings of drafcheck, in drafcheck.toml or in [tool.drafcheck] of pyproject.toml."""

    model_config = ConfigDict(title="drafcheck settings")

    engine: Word = Field(
        default="", description="The engine, such as sglang==0.5.9; several separated by commas, or all."
    )
    algorithm: Word = Field(default="", description="The speculative algorithm of the launch.")
    dtype: Word = Field(default="", description="The dtype of the launch, such as bfloat16.")
    target: Word = Field(
        default="", description="The target's folder or config.json, relative to this file; or an address."
    )
    launch: Word = Field(
        default="", description="The script, container file or manifest that starts the engine, relative to this file."
    )
    tp: int = Field(default=0, ge=0, description="The tensor parallelism of the launch.")
    select: list[Word] = Field(default=[], description="Only these rules: codes, prefixes (DC3) or names.")
    ignore: list[Word] = Field(default=[], description="All rules but these.")
    fail_on: Literal["error", "warning", "never"] = Field(
        default="error", alias="fail-on", description="The least severity for exit code 1."
    )
    extend_contracts: list[Word] = Field(
        default=[], alias="extend-contracts", description="Folders with contracts of your own, relative to this file."
    )
    plugins: list[Word] = Field(default=[], description="Modules with checks of your own, by their import names.")
    suppress: list[Suppression] = Field(default=[], description="Findings that are known and accepted.")


def validate(path: Path, text: str, data: Any, *, explicit: bool) -> SettingsFile:
    """The settings that ``data``, a parsed document or its table, holds. Raises UsageError with file and line."""
    place = SettingsFile(path, Settings(), text, explicit)
    if not isinstance(data, Mapping):
        raise place.wrong("[tool.drafcheck] should be a table")
    try:
        return SettingsFile(path, Settings.model_validate(data), text, explicit)
    except ValidationError as error:
        message, route = complaint(error, Settings)
        raise place.wrong(message, *route) from None


def complaint(error: ValidationError, model: type[BaseModel]) -> tuple[str, tuple[str | int, ...]]:
    """The first fault in words, and the way to it; how many there are besides."""
    # A misspelt key is missing, too: what is said first is the spelling.
    faults = sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    first, more = faults[0], len(faults) - 1
    route = tuple(first["loc"])
    rest = f" (and {more} more)" if more else ""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in route).removeprefix(".")
    if first["type"] == "extra_forbidden":
        return f"unknown key {str(route[-1])!r}{suggestion(str(route[-1]), _keys(model, route))}{rest}", route
    if first["type"] == "missing":
        return f"{name} is missing{rest}", route[:-1]
    if first["type"] == "value_error":
        return f"{name}: {first['ctx']['error']}{rest}", route
    return f"{name} {_should(first)}{rest}", route


def _should(first: Any) -> str:
    said = str(first["msg"])
    if first["type"] in _SHOULD:
        return _SHOULD[first["type"]]
    return f"should be {said.removeprefix('Input should be ')}" if said.startswith("Input should be ") else said.lower()


def _keys(model: type[BaseModel], route: tuple[str | int, ...]) -> list[str]:
    """The keys that may stand in the table that ``route`` ends in."""
    here: Any = model.model_json_schema(by_alias=True)
    defs = here.get("$defs", {})
    for part in route[:-1]:
        here = here.get("items" if isinstance(part, int) else "properties", {})
        here = here.get(part, {}) if isinstance(part, str) else here
        here = defs[here["$ref"].rpartition("/")[2]] if "$ref" in here else here
    return list(here.get("properties", {}))


def schema_text() -> str:
    """The text of ``settings.schema.json``: the JSON Schema (draft 2020-12) of drafcheck.toml, for editors."""
    made = Settings.model_json_schema(by_alias=True)
    for table in (made, *made["$defs"].values()):
        for key in table["properties"].values():
            key.pop("default", None)
            key.pop("title", None)
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **made}, indent=2) + "\n"
