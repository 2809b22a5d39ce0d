"""DC506: the rope that is worked out, against the embeddings that the releases really built, and what the rule says."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recorded
from drafts import HIDDEN, VOCAB, Draft
from helpers import lint_draft, of
from weights import zeros

from drafcheck.contract import load_toml, resolve_engine
from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.modelconfig import context_length
from drafcheck.rope import Rope, rope_of

RECORDED = Path(__file__).parent.parent / "fixtures" / "verdicts" / "sglang" / "rope.jsonl"

CLASSES = {
    "default": "RotaryEmbedding",
    "mrope_section": "MRotaryEmbedding",
    "linear": "LinearScalingRotaryEmbedding",
    "dynamic": "DynamicNTKScalingRotaryEmbedding",
    "yarn": "YaRNScalingRotaryEmbedding",
    "llama3": "Llama3RotaryEmbedding",
    "longrope": "Phi3LongRoPEScaledRotaryEmbedding",
}
"""The kinds of scaling, and what the releases call the embeddings."""

BUILT = ("class", "theta")
KEPT = {"factor": ("linear", "dynamic", "yarn", "llama3"), "original": ("yarn", "llama3")}
"""What every embedding holds, and what those of some kinds do: the factor, and the length that they were made for."""


UNEXPLAINED = {(version, "llama3, theta [gpt_oss]") for version in ("0.4.10.post2", "0.5.1")}
"""Rows that the book does not foretell: GptOssConfig of transformers 4.55.2 looks for max_position_embeddings before
it is set, and stops with an AttributeError."""


@cache
def rows() -> list[dict[str, Any]]:
    """The recorded embeddings and errors, each with the whole config."""
    base = importlib.import_module("record_rope").BASE
    found = recorded.rows(RECORDED)
    return [{**row, "config": {**base, **row["config"]}} for row in found]


def versions() -> list[str]:
    return sorted({row["version"] for row in recorded.rows(RECORDED)})


def unknown_type(row: dict[str, Any]) -> bool:
    """The release has no such model_type at all, which DC502 says."""
    return "Transformers does not recognize this architecture" in row.get("error", "")


@pytest.mark.parametrize("version", versions())
def test_every_recorded_embedding(version: str) -> None:
    asked = [row for row in rows() if row["version"] == version and not unknown_type(row)]
    assert len(asked) >= 100
    for row in asked:
        rope = rope_of(resolve_engine(f"sglang=={version}"), row["config"])
        assert rope is not None
        if (version, row["case"]) in UNEXPLAINED:
            assert "error" in row and rope.error is None
        elif "error" in row:
            said = (rope.error or "").partition(":")[0]
            assert said == row["error"].partition(":")[0], row
        else:
            assert as_built(rope) == {key: row[key] for key in (*BUILT, *KEPT) if key in row}, (row, rope)


VLLM = RECORDED.parent.parent / "vllm" / "rope.jsonl"
ELSEWHERE = ("does not recognize this architecture", "are not supported for now")
"""What other rules say: DC502 and DC501."""

NOT_FORETOLD = {
    "0.11.0": {"yarn, original at the top"},
    "0.16.0": {
        *("scaling empty, theta", "no type, theta", "parameters a text"),
        *("parameters [gpt_oss]", "parameters against theta [gpt_oss]"),
    },
    "0.22.1": {"type against rope_type"},
    "0.33.0": {"type against rope_type"},
}
"""Rows of vLLM that the book does not foretell: tables that no trainer writes and that stop the server, some of them
with another error than the book has; a length at the top level that 0.11.0 does not look at; and gpt-oss's own
scaling, which comes before rope_parameters in 0.16.0."""


@pytest.mark.parametrize("version", sorted(NOT_FORETOLD))
def test_every_recorded_embedding_of_vllm(version: str) -> None:
    base, cases = importlib.import_module("record_rope").BASE, importlib.import_module("record_rope").cases()
    built_by = [row for row in recorded.rows(VLLM) if row["version"] == version]
    assert {row["case"]: {**base, **row["config"]} for row in built_by} == cases
    asked = [row for row in built_by if not any(text in row.get("error", "") for text in ELSEWHERE)]
    assert len(asked) >= 110
    other = set()
    for row in asked:
        rope = rope_of(resolve_engine(f"vllm=={version}"), {**base, **row["config"]})
        assert rope is not None
        built = rope.error is None and as_built(rope) == {key: row[key] for key in (*BUILT, *KEPT) if key in row}
        stops = "error" in row and (rope.error or "").partition(":")[0] == row["error"].partition(":")[0]
        if not (stops if "error" in row else built):
            other.add(row["case"])
    assert other == NOT_FORETOLD[version]


def as_built(rope: Rope) -> dict[str, Any]:
    """What the embedding keeps of a rope that was worked out."""
    assert rope.error is None, rope
    kept = {"factor": rope.factor, "original": rope.original}
    return {
        "class": CLASSES[rope.kind],
        "theta": rope.theta,
        **{key: value for key, value in kept.items() if rope.kind in KEPT[key]},
    }


@pytest.mark.parametrize("version", versions())
def test_every_recorded_context_length(version: str) -> None:
    """DC505's length, where the release told it."""
    for row in rows():
        if row["version"] == version and row.get("context_length") is not None:
            read = context_length(resolve_engine(f"sglang=={version}"), row["config"])
            assert read is not None and read.value == row["context_length"], row


