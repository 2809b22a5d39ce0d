"""DC401 to DC406: layer ids of known producers, and what each release takes them for."""

from __future__ import annotations

from cases import case
from cases_wiring import ids, kimi, target
from drafts import HIDDEN, Draft

KIMI_IDS = (3, 29, 57)


def layers_zero(draft: Draft) -> None:
    """The spelling of speculators and ModelOpt."""
    draft.rename(lambda name: name.replace("midlayer.", "layers.0."))


def specforge(draft: Draft) -> None:
    """What SpecForge 0.2.0 leaves in a config: both spellings of the rope, and dtype instead of torch_dtype."""
    del draft.config["torch_dtype"]
    rope = {"rope_theta": 10000.0, "rope_type": "default"}
    draft.set(rope_parameters=rope, dtype="bfloat16", transformers_version="5.19.0")


def torchspec(draft: Draft) -> None:
    """TorchSpec signs its configs."""
    draft.set(_torchspec_version="0.0.1")


def modelopt(draft: Draft, *layers: int) -> None:
    """ModelOpt's export: its own keys in eagle_config, layers.0 and no t2d."""
    layers_zero(draft)
    draft.drop("t2d")
    keys = {"use_mtp_layernorm": False, "parallel_draft_step": 1, "use_aux_hidden_state": True}
    draft.set(eagle_config={"eagle_aux_hidden_state_layer_ids": list(layers), **keys})


def speculators(draft: Draft, version: str, layers: list[int] | None) -> None:
    """A speculators checkpoint whose config was made flat for SGLang; the marks stay."""
    layers_zero(draft)
    draft.set(speculators_version=version, speculators_model_type="eagle3", speculators_config={"algorithm": "eagle3"})
    draft.set(eagle_aux_hidden_state_layer_ids=layers)


def gpt_oss(draft: Draft) -> None:
    """A target whose class takes ids for inputs when the last one is the depth, since 0.5.17."""
    target(draft, architectures=["GptOssForCausalLM"], model_type="gpt_oss")


@case("DC401/four-ids")
def four_ids(draft: Draft) -> None:
    ids(draft, 1, 3, 4, 6)


@case("good/four-states")
def four_states(draft: Draft) -> None:
    ids(draft, 1, 3, 4, 6)
    draft.shape("fc.weight", HIDDEN, 4 * HIDDEN)


@case("DC404/default-numbers-copied")
def default_numbers(draft: Draft) -> None:
    """The engine's default counts inputs; as ids the same numbers count outputs."""
    ids(draft, 2, 4, 5)


@case("DC404/specforge-on-kimi-0.5.13", "0.5.13")
def specforge_on_kimi(draft: Draft) -> None:
    """Since 0.5.13 a list that does not begin with 1 is taken for inputs by this class."""
    kimi(draft)
    specforge(draft)
    ids(draft, *KIMI_IDS)


@case("good/specforge-on-kimi-0.5.12", "0.5.12.post1")
def specforge_on_kimi_before(draft: Draft) -> None:
    specforge_on_kimi(draft)


@case("good/specforge-on-kimi-from-one", "0.5.13")
def specforge_on_kimi_from_one(draft: Draft) -> None:
    kimi(draft)
    specforge(draft)
    ids(draft, 1, *KIMI_IDS[1:])


@case("DC404/torchspec-on-kimi-0.5.23", "0.5.23")
def torchspec_on_kimi(draft: Draft) -> None:
    """The producer and the engine are certain; that nobody rewrote the list for this release is only likely."""
    kimi(draft)
    torchspec(draft)
    ids(draft, *KIMI_IDS)


@case("good/torchspec-on-llama")
def torchspec_on_llama(draft: Draft) -> None:
    torchspec(draft)
    ids(draft, 2, 4, 5)


@case("DC404/modelopt-inputs-on-gpt-oss-0.5.16", "0.5.16")
def modelopt_inputs(draft: Draft) -> None:
    """The form of a published head: its last id is the depth, which only inputs reach."""
    gpt_oss(draft)
    modelopt(draft, 2, 5, 8)


@case("good/modelopt-inputs-on-gpt-oss-0.5.17", "0.5.17")
def modelopt_inputs_later(draft: Draft) -> None:
    modelopt_inputs(draft)


@case("good/modelopt-outputs-on-gpt-oss", "0.5.17")
def modelopt_outputs(draft: Draft) -> None:
    """The other form: ModelOpt's own hooks number outputs."""
    gpt_oss(draft)
    modelopt(draft, 1, 3, 4)


@case("DC405/speculators-numbers-inputs")
def speculators_inputs(draft: Draft) -> None:
    """As outputs these would be the default; speculators numbers inputs."""
    speculators(draft, "0.9.0", [1, 3, 4])


@case("good/speculators-names-the-default")
def speculators_default(draft: Draft) -> None:
    speculators(draft, "0.9.0", [2, 4, 5])


@case("DC406/speculators-0.4-null-ids")
def speculators_null(draft: Draft) -> None:
    """Before 0.5 speculators trained on the states one layer later and wrote null; only training writes true."""
    speculators(draft, "0.4.0", None)
    draft.set(norm_before_residual=True)


@case("good/speculators-0.4-converted")
def speculators_converted(draft: Draft) -> None:
    """Its converter wrote null as well, for heads that others trained on the usual layers."""
    speculators(draft, "0.4.0", None)
    draft.set(norm_before_residual=False)


@case("good/speculators-0.9-null-ids")
def speculators_null_later(draft: Draft) -> None:
    speculators(draft, "0.9.0", None)


@case("DC406/specforge-no-ids")
def specforge_default(draft: Draft) -> None:
    """The default of both; a choice for one training run would not have been exported."""
    specforge(draft)


@case("DC406/default-of-minimax-0.5.18", "0.5.18")
def minimax_default(draft: Draft) -> None:
    """A class whose default is one layer later than everybody's."""
    torchspec(draft)
    target(draft, architectures=["MiniMaxM3SparseForConditionalGeneration"], model_type="minimax_m3")


@case("good/minimax-with-ids-0.5.18", "0.5.18")
def minimax_ids(draft: Draft) -> None:
    minimax_default(draft)
    ids(draft, 1, 3, 4)
