"""DC205: what the ranks of a launch cannot share, held against the classes that were really built for so many ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from drafcheck import lint
from drafcheck.finding import Confidence, Finding
from drafcheck.report.model import Report

GOOD = Path(__file__).parent.parent / "fixtures" / "good"

SIZES = {"num_attention_heads": 12, "num_key_value_heads": 6, "hidden_size": 96, "head_dim": 8, "intermediate_size": 96}
UNEVEN = {**SIZES, "num_key_value_heads": 4, "intermediate_size": 90}

# The fixture whose config is taken, keys, ranks, what SGLang says in 0.5.9 and 0.5.17, and in 0.5.23; None: nothing.
BUILT: list[tuple[str, dict[str, int], int, str | None, str | None]] = [
    ("healthy", SIZES, 2, None, None),
    ("healthy", SIZES, 8, "AssertionError", "AssertionError"),
    ("healthy", SIZES, 4, "AssertionError", "AssertionError"),
    ("healthy", SIZES, 12, "AssertionError: 256 is not divisible by 12", None),
    ("healthy", SIZES, 3, "AssertionError: 256 is not divisible by 3", None),
    ("healthy", UNEVEN, 4, "AssertionError", "AssertionError"),
    ("eagle-1", SIZES, 2, None, None),
    ("eagle-1", SIZES, 8, "AssertionError", "AssertionError"),
    ("eagle-1", SIZES, 3, "AssertionError: 256 is not divisible by 3", None),
    ("eagle-1", UNEVEN, 4, "AssertionError", "AssertionError"),
    ("mtp-layer-of-deepseek", {}, 2, None, None),
    ("mtp-layer-of-deepseek", {}, 8, "AssertionError", "AssertionError"),
    ("mtp-layer-of-deepseek", {"num_attention_heads": 8}, 4, None, None),
    (
        "mtp-layer-of-deepseek",
        {"num_attention_heads": 8},
        8,
        *2 * ("ValueError: Tensor parallel size 8 is greater than the number of experts 4.",),
    ),
    ("mtp-layer-of-deepseek", {"moe_intermediate_size": 30}, 4, "AssertionError", "AssertionError"),
]
NEWEST_ALONE: list[tuple[str, dict[str, int], int, str | None]] = [
    ("dflash", SIZES, 2, None),
    ("dflash", SIZES, 8, "AssertionError"),
    ("dflash", SIZES, 4, "AssertionError"),
    ("dflash", SIZES, 12, None),
    ("dflash", UNEVEN, 4, "AssertionError"),
    ("mla", SIZES, 2, None),
    ("mla", SIZES, 8, "AssertionError"),
    ("mla", SIZES, 4, None),  # latent attention has no key/value heads to share out
    ("mla", UNEVEN, 4, "AssertionError"),
    ("mtp-head-of-qwen3-moe", {}, 2, None),
    ("mtp-head-of-qwen3-moe", {}, 8, "AssertionError"),
    ("mtp-head-of-qwen3-next", {}, 8, "AssertionError"),
    ("mtp-layer-of-ernie", {}, 8, "AssertionError"),
    ("mtp-layer-of-glm", {}, 8, "AssertionError"),
    ("mtp-layer-of-mimo", {}, 8, "AssertionError"),
]
ROWS = [
    *(("0.5.9", *row[:4]) for row in BUILT),
    *(("0.5.17", *row[:4]) for row in BUILT),
    *(("0.5.23", *row[:3], row[4]) for row in BUILT),
    *(("0.5.23", *row) for row in NEWEST_ALONE),
]


def checked(folder: Path, ranks: int, engine: str, **options: Any) -> tuple[Report, Finding | None]:
    report = lint(folder, engine=engine, tp=ranks, **options)
    return report, next((f for f in report.findings if f.rule == "DC205"), None)


def draft_of(tmp_path: Path, name: str, keys: dict[str, int]) -> Path:
    """The config of a fixture with other sizes, and its weights, which are then of the wrong shape for most of them."""
    config = json.loads((GOOD / name / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **keys}))
    (tmp_path / "model.safetensors").write_bytes((GOOD / name / "model.safetensors").read_bytes())
    return tmp_path


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_as_built(tmp_path: Path, row: tuple[str, str, dict[str, int], int, str | None]) -> None:
    release, name, keys, ranks, error = row
    _, found = checked(draft_of(tmp_path, name, keys), ranks, f"sglang=={release}")
    if error is None:
        assert found is None
    else:
        assert found is not None
        assert f"stops ({error}):" in found.message


def test_one_rank_shares_nothing(tmp_path: Path) -> None:
    assert checked(draft_of(tmp_path, "healthy", {"num_attention_heads": 7}), 1, "sglang==0.5.15")[1] is None


def test_without_a_number_of_ranks_it_is_skipped() -> None:
    report = lint(GOOD / "healthy", engine="sglang==0.5.15")
    assert ("DC205", "needs --tp") in [(s.rule, s.why) for s in report.checkpoints[0].skipped]


def test_a_launch_line_without_ranks_starts_one() -> None:
    report = lint(GOOD / "launched", engine="sglang==0.5.15", launch=GOOD / "launched" / "serve.sh")
    assert "DC205" not in [s.rule for s in report.checkpoints[0].skipped]


def test_the_help_names_numbers_that_work(tmp_path: Path) -> None:
    draft = draft_of(tmp_path, "healthy", SIZES)
    _, found = checked(draft, 8, "sglang==0.5.23")
    assert found is not None
    assert found.help == "the draft can be shared by 1, 2, 3, 6 or 12 ranks; the target has to agree"
    for ranks in (1, 2, 3, 6, 12):
        assert checked(draft, ranks, "sglang==0.5.23")[1] is None


def test_what_was_only_read_is_not_certain() -> None:
    _, other = checked(GOOD / "vllm-healthy-0.33.0", 8, "vllm==0.33.0")
    assert other is not None
    assert other.confidence is Confidence.LIKELY
    report, found = checked(GOOD / "trtllm-healthy-1.2", 8, "tensorrt-llm==1.4.0rc0")
    assert found is not None
    assert found.confidence is Confidence.LIKELY
    assert report.checkpoints[0].outcome == "refused"


def test_vllm_builds_the_draft_for_the_ranks_of_the_target(tmp_path: Path) -> None:
    line = """vllm serve org/target -tp 8 --speculative-config '{"model": "org/my-eagle3", "method": "eagle3", \\
      "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1}'"""
    launch = tmp_path / "serve.sh"
    launch.write_text(line)
    report = lint(GOOD / "vllm-healthy-0.33.0", launch=launch, engine="vllm==0.33.0")
    assert [f.rule for f in report.findings if f.rule == "DC205"] == ["DC205"]


