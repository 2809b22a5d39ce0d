"""DC805 on mappings that are wrong in part, and where the two heads tell nothing: that is said, and is no verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_target_weights import HEAD, beside, half, told
from variants import Pair, build, healthy
from weights import Weight, integers, mask, read_safetensors, write_safetensors

from drafcheck.cli import run
from drafcheck.finding import Finding, Severity
from drafcheck.matrix import Matrix
from drafcheck.report.model import CheckpointReport
from drafcheck.source import SourceError

Numbers = np.ndarray[Any, np.dtype[np.float32]]


SETTLED = "; a later training state would tell, or the mapping that the trainer kept (--reference)"


def tokens_of(pair: Pair) -> list[int]:
    return [i + offset for i, offset in enumerate(pair.offsets())]


def numbers(weight: Weight) -> Numbers:
    values = (np.frombuffer(weight.raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    return values.reshape(weight.shape)


def mapped(folder: Path, change: Callable[[list[int]], list[int]]) -> Path:
    """The trained drafter with another mapping."""
    pair = healthy()
    tokens = change(tokens_of(pair))
    pair.weights["d2t"] = integers([token - i for i, token in enumerate(tokens)])
    pair.weights["t2d"] = mask(2048, tokens)
    return pair.write(folder)


def scrambled(share: float) -> Callable[[list[int]], list[int]]:
    """So many of the draft ids, anywhere, have their tokens among each other."""

    def change(tokens: list[int]) -> list[int]:
        random = np.random.default_rng(1)
        chosen = random.permutation(len(tokens))[: round(share * len(tokens))]
        moved = list(tokens)
        for place, source in zip(chosen, random.permutation(chosen), strict=True):
            moved[place] = tokens[source]
        return moved

    return change


def said(report: CheckpointReport) -> list[Finding]:
    return [f for f in report.findings if f.rule == "DC805"]


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0, None), (0.02, Severity.WARNING), (0.1, Severity.WARNING), (0.3, Severity.ERROR), (0.5, Severity.ERROR)],
)
def test_a_mapping_that_is_wrong_in_part_is_told_with_its_share(
    tmp_path: Path, share: float, severity: Severity | None
) -> None:
    report = beside(mapped(tmp_path / "ckpt", scrambled(share)), HEAD)
    assert [f.severity for f in said(report)] == ([severity] if severity else [])
    head = told(report)
    assert head.verdict == ("partly" if share else "right")
    assert abs(head.amiss - share) < 0.1 and abs(head.agree - (1 - share)) < 0.25
    other = f"about {head.amiss:.0%} of the rows of lm_head are those of other tokens than those that d2t names: "
    assert all(f.message.startswith(other) for f in said(report))


def test_rows_that_are_named_as_examples_are_wrong_ones(tmp_path: Path) -> None:
    right, wrong = tokens_of(healthy()), scrambled(0.3)(tokens_of(healthy()))
    [finding] = said(beside(mapped(tmp_path / "ckpt", scrambled(0.3)), HEAD))
    shown = finding.message.partition("such as ")[2].replace("(token ", "").replace(")", "").split(", ")
    named = [tuple(map(int, words.split())) for words in shown]
    assert len(named) == 3
    assert all(wrong[row] == token != right[row] for row, token in named)


def test_a_part_that_is_one_off_is_told_how_it_would_be_right(tmp_path: Path) -> None:
    """The upper half names the token after its own."""
    folder = mapped(tmp_path / "ckpt", lambda tokens: tokens[:512] + [min(t + 1, 2047) for t in tokens[512:]])
    [finding] = said(beside(folder, HEAD))
    assert finding.severity is Severity.ERROR
    words = finding.message.rpartition("; read as ")[2]
    assert words.startswith(("one token less, ", "those of the draft ids before, ")) and words.endswith(
        "% of these have"
    )


def with_head(folder: Path, head: Weight) -> Path:
    pair = healthy()
    pair.weights["lm_head.weight"] = head
    return pair.write(folder)


def learnt(directions: int) -> Weight:
    """A head that has learnt no more than the first directions of the trained one, as after few steps."""
    trained = numbers(healthy().weights["lm_head.weight"])
    centre = trained.mean(axis=0)
    left, sizes, right = np.linalg.svd(trained - centre, full_matrices=False)
    coarse = left[:, :directions] * sizes[:directions] @ right[:directions] + centre
    noise = np.random.default_rng(0).normal(0, trained.std() / 2, trained.shape)
    return half((coarse + noise).astype(np.float32))


@pytest.mark.parametrize("directions", [2, 3, 6])
def test_a_head_that_was_trained_little_is_not_called_misaligned(tmp_path: Path, directions: int) -> None:
    """Its rows are seldom nearest to their own token, and near to it all the same."""
    report = beside(with_head(tmp_path / "ckpt", learnt(directions)), HEAD)
    head = told(report)
    assert not said(report) and head.verdict == "untold" and 0.02 < head.agree < 0.3
    [skipped] = [s for s in report.skipped if s.rule == "DC805"]
    assert skipped.asked and "tell, though not for all of them, whether its rows are" in skipped.why
    assert skipped.why.endswith(f"{head.agree:.0%} of 256 sampled rows agree{SETTLED}")


def test_one_that_has_learnt_enough_is_right(tmp_path: Path) -> None:
    report = beside(with_head(tmp_path / "ckpt", learnt(20)), HEAD)
    assert not said(report) and told(report).verdict == "right"


@pytest.mark.parametrize(
    ("fill", "why"),
    [
        (
            None,
            "too little sets the rows of lm_head.weight apart from random ones (1.00 times their cosines)" + SETTLED,
        ),
        (0x7FC0, "256 of 256 sampled rows of lm_head.weight hold no finite number but zeros"),
        (0, "256 of 256 sampled rows of lm_head.weight hold no finite number but zeros"),
    ],
)
def test_a_head_that_tells_nothing_gets_no_verdict_and_a_line(
    tmp_path: Path, fill: int | None, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random, NaN and zeros."""
    size = 1024 * 256
    head = Weight("BF16", (1024, 256), (fill or 0).to_bytes(2, "little") * size)
    pair = build("00_random_weights") if fill is None else healthy()
    if fill is not None:
        pair.weights["lm_head.weight"] = head
    folder = pair.write(tmp_path / "ckpt")
    report = beside(folder, HEAD)
    assert not said(report) and told(report).verdict == "untold"
    assert told(report).why == f"a head of which the target's tells the tokens: {why}"
    run([str(folder), "--engine", "sglang==0.5.15", "--target-weights", str(HEAD), "-q"])
    assert f"not done as asked: 1 rule needs {told(report).why}\n" in capsys.readouterr().out