def test_the_corpus_is_that_of_the_script() -> None:
    cases = importlib.import_module("record_rope").cases()
    for version in versions():
        assert {row["case"]: row["config"] for row in rows() if row["version"] == version} == cases


def said(folder: Path, version: str = "0.5.15", target: dict[str, Any] | None = None, **keys: Any) -> list[Finding]:
    """What DC506 says of a healthy draft whose rope keys are replaced."""

    def edit(draft: Draft) -> None:
        draft.config.pop("rope_theta")
        draft.set(**keys)
        assert draft.target is not None
        draft.target.update({"rope_theta": 500000.0, **(target or {})})

    return of(lint_draft(folder, edit, version), "DC506")


YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 2048}
INSIDE = {"rope_type": "default", "rope_theta": 500000.0}


@pytest.mark.parametrize(
    ("version", "keys", "severity"),
    [
        ("0.5.9", {"rope_parameters": INSIDE}, Severity.WARNING),
        ("0.5.10", {"rope_parameters": INSIDE}, None),
        ("0.5.9", {"rope_parameters": INSIDE, "rope_theta": 500000}, None),
        ("0.5.9", {"rope_parameters": {**YARN, "rope_theta": 500000.0}, "rope_theta": 500000.0}, Severity.WARNING),
        ("0.5.15", {"rope_parameters": {**YARN, "rope_theta": 500000.0}, "rope_theta": 500000.0}, None),
        ("0.5.15", {"rope_parameters": {"rope_theta": 10000.0}, "rope_theta": 500000.0}, Severity.WARNING),
        ("0.5.9", {"rope_parameters": {"rope_theta": 10000.0}, "rope_theta": 500000.0}, Severity.WARNING),
        ("0.5.15", {"rope_scaling": YARN, "rope_parameters": INSIDE}, Severity.WARNING),
        ("0.5.15", {"rope_scaling": YARN, "rope_parameters": INSIDE, "rope_theta": 500000.0}, None),
        ("0.5.9", {"rope_scaling": {**YARN, "rope_theta": 500000.0}}, Severity.WARNING),
        ("0.5.15", {"rope_scaling": YARN, "rope_theta": 10000}, None),  # ModelOpt's export: on purpose
        ("0.5.9", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "rope_theta": 1e4}, Severity.ERROR),
        ("0.5.15", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "rope_theta": 1e4}, None),
        ("0.5.15", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "rope_theta": 1e4}, Severity.ERROR),
        ("0.5.15", {"rope_scaling": {"rope_type": "spiral"}, "rope_theta": 1e4}, Severity.ERROR),
        ("0.5.15", {"rope_parameters": {"full_attention": INSIDE}}, Severity.ERROR),
        ("0.5.9", {"rope_parameters": {"full_attention": INSIDE}}, Severity.WARNING),
        ("0.5.15", {"rope_theta": None}, Severity.ERROR),
        ("0.5.15", {"rope_theta": 10000.0}, None),  # unlike the target's, and stated
        ("0.5.15", {}, Severity.NOTE),
        (
            "0.5.15",
            {"model_type": "llama4_text", "intermediate_size_mlp": 48},
            None,
        ),  # the class's default is the target's
    ],
)
def test_what_is_said(version: str, keys: dict[str, Any], severity: Severity | None, tmp_path: Path) -> None:
    found = said(tmp_path, version, **keys)
    assert [f.severity for f in found] == ([severity] if severity else []), [f.message for f in found]


