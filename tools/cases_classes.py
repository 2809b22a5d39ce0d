"""Fixtures of the draft classes other than EAGLE-3's Llama."""

from __future__ import annotations

from cases import case
from class_drafts import eagle1
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
