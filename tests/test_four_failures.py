"""The four failures that drafcheck was made for, at the shapes at which they happened: Kimi-K2.5's."""

from __future__ import annotations

from pathlib import Path

import pytest
from make_kimi import DRAFT_VOCAB, HIDDEN, TARGET_VOCAB, draft_config, draft_weights, target_config, write_pair
from weights import Weights, mask, offsets, spread, write_safetensors

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


AGREE = 252


def sister() -> list[int]:
    """A choice of 32,000 tokens of which the first 252 draft ids, and no others, mean the same token."""
    ours = spread(DRAFT_VOCAB, TARGET_VOCAB)
    theirs = spread(DRAFT_VOCAB - AGREE, TARGET_VOCAB - AGREE - 1, salt=5)
    kept = [*ours[:AGREE], *(token + AGREE + 1 for token in theirs)]
    for place in range(AGREE, DRAFT_VOCAB):
        if kept[place] == ours[place]:
            kept[place], kept[place - 1] = kept[place - 1], kept[place]
    return kept


def write_mapping(path: Path, kept: list[int]) -> Path:
    tensors: Weights = {"d2t": offsets(kept), "t2d": mask(TARGET_VOCAB, kept)}
    write_safetensors(path, tensors)
    return path


def test_3_mapping_of_a_sister_model(tmp_path: Path) -> None:
    kept = sister()
    assert sum(a == b for a, b in zip(kept, spread(DRAFT_VOCAB, TARGET_VOCAB), strict=True)) == AGREE
    assert len(set(kept)) == DRAFT_VOCAB
    reference = write_mapping(tmp_path / "mapping.safetensors", kept)
    pair = write_pair(tmp_path / "draft", draft_weights())
    found = single(findings(pair, "0.5.15", target_config(), reference=str(reference)))
    assert found.rule == "DC311"
    assert "252 of 32,000" in found.message


def test_3_same_mapping(tmp_path: Path) -> None:
    reference = write_mapping(tmp_path / "mapping.safetensors", spread(DRAFT_VOCAB, TARGET_VOCAB))
    pair = write_pair(tmp_path / "draft", draft_weights())
    assert findings(pair, "0.5.15", target_config(), reference=str(reference)) == []


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
