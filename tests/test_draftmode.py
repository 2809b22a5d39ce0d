"""What the algorithm makes of a class name, and which algorithm is meant when none is named."""

from __future__ import annotations

import pytest

from drafcheck.config import DraftConfig
from drafcheck.contract import resolve_engine
from drafcheck.draftmode import draft_mode_name, usual_algorithm
from drafcheck.jsonpos import Document
from drafcheck.plan.admission import chosen_class, refused_early


def config(*architectures: str, **data: object) -> DraftConfig:
    keys = {"architectures": list(architectures), "model_type": "llama", **data}
    return DraftConfig(Document("config.json", keys))


@pytest.mark.parametrize(
    "version, algorithm, written, wanted",
    (
        ("0.9.2", "eagle3", "LlamaForCausalLM", "Eagle3LlamaForCausalLM"),
        ("0.9.2", "eagle3", "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLMEagle3"),
        ("0.11.0", "eagle3", "LlamaForCausalLMEagle3", "LlamaForCausalLMEagle3"),
        ("0.33.0", "EAGLE3", "Eagle3LlamaForCausalLM", "Eagle3LlamaForCausalLM"),
        ("0.33.0", "eagle3", "PEagleDraftModel", "Eagle3PEagleDraftModel"),
        ("0.33.0", "eagle", "LlamaForCausalLMEagle3", "EagleLlamaForCausalLMEagle3"),
        ("0.33.0", "dflash", "LlamaForCausalLMEagle3", "DFlashLlamaForCausalLMEagle3"),
        ("0.22.1", "dflash", "LiLiCorrDraftModel", "DFlashLiLiCorrDraftModel"),
        ("0.33.0", "dflash", "LiLiCorrDraftModel", "LiLiCorrDraftModel"),
        ("0.16.0", "dflash", "DFlashDraftModel", "DFlashDraftModel"),
        ("0.33.0", "mtp", "LlamaForCausalLM", "LlamaForCausalLM"),
    ),
)
def test_names_by_method(version: str, algorithm: str, written: str, wanted: str) -> None:
    assert draft_mode_name(resolve_engine(f"vllm=={version}"), written, algorithm) == wanted


@pytest.mark.parametrize(
    "written, algorithm",
    (
        ("LlamaForCausalLM", "eagle3"),
        ("LlamaForCausalLMEagle3", "eagle3"),
        ("EagleLlamaForCausalLM", "eagle"),
        ("DFlashDraftModel", "dflash"),
        ("Qwen3DSparkModel", "dspark"),
        ("DeepSeekMTPModel", "mtp"),
    ),
)
def test_the_method_of_a_class(written: str, algorithm: str) -> None:
    assert usual_algorithm(resolve_engine("vllm==0.33.0"), config(written)) == algorithm
    assert usual_algorithm(resolve_engine("sglang==0.5.15"), config(written)) == "EAGLE3"


@pytest.mark.parametrize(
    "version, written, error",
    (
        ("0.9.2", "LlamaForCausalLMEagle3", "Cannot find model module. 'Eagle3LlamaForCausalLMEagle3'"),
        ("0.11.0", "LlamaForCausalLMEagle3", None),
        ("0.11.0", "Qwen3ForCausalLM", "Model architectures ['Eagle3Qwen3ForCausalLM']"),
        ("0.33.0", "Qwen3ForCausalLM", None),
        ("0.33.0", "Eagle3DraftModel", "Model architectures ['Eagle3DraftModel']"),
        ("0.33.0", "EagleLlamaForCausalLM", "Model architectures ['Eagle3EagleLlamaForCausalLM']"),
    ),
)
def test_refusals_name_what_was_looked_for(version: str, written: str, error: str | None) -> None:
    engine = resolve_engine(f"vllm=={version}")
    refused = refused_early(engine, config(written), "eagle3")
    assert (refused is None) == (error is None)
    if refused is not None and error is not None:
        assert error in refused.error
        assert chosen_class(engine, config(written), "eagle3") is None


def test_a_method_that_chooses_the_class_itself_refuses_no_name() -> None:
    assert refused_early(resolve_engine("vllm==0.33.0"), config("LlamaForCausalLM"), "dspark") is None
