"""DC801 to DC806: drafts whose weights hold numbers, for ``--values`` and ``--target-weights``."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

from cases import case
from cases_reference import KEPT
from drafts import HIDDEN, VOCAB, Draft
from weights import Weight, offsets, write_safetensors

VALUES = "--values"
WEIGHTS = "--target-weights {case}/target"


def half(values: list[float]) -> bytes:
    """Numbers as bfloat16, cut off."""
    wide = struct.pack(f"<{len(values)}f", *values)
    return b"".join(wide[i + 2 : i + 4] for i in range(0, len(wide), 4))


def filled(draft: Draft, deviation: Callable[[int], float] = lambda _: 0.2) -> None:
    """Give every weight numbers of its own, as after a training: norms near one, matrices of uneven rows."""
    random = Random(8)
    for name, weight in draft.weights.items():
        if weight.dtype == "BF16":
            width = weight.shape[-1]
            vector = len(weight.shape) == 1
            values = [
                random.uniform(0.6, 1.4) if vector else random.gauss(0, deviation(i // width) * (1 + i // width % 3))
                for i in range(weight.size // 2)
            ]
            draft.weights[name] = Weight("BF16", weight.shape, half(values))


def with_bytes(draft: Draft, name: str, at: int, data: bytes) -> None:
    """Put other bytes into a tensor."""
    old = draft.weights[name]
    draft.weights[name] = Weight(old.dtype, old.shape, old.raw[:at] + data + old.raw[at + len(data) :])


@case("good/values", args=VALUES)
def healthy_values(draft: Draft) -> None:
    filled(draft)


@case("DC801/one-nan", args=VALUES)
def one_nan(draft: Draft) -> None:
    filled(draft)
    with_bytes(draft, "fc.weight", 2 * (5 * 3 * HIDDEN + 7), b"\xc0\x7f")


@case("DC802/projection-and-rows", args=VALUES)
def zeros_inside(draft: Draft) -> None:
    filled(draft)
    output = draft.weights["midlayer.self_attn.o_proj.weight"]
    draft.weights["midlayer.self_attn.o_proj.weight"] = Weight("BF16", output.shape, bytes(output.size))
    with_bytes(draft, "lm_head.weight", 2 * HIDDEN * 10, bytes(2 * HIDDEN * 3))


@case("DC803/one-matrix-twice", args=VALUES)
def one_matrix_twice(draft: Draft) -> None:
    filled(draft)
    draft.weights["midlayer.mlp.up_proj.weight"] = draft.weights["midlayer.mlp.gate_proj.weight"]


@case("DC806/too-large-for-float16", args=f"{VALUES} --dtype float16")
def too_large(draft: Draft) -> None:
    filled(draft)
    with_bytes(draft, "fc.weight", 0, half([1e6]))


@case("good/large-in-bfloat16", args=f"{VALUES} --dtype bfloat16")
def large_enough(draft: Draft) -> None:
    too_large(draft)


def beside(draft: Draft, **tensors: Weight) -> None:
    """Put weights of the target into a subfolder, where no engine looks."""

    def write(folder: Path) -> None:
        (folder / "target").mkdir(exist_ok=True)
        named = {name.replace("__", "."): weight for name, weight in tensors.items()}
        write_safetensors(folder / "target" / "model.safetensors", named)

    draft.writers.append(write)


def heads(draft: Draft, tokens: list[int]) -> None:
    """A head and the target's, in which the same tokens are alike; the draft's rows lie in another order of columns."""
    random = Random(9)
    themes = [[random.gauss(0, 1) for _ in range(HIDDEN)] for _ in range(8)]
    rows = []
    for _ in range(VOCAB):
        shares = [random.gauss(0, 1) for _ in themes]
        rows.append([sum(s * theme[i] for s, theme in zip(shares, themes, strict=True)) / 8 for i in range(HIDDEN)])
    target = [value + random.gauss(0, 0.1) for row in rows for value in row]
    ours = [value + random.gauss(0, 0.1) for token in KEPT for value in rows[token][::-1]]
    draft.weights["lm_head.weight"] = Weight("BF16", (len(KEPT), HIDDEN), half(ours))
    draft.weights["d2t"] = offsets(tokens)
    beside(draft, lm_head__weight=Weight("BF16", (VOCAB, HIDDEN), half(target)))


@case("DC805/rows-of-other-tokens", args=WEIGHTS)
def other_tokens(draft: Draft) -> None:
    del draft.weights["t2d"]
    heads(draft, [*KEPT[37:], *KEPT[:37]])


@case("good/rows-of-their-tokens", args=WEIGHTS)
def their_tokens(draft: Draft) -> None:
    heads(draft, KEPT)


def embedded(draft: Draft, change: float) -> None:
    random = Random(10)
    table = [random.gauss(0, 1) for _ in range(VOCAB * HIDDEN)]
    draft.weights["embed_tokens.weight"] = Weight("BF16", (VOCAB, HIDDEN), half(table))
    other = half([value + change * random.gauss(0, 1) for value in table])
    beside(draft, model__embed_tokens__weight=Weight("BF16", (VOCAB, HIDDEN), other))


@case("DC804/another-embedding", "vllm==0.33.0", WEIGHTS)
def another_embedding(draft: Draft) -> None:
    embedded(draft, 0.3)


@case("good/embedding-of-the-target", "vllm==0.33.0", WEIGHTS)
def same_embedding(draft: Draft) -> None:
    embedded(draft, 0)
