"""DC407 and DC408: the norms around fc, their flags, and who else speaks of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases_norms import fc_norms, input_norm, specforge
from drafts import Draft
from helpers import codes, lint_draft, of
from mtp_heads import FAMILIES
from weights import write_safetensors

from drafcheck import lint
from drafcheck.finding import Confidence, Severity


def unsaid(draft: Draft) -> None:
    input_norm(draft)
    fc_norms(draft)


def test_each_flag_has_one_finding_and_nobody_else_speaks(tmp_path: Path) -> None:
    found = lint_draft(tmp_path, unsaid, "0.5.17")
    assert codes(found) == {"DC407"}
    assert len(of(found, "DC407")) == 2


@pytest.mark.parametrize(("version", "since"), [("0.4.5", True), ("0.5.11", True), ("0.5.12", False)])
def test_a_release_too_old_for_fc_norm(version: str, since: bool, tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        fc_norms(draft)
        draft.set(fc_norm=True)

    found = of(lint_draft(tmp_path, edit, version), "DC407")
    assert [f.help for f in found] == (["serve with a release from 0.5.12 on, which applies it"] if since else [])


def test_too_old_and_unsaid(tmp_path: Path) -> None:
    [found] = of(lint_draft(tmp_path, input_norm, "0.5.11"), "DC407")
    assert found.help == "serve with a release from 0.5.17 on, and set `norm_before_fc` to true in config.json"


@pytest.mark.parametrize("prefix", ("", "model."))
def test_under_any_prefix_that_the_loader_takes(prefix: str, tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        input_norm(draft)
        draft.rename(lambda name: prefix + name if name == "input_norm.weight" else name)

    found = lint_draft(tmp_path, edit, "0.5.17")
    assert codes(found) == {"DC407"}


def test_behind_a_wrapper_the_flag_is_named_too(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        input_norm(draft)
        draft.rename(lambda name: f"module.{name}")

    found = lint_draft(tmp_path, edit, "0.5.17")
    assert {"DC105", "DC407"} <= codes(found)
    assert "DC101" not in codes(found)


def test_an_unknown_norm_is_still_a_dropped_weight(tmp_path: Path) -> None:
    found = lint_draft(tmp_path, lambda draft: fc_norms(draft, "enorm"), "0.5.17")
    assert codes(found) == {"DC101"}


def test_a_surplus_norm_is_still_a_dropped_weight(tmp_path: Path) -> None:
    """The flag is set: one norm more than there are states."""

    def edit(draft: Draft) -> None:
        fc_norms(draft, *(f"fc_norm.{n}" for n in range(4)))
        draft.set(fc_norm=True)

    found = lint_draft(tmp_path, edit)
    assert codes(found) == {"DC101"}


@pytest.mark.parametrize(
    ("flag", "severity"),
    (
        ({"fc_norm": True}, Severity.NOTE),
        ({"use_aux_norm": 1}, Severity.NOTE),
        ({"eagle_config": {"norm_before_fc": True}}, Severity.WARNING),
    ),
)
def test_a_flag_without_tensors_is_a_note_where_it_was_measured(
    flag: dict[str, object], severity: Severity, tmp_path: Path
) -> None:
    found = lint_draft(tmp_path, lambda draft: draft.set(**flag), "0.5.17")
    assert [f.severity for f in of(found, "DC407")] == [severity]


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("midlayer.hidden_norm.weight", Severity.NOTE),
        ("midlayer.input_layernorm.weight", Severity.NOTE),
        ("norm.weight", Severity.NOTE),
        ("midlayer.post_attention_layernorm.weight", Severity.WARNING),
    ],
)
def test_a_missing_norm_is_a_note_where_it_was_measured(name: str, severity: Severity, tmp_path: Path) -> None:
    found = lint_draft(tmp_path, lambda draft: draft.drop(name), "0.5.15")
    assert [f.severity for f in of(found, "DC102")] == [severity]


def test_a_missing_norm_of_a_prediction_layer_is_a_warning(tmp_path: Path) -> None:
    head = FAMILIES["deepseek"]
    (tmp_path / "config.json").write_text(json.dumps(head.config()))
    for left_out, severities in (("enorm", [Severity.WARNING]), ("shared_head.norm", [Severity.WARNING]), ("-", [])):
        weights = {name: tensor for name, tensor in head.weights().items() if left_out not in name}
        write_safetensors(tmp_path / "model.safetensors", weights, {"format": "pt"})
        found = lint(tmp_path, engine="sglang==0.5.9", algorithm="EAGLE").findings
        assert [f.severity for f in of(found, "DC102")] == severities
    assert not of(found, "DC102")


def test_some_of_the_norms_are_there(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        fc_norms(draft, "fc_norm.0", "fc_norm.1")
        draft.set(fc_norm=True)

    [found] = of(lint_draft(tmp_path, edit), "DC407")
    assert "no tensor for 1 norm of" in found.message and "`model.fc_norm.2.weight`" in found.message


def test_both_flags_with_the_tensors_of_one(tmp_path: Path) -> None:
    """speculators calls them mutually exclusive; the engine applies one after the other."""

    def edit(draft: Draft) -> None:
        input_norm(draft)
        draft.set(fc_norm=True, norm_before_fc=True)

    found = of(lint_draft(tmp_path, edit, "0.5.17"), "DC407")
    assert ["`fc_norm` is set" in f.message for f in found] == [True]


@pytest.mark.parametrize("value", ("yes", [], {}, 1.5, None))
def test_odd_values_are_taken_as_the_engine_takes_them(value: object, tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        input_norm(draft)
        draft.set(norm_before_fc=value, eagle_config=None)

    found = lint_draft(tmp_path, edit, "0.5.17")
    assert bool(of(found, "DC407")) is not bool(value)


def test_another_kind_of_head_is_told_once(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        input_norm(draft)
        draft.set(architectures=["LlamaForCausalLMEagle"])

    found = lint_draft(tmp_path, edit, "0.5.17")
    assert codes(found) == {"DC504"}


def test_a_flattened_config_of_speculators_is_certain(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.set(norm_before_residual=True, speculators_version="0.9.0", speculators_model_type="eagle3")
        draft.set(speculators_config={})

    [found] = of(lint_draft(tmp_path, edit), "DC408")
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.CERTAIN)
    assert found.help is not None and found.help.startswith("serve with vLLM")


def test_an_exporter_that_writes_true_and_never_trains_so(tmp_path: Path) -> None:
    """ModelOpt's convert_to_vllm_ckpt writes norm_before_residual true into every config."""

    def edit(draft: Draft) -> None:
        draft.set(norm_before_residual=True, speculators_version="0.1.0.dev14", speculators_model_type="eagle3")
        draft.drop("t2d")

    assert not of(lint_draft(tmp_path, edit), "DC408")


