"""DC605: pages of the KV caches, against what the releases' own grouping said to a grid of layers, and what is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases_kv import beside_windows, indivisible, other_pages, own_window
from drafts import Draft
from helpers import of
from recorded import rows

from drafcheck import lint
from drafcheck.config import TargetConfig
from drafcheck.contract import resolve_engine
from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.jsonpos import Document
from drafcheck.plan.kv import FULL, WINDOW, Cache, asked, goes_together, target_cache

RECORDED = Path(__file__).parent.parent / "fixtures" / "verdicts" / "vllm" / "kv.jsonl"
ROWS = rows(RECORDED)
RELEASES = ("0.9.2", "0.11.0", "0.16.0", "0.22.1", "0.33.0")
LAYOUTS = "StopIteration or grouped"
"""0.33.0 fails on some windows of other sizes in one of its layouts, which the platform chooses: nothing is said."""


def cache(text: str) -> Cache:
    """``full 8x128, window 8x128`` as what one model keeps."""
    layers = [layer.split(" ") for layer in text.split(", ")]
    heads, size = map(int, layers[0][1].split("x"))
    kinds = frozenset(WINDOW if kind == "window" else FULL for kind, _ in layers)
    return Cache(heads, size, kinds, latent=layers[0][0] == "mla")


def can_be(release: str, row: dict[str, Any]) -> bool:
    """Whether the release builds such layers: no window beside latent attention, and one kind for all before 0.16."""
    target, draft = row["target"], row["draft"]
    if "mla" in target and "window" in draft:
        return release == "0.33.0"
    return release not in ("0.9.2", "0.11.0") or "mla" not in draft or "mla" in target


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_grouping_of_the_release_said(release: str) -> None:
    entry = asked(resolve_engine(f"vllm=={release}"))
    assert entry is not None
    held = 0
    for row in ROWS:
        said = next(answer for answer, releases in row["answers"].items() if release in releases)
        if not can_be(release, row) or said == LAYOUTS:
            continue
        one = not row["several_groups"] and bool(entry.get("one_group"))
        together = goes_together(entry, cache(row["target"]), cache(row["draft"]), (1, 1), one_group=one)
        assert together == (said == "grouped"), row
        held += 1
    assert held > 350


@pytest.mark.parametrize("release", RELEASES)
def test_a_refusal_is_recorded_for_each_release_that_refuses(release: str) -> None:
    entry = asked(resolve_engine(f"vllm=={release}"))
    assert entry is not None
    refused = any(release in row["answers"].get("NotImplementedError", []) for row in ROWS)
    assert refused == (entry["error"] == "NotImplementedError")


def found(
    folder: Path, edit: Callable[[Draft], None], version: str, engine: str = "vllm", **options: Any
) -> list[Finding]:
    """What DC605 says of a healthy draft after an edit."""
    draft = Draft()
    edit(draft)
    if version == "0.9.2":
        draft.set(architectures=["LlamaForCausalLM"])
    draft.write(folder)
    report = lint(folder, engine=f"{engine}=={version}", **options)
    return of(list(report.checkpoints[0].findings), "DC605")


def test_both_sizes_are_told_and_what_goes(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, other_pages, "0.9.2", tp=1)
    assert "16 numbers in a layer of the draft (2 x 2 key/value heads x 4)" in finding.message
    assert "32 in one of the target (2 x 2 key/value heads x 8)" in finding.message
    assert finding.help == "serve with vllm >= 0.11.0"
    assert finding.severity is Severity.ERROR
    assert finding.confidence is Confidence.CERTAIN
    assert [(place.file.rpartition("/")[2], place.key) for place in finding.locations] == [
        ("config.json", "num_key_value_heads"),
        ("config.json", "head_dim"),
        ("target_config.json", "num_key_value_heads"),
        ("target_config.json", "head_dim"),
    ]


def test_more_ranks_are_offered_where_they_make_the_pages_equal(tmp_path: Path) -> None:
    def fewer(draft: Draft) -> None:
        other_pages(draft, 8, 1)

    (finding,) = found(tmp_path / "unsaid", fewer, "0.9.2")
    assert finding.confidence is Confidence.LIKELY
    assert finding.severity is Severity.WARNING
    assert finding.help == "serve with 2, 4, 8, 16, 32 or 64 ranks (--tp), or with vllm >= 0.11.0"
    (finding,) = found(tmp_path / "one", fewer, "0.9.2", tp=1)
    assert finding.confidence is Confidence.CERTAIN
    assert found(tmp_path / "two", fewer, "0.9.2", tp=2) == []


def test_the_ranks_copy_the_heads_that_are_too_few(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, other_pages, "0.9.2", tp=8)
    assert "a token takes 8 numbers in a layer of the draft (2 x 1 key/value heads x 4)" in finding.message
    assert "on each of 8 ranks" in finding.message


def test_the_option_with_one_group_is_offered(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, indivisible, "0.22.1", tp=1)
    assert finding.help == "serve with --disable-hybrid-kv-cache-manager, or with vllm >= 0.33.0"


@pytest.mark.parametrize(
    "keys",
    [
        {"architectures": ["Gemma3ForCausalLM"]},  # not described
        {"head_dim": "8"},
        {"head_dim": True},
        {"head_dim": -8},
        {"head_dim": 1 << 70, "num_key_value_heads": None},
        {"num_key_value_heads": None},
        {"num_key_value_heads": [2]},
        {"layer_types": ["linear_attention"]},
        {"layer_types": [["full_attention"]]},
        {"layer_types": "full_attention"},
        {"layer_types": ["sliding_attention"], "sliding_window": 128},  # all of them: the draft's window follows
        {"sliding_window": 128},  # which layers is not said
    ],
)
def test_nothing_is_said_of_a_target_that_is_not_understood(tmp_path: Path, keys: dict[str, Any]) -> None:
    def edit(draft: Draft) -> None:
        other_pages(draft)
        assert draft.target is not None
        draft.target.update(keys)

    assert found(tmp_path, edit, "0.9.2", tp=1) == []


@pytest.mark.parametrize(
    "keys", [{"layer_types": [3]}, {"layer_types": {}, "sliding_window": 3}, {"model_type": "gpt_oss"}]
)
def test_nothing_is_said_of_a_draft_whose_windows_are_not_understood(tmp_path: Path, keys: dict[str, Any]) -> None:
    def edit(draft: Draft) -> None:
        indivisible(draft)
        draft.set(**keys)

    assert found(tmp_path, edit, "0.22.1", tp=1) == []


def test_a_window_that_is_not_used_is_none(tmp_path: Path) -> None:
    def edit(draft: Draft) -> None:
        other_pages(draft)
        assert draft.target is not None
        draft.target.update(architectures=["Qwen2ForCausalLM"], sliding_window=128, use_sliding_window=False)

    assert found(tmp_path, edit, "0.11.0", tp=1) == []


def test_the_head_dim_of_qwen2_is_derived_whatever_its_config_says() -> None:
    data = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16}
    target = TargetConfig(Document("config.json", {"architectures": ["Qwen2ForCausalLM"], **data}))
    assert target_cache(resolve_engine("vllm==0.16.0"), target) == Cache(2, 8)


def test_latent_attention_is_one_vector_on_every_rank() -> None:
    data = {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    engine = resolve_engine("vllm==0.22.1")
    cached = target_cache(engine, TargetConfig(Document("config.json", data)))
    assert cached == Cache(1, 576, latent=True)
    assert [cached.numbers(ranks) for ranks in (1, 8)] == [576, 576]
    assert target_cache(engine, TargetConfig(Document("config.json", {**data, "index_topk": 2048}))) is None


@pytest.mark.parametrize(("edit", "whose"), [(beside_windows, "the target's"), (own_window, "the draft's")])
def test_it_is_told_whose_layers_keep_a_window(tmp_path: Path, edit: Callable[[Draft], None], whose: str) -> None:
    (finding,) = found(tmp_path, edit, "0.11.0", tp=1)
    assert f"wants KV cache pages all of one size, as some of {whose} layers keep a window only" in finding.message


def test_engines_with_a_pool_for_each_model_are_let_be(tmp_path: Path) -> None:
    assert asked(resolve_engine("sglang==0.5.23")) is None
    assert found(tmp_path, other_pages, "0.5.15", engine="sglang", tp=1) == []
