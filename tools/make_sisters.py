"""Write a drafter of Kimi-K2.5's size and one of its sister Kimi-K2's: the same shapes, another draft vocabulary.

    python tools/make_sisters.py FOLDER

Both choose 32,000 of 163,840 tokens and order them by id, as SpecForge does; only the first 252 draft ids mean the same
token, because from there on the sister is ahead by at least one. FOLDER/draft and FOLDER/sister are whole checkpoints
whose float weights are a hole; FOLDER/mapping.safetensors, d2t.npy and t2d.npy hold the sister's mapping alone.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

from make_kimi import DRAFT_VOCAB, TARGET_VOCAB, draft_config, draft_weights, write_pair
from weights import Weight, Weights, mask, offsets, spread, write_safetensors

AGREE = 252
"""The draft ids that mean the same token in both."""

SHARED = 21_483
"""The target tokens that both have, AGREE among them."""


def sisters() -> tuple[list[int], list[int]]:
    """The tokens of the two drafters by draft id, rising. Deterministic."""
    kept = set(spread(DRAFT_VOCAB, TARGET_VOCAB - 1)) - {AGREE} | {TARGET_VOCAB - 1}
    ours = sorted(kept)
    after_gaps = [two for one, two in pairwise(ours[:-1]) if two - one > 1 and one > AGREE]
    swaps = DRAFT_VOCAB - SHARED - 1
    # Each token that the sister has alone comes before the one it stands for: she never falls back into step.
    lost = {ours[-1], *(after_gaps[i * len(after_gaps) // swaps] for i in range(swaps))}
    won = {AGREE, *(token - 1 for token in lost - {ours[-1]})}
    return ours, sorted(kept - lost | won)


def mapping(kept: list[int]) -> Weights:
    """d2t as offsets and t2d, as trainers keep them."""
    return {"d2t": offsets(kept), "t2d": mask(TARGET_VOCAB, kept)}


def write_npy(path: Path, weight: Weight) -> None:
    """Write a vector of I64 or BOOL as numpy does."""
    code = {"I64": "<i8", "BOOL": "|b1"}[weight.dtype]
    header = f"{{'descr': '{code}', 'fortran_order': False, 'shape': ({weight.shape[0]},), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + weight.raw)


def write_sisters(folder: Path) -> Path:
    """Write both checkpoints and the sister's mapping in its other forms; answers the folder."""
    ours, theirs = sisters()
    write_pair(folder / "draft", {**draft_weights(), **mapping(ours)})
    sister = write_pair(folder / "sister", {**draft_weights(), **mapping(theirs)}, draft_config())
    (sister / "target_config.json").unlink()  # that of Kimi-K2.5 is not hers
    write_safetensors(folder / "mapping.safetensors", mapping(theirs))
    for name, weight in mapping(theirs).items():
        write_npy(folder / f"{name}.npy", weight)
    return folder


def main() -> None:
    """Parse the command line and write."""
    parser = argparse.ArgumentParser(description="write a Kimi-K2.5-shaped drafter and one of a sister model, sparse")
    parser.add_argument("folder", type=Path)
    print(write_sisters(parser.parse_args().folder))


if __name__ == "__main__":
    main()
