"""Fixtures of the draft classes other than EAGLE-3's Llama."""

from __future__ import annotations

from cases import case
from class_drafts import dflash, domino, dspark, eagle1, mla
from class_relatives import as_the_engine_names_them, dflash2, laguna, mistral, mistral_large
from drafts import HIDDEN, VOCAB, Draft
from weights import zeros


def become(draft: Draft, other: Draft) -> None:
    """Make the draft at hand another one, but for the command line."""
    draft.config, draft.weights, draft.target = other.config, other.weights, other.target


@case("good/eagle-1", args="--algorithm EAGLE")
def _(draft: Draft) -> None:
    become(draft, eagle1())


@case("good/eagle-1-with-head")
def _(draft: Draft) -> None:
    become(draft, eagle1())
    draft.weights["lm_head.weight"] = zeros("BF16", VOCAB, HIDDEN)


@case("good/eagle-1-qwen2", "0.5.9")
def _(draft: Draft) -> None:
    become(draft, eagle1("Qwen2ForCausalLMEagle"))


@case("DC105/eagle-1-model-prefix", "0.5.9")
def _(draft: Draft) -> None:
    become(draft, eagle1())
    draft.rename(lambda name: f"model.{name}")


@case("DC105/eagle-1-model-prefix-0.4.8", "0.4.8")
def _(draft: Draft) -> None:
    become(draft, eagle1())
    draft.rename(lambda name: f"model.{name}")


@case("DC204/eagle-1-no-fc-bias")
def _(draft: Draft) -> None:
    become(draft, eagle1())
    draft.drop("fc.bias")


@case("DC409/eagle-1-other-width")
def _(draft: Draft) -> None:
    become(draft, eagle1())
    assert draft.target is not None
    draft.target["hidden_size"] = 2 * HIDDEN


@case("good/mla")
def _(draft: Draft) -> None:
    become(draft, mla())


@case("good/dflash", "0.5.12")
def _(draft: Draft) -> None:
    become(draft, dflash())


@case("good/vllm-dspark", "vllm==0.33.0")
def _(draft: Draft) -> None:
    become(draft, dspark())


@case("good/domino", "0.5.23")
def _(draft: Draft) -> None:
    become(draft, domino())


@case("good/dspark", "0.5.17")
def _(draft: Draft) -> None:
    become(draft, dspark())


@case("DC102/mla-projection-alone")
def _(draft: Draft) -> None:
    become(draft, mla())
    draft.drop("layers.0.self_attn.kv_a_proj_with_mqa.weight")


@case("DC105/mla-model-prefix", "0.5.23")
def _(draft: Draft) -> None:
    become(draft, mla())
    draft.rename(lambda name: f"model.{name}" if "layers" in name else name)


@case("DC401/dflash-ids-for-another-fc")
def _(draft: Draft) -> None:
    become(draft, dflash())
    draft.config["dflash_config"]["target_layer_ids"] = [1, 3, 5]


@case("DC402/dflash-target-without-layers")
def _(draft: Draft) -> None:
    become(draft, dflash())
    assert draft.target is not None
    draft.target |= {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}


@case("DC403/dflash-past-the-end")
def _(draft: Draft) -> None:
    become(draft, dflash())
    draft.config["dflash_config"]["target_layer_ids"] = [1, 9]
    draft.set(num_target_layers=12)


@case("DC504/dspark-as-dflash", "0.5.17")
def _(draft: Draft) -> None:
    become(draft, dspark())
    draft.set(architectures=["DFlashDraftModel"])


@case("DC101/domino-before-it-was-read", "0.5.17")
def _(draft: Draft) -> None:
    become(draft, domino())


@case("DC102/domino-without-a-projector", "0.5.23")
def _(draft: Draft) -> None:
    become(draft, domino())
    draft.drop("embed_proj.2.weight")


@case("DC104/domino-weights-in-dflash", "0.5.23")
def _(draft: Draft) -> None:
    become(draft, domino())
    del draft.config["dflash_config"]["projector_type"]


@case("DC509/dflash-mask-token", "0.5.12")
def _(draft: Draft) -> None:
    become(draft, dflash())
    draft.config["dflash_config"]["mask_token_id"] = -1


@case("good/eagle-1-mistral", "0.5.23")
def _(draft: Draft) -> None:
    become(draft, mistral())


@case("DC101/eagle-1-mistral-without-model-prefix", "0.5.23")
def _(draft: Draft) -> None:
    become(draft, mistral())
    as_the_engine_names_them("")(draft)


@case("good/eagle-1-mistral-large", "0.5.10")
def _(draft: Draft) -> None:
    become(draft, mistral_large())


@case("DC101/eagle-1-mistral-large-before-it-was-built", "0.5.9")
def _(draft: Draft) -> None:
    become(draft, mistral_large())


@case("good/dflash-2", "0.5.19")
def _(draft: Draft) -> None:
    become(draft, dflash2())


@case("DC102/dflash-2-without-a-codebook", "0.5.23")
def _(draft: Draft) -> None:
    become(draft, dflash2())
    draft.drop("candidate_selector.successor_codebook")


@case("good/dflash-laguna", "0.5.15")
def _(draft: Draft) -> None:
    become(draft, laguna())


@case("DC201/dflash-laguna-gate-of-elements", "0.5.23")
def _(draft: Draft) -> None:
    become(draft, laguna())
    draft.set(gating="per-element")
