"""The table of target classes against what every release's sources define, class by class and release by release."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded import table

from drafcheck.contract import load_toml, resolve_engine
from drafcheck.draftmode import draft_mode_name
from drafcheck.targets import (
    TargetClass,
    draft_kind,
    registered,
    registered_since,
    target_class,
)

RECORDED = Path(__file__).parent.parent / "fixtures" / "verdicts" / "sglang" / "targets.json"
METHOD = "set_eagle3_layers_to_capture"
RULES = {
    "no ids arg (defaults only)": "ignored",
    "+1": "plus_one",
    "ids[0]==1 -> +1 else as-is": "plus_one_if_first_is_one",
    "as-is if max(ids)==n else +1": "as_is_if_max_is_depth",
    "as-is/other": "unknown",
}
HELPERS = {"Dot3NoteModelNextN"}
"""Names that the scan took for model classes and that no config can name (with all that begin as in the test)."""
NO_TARGETS = {"EmbeddingGemmaModel"}
"""Inherits the method, but is no target of a drafter."""


@cache
def recorded() -> dict[str, Any]:
    return table(RECORDED)


def look_up(version: str, architecture: str) -> TargetClass:
    config: Any = SimpleNamespace(architecture=architecture, text_architecture=None)
    found = target_class(resolve_engine(f"sglang=={version}"), config)
    assert found is not None
    return found


def classes() -> list[str]:
    names = [a for a in recorded()["arch"] if a not in HELPERS]
    inner = ("Dots3Att", "Dots3D", "Dots3M")  # layers and modules of Dots3
    return sorted(a for a in names if not a.startswith(inner))


@pytest.mark.parametrize("version", recorded()["order"])
def test_registered_classes(version: str) -> None:
    engine = resolve_engine(f"sglang=={version}")
    wrong = [a for a in classes() if registered(engine, a) != (version in recorded()["arch"][a])]
    assert wrong == []


@pytest.mark.parametrize("version", recorded()["order"])
def test_capturing_classes(version: str) -> None:
    engine = resolve_engine(f"sglang=={version}")
    for name in classes():
        row = recorded()["arch"][name].get(version, {})
        if draft_kind(engine, name) is None and name not in NO_TARGETS:
            found = look_up(version, name)
            assert found.captures == (METHOD in row), name
            if found.captures:
                assert found.ids_rule == RULES.get(row["rule"], found.ids_rule), name
                assert found.has_head == ("get_embed_and_head" in row), name


def test_every_draft_class_is_a_class_of_some_release() -> None:
    book = load_toml("sglang", "registry.toml")
    engine = resolve_engine("sglang==0.5.23")
    renamed = [[["", r]] if isinstance(r, str) else r for r in book["rewrites"].values()]
    drafts = [name for listed in renamed for _, name in listed]
    named = [n for names in book["draft"].values() for n in names.split()] + drafts
    named += [entry["class"] for entry in book["fits"]] + list(book["rewrites"])
    assert [n for n in named if registered_since(engine, n) is None] == []
    assert all(draft_kind(engine, n) for n in drafts)


def test_draft_mode_renames_by_release() -> None:
    def renamed(version: str, name: str) -> str:
        return draft_mode_name(resolve_engine(f"sglang=={version}"), name)

    assert renamed("0.4.6", "DeepseekV3ForCausalLM") == "DeepseekV3ForCausalLM"
    assert renamed("0.4.6.post5", "DeepseekV3ForCausalLM") == "DeepseekV3ForCausalLMNextN"
    assert renamed("0.5.15", "GlmMoeDsaForCausalLM") == "DeepseekV3ForCausalLMNextN"
    assert renamed("0.5.16", "GlmMoeDsaForCausalLM") == "GlmMoeDsaForCausalLMNextN"
    assert renamed("0.5.12", "Qwen3MoeForCausalLM") == "Qwen3MoeForCausalLM"
    assert renamed("0.5.13", "Qwen3MoeForCausalLM") == "Qwen3MoeForCausalLMMTP"


def test_since_and_until() -> None:
    kimi = look_up("0.5.9", "KimiK25ForConditionalGeneration")
    assert (kimi.registered, kimi.captures, kimi.registered_since, kimi.captures_since) == (
        True,
        False,
        "0.5.9",
        "0.5.10",
    )
    assert not look_up("0.5.8", "KimiK25ForConditionalGeneration").registered
    assert look_up("0.5.4.post1", "Glm4vForConditionalGeneration").captures
    assert not look_up("0.5.5", "Glm4vForConditionalGeneration").captures


def test_a_wrapper_follows_its_inner_class() -> None:
    assert look_up("0.5.12", "KimiK25ForConditionalGeneration").ids_rule == "plus_one"
    assert look_up("0.5.13", "KimiK25ForConditionalGeneration").ids_rule == "plus_one_if_first_is_one"
    assert look_up("0.5.12", "Gemma3ForConditionalGeneration").final


def test_a_class_without_head_is_never_drafted_for() -> None:
    moe = look_up("0.5.23", "Qwen2MoeForCausalLM")
    assert moe.captures and not moe.has_head
    assert moe.drafted_for_since is None


def test_names_replaced_in_draft_mode_once_the_new_class_exists() -> None:
    early, late = resolve_engine("sglang==0.5.12"), resolve_engine("sglang==0.5.13")
    assert draft_mode_name(early, "Qwen3MoeForCausalLM") == "Qwen3MoeForCausalLM"
    assert draft_mode_name(late, "Qwen3MoeForCausalLM") == "Qwen3MoeForCausalLMMTP"
    assert draft_mode_name(late, "LlamaForCausalLM") == "LlamaForCausalLM"


def test_no_class_named() -> None:
    config: Any = SimpleNamespace(architecture=None, text_architecture=None)
    assert target_class(resolve_engine("sglang==0.5.9"), config) is None
    unheard = look_up("0.5.9", "NeverHeardOfForCausalLM")
    assert not unheard.registered and unheard.registered_since is None and unheard.captures_since is None


def test_each_family_has_a_source_and_known_rules() -> None:
    for family in load_toml("sglang", "targets.toml")["family"]:
        assert family["source"]
        assert ("ids" in family) != ("delegates" in family)
        assert {rule for _, rule in family.get("ids", [])} <= set(RULES.values())
