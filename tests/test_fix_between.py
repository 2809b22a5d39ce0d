"""A drafter taken from one engine to another and back: each takes it whole, and feeds it the layers of its training."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import Draft, layer
from repairing import contents, mended
from test_fix_config import changed, torchspec
from weights import zeros

from drafcheck.finding import Severity
from drafcheck.fix.mend import Mended
from drafcheck.fix.staging import Meter
from drafcheck.fix.write import deliver
from drafcheck.session import Options

SGLANG = ["sglang==0.5.1", "sglang==0.5.9", "sglang==0.5.12", "sglang==0.5.23"]
VLLM = ["vllm==0.9.2", "vllm==0.11.0", "vllm==0.16.0", "vllm==0.22.1", "vllm==0.33.0"]


def of_sglang() -> Draft:
    """As SpecForge exports for SGLang."""
    return Draft()


def of_vllm() -> Draft:
    """Names and class as vLLM's examples have them."""
    draft = Draft()
    draft.rename(lambda name: name.replace("midlayer.", "layers.0."))
    draft.set(architectures=["Eagle3LlamaForCausalLM"])
    return draft


def nested() -> Draft:
    """As speculators writes it, with layers of its own choice."""
    draft = of_vllm()
    flat, own = draft.config, ("architectures", "draft_vocab_size", "torch_dtype")
    draft.config = {
        "architectures": ["Eagle3DraftModel"],
        "draft_vocab_size": flat["draft_vocab_size"],
        "dtype": "bfloat16",
        "eagle_aux_hidden_state_layer_ids": [2, 4, 6],
        "norm_before_residual": False,
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "target"},
        },
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "transformer_layer_config": {key: value for key, value in flat.items() if key not in own},
    }
    return draft


def taken(folder: Path, engine: str, goal: Path | None = None) -> Mended:
    """A checkpoint repaired for an engine, and written to ``goal`` if anything changes."""
    done = mended(folder, Options(engine=engine, target=str(folder / "target_config.json")))
    left = [(f.rule, f.message) for f in done.last.findings if f.severity is Severity.ERROR]
    assert not left, f"{engine}: {left}"
    if goal is not None:
        state = done.state
        deliver(state.base, state.files, state.removed, goal, check=lambda _: None, progress=Meter())
    return done


def plans(done: Mended) -> tuple[set[str], tuple[int, ...] | None]:
    """What of the repaired checkpoint is read, as the words after the layer's name, and the layers that feed it."""
    subject = done.last.subject
    assert subject is not None and subject.load is not None and subject.wiring is not None
    read = [w.tensor.name for w in subject.load.writes] + [t.name for t in subject.load.mappings]
    spelt = {name.removeprefix("midlayer.").removeprefix("layers.0.") for name in read}
    return spelt, subject.wiring.layer_outputs


def hashes(done: Mended) -> list[str]:
    return sorted(digest for _, _, digest in contents(done).values())


@pytest.mark.parametrize("vllm", VLLM)
@pytest.mark.parametrize("sglang", SGLANG)
@pytest.mark.parametrize("make", [of_sglang, of_vllm])
def test_there_and_back(make: object, sglang: str, vllm: str, tmp_path: Path) -> None:
    """The same tensors are read by both, whichever comes first."""
    assert callable(make)
    make().write(tmp_path / "draft")
    first, second = (sglang, vllm) if make is of_sglang else (vllm, sglang)
    here = taken(tmp_path / "draft", first, tmp_path / "here")
    there = taken(tmp_path / "here", second, tmp_path / "there")
    back = taken(tmp_path / "there", first)
    assert plans(here) == plans(back)
    assert plans(here) == plans(there)
    assert hashes(here) == hashes(there) == hashes(back)


