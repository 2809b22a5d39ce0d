"""Drafts for vLLM beside the weights: classes by method, converted configs, ids by model runner, targets, length."""

from __future__ import annotations

from cases import case
from drafts import HIDDEN, Draft, Json
from weights import zeros

IDS = "eagle_aux_hidden_state_layer_ids"


def target(draft: Draft, **keys: object) -> None:
    assert draft.target is not None
    draft.target.update(keys)


def nest(draft: Draft, kind: str = "eagle3", **outer: object) -> None:
    """The same config as speculators writes it: the layer's keys in a table of their own."""
    body: Json = {**draft.config, "model_type": "llama"}
    for key in ("architectures", "draft_vocab_size", "torch_dtype"):
        body.pop(key)
    draft.config = {
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": 128,
        "speculators_config": {
            "algorithm": kind,
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "org/target"},
        },
        "speculators_model_type": kind,
        "torch_dtype": "bfloat16",
        "transformer_layer_config": body,
        **outer,
    }


# ---- Classes and configs


@case("DC501/vllm-prefixed-twice", "vllm==0.9.2")
def prefixed_twice(draft: Draft) -> None:
    """0.9.2 puts Eagle3 before any name that does not start so."""


@case("DC501/vllm-as-eagle", "vllm==0.33.0", args="--algorithm eagle")
def as_eagle(draft: Draft) -> None:
    """The other method puts another prefix."""


@case("DC501/vllm-too-early", "vllm==0.16.0")
def dflash_too_early(draft: Draft) -> None:
    draft.set(architectures=["DFlashDraftModel"])


@case("DC502/vllm-eagle3", "vllm==0.33.0")
def model_type_eagle3(draft: Draft) -> None:
    draft.set(model_type="eagle3")


@case("DC503/vllm-speculators-0.9.2", "vllm==0.9.2")
def speculators_unknown(draft: Draft) -> None:
    nest(draft)


@case("DC503/vllm-parallel-0.16.0", "vllm==0.16.0")
def peagle_unknown(draft: Draft) -> None:
    nest(draft, "peagle", mask_token_id=3)


@case("DC503/vllm-gemma", "vllm==0.33.0")
def gemma_layer(draft: Draft) -> None:
    nest(draft)
    draft.config["transformer_layer_config"]["model_type"] = "gemma3_text"


@case("DC503/vllm-without-its-marker", "vllm==0.33.0")
def without_speculators_config(draft: Draft) -> None:
    nest(draft)
    del draft.config["speculators_config"]


@case("good/vllm-speculators", "vllm==0.33.0")
def speculators(draft: Draft) -> None:
    nest(draft, eagle_aux_hidden_state_layer_ids=[2, 4, 5])


# ---- Layer ids


@case("DC401/vllm-speculators-four-ids", "vllm==0.33.0")
def four_ids(draft: Draft) -> None:
    """The converter carries the ids over, and the Llama class does not count them."""
    nest(draft, eagle_aux_hidden_state_layer_ids=[1, 3, 5, 7])
    draft.weights["fc.weight"] = zeros("BF16", HIDDEN, 4 * HIDDEN)


@case("good/vllm-speculators-four-counted", "vllm==0.33.0")
def four_counted(draft: Draft) -> None:
    four_ids(draft)
    draft.config["transformer_layer_config"]["num_aux_hidden_states"] = 4


@case("DC402/vllm-switched-off", "vllm==0.33.0")
def switched_off(draft: Draft) -> None:
    draft.set(eagle_config={"use_aux_hidden_state": False})


@case("good/vllm-one-state", "vllm==0.33.0")
def one_state(draft: Draft) -> None:
    switched_off(draft)
    draft.drop("fc.weight")


@case("DC403/vllm-embedding-0.16.0", "vllm==0.16.0")
def embedding_stops(draft: Draft) -> None:
    draft.set(**{IDS: [0, 3, 5]})


@case("good/vllm-embedding-0.22.1", "vllm==0.22.1")
def embedding_handed_over(draft: Draft) -> None:
    embedding_stops(draft)


@case("DC403/vllm-last-state-0.16.0", "vllm==0.16.0")
def last_state_lost(draft: Draft) -> None:
    draft.set(**{IDS: [2, 4, 8]})


@case("good/vllm-last-state-0.22.1", "vllm==0.22.1")
def last_state(draft: Draft) -> None:
    last_state_lost(draft)


@case("DC404/vllm-one-layer-early", "vllm==0.33.0", args="--runner v1")
def one_layer_early(draft: Draft) -> None:
    """Ids that number outputs, which the V1 runner takes for inputs."""
    draft.set(eagle_config={IDS: [1, 3, 4]})


@case("good/vllm-nested-names-the-default", "vllm==0.33.0")
def nested_names_the_default(draft: Draft) -> None:
    """The V2 runner does not read them, and its default is what they mean."""
    one_layer_early(draft)


@case("DC405/vllm-nested-under-v2", "vllm==0.33.0")
def nested_under_v2(draft: Draft) -> None:
    draft.set(eagle_config={IDS: [1, 3, 6]})


@case("DC405/vllm-read-by-no-runner", "vllm==0.11.0")
def read_by_none(draft: Draft) -> None:
    draft.set(**{IDS: [1, 3, 6]})


@case("good/vllm-nested-under-v1", "vllm==0.33.0", args="--runner v1")
def nested_under_v1(draft: Draft) -> None:
    nested_under_v2(draft)


# ---- Targets, length, dtype


@case("DC601/vllm-refused-by-name-0.16.0", "vllm==0.16.0")
def refused_by_name(draft: Draft) -> None:
    target(draft, architectures=["MistralForCausalLM"], model_type="mistral")


@case("good/vllm-mistral-0.22.1", "vllm==0.22.1")
def mistral(draft: Draft) -> None:
    refused_by_name(draft)


@case("DC601/vllm-without-the-interface", "vllm==0.33.0")
def without_the_interface(draft: Draft) -> None:
    target(draft, architectures=["Gemma3ForCausalLM"], model_type="gemma3_text")


@case("good/vllm-target-of-transformers", "vllm==0.33.0")
def of_transformers(draft: Draft) -> None:
    """A class that is not registered may be built by the Transformers library: nothing is claimed."""
    target(draft, architectures=["SomeNewForCausalLM"])


@case("DC505/vllm-served-without-drafts-0.16.0", "vllm==0.16.0")
def served_without_drafts(draft: Draft) -> None:
    draft.set(max_position_embeddings=128)


@case("good/vllm-raised-0.33.0", "vllm==0.33.0")
def raised(draft: Draft) -> None:
    served_without_drafts(draft)


@case("DC505/vllm-lowers-the-server", "vllm==0.33.0")
def lowers_the_server(draft: Draft) -> None:
    served_without_drafts(draft)
    draft.set(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32})


@case("good/vllm-dtype-of-the-target", "vllm==0.33.0")
def dtype_of_the_target(draft: Draft) -> None:
    """What the draft's config says of its dtype counts for nothing."""
    draft.set(torch_dtype="float16")


@case("DC508/vllm-cast", "vllm==0.33.0")
def cast(draft: Draft) -> None:
    for name, tensor in draft.weights.items():
        if tensor.dtype == "BF16":
            draft.weights[name] = zeros("F32", *tensor.shape)
