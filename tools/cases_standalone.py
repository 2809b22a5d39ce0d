"""A whole small model as the draft (STANDALONE), and the tokens that it shares with its target."""

from __future__ import annotations

from cases import case
from cases_reference import own_target, tokenizer
from drafts import HIDDEN, VOCAB, Draft, dump, layer
from weights import zeros

ARGS = "--target {case}/target --algorithm STANDALONE"


def whole_model(draft: Draft, own: dict[int, str], others: dict[int, str]) -> None:
    """A Llama of one layer; ``own`` and ``others`` are the added tokens of draft and target."""
    draft.weights = {n: w for n, w in layer("model.layers.0", HIDDEN).items() if "hidden_norm" not in n}
    draft.weights |= {
        "model.embed_tokens.weight": zeros("BF16", VOCAB, HIDDEN),
        "model.norm.weight": zeros("BF16", HIDDEN),
        "lm_head.weight": zeros("BF16", VOCAB, HIDDEN),
    }
    draft.set(architectures=["LlamaForCausalLM"])
    del draft.config["draft_vocab_size"]
    draft.files["tokenizer.json"] = dump(tokenizer(own))
    own_target(draft, {"tokenizer.json": tokenizer(others)})


@case("DC604/standalone-with-other-tokens", args=ARGS)
def other_tokens(draft: Draft) -> None:
    whole_model(draft, {100: "<|end|>", 101: "<|user|>"}, {100: "<|user|>", 101: "<|end|>"})


@case("good/standalone-with-the-same-tokens", "sglang==0.5.14", args=ARGS)
@case("DC604/standalone-with-a-token-less", args=ARGS)
def same_tokens(draft: Draft) -> None:
    """One token more in the target is no fault, unless the release compares the whole tables."""
    whole_model(draft, {100: "<|end|>"}, {100: "<|end|>", VOCAB: "<|think|>"})
