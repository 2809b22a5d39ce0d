"""The outcome, refused or not, against what the messages say; against every recorded row: test_outcomes_recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cases_classes import become
from class_drafts import RANK, dflash, dspark
from class_edits import Edit
from drafts import HIDDEN, VOCAB, Draft
from make_dspark_corpus import reduced
from recorded import unpack
from weights import zeros

from drafcheck import lint
from drafcheck.report.model import CheckpointReport, Outcome

SGLANG = Path(__file__).parent.parent / "fixtures" / "verdicts" / "sglang"


def report_of(folder: Path, edit: Callable[[Draft], object], engine: str, launch: str = "") -> CheckpointReport:
    draft = Draft()
    edit(draft)
    draft.write(folder)
    script = folder.parent / f"{folder.name}.sh"
    script.write_text(launch.format(folder))
    return lint(folder, engine=engine, launch=script if launch else None).checkpoints[0]


def says(report: CheckpointReport, rule: str) -> str:
    return " ".join(f.message for f in report.findings if f.rule == rule)


@pytest.mark.parametrize(("ids", "outcome"), [([0, 3, 5], Outcome.REFUSED), ([2, 3, 5], Outcome.CLEAN)])
def test_a_layer_before_the_first_stops_the_server(tmp_path: Path, ids: list[int], outcome: Outcome) -> None:
    report = report_of(tmp_path / "d", lambda d: d.set(eagle_aux_hidden_state_layer_ids=ids), "vllm==0.16.0")
    assert ("stops at start" in says(report, "DC403")) == (outcome is Outcome.REFUSED)
    assert report.outcome is outcome


def full(draft: Draft) -> None:
    """A head of all tokens, which is in need of no d2t."""
    draft.weights["lm_head.weight"] = zeros("BF16", VOCAB, HIDDEN)
    draft.set(draft_vocab_size=VOCAB)
    draft.weights = {name: weight for name, weight in draft.weights.items() if name not in ("d2t", "t2d")}


def test_a_worker_that_asks_for_a_d2t_stops_without_one(tmp_path: Path) -> None:
    early = report_of(tmp_path / "early", full, "sglang==0.4.8.post1")
    assert "and stops" in says(early, "DC301") and early.outcome is Outcome.REFUSED
    later = report_of(tmp_path / "later", full, "sglang==0.4.9")
    assert says(later, "DC301") == "" and later.outcome is Outcome.CLEAN


@pytest.mark.parametrize(
    ("name", "looked_for"),
    [("EAGLE-x", "EagleLlamaForCausalLMEagle3"), ("dflash", "DFlashLlamaForCausalLMEagle3"), ("eagle3", "")],
)
def test_a_path_that_leads_to_a_class_that_there_is_not(tmp_path: Path, name: str, looked_for: str) -> None:
    line = 'vllm serve ./target --speculative-config \'{{"model": "{}", "num_speculative_tokens": 3}}\''
    edit = lambda d: d.set(architectures=["LlamaForCausalLMEagle3"])  # noqa: E731 - one line of a test
    report = report_of(tmp_path / name, edit, "vllm==0.33.0", line)
    assert (f"and stops with ValueError: Model architectures ['{looked_for}']" in says(report, "DC701")) == bool(
        looked_for
    )
    assert (report.outcome is Outcome.REFUSED) == bool(looked_for)


@pytest.mark.parametrize("release", ("0.4.8", "0.4.9", "0.5.23"))
def test_a_target_class_takes_no_reduced_head(tmp_path: Path, release: str) -> None:
    """Built in full, as a target: a head of all tokens loads, without fc and d2t."""

    def named(draft: Draft) -> None:
        draft.set(architectures=["LlamaForCausalLM"])

    reduced = report_of(tmp_path / "reduced", named, f"sglang=={release}")
    assert reduced.outcome is Outcome.REFUSED
    error = f"AssertionError: self.org_vocab_size={VOCAB} "
    assert (error in says(reduced, "DC501")) == (release != "0.4.8")

    def both(draft: Draft) -> None:
        full(draft)
        named(draft)

    whole = report_of(tmp_path / "whole", both, f"sglang=={release}")
    assert "stops" not in says(whole, "DC501") and whole.outcome is Outcome.BROKEN


def test_the_tensors_tell_the_algorithm_where_no_draft_class_is_named(tmp_path: Path) -> None:
    """A DSpark head in its target's checkpoint is not held against the layer that EAGLE builds."""
    latest = unpack(SGLANG / "latest.tar.xz", tmp_path / "latest")
    (dspark,) = latest.rglob("v4_dspark-healthy")
    report = lint(dspark, engine="sglang==0.5.23").checkpoints[0]
    assert (report.algorithm, report.outcome) == ("DSPARK", Outcome.CLEAN)
    other = lint(dspark, engine="sglang==0.5.23", algorithm="EAGLE").checkpoints[0]
    assert other.outcome is not Outcome.CLEAN