@pytest.mark.parametrize("vllm", ["vllm==0.16.0", "vllm==0.33.0"])
@pytest.mark.parametrize("sglang", SGLANG)
def test_layers_of_its_own_are_the_same_in_both(sglang: str, vllm: str, tmp_path: Path) -> None:
    """Numbered as outputs by SGLang, as inputs by vLLM, under keys of their own.

    0.22.1 reads SGLang's key too, where an unusual list may already be one for vLLM: that is a warning, and left.
    """
    torchspec(1, 3, 5).write(tmp_path / "draft")
    here = taken(tmp_path / "draft", sglang, tmp_path / "here")
    there = taken(tmp_path / "here", vllm, tmp_path / "there")
    back = taken(tmp_path / "there", sglang)
    assert plans(here)[1] == plans(there)[1] == plans(back)[1] == (1, 3, 5)


@pytest.mark.parametrize("sglang", SGLANG)
def test_a_nested_config_goes_to_sglang_and_stays_right_for_vllm(sglang: str, tmp_path: Path) -> None:
    nested().write(tmp_path / "draft")
    here = taken(tmp_path / "draft", "vllm==0.33.0")
    assert not here.rounds
    there = taken(tmp_path / "draft", sglang, tmp_path / "there")
    back = taken(tmp_path / "there", "vllm==0.33.0")
    assert plans(here)[1] == plans(there)[1] == plans(back)[1] == (1, 3, 5)
    assert plans(here)[0] == plans(there)[0] == plans(back)[0]
    assert hashes(here) == hashes(there) == hashes(back)


def test_a_second_repair_changes_nothing(tmp_path: Path) -> None:
    nested().write(tmp_path / "draft")
    taken(tmp_path / "draft", "sglang==0.5.9", tmp_path / "once")
    assert not taken(tmp_path / "once", "sglang==0.5.9").state.changed


def test_two_layers_stay_where_one_is_built(tmp_path: Path) -> None:
    """A drafter of two layers is none for a release whose class builds one: it is not made one of one layer."""
    draft = of_vllm()
    draft.set(num_hidden_layers=2)
    draft.weights |= layer("layers.1", inputs=32)
    draft.write(tmp_path)
    done = mended(tmp_path, Options(engine="sglang==0.5.9"))
    assert "num_hidden_layers" not in changed(done)
    assert any(f.rule == "DC203" for f in done.last.findings)


def parallel() -> Draft:
    """A P-EAGLE head of two layers under a flat config."""
    draft = of_vllm()
    draft.set(architectures=["PEagleDraftModel"], num_hidden_layers=2, mask_token_id=3, norm_before_residual=True)
    draft.weights |= layer("layers.1", inputs=32)
    draft.weights["mask_hidden"] = zeros("BF16", 1, 1, 96)
    draft.weights["embed_tokens.weight"] = zeros("BF16", 256, 32)
    return draft


def test_a_flat_config_becomes_nested_where_only_such_a_one_is_read(tmp_path: Path) -> None:
    draft = parallel()
    draft.write(tmp_path / "draft")
    done = taken(tmp_path / "draft", "vllm==0.33.0", tmp_path / "nested")
    subject = done.last.subject
    assert [f.rule for f in done.first.findings if f.fixable] == ["DC501"]
    assert subject is not None and subject.written is not None and subject.contract is not None
    written = subject.written.data
    assert written["speculators_model_type"] == "peagle" and written["mask_token_id"] == 3
    assert written["transformer_layer_config"]["num_hidden_layers"] == 2 and "hidden_size" not in written
    assert subject.config is not None and subject.config.get("norm_before_residual") is True
    assert subject.contract.architecture == "PeagleLlamaForCausalLM"
    assert not taken(tmp_path / "nested", "vllm==0.33.0").rounds


def test_no_nested_config_without_the_token_that_it_needs(tmp_path: Path) -> None:
    """SpecForge's exports do not say with which token the later positions are filled."""
    draft = parallel()
    del draft.config["mask_token_id"]
    draft.write(tmp_path)
    done = mended(tmp_path, Options(engine="vllm==0.33.0"))
    assert not done.rounds and [f.fixable for f in done.last.findings if f.rule == "DC501"] == [False]
