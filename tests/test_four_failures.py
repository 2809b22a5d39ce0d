"""The four failures that drafcheck was made for, at the shapes at which they happened: Kimi-K2.5's."""

from __future__ import annotations

from pathlib import Path

import pytest
from make_kimi import DRAFT_VOCAB, HIDDEN, TARGET_VOCAB, draft_config, draft_weights, target_config, write_pair
from make_sisters import SHARED, sisters, write_sisters
from weights import Weights

from drafcheck import lint
from drafcheck.finding import Finding, Severity

BEFORE_LAYERS = ("0.4.9.post2", "0.5.9", "0.5.11")
SINCE_LAYERS = ("0.5.12", "0.5.15", "0.5.23")


def findings(folder: Path, version: str, target: dict[str, object] | None = None, **options: str) -> list[Finding]:
    """Errors and warnings of one lint, without the target unless it is given."""
    beside = folder / "target_config.json"
    if target is None:
        beside.unlink()
    report = lint(folder, engine=f"sglang=={version}", **options)
    return [f for f in report.checkpoints[0].findings if f.severity is not Severity.NOTE]


def single(found: list[Finding]) -> Finding:
    assert [f.rule for f in found] == [found[0].rule], [(f.rule, f.message) for f in found]
    assert found[0].severity is Severity.ERROR
    return found[0]


@pytest.mark.parametrize("version", BEFORE_LAYERS)
def test_1_layer_names_are_dropped(tmp_path: Path, version: str) -> None:
    """The names that are wanted, the share of the drafter that is lost, and what is left without weights."""
    weights = draft_weights("layers.0")
    found, unwritten = findings(write_pair(tmp_path / "draft", weights), version)
    assert (found.rule, unwritten.rule) == ("DC101", "DC102")
    lost = sum(tensor.size for name, tensor in weights.items() if name.startswith("layers.0."))
    whole = sum(tensor.size for tensor in weights.values() if tensor.dtype == "BF16")
    said = f"{found.message} {found.help}"
    assert "midlayer" in said
    assert f"{100 * lost / whole:.1f} %" in said, said
    assert "7 parameters" in unwritten.message


@pytest.mark.parametrize("version", SINCE_LAYERS)
def test_1_layer_names_are_taken(tmp_path: Path, version: str) -> None:
    assert findings(write_pair(tmp_path / "draft", draft_weights("layers.0")), version) == []


@pytest.mark.parametrize("version", BEFORE_LAYERS + SINCE_LAYERS)
def test_1_portable_names_are_taken_by_all(tmp_path: Path, version: str) -> None:
    assert findings(write_pair(tmp_path / "draft", draft_weights()), version) == []


def test_2_target_does_not_capture(tmp_path: Path) -> None:
    """Kimi-K2.5's class is there since 0.5.9 and captures since 0.5.10."""
    found = findings(write_pair(tmp_path / "draft", draft_weights()), "0.5.9", target_config())
    assert [f.rule for f in found] == ["DC402", "DC601"]
    for one in found:
        assert "KimiK25ForConditionalGeneration" in one.message
        assert "0.5.10" in f"{one.message} {one.help}"
    assert f"{HIDDEN}" in found[0].message
    assert f"{3 * HIDDEN}" in found[0].message


@pytest.mark.parametrize("version", ("0.5.11", "0.5.15", "0.5.23"))
def test_2_target_captures(tmp_path: Path, version: str) -> None:
    assert findings(write_pair(tmp_path / "draft", draft_weights()), version, target_config()) == []


def test_2_flag_starves_fc(tmp_path: Path) -> None:
    """The states are 7168 wide, fc wants 21504, and the width test skips fc because 7168 is 7168."""
    pair = write_pair(tmp_path / "draft", draft_weights())
    found = single(findings(pair, "0.5.15", target_config(), algorithm="EAGLE"))
    assert found.rule == "DC402"
    assert f"{HIDDEN}" in found.message
    assert f"{3 * HIDDEN}" in found.message


def test_2_fc_takes_one_state(tmp_path: Path) -> None:
    found = single(findings(write_pair(tmp_path / "draft", draft_weights(states=1)), "0.5.15", target_config()))
    assert found.rule == "DC401"
    assert "7168" in found.message
    assert "21504" in found.message


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sisters(tmp_path_factory.mktemp("sisters"))