def test_without_a_producer_it_is_likely(tmp_path: Path) -> None:
    [found] = of(lint_draft(tmp_path, lambda draft: draft.set(norm_before_residual=True)), "DC408")
    assert found.confidence is Confidence.LIKELY


@pytest.mark.parametrize("value", (False, None, "true", 1, []))
def test_what_asks_for_nothing(value: object, tmp_path: Path) -> None:
    assert not of(lint_draft(tmp_path, lambda draft: draft.set(norm_before_residual=value)), "DC408")


@pytest.mark.parametrize(("value", "version", "said"), [(True, "0.5.12", 1), (False, "0.5.12", 1), (True, "0.5.11", 0)])
def test_norm_output_of_specforge(value: bool, version: str, said: int, tmp_path: Path) -> None:
    """Before 0.5.12 the engine computes what SpecForge trains, whatever the key says."""

    def edit(draft: Draft) -> None:
        specforge(draft)
        draft.set(norm_output=value, torch_dtype="bfloat16")

    found = of(lint_draft(tmp_path, edit, version), "DC408")
    assert len(found) == said
    assert all(f.severity is Severity.NOTE and f.confidence is Confidence.LIKELY for f in found)


@pytest.mark.parametrize("key", ("use_last_layernorm", "use_input_layernorm_in_first_layer"))
@pytest.mark.parametrize("version", ("0.4.5", "0.5.23"))
def test_modelopts_defaults_are_what_is_computed(key: str, version: str, tmp_path: Path) -> None:
    asked = {False: 1, True: 0}
    for value, said in asked.items():
        folder = tmp_path / str(value)
        found = lint_draft(folder, lambda draft, value=value: draft.set(eagle_config={key: value}), version)
        assert len(of(found, "DC408")) == said
