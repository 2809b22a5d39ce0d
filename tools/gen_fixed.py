"""The table of docs/fix.md: what the real loaders made of the trainers' checkpoints before and after their repair.

From fixtures/verdicts/fixed.jsonl, which tools/record_fixed.py writes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from loaders import Row
from packaging.version import Version

RECORDED = Path(__file__).parent.parent / "fixtures" / "verdicts" / "fixed.jsonl"

UNWANTED = {
    "t2d": "no engine reads it",
    "mask_hidden": "of P-EAGLE on vLLM, where the launch asks for parallel drafting",
    "d2t": "of DFlash on SGLang, which drafts with the target's head",
    "lm_head.weight": "the same",
}
"""Tensors that are passed over by design; d2t and the head only where neither is a parameter."""

FILLED = {
    "model.embed_tokens.weight": "the target's is taken",
    "lm_head.weight": "the target's is taken",
    "model.mask_embedding": "used only beside a file of its own",
    "draft_id_to_target_id": "zeros, as built, are right for a whole vocabulary",
    "model.layers.1.hidden_norm.weight": "used in the first layer only",
}
"""Parameters that nothing in the file has to fill, which the recording counts as unwritten."""


def rows() -> list[Row]:
    """What was recorded."""
    return [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]


def missed(answer: Row) -> list[str]:
    """The tensors that the loader dropped although the head needs them."""
    headless = {"d2t", "lm_head.weight"} <= set(answer["dropped"] or ())
    spare = set(UNWANTED) if headless else {"t2d", "mask_hidden"}
    return [name for name in answer["dropped"] or () if name not in spare]


def bare(answer: Row) -> list[str]:
    """The parameters that nothing filled, neither the file nor the target."""
    return [name for name in answer["unwritten"] if name not in FILLED] + [name for name, _ in answer["partial"]]


def is_whole(answer: Row) -> bool:
    """Whether the loader took the whole head: no refusal, nothing dropped, nothing unwritten."""
    return not (answer["error"] or missed(answer) or bare(answer))


def words(answer: Row) -> str:
    """An answer in a few words."""
    if answer["error"]:
        return "refuses it"
    lost, left = missed(answer), bare(answer)
    said = [f"drops {len(lost)}"] if lost else []
    return ", ".join([*said, *([f"leaves {len(left)} unfilled"] if left else [])]) or "takes it"


def cell(row: Row) -> str:
    """Before and after, and the rules whose repairs made the difference."""
    before = words(row["before"])
    if row["after"] is None:
        return before
    return f"{before} → {words(row['after'])} ({', '.join(row['rules'])})"


def table() -> str:
    """One row a checkpoint, one column a release."""
    cells: dict[str, dict[tuple[str, Version], str]] = defaultdict(dict)
    for row in rows():
        cells[row["checkpoint"]][row["engine"], Version(row["version"])] = cell(row)
    releases = sorted({release for of in cells.values() for release in of})
    lines = [["checkpoint", *(f"{engine} {version}" for engine, version in releases)], ["---"] * (1 + len(releases))]
    lines += [[name, *(of.get(release, "") for release in releases)] for name, of in sorted(cells.items())]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
