"""Repairs of the config of the trained pair: it is configured as before, and what only the training knows is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import Draft
from repairing import checked, contents, hashed, mended
from test_fix_config import mend_one
from variants import build, healthy

from drafcheck.session import Options

STATED = {"24e_use_aux_false": "eagle_config", "36_target_hidden_size_512": "target_hidden_size"}
"""Keys that the healthy config does without; they say now what is taken without them."""


@pytest.mark.parametrize(
    "name",
    [
        "21_arch_LlamaForCausalLM",
        "22_two_layers",
        "24e_use_aux_false",
        "27b_kv_heads_2",
        "34_model_type_unknown",
        "36_target_hidden_size_512",
        "37_arch_eagle1",
        "41_no_architectures",
        "42_intermediate_1024",
    ],
)
def test_the_trained_drafter_is_configured_as_before(name: str, tmp_path: Path) -> None:
    pair = build(name)
    done = mended(pair.write(tmp_path / "broken"), Options(engine="sglang==0.5.15.post1", **pair.options))
    subject = done.last.subject
    assert subject is not None and subject.written is not None
    config = {key: value for key, value in subject.written.data.items() if key != STATED.get(name)}
    assert config == healthy().config
    assert contents(done) == hashed(
        checked(healthy().write(tmp_path / "whole"), Options(engine="sglang==0.5.15.post1"))
    )


@pytest.mark.parametrize(
    "name", ["15a_theta_1e4", "15b_no_theta", "20_eps_1e-2", "24b_aux_ids_plus1", "47_theta_conflict"]
)
def test_what_only_the_training_knows_is_left(name: str, tmp_path: Path) -> None:
    pair = build(name)
    assert not mended(pair.write(tmp_path / "broken"), Options(engine="sglang==0.5.15.post1")).rounds


def test_a_size_of_another_model_in_the_config_is_not_taken(tmp_path: Path) -> None:
    """A table of the target's sizes is no second place for the draft's."""
    draft = Draft()
    draft.set(intermediate_size="wide", text_config={"intermediate_size": 96})
    assert mend_one(tmp_path / "text", draft) == {"intermediate_size": 48}
    draft = Draft()
    draft.set(intermediate_size=None, text_config={"intermediate_size": 96})
    assert mend_one(tmp_path / "null", draft) == {"intermediate_size": 48}