def wide(draft: Draft) -> None:
    """More tokens than the target has, in a table of its own."""
    draft.set(vocab_size=2 * VOCAB, draft_vocab_size=VOCAB)
    draft.shape("markov_head.markov_w1.weight", 2 * VOCAB, RANK)
    draft.weights["embed_tokens.weight"] = zeros("BF16", 2 * VOCAB, HIDDEN)
    draft.weights["lm_head.weight"] = zeros("BF16", VOCAB, HIDDEN)


def padded(draft: Draft) -> None:
    """A head of more rows than the target has tokens, which gets no map."""
    draft.set(draft_vocab_size=VOCAB + 64)
    draft.shape("markov_head.markov_w2.weight", VOCAB + 64, RANK)
    draft.weights["lm_head.weight"] = zeros("BF16", VOCAB + 64, HIDDEN)


@pytest.mark.parametrize(
    ("edit", "named", "rule"),
    [
        (reduced, "lm_head.weight", "DC309"),
        (reduced, "d2t", "DC301"),
        (wide, "embed_tokens.weight", "DC102"),
        (padded, "", ""),
    ],
)
def test_dspark_of_vllm_asks_for_names_before_it_loads_anything(
    tmp_path: Path, edit: Edit, named: str, rule: str
) -> None:
    """What a smaller or a wider vocabulary needs is asked for; a head of all tokens needs none of it."""

    def whole(draft: Draft) -> None:
        become(draft, dspark())
        edit(draft)

    loads = report_of(tmp_path / "whole", whole, "vllm==0.33.0")
    assert loads.outcome is not Outcome.REFUSED
    assert [f.rule for f in loads.findings if f.severity == "error"] == []
    if not named:
        return

    def without(draft: Draft) -> None:
        whole(draft)
        del draft.weights[named]

    lacking = report_of(tmp_path / "lacking", without, "vllm==0.33.0")
    assert lacking.outcome is Outcome.REFUSED
    assert [f.rule for f in lacking.findings if f.severity == "error"] == [rule]
    assert "must include" in says(lacking, rule)


@pytest.mark.parametrize(("make", "errors"), [(dflash, []), (Draft, ["DC312"])])
def test_a_head_without_a_map_is_as_wide_as_the_config_says_where_that_is_asked_for(
    tmp_path: Path, make: Callable[[], Draft], errors: list[str]
) -> None:
    """vLLM's class for EAGLE-3 asserts it at the first logits; that for DFlash does not (both were run on 0.33.0)."""

    def wider(draft: Draft) -> None:
        become(draft, make())
        full(draft)
        draft.set(vocab_size=2 * VOCAB, draft_vocab_size=VOCAB)

    report = report_of(tmp_path / "draft", wider, "vllm==0.33.0")
    assert [f.rule for f in report.findings if f.severity == "error"] == errors


def test_a_layer_of_mtp_needs_no_captured_states(tmp_path: Path) -> None:
    def layer(draft: Draft) -> None:
        draft.set(architectures=["DeepseekV3ForCausalLM"])
        assert draft.target is not None
        draft.target.update(architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3")
        draft.weights = {"model.layers.2.eh_proj.weight": zeros("BF16", HIDDEN, 2 * HIDDEN)}

    assert says(report_of(tmp_path / "layer", layer, "sglang==0.4.5"), "DC601") == ""

    def head(draft: Draft) -> None:
        assert draft.target is not None
        draft.target.update(architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3")

    assert "hands over hidden states only from" in says(report_of(tmp_path / "head", head, "sglang==0.4.5"), "DC601")
