"""DC407 and DC408: norms around fc, the keys that switch them on, and keys that leave no trace in the tensors."""

from __future__ import annotations

from cases import case
from drafts import HIDDEN, Draft
from weights import zeros


def input_norm(draft: Draft) -> None:
    """One norm over the concatenated states."""
    draft.weights["input_norm.weight"] = zeros("BF16", 3 * HIDDEN)


def fc_norms(draft: Draft, *names: str) -> None:
    """A norm for each state."""
    for name in names or ("fc_norm.0", "fc_norm.1", "fc_norm.2"):
        draft.weights[f"{name}.weight"] = zeros("BF16", HIDDEN)


@case("DC407/input-norm-unsaid", "0.5.17")
def input_norm_unsaid(draft: Draft) -> None:
    input_norm(draft)


@case("DC407/input-norm-0.5.16", "0.5.16")
def input_norm_early(draft: Draft) -> None:
    """The flag is right, and 0.5.17 is the first release that reads it."""
    input_norm(draft)
    draft.set(norm_before_fc=True)


@case("DC407/input-norm-denied", "0.5.17")
def input_norm_denied(draft: Draft) -> None:
    """The key in eagle_config comes before the one at the top level."""
    input_norm(draft)
    draft.set(norm_before_fc=True, eagle_config={"norm_before_fc": False})


@case("good/input-norm-in-eagle-config", "0.5.17")
def input_norm_nested(draft: Draft) -> None:
    input_norm(draft)
    draft.set(eagle_config={"norm_before_fc": True})


@case("DC407/fc-norm-where-nobody-looks")
def fc_norm_nested(draft: Draft) -> None:
    fc_norms(draft)
    draft.set(eagle_config={"fc_norm": True})


@case("DC407/aux-norm-of-old")
def aux_norm(draft: Draft) -> None:
    """The first spelling of fc_norm, without its flag."""
    fc_norms(draft, "aux_norm_low", "aux_norm_mid", "aux_norm_high")


@case("good/aux-norm-of-old")
def aux_norm_said(draft: Draft) -> None:
    aux_norm(draft)
    draft.set(use_aux_norm=True)


@case("DC407/flag-without-tensors")
def flag_alone(draft: Draft) -> None:
    """Measured: 2.26 against 2.30."""
    draft.set(fc_norm=True)


@case("good/fc-norm")
def fc_norm(draft: Draft) -> None:
    fc_norms(draft)
    draft.set(fc_norm=True)


@case("DC408/residual-before-the-norm")
def residual(draft: Draft) -> None:
    """Flattened from a speculators config."""
    draft.set(norm_before_residual=True)


@case("good/residual-as-computed")
def residual_as_computed(draft: Draft) -> None:
    draft.set(norm_before_residual=False, norm_output=False)


@case("good/norm-output")
def norm_output(draft: Draft) -> None:
    """Measured: 2.32 against 2.30 on a drafter that was trained without."""
    draft.set(norm_output=True)


@case("DC408/norm-output-of-specforge")
def norm_output_of_specforge(draft: Draft) -> None:
    """What its exporter leaves: both spellings of the rope, the new one of dtype, the version of transformers."""
    specforge(draft)
    draft.set(norm_output=True)


def specforge(draft: Draft) -> None:
    """The keys that tell its exporter."""
    draft.config.pop("torch_dtype")
    theta = draft.config["rope_theta"]
    draft.set(dtype="bfloat16", transformers_version="5.19.0")
    draft.set(rope_parameters={"rope_theta": theta, "rope_type": "default"})


@case("DC408/norm-output-0.5.11", "0.5.11")
def norm_output_early(draft: Draft) -> None:
    draft.set(norm_output=True)


@case("DC408/embedding-as-it-is", "0.5.23")
def embedding_as_it_is(draft: Draft) -> None:
    draft.set(eagle_config={"use_input_layernorm_in_first_layer": False, "use_last_layernorm": True})
