"""What a drafter on the Hub costs: requests and bytes, counted by a Hub on loopback."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cases_reference import own_target, tokenizer
from drafts import DRAFT_VOCAB, VOCAB, Draft
from fakehub import Hub, Repo
from make_kimi import draft_weights, write_pair
from weights import spread

from drafcheck import lint

ENGINE = "sglang==0.5.15"


ORDERS = {
    "as its trainer writes": ("d2t", "t2d", ...),
    "as safetensors writes": ("d2t", ..., "t2d"),  # by size of dtype
    "the mask first": ("t2d", "d2t", ...),
    "the mask first, the map last": ("t2d", ..., "d2t"),
    "both last": (..., "d2t", "t2d"),
    "both inside": ("fc.weight", "d2t", ..., "t2d"),
}


def cost(hub: Hub, tmp_path: Path, order: str, target: str | None = None) -> tuple[int, int]:
    """Requests, and bytes beyond header, d2t and t2d, of a draft of 2.4 GB that is linted as it is locally.

    With ``target`` the target's config lies in a repository of that name, else beside the draft.
    """
    weights = draft_weights()
    named = [name for name in ORDERS[order] if isinstance(name, str)]
    names: list[str] = []
    for name in ORDERS[order]:
        names += [name] if isinstance(name, str) else [n for n in weights if n not in named]
    folder = write_pair(tmp_path / "kimi", {name: weights[name] for name in names})
    hub.repos["org/kimi"] = Repo(folder)
    file = folder / "model.safetensors"
    assert file.stat().st_size > 2_300_000_000 and (folder / "target_config.json").is_file()
    with file.open("rb") as opened:
        header = 8 + int.from_bytes(opened.read(8), "little")
    local = lint(folder, engine=ENGINE)
    if target:
        (tmp_path / "target").mkdir()
        (folder / "target_config.json").rename(tmp_path / "target" / "config.json")
        hub.repos[target] = Repo(tmp_path / "target")
    report = lint("hf://org/kimi", engine=ENGINE, target=f"hf://{target}" if target else None)
    assert report.findings == local.findings
    assert report.checkpoints[0].plan == local.checkpoints[0].plan
    assert report.checkpoints[0].skipped == local.checkpoints[0].skipped
    return len(hub.seen), hub.sent - header - 32000 * 8 - 163840


@pytest.mark.parametrize("order", [order for order in ORDERS if not order.startswith("both")])
def test_a_draft_of_2_gb_costs_few_requests(hub: Hub, tmp_path: Path, order: str) -> None:
    requests, beyond = cost(hub, tmp_path, order)
    assert requests <= 6, [(s.server, s.path) for s in hub.seen]
    assert beyond <= 128 * 1024


def test_a_target_in_a_repository_of_its_own_costs_one_more(hub: Hub, tmp_path: Path) -> None:
    requests, beyond = cost(hub, tmp_path, "as safetensors writes", "org/target")
    assert requests == 7, [(s.server, s.path) for s in hub.seen]
    assert beyond <= 128 * 1024


def test_the_tokenizer_of_a_target_is_fetched_when_it_is_named(hub: Hub, tmp_path: Path) -> None:
    """Else it costs no request, and its special tokens are not looked at."""
    draft = Draft()
    lost = [token for token in range(VOCAB) if token not in spread(DRAFT_VOCAB, VOCAB)]
    own_target(draft, {"tokenizer.json": tokenizer({lost[0]: "<tool_call>"})})
    draft.write(tmp_path / "draft")
    hub.repos["org/target"] = Repo(tmp_path / "draft" / "target")
    options = {"engine": ENGINE, "target": "hf://org/target"}
    assert [f.rule for f in lint(tmp_path / "draft", **options).findings if f.rule == "DC314"] == []
    assert not any("tokenizer" in seen.path for seen in hub.seen)
    [found] = [
        f for f in lint(tmp_path / "draft", tokenizer="hf://org/target", **options).findings if f.rule == "DC314"
    ]
    assert "`<tool_call>`" in found.message


def test_safetensors_writes_the_map_first_and_the_mask_last() -> None:
    from safetensors.numpy import save

    kinds = {"a": "float32", "d2t": "int64", "t2d": "bool", "z": "float16"}
    data = save({name: np.zeros(4, kind) for name, kind in kinds.items()})
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    first, *_, last = sorted(kinds, key=lambda name: header[name]["data_offsets"])
    assert (first, last) == ("d2t", "t2d")


@pytest.mark.parametrize(("order", "most"), [("both last", 6), ("both inside", 7)])
def test_orders_that_no_known_writer_makes_cost_more(hub: Hub, tmp_path: Path, order: str, most: int) -> None:
    """The first read is sized before the order is known.

    To reach the end of a d2t at the front it takes 256,000 bytes, 125,000 more than 128 KiB, which are lost when there
    is no map at the front. Where the maps are apart and neither is at the front, each is a request of its own.
    """
    requests, beyond = cost(hub, tmp_path, order)
    assert requests == most, [(s.server, s.path) for s in hub.seen]
    assert 128 * 1024 < beyond <= 260 * 1024
