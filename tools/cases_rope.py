"""DC506: the rope."""

from __future__ import annotations

from cases import case
from drafts import HIDDEN, VOCAB, Draft
from weights import zeros

YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 2048}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}


def theta_of_the_target(draft: Draft, theta: float = 500000.0) -> None:
    """Another theta than the class's default."""
    assert draft.target is not None
    draft.target["rope_theta"] = theta


@case("DC506/new-form-alone-0.5.9", "0.5.9")
def new_form_alone(draft: Draft) -> None:
    """As transformers 5 saves it."""
    theta_of_the_target(draft)
    draft.config.pop("rope_theta")
    draft.set(rope_parameters={**LLAMA3, "rope_theta": 500000.0})


@case("DC506/two-thetas")
def two_thetas(draft: Draft) -> None:
    """Measured: 1.48, the table wins."""
    draft.set(rope_theta=500000.0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})


@case("DC506/theta-beside-a-scaling")
def theta_beside_a_scaling(draft: Draft) -> None:
    """rope_scaling without a theta: the table with it is not looked at."""
    draft.config.pop("rope_theta")
    draft.set(rope_scaling=LLAMA3, rope_parameters={"rope_type": "default", "rope_theta": 500000.0})


@case("DC506/llama3-without-a-factor")
def without_a_factor(draft: Draft) -> None:
    draft.set(rope_scaling={key: value for key, value in LLAMA3.items() if key != "factor"})


@case("DC506/no-theta")
def no_theta(draft: Draft) -> None:
    """Measured on a drafter that was trained with 500,000: 1.48. EAGLE's own drafts are trained with the default."""
    theta_of_the_target(draft)
    draft.config.pop("rope_theta")


@case("DC506/no-theta-and-not-of-eagle")
def no_theta_beside_an_embedding(draft: Draft) -> None:
    """EAGLE saves no embedding, so nobody known to leave theta out wrote this."""
    no_theta(draft)
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)


@case("good/both-forms-of-the-rope", "0.5.9")
def both_forms(draft: Draft) -> None:
    theta_of_the_target(draft)
    draft.set(rope_theta=500000.0, rope_scaling=LLAMA3, rope_parameters={**LLAMA3, "rope_theta": 500000.0})


@case("good/new-form-of-the-rope", "0.5.10")
def new_form(draft: Draft) -> None:
    draft.config.pop("rope_theta")
    draft.set(rope_parameters={"rope_type": "default", "rope_theta": 500000.0})


@case("good/yarn-of-modelopt")
def yarn_of_modelopt(draft: Draft) -> None:
    """Its exporter adds this scaling on purpose; the target has none, and another theta."""
    theta_of_the_target(draft)
    draft.set(rope_scaling=YARN)
