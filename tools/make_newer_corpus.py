"""Write the checkpoints whose verdicts fixtures/verdicts/sglang/newer.jsonl.xz holds: draft classes of later releases.

    python tools/make_newer_corpus.py FOLDER [--family gemma4 ...]

Each is a folder ``<family>-<fault>`` with config.json and model.safetensors, zeros but for mappings. Deterministic.
What the engine's classes answered is recorded by ``python tools/record_mtp.py ANSWERS FOLDER --name newer``.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import make_mtp_corpus
from assistant_drafts import ASSISTANT, CENTROID, UNIFIED, assistant
from class_edits import Edit
from drafts import HIDDEN, Draft
from iquest_drafts import IQUEST, iquest
from lattice_drafts import FEW, LATTICE, lilicorr
from minimax_dspark import MINIMAX, minimax
from mtp_heads_newest import BESIDE, NEWEST

FAMILIES: dict[str, tuple[Callable[[], Draft], dict[str, Edit]]] = {
    "gemma4": (assistant, ASSISTANT),
    "gemma4_centroids": (lambda: assistant(centroids=True), CENTROID),
    "gemma4_unified": (lambda: assistant("Gemma4UnifiedAssistantForCausalLM"), {n: ASSISTANT[n] for n in UNIFIED}),
    "lilicorr": (lilicorr, LATTICE),
    "lilicorr_wide": (lambda: lilicorr(HIDDEN), {"healthy": LATTICE["healthy"], "width-zero": LATTICE["width-zero"]}),
    "lilicorr_old": (lambda: lilicorr(old=True), {n: LATTICE[n] for n in FEW}),
    "minimax": (minimax, MINIMAX),
    "iquest": (iquest, IQUEST),
}

ALL = [*FAMILIES, *NEWEST]


def drafts(family: str) -> Iterator[tuple[str, Draft]]:
    """The checkpoints of a family by name; an edit that changes nothing there is left out."""
    if family in NEWEST:
        yield from heads(family)
        return
    make, edits = FAMILIES[family]
    for name, edit in edits.items():
        draft = make()
        before = (copy.deepcopy(draft.config), dict(draft.weights))
        try:
            edit(draft)
        except KeyError:
            continue  # the class has no such tensor or key to begin with
        if name == "healthy" or (draft.config, draft.weights) != before:
            yield f"{family}-{name}", draft


def heads(family: str) -> Iterator[tuple[str, Draft]]:
    """Those of a multi-token-prediction layer: the usual faults, and changes of the text config."""
    made = NEWEST[family]
    for name, config, weights in make_mtp_corpus.drafts(made, 7, 2):
        yield name, Draft(config=config, weights=weights)
    for name, change in BESIDE.items():
        draft = Draft(config=made.config(), weights=made.weights())
        try:
            change(draft.config)
        except KeyError:
            continue  # a config without that key
        yield f"{family}-{name}", draft


def write_corpus(folder: Path, families: list[str]) -> int:
    """Write the checkpoints of some families below ``folder``; how many there are."""
    count = 0
    for family in families:
        for name, draft in drafts(family):
            draft.target = None
            draft.write(folder / name)
            count += 1
    return count


def main() -> None:
    """Write the corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--family", action="append", choices=ALL)
    given = parser.parse_args()
    print(write_corpus(given.folder, given.family or ALL), "checkpoints")


if __name__ == "__main__":
    main()
