"""DC401 to DC409, DC601 and DC603: each rule with a failing draft and its passing twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from drafts import HIDDEN, Draft
from helpers import Edit, codes, lint_draft, of

from drafcheck.finding import Confidence, Severity

KEY = "eagle_config.eagle_aux_hidden_state_layer_ids"


def ids(*layers: object) -> Edit:
    return lambda d: d.set(eagle_config={"eagle_aux_hidden_state_layer_ids": list(layers)})


def top_level(*layers: int) -> Edit:
    return lambda d: d.set(eagle_aux_hidden_state_layer_ids=list(layers))


def fc(states: int) -> Edit:
    return lambda d: d.shape("fc.weight", HIDDEN, states * HIDDEN)


def target(**keys: object) -> Edit:
    def edit(draft: Draft) -> None:
        assert draft.target is not None
        draft.target.update(keys)

    return edit


def both(*edits: Edit) -> Edit:
    def edit(draft: Draft) -> None:
        for one in edits:
            one(draft)

    return edit


def without_target(draft: Draft) -> None:
    draft.target = None


def kimi(draft: Draft) -> None:
    assert draft.target is not None
    text = {**draft.target, "architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 61}
    draft.target = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "torch_dtype": "bfloat16",
        "text_config": {**text, "model_type": "deepseek_v3"},
    }


@pytest.mark.parametrize("version", ("0.4.5", "0.4.9", "0.5.7", "0.5.12", "0.5.23"))
def test_a_healthy_draft_raises_nothing(tmp_path: Path, version: str) -> None:
    found = lint_draft(tmp_path, version=version)
    assert not {c for c in codes(found) if c.startswith(("DC4", "DC6"))}
    (note,) = of(found, "DC406")
    assert note.severity is Severity.NOTE
    assert "layers 1, 3 and 4 of 8" in note.message


@pytest.mark.parametrize("states", (1, 2, 4))
def test_fc_of_another_width(tmp_path: Path, states: int) -> None:
    (found,) = of(lint_draft(tmp_path, fc(states)), "DC401")
    assert f"takes {states * HIDDEN} values" in found.message
    assert f"builds it for {3 * HIDDEN} (3 x {HIDDEN})" in found.message
    assert found.locations[0].tensor == "fc.weight"


def test_two_ids_for_an_fc_of_three(tmp_path: Path) -> None:
    found = of(lint_draft(tmp_path, ids(1, 4)), "DC401")
    assert f"(2 x {HIDDEN})" in found[0].message
    assert found[0].locations[1].key == KEY
    assert found[0].help == f"list the 3 layers that the drafter was trained on in {KEY}"


def test_one_id_for_an_fc_of_three_is_not_called_transposed(tmp_path: Path) -> None:
    """As wide as one state is high: the tensor is right, the list is short. DC402 says nothing of the same cause."""
    found = [f for f in lint_draft(tmp_path, ids(3)) if f.rule in {"DC401", "DC402"}]
    assert [f.rule for f in found] == ["DC401"]
    assert found[0].help == f"list the 3 layers that the drafter was trained on in {KEY}"


def test_a_transposed_fc(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, lambda d: d.shape("fc.weight", 3 * HIDDEN, HIDDEN)), "DC401")
    assert found.help == f"the tensor is transposed: store it as [{HIDDEN}, {3 * HIDDEN}]"


def test_one_id_where_fc_is_always_for_three(tmp_path: Path) -> None:
    """It is loaded here, and then skipped."""
    found = [f for f in lint_draft(tmp_path, ids(3), "0.5.11") if f.rule in {"DC401", "DC402"}]
    assert [f.rule for f in found] == ["DC402"]


def test_two_ids_for_an_fc_of_two(tmp_path: Path) -> None:
    assert codes(lint_draft(tmp_path, both(ids(1, 4), fc(2)))) == set()


def test_two_ids_where_fc_is_always_for_three(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, both(ids(1, 4), fc(2)), "0.5.11"), "DC401")
    assert f"builds it for {3 * HIDDEN}" in found.message


def test_wrong_target_hidden_size(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, lambda d: d.set(target_hidden_size=2 * HIDDEN)), "DC401")
    assert found.help == f"set target_hidden_size to {HIDDEN}, the width of one state of the target"
    assert found.locations[1].key == "target_hidden_size"


def test_more_states_wanted_than_captured(tmp_path: Path) -> None:
    """num_aux_hidden_states sizes fc, but the target still captures its three default layers."""
    edit = both(lambda d: d.set(num_aux_hidden_states=4), fc(4))
    (found,) = of(lint_draft(tmp_path, edit), "DC401")
    assert f"captures 3 of the target's layers: {3 * HIDDEN} arrive" in found.message


def test_fc_of_no_multiple_is_said_without_a_contract(tmp_path: Path) -> None:
    edit = both(lambda d: d.set(architectures=["MyEagle3"]), lambda d: d.shape("fc.weight", HIDDEN, 3 * HIDDEN + 1))
    (found,) = of(lint_draft(tmp_path, edit), "DC401")
    assert found.confidence is Confidence.LIKELY
    twin = both(lambda d: d.set(architectures=["MyEagle3"]))
    assert of(lint_draft(tmp_path / "twin", twin), "DC401") == []


def test_zero_sizes_are_survived(tmp_path: Path) -> None:
    edit = both(ids(1, 3, 4), lambda d: d.set(hidden_size=0, target_hidden_size=0))
    assert of(lint_draft(tmp_path, edit), "DC999") == []


@pytest.mark.parametrize("algorithm", ("EAGLE", "NEXTN", "eagle"))
def test_an_algorithm_that_captures_nothing(tmp_path: Path, algorithm: str) -> None:
    (found,) = of(lint_draft(tmp_path, algorithm=algorithm), "DC402")
    assert f"takes {3 * HIDDEN} values" in found.message
    assert f"one state of {HIDDEN} arrives, and the width test ({HIDDEN} = {HIDDEN}) skips it" in found.message
    assert found.help == "serve it with --speculative-algorithm EAGLE3"


@pytest.mark.parametrize("algorithm", ("EAGLE3", "eagle3"))
def test_the_right_algorithm(tmp_path: Path, algorithm: str) -> None:
    assert codes(lint_draft(tmp_path, algorithm=algorithm)) == set()


@pytest.mark.parametrize("edit", (None, without_target))
def test_capturing_switched_off(tmp_path: Path, edit: Edit | None) -> None:
    off = both(lambda d: d.set(eagle_config={"use_aux_hidden_state": False}), edit or (lambda d: None))
    (found,) = of(lint_draft(tmp_path, off), "DC402")
    assert "use_aux_hidden_state is false" in found.message
    assert f"{3 * HIDDEN}" in found.message and f"one state of {HIDDEN}" in found.message
    assert found.locations[1].key == "eagle_config.use_aux_hidden_state"


def test_the_switch_is_not_read_before_0_5_8(tmp_path: Path) -> None:
    off: Edit = lambda d: d.set(eagle_config={"use_aux_hidden_state": False})  # noqa: E731
    assert of(lint_draft(tmp_path, off, "0.5.7"), "DC402") == []


def test_a_head_for_one_state(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        draft.set(eagle_config={"use_aux_hidden_state": False})
        draft.drop("fc.weight")

    assert of(lint_draft(tmp_path, edit), "DC402") == []


def test_an_empty_list_of_layers(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, ids()), "DC402")
    assert f"{KEY} is empty" in found.message and "none arrives" in found.message


def test_one_state_is_skipped_by_the_width_test(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, both(ids(3), fc(1))), "DC402")
    assert f"{HIDDEN} values arrive, as many as the embedding has" in found.message


def test_kimi_before_it_captures(tmp_path: Path) -> None:
    found = lint_draft(tmp_path, kimi, "0.5.9")
    (starved,), (unsupported,) = of(found, "DC402"), of(found, "DC601")
    assert "KimiK25ForConditionalGeneration does not hand them over in sglang 0.5.9" in starved.message
    assert f"{3 * HIDDEN}" in starved.message and f"one state of {HIDDEN}" in starved.message
    assert starved.help == unsupported.help == "use sglang 0.5.10 or later"
    assert "only from 0.5.10 on" in unsupported.message


def test_kimi_before_it_exists(tmp_path: Path) -> None:
    found = lint_draft(tmp_path, kimi, "0.5.8")
    assert of(found, "DC402") == []
    (unsupported,) = of(found, "DC601")
    assert "it has the class only since 0.5.9" in unsupported.message
    assert unsupported.help == "use sglang 0.5.10 or later"


@pytest.mark.parametrize("version", ("0.5.10", "0.5.12", "0.5.23"))
def test_kimi_since_it_captures(tmp_path: Path, version: str) -> None:
    found = lint_draft(tmp_path, kimi, version)
    assert not {c for c in codes(found) if c.startswith(("DC4", "DC6"))}
    assert "layers 1, 29 and 57 of 61" in of(found, "DC406")[0].message


@pytest.mark.parametrize(
    ("given", "said"),
    (
        ((1, 3, 9), "layer id 9: LlamaForCausalLM has 8 layers and hands over the outputs of 0 to 6, so 2 of 3"),
        ((1, 3, 7), "layer id 7"),
        ((-5, 1, 3), "layer id -5"),
        ((1, 3, 3), "layer id 3 more than once"),
        (("1", 3, 4), "not a list of integers"),
    ),
)
def test_layers_that_never_arrive(tmp_path: Path, given: tuple[Any, ...], said: str) -> None:
    found = lint_draft(tmp_path, ids(*given))
    (hit,) = of(found, "DC403")
    assert said in hit.message
    assert hit.locations[0].key == KEY
    assert of(found, "DC401") == []


def test_layers_that_all_arrive(tmp_path: Path) -> None:
    assert codes(lint_draft(tmp_path, ids(0, 3, 6))) == set()


def test_a_negative_layer_needs_no_target(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, both(ids(-1, 1, 3), without_target)), "DC403")
    assert "layer id -1: a layer cannot be negative" in found.message


def test_layers_out_of_order(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, ids(4, 3, 1)), "DC403")
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.LIKELY)


def test_many_layers_are_survived(tmp_path: Path) -> None:
    found = lint_draft(tmp_path, ids(*([1, 2] * 50_000), 10**40))
    assert of(found, "DC403") and of(found, "DC999") == []
    assert all(len(f.message) < 500 for f in of(found, "DC403"))


@pytest.mark.parametrize("depth", (2, 4, 5))
def test_a_target_too_shallow_for_the_default(tmp_path: Path, depth: int) -> None:
    (found,) = of(lint_draft(tmp_path, target(num_hidden_layers=depth)), "DC403")
    assert f"the target has {depth} layers" in found.message
    assert found.locations[0].file == "target_config.json"


def test_a_target_just_deep_enough_for_the_default(tmp_path: Path) -> None:
    assert of(lint_draft(tmp_path, target(num_hidden_layers=7)), "DC403") == []


def test_the_final_state_of_gpt_oss(tmp_path: Path) -> None:
    edit = both(ids(2, 5, 8), target(architectures=["GptOssForCausalLM"], model_type="gpt_oss"))
    assert of(lint_draft(tmp_path, edit, "0.5.17"), "DC403") == []
    (early,) = [f for f in lint_draft(tmp_path / "early", edit, "0.5.16") if f.rule in {"DC403", "DC404"}]
    assert "states arrive" in early.message


@pytest.mark.parametrize("given", ((1, 2, 6), (2, 4, 6), (1, 3, 5, 7)))
def test_ids_at_a_place_that_is_not_read(tmp_path: Path, given: tuple[int, ...]) -> None:
    (found,) = of(lint_draft(tmp_path, top_level(*given)), "DC405")
    assert "the outputs of layers 1, 3 and 4 are fed" in found.message
    assert found.locations[0].key == "eagle_aux_hidden_state_layer_ids"


@pytest.mark.parametrize("given", ((2, 4, 5), (1, 3, 4)))
def test_ids_that_name_the_default_in_one_of_the_two_ways(tmp_path: Path, given: tuple[int, ...]) -> None:
    """speculators numbers what enters a layer; measured harmless on a real server."""
    found = lint_draft(tmp_path, top_level(*given))
    assert codes(found) == set()
    assert "eagle_aux_hidden_state_layer_ids is not read" in of(found, "DC406")[0].message


def test_no_key_is_read_before_0_4_9(tmp_path: Path) -> None:
    assert of(lint_draft(tmp_path, ids(2, 4, 6), "0.4.8"), "DC405")
    (graphs,) = of(lint_draft(tmp_path / "late", ids(2, 4, 6), "0.4.9"), "DC405")
    assert graphs.severity is Severity.WARNING


def test_graphs_recorded_with_the_default_layers(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, ids(2, 4, 6), "0.5.10"), "DC405")
    assert "(the outputs of layers 2, 4 and 6)" in found.message
    assert "decoding is fed the outputs of layers 1, 3 and 4" in found.message
    assert found.severity is Severity.WARNING and found.confidence is Confidence.LIKELY
    assert of(lint_draft(tmp_path / "later", ids(2, 4, 6), "0.5.11"), "DC405") == []
    assert of(lint_draft(tmp_path / "default", ids(1, 3, 4), "0.5.10"), "DC405") == []
    assert of(lint_draft(tmp_path / "same", ids(1, 3, 4), "0.4.8"), "DC405") == []


def test_stated_layers_are_not_called_default(tmp_path: Path) -> None:
    assert of(lint_draft(tmp_path, ids(1, 3, 4)), "DC406") == []


def test_a_target_that_captured_once(tmp_path: Path) -> None:
    edit = target(architectures=["Glm4vForConditionalGeneration"], model_type="glm4v")
    (found,) = of(lint_draft(tmp_path, edit, "0.5.9"), "DC601")
    assert "only in >=0.5.2,<=0.5.4.post1" in found.message
    assert of(lint_draft(tmp_path / "early", edit, "0.5.3"), "DC601") == []


def test_a_target_that_nobody_knows(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, target(architectures=["MyModelForCausalLM"])), "DC601")
    assert found.confidence is Confidence.LIKELY


def test_a_target_without_a_class(tmp_path: Path) -> None:
    found = lint_draft(tmp_path, lambda d: d.target.pop("architectures"))
    assert of(found, "DC601") == [] and of(found, "DC999") == []


def test_an_unknown_release(tmp_path: Path) -> None:
    (found,) = of(lint_draft(tmp_path, version="0.9.0"), "DC603")
    assert "judged as sglang 0.5.23" in found.message
    assert of(lint_draft(tmp_path / "known", version="0.5.23"), "DC603") == []