@pytest.mark.parametrize("release", ("0.11.0", "0.16.0", "0.22.1", "0.33.0"))
def test_what_every_rank_of_vllm_has_whole_need_not_divide(tmp_path: Path, release: str) -> None:
    """The projection to the latents is loaded in two shards and split for nobody."""
    even = {"num_attention_heads": 6, "moe_intermediate_size": 48, "vocab_size": 384, "n_routed_experts": 4}
    latent = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4}
    draft = draft_of(tmp_path, "mtp-layer-of-deepseek", {**even, **latent})
    assert checked(draft, 3, f"vllm=={release}")[1] is None
    _, found = checked(draft_of(tmp_path, "mtp-layer-of-deepseek", {**even, "num_attention_heads": 4}), 3, "vllm")
    assert found is not None
    assert "`num_attention_heads` is 4, no multiple of 3" in found.message


def test_experts_of_vllm_divide_by_their_inner_side(tmp_path: Path) -> None:
    keys = {"num_attention_heads": 6, "vocab_size": 384, "n_shared_experts": 3, "moe_intermediate_size": 32}
    _, found = checked(draft_of(tmp_path, "mtp-layer-of-deepseek", keys), 3, "vllm==0.33.0")
    assert found is not None
    assert "`moe_intermediate_size` is 32, no multiple of 3" in found.message
    assert "q_lora" not in found.message
    draft = draft_of(tmp_path, "mtp-layer-of-deepseek", {**keys, "moe_intermediate_size": 48})
    assert checked(draft, 3, "vllm==0.33.0")[1] is None


@pytest.mark.parametrize(
    ("draft", "engine"),
    [
        ("fp8", "sglang==0.5.15"),
        ("fp8-blocks", "sglang==0.5.23"),
        ("awq", "sglang==0.5.15"),
        ("vllm-fp8", "vllm==0.16.0"),
        ("vllm-fp8", "vllm==0.33.0"),
    ],
)
def test_a_quantised_layer_is_shared_out_like_a_plain_one(tmp_path: Path, draft: str, engine: str) -> None:
    """The layers divide their sizes by the ranks before the method makes its parts: sglang's and vllm's linear.py."""
    folder = tmp_path / "draft"
    shutil.copytree(GOOD / draft, folder)
    config = json.loads((folder / "config.json").read_text())

    def said(size: int) -> list[str]:
        config["intermediate_size"] = size
        (folder / "config.json").write_text(json.dumps(config))
        return [f.message for f in lint(folder, engine=engine, tp=2).findings if f.rule == "DC205"]

    assert said(config["intermediate_size"]) == []
    [message] = said(config["intermediate_size"] + 1)
    assert f"`intermediate_size` is {config['intermediate_size']}, no multiple of 2" in message
