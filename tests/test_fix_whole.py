"""Repairs of names in a whole checkpoint: the head's layer keeps the spelling of the target's tensors beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from mending import filled
from mtp_heads import FAMILIES, LAYERS
from mtp_heads_later import LATER
from repairing import checked, contents, edits_for, hashed, mended
from test_mtp import save

from drafcheck.session import Options

LAYER = f"model.layers.{LAYERS}."


def wrapped(folder: Path, family: str, prefix: str, *, but: str = "\0", only: str = "") -> Path:
    """A whole checkpoint with a prefix on its names: not on those with ``but`` in them, and on those with ``only``."""
    head = {**FAMILIES, **LATER}[family]
    weights = filled(head.weights())
    for copy, original in (("embed_tokens", "model.embed_tokens.weight"), ("shared_head.head", "lm_head.weight")):
        weights[f"{LAYER}{copy}.weight"] = weights[original]
    spelt = {prefix + n if but not in n and only in n else n: w for n, w in weights.items()}
    save(folder, head.config(), spelt)
    return folder


@pytest.mark.parametrize("engine", ["sglang==0.5.23", "vllm==0.33.0"])
@pytest.mark.parametrize(
    ("family", "prefix"), [("deepseek", "module."), ("deepseek", "trainer."), ("glm4_moe", "_orig_mod.")]
)
def test_a_prefix_on_all_names_is_taken_off_all_of_them(tmp_path: Path, engine: str, family: str, prefix: str) -> None:
    """The target's among them, of which none is left out though the head's layer has the same bytes."""
    done = mended(wrapped(tmp_path, family, prefix), Options(engine=engine))
    before = hashed(done.first)
    assert contents(done) == {name.removeprefix(prefix): tensor for name, tensor in before.items()}
    assert "DC105" not in {f.rule for f in done.last.findings}


@pytest.mark.parametrize("engine", ["sglang==0.5.23", "vllm==0.33.0"])
def test_where_some_of_the_target_would_keep_it_nothing_is_repaired(tmp_path: Path, engine: str) -> None:
    told = checked(wrapped(tmp_path, "deepseek", "module.", but="model.norm"), Options(engine=engine))
    found = [f for f in told.findings if f.rule == "DC105"]
    assert found and not any(f.fixable or edits_for(told, f) for f in found)


@pytest.mark.parametrize("engine", ["sglang==0.5.23", "vllm==0.33.0"])
def test_a_prefix_on_the_layer_alone_is_taken_off_it(tmp_path: Path, engine: str) -> None:
    done = mended(wrapped(tmp_path, "deepseek", "module.", only=LAYER), Options(engine=engine))
    assert contents(done) == {name.removeprefix("module."): tensor for name, tensor in hashed(done.first).items()}
    assert [f.rule for f in done.last.findings] == []