def test_a_theta_that_is_lost_is_certain_and_a_conflict_likely(tmp_path: Path) -> None:
    [lost] = said(tmp_path / "lost", "0.5.9", rope_parameters=INSIDE)
    assert lost.confidence is Confidence.CERTAIN
    assert lost.message == (
        "`rope_parameters.rope_theta` is 500000, and sglang 0.5.9 takes 10000, the default of llama"
    )
    assert lost.help == "write `rope_theta` 500000 at the top level of config.json"
    [both] = said(tmp_path / "both", rope_theta=500000, rope_parameters={"rope_theta": 10000})
    assert both.confidence is Confidence.LIKELY
    assert both.message == "`rope_theta` is 500000, and sglang 0.5.15 takes 10000, from `rope_parameters.rope_theta`"


@pytest.mark.parametrize(("embedding", "severity"), [(False, Severity.NOTE), (True, Severity.WARNING)])
def test_a_theta_that_a_trainer_never_writes(tmp_path: Path, embedding: bool, severity: Severity) -> None:
    """EAGLE trains with the default, states no theta and saves no embedding: a note for what may be its own."""

    def edit(draft: Draft) -> None:
        draft.config.pop("rope_theta")
        if embedding:
            draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)
        assert draft.target is not None
        draft.target.update(rope_theta=500000.0)

    [found] = of(lint_draft(tmp_path, edit), "DC506")
    assert found.severity is severity


def test_both_are_lost_together(tmp_path: Path) -> None:
    [found] = said(tmp_path, "0.5.9", rope_parameters={**YARN, "rope_theta": 500000.0})
    assert "takes 10000, the default of llama; `rope_parameters` asks for yarn x 32" in found.message
    assert found.message.endswith("takes no scaling")


def test_two_scalings_that_differ(tmp_path: Path) -> None:
    other = {**YARN, "factor": 4.0}
    [found] = said(tmp_path, rope_theta=1e4, rope_scaling=YARN, rope_parameters=other)
    assert "asks for yarn x 4, and sglang 0.5.15 takes yarn x 32 from `rope_scaling`" in found.message


@pytest.mark.parametrize("value", (7, True, "x", [], [1], {"a": {"b": {}}}, {"rope_type": []}, {"rope_type": None}))
@pytest.mark.parametrize("key", ("rope_scaling", "rope_parameters", "rope_theta"))
@pytest.mark.parametrize("version", ("0.5.9", "0.5.15"))
def test_odd_values_are_survived(key: str, value: object, version: str, tmp_path: Path) -> None:
    found = said(tmp_path, version, **{key: value})
    assert all(f.severity in Severity for f in found)


def test_a_model_type_without_a_known_default(tmp_path: Path) -> None:
    assert not said(tmp_path, model_type="phi3")


def test_every_default_was_recorded() -> None:
    """No theta in the book that no release was asked about."""
    asked = {row["config"]["model_type"] for row in rows() if row["case"].startswith("nothing")}
    assert set(load_toml("sglang", "rope.toml")["theta"]) == asked
