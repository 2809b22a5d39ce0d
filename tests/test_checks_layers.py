"""DC404 to DC406 where the producer decides: what is trusted, in which order, and when nothing is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cases_layers
import pytest
from cases_wiring import ids, kimi
from drafts import Draft
from helpers import lint_draft, of

from drafcheck import lint
from drafcheck.contract import rules_folder
from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.producers import producer_of
from drafcheck.runner import inspect_one
from drafcheck.session import Options
from drafcheck.trained import Trained, ids_to_write, release_that_reads, trained_on

Edit = Callable[[Draft], object]
KEY = "eagle_aux_hidden_state_layer_ids"


def told(folder: Path, edit: Edit, version: str = "0.5.15") -> Trained | None:
    """What an edited draft is said to be trained on."""
    draft = Draft()
    edit(draft)
    draft.write(folder)
    subject = inspect_one(str(folder), Options(engine=f"sglang=={version}")).subject
    assert subject is not None
    return trained_on(subject)


@pytest.mark.parametrize("listed", ([2, 3, 5], [1, 2, 3], [1, 3, 5], [3, 4, 5], [2, 4], [2, 4, 5, 6]))
def test_nobody_known_and_no_known_numbers(tmp_path: Path, listed: list[int]) -> None:
    """A list in eagle_config says nothing by itself, even where this class guesses."""

    def edit(draft: Draft) -> None:
        ids(draft, *listed)

    assert told(tmp_path / "a", edit) is None
    assert of(lint_draft(tmp_path / "b", edit, select=["DC404"]), "DC404") == []


def test_the_producer_comes_before_the_numbers(tmp_path: Path) -> None:
    """SpecForge trains and serves by one list: 2, 4, 5 are outputs although they look like the usual inputs."""

    def edit(draft: Draft) -> None:
        cases_layers.specforge(draft)
        ids(draft, 2, 4, 5)

    found = told(tmp_path / "a", edit)
    assert found is not None
    assert (found.outputs, found.confidence) == ((2, 4, 5), Confidence.LIKELY)
    assert of(lint_draft(tmp_path / "b", edit), "DC404") == []


def both_keys(own: list[int], read: list[int]) -> Edit:
    """A speculators config made flat, with ids under its own key and under the one that the engine reads."""

    def edit(draft: Draft) -> None:
        cases_layers.speculators(draft, "0.9.0", own)
        draft.set(eagle_config={KEY: read, "use_aux_hidden_state": True})

    return edit


def test_the_producers_own_key_comes_first(tmp_path: Path) -> None:
    """Converted right: the same layers, numbered in the two ways."""
    assert of(lint_draft(tmp_path, both_keys([2, 4, 6], [1, 3, 5])), "DC404") == []


def test_ids_moved_without_being_converted(tmp_path: Path) -> None:
    [found] = of(lint_draft(tmp_path, both_keys([2, 4, 6], [2, 4, 6])), "DC404")
    assert (found.severity, found.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert "trained on the outputs of layers 1, 3 and 5" in found.message
    assert "one layer too late" in found.message
    assert found.help is not None
    assert "write [1, 3, 5] into eagle_config" in found.help
    assert {place.key for place in found.locations} == {KEY, f"eagle_config.{KEY}"}


def test_another_key_than_the_producers_is_judged_by_its_numbers(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        cases_layers.speculators(draft, "0.9.0", None)
        ids(draft, 2, 4, 5)

    [found] = of(lint_draft(tmp_path, edit), "DC404")
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.LIKELY)


def test_the_help_works(tmp_path: Path) -> None:
    """The ids that it names are read as trained, and are no more than noted afterwards."""

    def edit(draft: Draft, listed: tuple[int, ...] = (3, 29, 57)) -> None:
        kimi(draft)
        cases_layers.torchspec(draft)
        ids(draft, *listed)

    [found] = of(lint_draft(tmp_path / "a", edit, "0.5.23"), "DC404")
    assert found.help is not None
    assert "write [4, 30, 58]" in found.help
    assert "suppress" not in found.help
    [mended] = of(lint_draft(tmp_path / "b", lambda draft: edit(draft, (4, 30, 58)), "0.5.23"), "DC404")
    assert (mended.severity, mended.confidence) == (Severity.NOTE, Confidence.GUESS)
    assert "unless the ids were rewritten for it" in mended.message
    subject = inspect_one(str(tmp_path / "b"), Options(engine="sglang==0.5.23")).subject
    assert subject is not None
    assert subject.wiring is not None
    assert subject.wiring.layer_outputs == (3, 29, 57)


@pytest.mark.parametrize(
    ("listed", "severity"),
    [
        ((1, 29, 57), None),  # this class adds one to a list that begins with 1
        ((2, 30, 58), None),  # the usual layers as this release reads them: rewritten for it
        ((3, 29, 57), Severity.WARNING),  # two of the usual layers as the producer numbers them, none as read
        ((3, 31, 59), Severity.NOTE),  # usual in neither reading
        ((3, 30, 58), Severity.NOTE),  # two of the usual layers as read
    ],
)
def test_ids_that_may_have_been_rewritten(tmp_path: Path, listed: tuple[int, ...], severity: Severity | None) -> None:
    def edit(draft: Draft) -> None:
        kimi(draft)
        cases_layers.torchspec(draft)
        ids(draft, *listed)

    found = of(lint_draft(tmp_path, edit, "0.5.23"), "DC404")
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_an_id_at_the_depth_is_one_finding(tmp_path: Path) -> None:
    """DC404 says that a state does not arrive; where nobody numbered wrongly, DC403 does."""

    def edit(*listed: int) -> Edit:
        return lambda draft: ids(draft, *listed)

    both = {"DC403", "DC404"}
    [found] = [f for f in lint_draft(tmp_path / "a", edit(3, 6, 8)) if f.rule in both]
    assert (found.rule, found.confidence) == ("DC404", Confidence.CERTAIN)
    assert "for the outputs of layers 3, 6 and 8" in found.message
    assert "so 2 of 3 states arrive" in found.message
    assert found.help == "use another engine: no list of ids makes this one read those layers"
    assert [f.rule for f in lint_draft(tmp_path / "b", edit(3, 6, 9)) if f.rule in both] == ["DC403"]
    assert [f for f in lint_draft(tmp_path / "c", edit(2, 5, 6)) if f.rule in both] == []


@pytest.mark.parametrize("producer", (None, cases_layers.modelopt))
def test_unread_ids_up_to_the_depth_number_inputs(tmp_path: Path, producer: Callable[..., None] | None) -> None:
    """There is no output of layer 8 of 8; the list that the help gives ends the finding."""

    def written(name: str, edit: Edit) -> list[Finding]:
        draft = Draft()
        if producer is None:
            draft.set(eagle_config={KEY: [3, 6, 8]})
        else:
            producer(draft, 3, 6, 8)
        edit(draft)
        draft.write(tmp_path / name)
        return list(lint(tmp_path / name, engine="vllm==0.33.0").findings)

    [found] = of(written("a", lambda draft: None), "DC405")
    assert "says ids 3, 6, 8 (the outputs of layers 2, 5 and 7), but vllm 0.33.0" in found.message
    assert found.help == f"write [3, 6, 8] into {KEY}: vllm 0.33.0 reads them as trained"
    after = written("b", lambda draft: draft.set(**{KEY: [3, 6, 8]}))
    assert [f for f in after if f.rule in {"DC403", "DC404", "DC405"}] == []


def test_copied_default_numbers_are_gone_after_the_help(tmp_path: Path) -> None:
    [found] = of(lint_draft(tmp_path / "a", lambda draft: ids(draft, 2, 4, 5)), "DC404")
    assert found.help is not None
    assert "write [1, 3, 4]" in found.help
    assert "suppress" not in found.help
    assert of(lint_draft(tmp_path / "b", lambda draft: ids(draft, 1, 3, 4)), "DC404") == []


def test_where_no_list_helps_a_release_is_named(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        cases_layers.gpt_oss(draft)
        ids(draft, 2, 5, 8)

    [found] = of(lint_draft(tmp_path, edit, "0.5.16"), "DC404")
    assert found.severity is Severity.ERROR
    assert found.help is not None
    assert "serve with sglang 0.5.23" in found.help
    subject = inspect_one(str(tmp_path), Options(engine="sglang==0.5.16")).subject
    assert subject is not None
    assert ids_to_write(subject, (2, 5, 8)) is None
    assert release_that_reads(subject, (2, 5, 8), (2, 5, 8)) == "0.5.23"


def test_kimi_exports_for_vllm_number_inputs(tmp_path: Path) -> None:
    """TorchSpec --vllm adds one for this model_type, and for no other."""

    def edit(model_type: str) -> Edit:
        def change(draft: Draft) -> None:
            cases_layers.layers_zero(draft)
            cases_layers.torchspec(draft)
            draft.set(model_type=model_type)

        return change

    for model_type, convention in (("kimi_k2", "inputs"), ("llama", "outputs")):
        draft = Draft()
        edit(model_type)(draft)
        draft.write(tmp_path / model_type)
        subject = inspect_one(str(tmp_path / model_type), Options(engine="sglang==0.5.15")).subject
        assert subject is not None
        found = producer_of(subject).producer
        assert found is not None
        assert (found.export, found.ids_convention) == ("convert_to_hf --vllm", convention)


def test_an_early_speculators_key_is_only_likely(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        cases_layers.speculators(draft, "0.4.0", [1, 3, 4])
        draft.set(norm_before_residual=True)

    [found] = of(lint_draft(tmp_path, edit, select=["DC405"]), "DC405")
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.LIKELY)


def test_converted_heads_may_have_lost_their_ids(tmp_path: Path) -> None:
    [found] = of(lint_draft(tmp_path, lambda d: cases_layers.speculators(d, "0.9.0", None)), "DC406")
    assert found.severity is Severity.NOTE
    assert "speculators wrote the checkpoint, and its converter does not carry layer ids over" in found.message


def test_a_modelopt_head_without_ids(tmp_path: Path) -> None:
    """Its exporter writes them: that they are gone is worth a word, and no more is known."""

    def edit(draft: Draft) -> None:
        cases_layers.modelopt(draft)
        del draft.config["eagle_config"][KEY]

    [found] = of(lint_draft(tmp_path, edit), "DC406")
    assert found.severity is Severity.NOTE
    assert "its exporter writes layer ids" in found.message


def test_a_default_for_another_number_of_states_is_none(tmp_path: Path) -> None:
    """fc for four states: whatever it was trained on, it was not the default three."""

    def edit(draft: Draft) -> None:
        cases_layers.specforge(draft)
        draft.shape("fc.weight", 32, 128)

    assert told(tmp_path, edit) is None


def test_a_producer_that_surely_trained_on_others_is_an_error(tmp_path: Path) -> None:
    """A book of one's own, with a trainer whose layers are fixed."""
    book = (rules_folder() / "producers.toml").read_text(encoding="utf-8")
    own = """
[[producer]]
name = "Acme"
clue = [{ points = 20, keys = ["acme"] }]
[[producer.means]]
default = ["n // 4", "n // 2", "n - 1"]
"""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "producers.toml").write_text(book + own, encoding="utf-8")
    (tmp_path / "drafcheck.toml").write_text('engine = "sglang==0.5.15"\nextend-contracts = ["own"]\n')
    draft = Draft()
    draft.set(acme=True)
    draft.write(tmp_path / "draft")
    [found] = of(list(lint(tmp_path / "draft", config=tmp_path / "drafcheck.toml").findings), "DC406")
    assert (found.severity, found.confidence) == (Severity.ERROR, Confidence.CERTAIN)
    assert "the default of Acme is layers 1, 3 and 6" in found.message
    assert found.help == f"write [1, 3, 6] into eagle_config.{KEY}"


@pytest.mark.parametrize("value", ("1,3", [None], {"a": 1}, [1.5], [[1]], True, [], [10**40, 1], [-3, 1, 4]))
def test_odd_ids_are_survived(tmp_path: Path, value: Any) -> None:
    def edit(draft: Draft) -> None:
        cases_layers.torchspec(draft)
        draft.set(eagle_config={KEY: value}, eagle_aux_hidden_state_layer_ids=value)

    assert of(lint_draft(tmp_path, edit), "DC999") == []
