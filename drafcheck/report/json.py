"""The report as JSON, and the JSON Schema of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drafcheck.report.model import Report

SCHEMA_FILE = Path(__file__).with_name("schema.json")


def render(report: Report) -> str:
    """One JSON object, in ASCII: whatever a checkpoint holds, the output is valid and harmless to print."""
    return json.dumps(report.model_dump(mode="json", by_alias=True), indent=2) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the report, as shipped in ``schema.json``."""
    made = Report.model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def schema_text() -> str:
    """The text of ``schema.json``."""
    return json.dumps(schema(), indent=2) + "\n"