def test_3_sisters_are_what_they_are_said_to_be() -> None:
    ours, theirs = sisters()
    assert len(set(ours)) == len(set(theirs)) == len(ours) == len(theirs) == DRAFT_VOCAB
    assert (ours, theirs) == (sorted(ours), sorted(theirs))
    assert [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a == b] == list(range(252))


@pytest.mark.parametrize("reference", ("sister", "sister/model.safetensors", "mapping.safetensors", "d2t.npy", ""))
def test_3_mapping_of_a_sister_model(pairs: Path, reference: str) -> None:
    """Every number is exact, in the finding and in the JSON report."""
    target = pairs / "draft" / "target_config.json"
    made = lint(pairs / "draft", engine="sglang==0.5.15", target=target, reference=pairs / reference).checkpoints[0]
    found = single([f for f in made.findings if f.severity is not Severity.NOTE])
    assert found.rule == "DC311"
    assert "252 of 32,000" in found.message
    only = DRAFT_VOCAB - SHARED
    assert f"shared {SHARED:,}, only here {only:,}, only there {only:,}" in found.message
    assert f"{only:,} rows of 32,000 without a source" in str(found.help)
    said = made.model_dump()["reference"]
    ours, theirs = sisters()
    no_text = {"here_text": None, "there_text": None}  # nobody named a tokenizer
    first = [{"draft_id": i, "here": ours[i], "there": theirs[i], **no_text} for i in range(252, 262)]
    assert list(said.pop("differences")) == first
    assert said == {
        "path": str(pairs / reference),
        "draft_ids": DRAFT_VOCAB,
        "reference_ids": DRAFT_VOCAB,
        "agree": 252,
        "shared": SHARED,
        "only_here": only,
        "only_there": only,
        "permutation": False,
        "orphan_rows": only,
        "ordered": True,
    }


def test_3_set_of_a_sister_model(pairs: Path) -> None:
    """t2d alone keeps a set; the trainer orders by id, so the same positions agree, and the finding says so."""
    (alone := pairs / "alone").mkdir()
    (alone / "t2d.npy").write_bytes((pairs / "t2d.npy").read_bytes())
    made = lint(pairs / "draft", engine="sglang==0.5.15", reference=alone).checkpoints[0]
    [found] = [f for f in made.findings if f.rule == "DC311"]
    assert "252 of 32,000" in found.message
    assert "t2d alone" in found.message
    assert made.reference is not None
    assert (made.reference.agree, made.reference.shared, made.reference.ordered) == (252, SHARED, False)


def test_3_same_mapping(pairs: Path) -> None:
    made = lint(pairs / "sister", engine="sglang==0.5.15", reference=pairs / "mapping.safetensors").checkpoints[0]
    assert [f for f in made.findings if f.severity is not Severity.NOTE] == []
    assert made.reference is not None
    assert (made.reference.agree, made.reference.permutation, made.reference.orphan_rows) == (DRAFT_VOCAB, False, 0)


def headless(size: int | None) -> tuple[Weights, dict[str, object]]:
    """A draft over the whole vocabulary without a head; ``size`` is what its config states."""
    weights = draft_weights()
    for name in ("lm_head.weight", "d2t", "t2d"):
        del weights[name]
    return weights, {**draft_config(), "draft_vocab_size": size}


@pytest.mark.parametrize("version", ("0.5.9", "0.5.15", "0.5.23"))
def test_4_no_head_reduced(tmp_path: Path, version: str) -> None:
    weights = draft_weights()
    del weights["lm_head.weight"]
    found = single(findings(write_pair(tmp_path / "draft", weights), version))
    assert found.rule == "DC309"


def test_4_no_head_at_full_vocabulary(tmp_path: Path) -> None:
    """As nvidia/Kimi-K2.6-Eagle3 was published: the stated size keeps the engine from borrowing the target's head."""
    weights, config = headless(TARGET_VOCAB)
    found = single(findings(write_pair(tmp_path / "draft", weights, config), "0.5.15", target_config()))
    assert found.rule == "DC309"


def test_4_head_is_borrowed(tmp_path: Path) -> None:
    weights, config = headless(None)
    assert findings(write_pair(tmp_path / "draft", weights, config), "0.5.15", target_config()) == []
