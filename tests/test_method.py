"""The method that vLLM chooses for itself, against what the real engine chose for drafts at several paths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafcheck.config import DraftConfig
from drafcheck.contract import load_toml, resolve_engine
from drafcheck.conversion import as_read
from drafcheck.draftmode import overridden
from drafcheck.jsonpos import Document
from drafcheck.launch_models import MethodsBook
from drafcheck.method import Method, method_of
from drafcheck.plan.admission import chosen_class

RECORDED = Path(__file__).parent.parent / "fixtures" / "verdicts" / "vllm" / "methods.jsonl"
ROWS = [json.loads(line) for line in RECORDED.read_text().splitlines()]


def chosen(row: dict[str, Any], given: str | None = None) -> Method:
    engine = resolve_engine(f"vllm=={row['version']}")
    read = as_read(engine, DraftConfig(Document("config.json", row["config"])))
    found = method_of(row["path"], read.config, engine, given)
    assert found is not None
    return found


def test_every_recorded_row() -> None:
    compared = 0
    for row in ROWS:
        found = chosen(row)
        if row["method"] is not None:
            assert found.name == row["method"], row
            compared += 1
        elif row["error"]["type"] == "NotImplementedError":
            assert f"{row['error']['type']}: {row['error']['message']}".startswith(found.error) and found.error, row
            compared += 1
        else:  # refused for its class or its model_type: the method shows in the class that was looked for, if at all
            assert row["error"]["stage"] == "speculative_config"
    assert (compared, len(ROWS)) == (88, 96)


def test_the_targets_config_leads_to_the_recorded_class() -> None:
    led = [row for row in ROWS if row["path"].startswith("corpus/")]
    for row in led:
        engine = resolve_engine(f"vllm=={row['version']}")
        config = DraftConfig(Document("config.json", row["config"]))
        if row["method"] != "draft_model":
            assert overridden(engine, config) == row["arch"][0], row
            assert chosen_class(engine, config, row["method"]) == row["arch"][0]
    assert len({row["arch"][0] for row in led}) > 8


def test_the_book_fits_its_model() -> None:
    book = MethodsBook.model_validate(load_toml("vllm", "methods.toml"))
    assert [entry.otherwise for entry in book.detect] == ["draft_model"] * 5


@pytest.mark.parametrize(
    "version, path, given, name",
    (
        ("0.33.0", "/models/EAGLE3/draft", None, "eagle3"),
        ("0.33.0", "/models/draft", None, "draft_model"),
        ("0.33.0", "/models/eagle-1/eagle3", None, "eagle"),
        ("0.33.0", "/models/eagle-1/eagle3", "eagle3", "eagle3"),
        ("0.33.0", "/models/eagle3", "draft_model", "eagle3"),
        ("0.16.0", "/models/dflash", "dflash", "dflash"),
        ("0.9.2", "/models/eagle3-x", None, "eagle"),
    ),
)
def test_what_is_named_and_what_the_path_says(version: str, path: str, given: str | None, name: str) -> None:
    row = {"version": version, "path": path, "config": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}}
    assert chosen(row, given).name == name


def test_an_engine_that_does_not_choose() -> None:
    config = DraftConfig(Document("config.json", {}))
    assert method_of("eagle3", config, resolve_engine("sglang==0.5.15")) is None