def test_a_few_rows_without_numbers_are_no_hindrance(tmp_path: Path) -> None:
    head = healthy().weights["lm_head.weight"]
    raw = bytes.fromhex("c07f") * (256 * 20) + head.raw[2 * 256 * 20 :]
    report = beside(with_head(tmp_path / "ckpt", Weight("BF16", head.shape, raw)), HEAD)
    assert not said(report) and told(report).verdict == "right" and 0.9 < told(report).agree < 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shift", [0, 1])
def test_the_largest_numbers_of_a_few_rows_outweigh_no_other(tmp_path: Path, shift: int) -> None:
    """A head in order, and one whose rows are one off, each with two values at the end of bfloat16."""
    head = np.roll(numbers(healthy().weights["lm_head.weight"]), shift, axis=0)
    head[0, 5] = head[2, 88] = np.float32(3.3e38)
    report = beside(with_head(tmp_path / "ckpt", half(head)), HEAD)
    assert told(report).verdict == ("wrong" if shift else "right")
    assert [f.rule for f in said(report)] == ["DC805"] * shift


@pytest.mark.parametrize("rule", ["DC804", "DC805"])
def test_rows_that_can_not_be_read_are_said(tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found then, and it is not passed over; once they can be read nothing is said."""
    pair, engine = healthy(), "vllm==0.33.0"
    folder, weights = pair.write(tmp_path / "ckpt"), tmp_path / "target"
    weights.mkdir()
    [file] = HEAD.glob("*.safetensors")
    [head] = [w for n, w in read_safetensors(file).items() if n.endswith("lm_head.weight")]
    made = {"lm_head.weight": head, "model.embed_tokens.weight": pair.weights["embed_tokens.weight"]}
    write_safetensors(weights / "model.safetensors", made)
    assert not [s for s in beside(folder, weights, engine=engine).skipped if s.asked]
    real = Matrix.rows

    def broken(matrix: Matrix, rows: Any, columns: int | None = None) -> Any:
        if ("embed" in matrix.tensor.name) is (rule == "DC804"):
            raise SourceError("model.safetensors ends before byte 9")
        return real(matrix, rows, columns)

    monkeypatch.setattr(Matrix, "rows", broken)
    report = beside(folder, weights, engine=engine)
    assert not [f for f in report.findings if f.rule == rule]
    [skipped] = [s for s in report.skipped if s.asked]
    assert skipped.rule == rule and skipped.why.endswith("can not be read: model.safetensors ends before byte 9")


@pytest.mark.parametrize(
    ("flag", "shard", "tied"),
    [(True, False, True), (False, False, False), (None, False, True), (None, True, False), (True, True, True)],
)
def test_an_embedding_is_the_head_only_where_the_two_are_one(
    tmp_path: Path, flag: bool | None, shard: bool, tied: bool
) -> None:
    """As tie_word_embeddings says; without it one shard of several tells nothing."""
    [file] = HEAD.glob("*.safetensors")
    [head] = [w for n, w in read_safetensors(file).items() if n.endswith("lm_head.weight")]
    pair = healthy()
    pair.target.pop("tie_word_embeddings", None)
    pair.target.update({} if flag is None else {"tie_word_embeddings": flag})
    folder = pair.write(tmp_path / "ckpt")
    weights = tmp_path / ("model-00001-of-00004.safetensors" if shard else "model.safetensors")
    write_safetensors(weights, {"model.embed_tokens.weight": head})
    report = beside(folder, weights)
    assert (report.head is not None) is tied and not said(report)
    skipped = [s.why for s in report.skipped if s.rule == "DC805"]
    assert len(skipped) == (not tied)
    assert all(
        why.endswith("; its embed_tokens.weight is not the head, as tie_word_embeddings is not true") for why in skipped
    )


@pytest.mark.parametrize(("shift", "said_so"), [(0, []), (1, ["DC805"])])
@pytest.mark.parametrize("engine", ["sglang==0.5.15", "vllm==0.33.0"])
def test_the_rows_of_a_head_of_full_vocabulary_are_those_of_their_numbers(
    tmp_path: Path, engine: str, shift: int, said_so: list[str]
) -> None:
    """Of a drafter without d2t: the target's own head, in its order and one row off."""
    [file] = HEAD.glob("*.safetensors")
    [head] = [w for n, w in read_safetensors(file).items() if n.endswith("lm_head.weight")]
    noise = np.random.default_rng(2).normal(0, 0.2 * numbers(head).std(), head.shape)
    pair = healthy()
    pair.weights["lm_head.weight"] = half(np.roll(numbers(head) + noise.astype(np.float32), shift, axis=0))
    del pair.weights["d2t"], pair.weights["t2d"]
    pair.config["draft_vocab_size"] = 2048
    report = beside(pair.write(tmp_path / "ckpt"), HEAD, engine=engine)
    assert [f.rule for f in said(report)] == said_so
    assert told(report).verdict == ("wrong" if shift else "right")
    words = ("the token of their number", "read as one token less it is 100%")
    assert all(word in f.message for f in said(report) for word in words)
