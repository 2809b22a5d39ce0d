"""Every measured fault that can be repaired is, and the drafter is then the healthy one, byte by byte.

The faults are those of tests/test_measured.py: edits of a trained drafter, each served by SGLang 0.5.15.post1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from variants import TRAINED, VARIANTS, Pair, build, healthy
from weights import read_safetensors

from drafcheck import lint
from drafcheck.cli import cli
from drafcheck.report.model import Outcome

ENGINE = "sglang==0.5.15.post1"


class Repair(NamedTuple):
    """The rule whose finding is repaired, and in what the result may differ from the healthy drafter, with the reason.

    ``names`` maps tensors to other spellings of this release, ``keys`` are keys that say what their absence says.
    ``unsafe``: it rests on what the files do not say.
    """

    code: str
    names: tuple[tuple[str, str], ...] = ()
    keys: tuple[str, ...] = ()
    dtype: str = ""
    unsafe: bool = False


LAYERS = (("layers.0.", "midlayer."),)  # this release takes both
REPAIRED = {
    "03b_model_everything": Repair("DC105"),
    "04a_module_midlayer": Repair("DC105"),
    "04b_module_everything": Repair("DC105"),
    "04c_draft_layers0": Repair("DC105", names=LAYERS),
    "04d_draft_model_everything": Repair("DC105"),
    "05_no_d2t": Repair("DC301", unsafe=True),  # from t2d: nobody's marks say that draft ids rise with their tokens
    "06_d2t_absolute": Repair("DC305"),
    "13a_no_draft_vocab_size": Repair("DC302"),
    "13b_draft_vocab_512": Repair("DC302"),
    "13c_draft_vocab_2048": Repair("DC302"),
    "13d_draft_vocab_null": Repair("DC302"),
    "16c_fp16_dtype_auto": Repair("DC508", dtype="F16"),  # its weights are float16 and are cast at load
    "21_arch_LlamaForCausalLM": Repair("DC501"),
    "22_two_layers": Repair("DC203"),
    "23_tie_true": Repair("DC310"),
    "24e_use_aux_false": Repair("DC402", keys=("eagle_config",)),
    "27b_kv_heads_2": Repair("DC201"),
    "31_o_proj_renamed": Repair("DC101"),
    "33_d2t_float": Repair("DC308"),
    "34_model_type_unknown": Repair("DC502"),
    "35_bin": Repair("DC010"),
    "36_target_hidden_size_512": Repair("DC401", keys=("target_hidden_size",)),
    "37_arch_eagle1": Repair("DC504"),
    "38_d2t_zero": Repair("DC306", unsafe=True),  # as 05
    "39_d2t_512": Repair("DC302"),
    "41_no_architectures": Repair("DC501"),
    "42_intermediate_1024": Repair("DC201"),
    "48_index_stale": Repair("DC005"),
}

BEYOND = {
    "08_fc_1x_hidden": "weights that are not there",
    "10_algo_EAGLE": "the launch is at fault",
    "14a_maxpos128": "raising max_position_embeddings is unsafe: see below",
    "14b_maxpos128_allow": "as 14a",
    "15b_no_theta": "theta is never guessed",
    "17_no_lm_head": "weights that are not there",
    "24b_aux_ids_plus1": "the convention is not certain",
    "24c_aux_ids_two": "which third layer was meant is not known",
    "24d_aux_ids_out_of_range": "which layer was meant is not known",
    "25a_no_fc": "weights that are not there",
    "25d_no_qproj": "weights that are not there",
    "45_lm_head_2048_rows": "which rows were meant is not known",
    "47_theta_conflict": "which theta was meant is not known",
    "49_tied_no_lm_head": "weights that are not there",
}


def fix(folder: Path, pair: Pair, *more: str) -> int:
    """Repair a draft into the folder that is named after it; the exit code."""
    options = [word for name, value in pair.options.items() for word in (f"--{name}", value)]
    args = ["fix", str(folder), "--engine", ENGINE, *options, *more]
    result = CliRunner().invoke(cli, args, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def renamed(name: str, repair: Repair) -> str:
    for old, new in repair.names:
        name = new + name.removeprefix(old) if name.startswith(old) else name
    return name


def config_of(folder: Path, repair: Repair) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_bytes())
    return {key: value for key, value in config.items() if key not in repair.keys}


@pytest.mark.parametrize("variant", sorted(REPAIRED))
def test_the_repaired_drafter_is_the_healthy_one(tmp_path: Path, variant: str) -> None:
    repair, pair, good = REPAIRED[variant], build(variant), healthy()
    folder = pair.write(tmp_path / "ckpt")
    assert repair.code in {f.rule for f in lint(folder, engine=ENGINE, **pair.options).findings}
    before = files(folder)
    goal = tmp_path / "ckpt-fixed"
    if repair.unsafe:
        assert fix(folder, pair) == 1 and not goal.exists()
    assert fix(folder, pair, *(["--unsafe"] if repair.unsafe else [])) == 0
    assert files(folder) == before
    mended = {renamed(n, repair): (w.dtype, w.shape, w.raw) for n, w in _weights(goal)}
    expected = {n: (w.dtype, w.shape, w.raw) for n, w in (pair if repair.dtype else good).weights.items()}
    assert mended == expected
    assert {w.dtype for _, w in _weights(goal)} <= {"BF16", "I64", "BOOL", repair.dtype}
    assert config_of(goal, repair) == {k: v for k, v in good.config.items() if k not in repair.keys}
    assert lint(goal, engine=ENGINE, **pair.options).checkpoints[0].outcome is Outcome.CLEAN


@pytest.mark.parametrize("variant", [name for name, repair in REPAIRED.items() if repair.unsafe])
def test_the_targets_head_confirms_what_t2d_does_not_tell(tmp_path: Path, variant: str) -> None:
    """Without --unsafe, and not where the rows of lm_head are in another order: then not with it either."""
    pair, more = build(variant), ("--target-weights", str(TRAINED / "target-head"))
    folder = pair.write(tmp_path / "ckpt")
    assert fix(folder, pair, *more) == 0
    expected = {n: (w.dtype, w.shape, w.raw) for n, w in healthy().weights.items()}
    assert {n: (w.dtype, w.shape, w.raw) for n, w in _weights(tmp_path / "ckpt-fixed")} == expected
    shuffled = build("07a_lm_head_permuted").weights["lm_head.weight"]
    pair.weights["lm_head.weight"] = shuffled
    (tmp_path / "other").mkdir()
    other = pair.write(tmp_path / "other" / "ckpt")
    assert fix(other, pair, "--unsafe", *more) == 1 and not (tmp_path / "other" / "ckpt-fixed").exists()
    report = lint(other, engine=ENGINE, target_weights=more[1], **pair.options)
    assert not any(f.fixable for f in report.findings)


def _weights(folder: Path) -> Iterator[tuple[str, Any]]:
    yield from read_safetensors(folder / "model.safetensors").items()


@pytest.mark.parametrize("variant", sorted(BEYOND))
def test_what_is_beyond_repair_is_left_alone(tmp_path: Path, variant: str) -> None:
    pair = build(variant)
    folder = pair.write(tmp_path / "ckpt")
    report = lint(folder, engine=ENGINE, **pair.options)
    assert not any(f.fixable for f in report.findings)
    assert fix(folder, pair) == report.exit_code
    assert not (tmp_path / "ckpt-fixed").exists()


def test_no_other_variant_has_anything_to_repair(tmp_path: Path) -> None:
    others = sorted(set(VARIANTS) - set(REPAIRED) - set(BEYOND))
    assert len(others) > 20
    for variant in others:
        pair = build(variant)
        folder = pair.write(tmp_path / variant)
        assert fix(folder, pair) == 0
        assert not (tmp_path / f"{variant}-fixed").exists()
        assert not any(f.fixable for f in lint(folder, engine=ENGINE, **pair.options).findings)


def test_a_length_is_raised_on_demand(tmp_path: Path) -> None:
    pair = build("14a_maxpos128")
    folder = pair.write(tmp_path / "ckpt")
    assert fix(folder, pair, "--unsafe") == 0
    assert config_of(tmp_path / "ckpt-fixed", Repair("DC505")) == healthy().config
