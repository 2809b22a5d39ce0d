"""DC4xx and DC6xx: hidden states, the target and the engine."""

from __future__ import annotations

from cases import case
from drafts import HIDDEN, VOCAB, Draft
from weights import zeros


def target(draft: Draft, **keys: object) -> None:
    """Change the target's config."""
    assert draft.target is not None
    draft.target.update(keys)


def kimi(draft: Draft) -> None:
    """A target whose numbers are nested, 61 layers deep."""
    assert draft.target is not None
    text = {**draft.target, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}
    text["num_hidden_layers"] = 61
    vision = {"hidden_size": 1152, "num_hidden_layers": 27}
    draft.target = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": vision,
    }


def ids(draft: Draft, *layers: int) -> None:
    """Write layer ids where this engine reads them."""
    draft.set(eagle_config={"eagle_aux_hidden_state_layer_ids": list(layers), "use_aux_hidden_state": True})


@case("DC401/one-state")
def one_state(draft: Draft) -> None:
    draft.shape("fc.weight", HIDDEN, HIDDEN)


@case("DC401/two-ids")
def two_ids(draft: Draft) -> None:
    ids(draft, 1, 4)


@case("DC401/target-hidden-size")
def target_hidden_size(draft: Draft) -> None:
    draft.set(target_hidden_size=2 * HIDDEN)


@case("good/wider-target")
def wider_target(draft: Draft) -> None:
    draft.set(target_hidden_size=2 * HIDDEN)
    draft.shape("fc.weight", HIDDEN, 6 * HIDDEN)
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)
    target(draft, hidden_size=2 * HIDDEN)


@case("good/two-states")
def two_states(draft: Draft) -> None:
    ids(draft, 1, 4)
    draft.shape("fc.weight", HIDDEN, 2 * HIDDEN)


@case("DC402/kimi-0.5.9", "0.5.9")
def kimi_early(draft: Draft) -> None:
    kimi(draft)


@case("good/kimi-0.5.11", "0.5.11")
def kimi_late(draft: Draft) -> None:
    kimi(draft)


@case("DC402/switched-off")
def switched_off(draft: Draft) -> None:
    draft.set(eagle_config={"use_aux_hidden_state": False})


@case("DC402/algorithm-eagle", args="--algorithm EAGLE")
def algorithm_eagle(draft: Draft) -> None:
    """As it is: the flag is the fault."""


@case("good/switch-not-read-0.5.5", "0.5.5")
def switch_not_read(draft: Draft) -> None:
    draft.set(eagle_config={"use_aux_hidden_state": False})


@case("good/one-state-head")
def one_state_head(draft: Draft) -> None:
    """Made for the final hidden state alone: no fc is applied, and none is wanted."""
    draft.set(eagle_config={"use_aux_hidden_state": False})
    draft.drop("fc.weight")


@case("DC403/past-the-end")
def past_the_end(draft: Draft) -> None:
    ids(draft, 1, 3, 9)


@case("DC403/last-layer-of-llama")
def last_layer(draft: Draft) -> None:
    """Layer 7's output would be the input of layer 8, which Llama's loop never reaches."""
    ids(draft, 1, 3, 7)


@case("DC403/negative")
def negative(draft: Draft) -> None:
    ids(draft, 1, 3, -4)


@case("DC403/repeated")
def repeated(draft: Draft) -> None:
    ids(draft, 1, 3, 3)


@case("good/final-state-of-gpt-oss", "0.5.17")
def final_state(draft: Draft) -> None:
    """Since 0.5.17 an id equal to the depth is the final state of this target."""
    ids(draft, 2, 5, 8)
    target(draft, architectures=["GptOssForCausalLM"], model_type="gpt_oss")


@case("DC405/top-level")
def top_level(draft: Draft) -> None:
    draft.set(eagle_aux_hidden_state_layer_ids=[2, 4, 6])


@case("good/top-level-names-the-default-inputs")
def top_level_inputs(draft: Draft) -> None:
    """speculators numbers what enters a layer: the default again, measured harmless."""
    draft.set(eagle_aux_hidden_state_layer_ids=[2, 4, 5])


@case("good/top-level-names-the-default")
def top_level_default(draft: Draft) -> None:
    draft.set(eagle_aux_hidden_state_layer_ids=[1, 3, 4])


@case("DC406/no-ids")
def no_ids(draft: Draft) -> None:
    """As it is: one quiet line."""


@case("good/ids-name-the-default")
def ids_default(draft: Draft) -> None:
    ids(draft, 1, 3, 4)


@case("DC409/wider-target")
def wider_target_unsaid(draft: Draft) -> None:
    target(draft, hidden_size=2 * HIDDEN)


@case("DC601/not-registered", "0.4.9.post2")
def not_registered(draft: Draft) -> None:
    target(draft, architectures=["GptOssForCausalLM"], model_type="gpt_oss")


@case("DC601/no-head-to-share")
def no_head_to_share(draft: Draft) -> None:
    """Captures, but has no get_embed_and_head in any release."""
    target(draft, architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe")


@case("good/gpt-oss-0.5.5", "0.5.5")
def gpt_oss(draft: Draft) -> None:
    target(draft, architectures=["GptOssForCausalLM"], model_type="gpt_oss")


@case("DC603/unknown-release", "0.9.0")
def unknown_release(draft: Draft) -> None:
    """As it is: the nearest known release is used."""


@case("DC603/interpolated-release", "vllm==0.12.0")
def interpolated_release(draft: Draft) -> None:
    """As it is: the release lies between two that are known."""
