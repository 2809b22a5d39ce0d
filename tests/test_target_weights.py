"""``--target-weights``: the draft's head and embedding beside the target's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drafts import Draft
from variants import TRAINED, build
from weights import ITEM, Weight, integers, mask, offsets, read_safetensors, spread, write_safetensors

from drafcheck import lint
from drafcheck.cli import run
from drafcheck.errors import UsageError
from drafcheck.finding import Finding, Severity
from drafcheck.report.model import CheckpointReport, HeadBeside, Outcome
from drafcheck.runner import examine_many, report_of
from drafcheck.session import Options

HEAD = TRAINED / "target-head"


def beside(folder: Path, weights: Path, **options: Any) -> CheckpointReport:
    made = Options(engine="sglang==0.5.15", target_weights=str(weights))
    for name, value in options.items():
        setattr(made, name, value)
    [report] = report_of(examine_many([folder], made)).checkpoints
    return report


def spoken(folder: Path, weights: Path, *rules: str, **options: Any) -> list[Finding]:
    """What the rules say, DC804 and DC805 or these, neither of which is skipped."""
    rules = rules or ("DC804", "DC805")
    report = beside(folder, weights, **options)
    assert not [s for s in report.skipped if s.rule in rules]
    return [f for f in report.findings if f.rule in rules]


def told(report: CheckpointReport) -> HeadBeside:
    assert report.head is not None and report.head.rows == 256 and report.head.chance == 1 / 256
    return report.head


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("01_healthy", None),
        ("40_half_trained", None),
        ("07a_lm_head_permuted", "read as those of the next draft ids it is 100%"),
        ("07b_d2t_other_corpus", "3% of 256 sampled rows"),
        ("06_d2t_absolute", "read as absolute token ids it is 100%"),
        ("38_d2t_zero", "1% of 256 sampled rows"),
    ],
)
def test_the_trained_head_tells_which_mapping_is_its_own(tmp_path: Path, variant: str, said: str | None) -> None:
    found = spoken(build(variant).write(tmp_path / "ckpt"), HEAD)
    assert [f.rule for f in found] == ([] if said is None else ["DC805"])
    assert all(f.severity is Severity.ERROR and str(said) in f.message for f in found)


def test_without_the_option_the_rules_are_skipped() -> None:
    [seen] = examine_many([TRAINED / "draft"], Options(engine="sglang==0.5.15"))
    assert {(code, why) for code, why in seen.skipped if code in ("DC804", "DC805")} == {
        ("DC804", "needs --target-weights"),
        ("DC805", "needs --target-weights"),
    }


def skips(folder: Path, weights: Path) -> list[str]:
    """Why DC805 is skipped beside these weights."""
    [seen] = examine_many([folder], Options(engine="sglang==0.5.15", target_weights=str(weights)))
    assert "DC805" not in {f.rule for f in seen.findings}
    return [why for code, why in seen.skipped if code == "DC805"]


def test_a_head_of_other_rows_is_not_the_targets() -> None:
    """The draft itself, in place of its target: a healthy draft stays healthy."""
    [why] = skips(TRAINED / "draft", TRAINED / "draft")
    assert why == "needs the target's head: lm_head.weight in --target-weights has 1,024 rows for 2,048 tokens"
    assert skips(TRAINED / "draft", HEAD) == []


ARGS = ("--engine", "sglang==0.5.15", "--target-weights")


@pytest.mark.parametrize("quiet", [[], ["-q"]])
@pytest.mark.parametrize("command", ["check", "fix"])
def test_what_an_option_asked_for_in_vain_is_said_however_little_else(
    command: str, quiet: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    draft = str(TRAINED / "draft")
    assert run([command, draft, *ARGS, draft, *quiet]) == 0
    line = "not done as asked: 1 rule needs the target's head: lm_head.weight in --target-weights has 1,024 rows"
    out = capsys.readouterr().out
    assert out.count("the target's head") == 1 and f"\n{line} for 2,048 tokens\n" in f"\n{out}"
    assert run([command, draft, *ARGS, str(HEAD), *quiet]) == 0
    assert "not done as asked" not in capsys.readouterr().out


def test_a_report_for_programs_says_that_it_was_asked_for() -> None:
    report = lint(TRAINED / "draft", engine="sglang==0.5.15", target_weights=TRAINED / "draft")
    assert {s.rule for s in report.checkpoints[0].skipped if s.asked} == {"DC805"}
    assert not any(s.asked for s in lint(TRAINED / "draft", engine="sglang==0.5.15").checkpoints[0].skipped)


def test_weights_of_another_model_than_the_target_are_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two options that contradict each other, and weights that have nothing to compare with."""
    draft, target = str(TRAINED / "draft"), str(TRAINED / "target")
    for command in ("check", "fix", "show"):
        assert run([command, draft, "--target", target, *ARGS, draft]) == 2
        said = f"lm_head.weight has 1,024 rows, and the target {target} has 2,048 tokens: these are not its weights"
        assert capsys.readouterr().err == f"error: --target-weights {draft}: {said}\n"
        assert run([command, draft, "--target", target, *ARGS, str(HEAD)]) == 0
    capsys.readouterr()
    write_safetensors(tmp_path / "model.safetensors", {"norm.weight": Weight("F32", (1,), bytes(4))})
    assert run([draft, *ARGS, str(tmp_path)]) == 2
    assert "no lm_head.weight and no embed_tokens.weight there" in capsys.readouterr().err


def test_a_head_of_another_width_than_the_target_s_states_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A draft's head may have any width: it is compared by how near its rows are to each other."""
    draft = Draft()
    draft.write(tmp_path / "draft")
    config = json.loads((tmp_path / "draft" / "target_config.json").read_text())
    rows = np.random.default_rng(3).standard_normal((config["vocab_size"], 2 * config["hidden_size"]), np.float32)
    write_safetensors(tmp_path / "model.safetensors", {"lm_head.weight": half(rows)})
    command = [str(tmp_path / "draft"), "--engine", "sglang==0.5.15", "--target-weights", str(tmp_path)]
    assert run(command) == 2
    assert "lm_head.weight takes 64 values, and the hidden states of the target" in capsys.readouterr().err
    narrow = half(rows[:, : config["hidden_size"]])
    write_safetensors(tmp_path / "model.safetensors", {"lm_head.weight": narrow})
    assert run(command) != 2
    config["hidden_size"] *= 2  # the draft's own head is half as wide as the target's then
    (tmp_path / "draft" / "target_config.json").write_text(json.dumps(config))
    write_safetensors(tmp_path / "model.safetensors", {"lm_head.weight": half(rows)})
    assert run(command) != 2
    assert "are not its weights" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "width", "said"),
    [
        ("model.embed_tokens.weight", 32, None),
        ("lm_head.weight", 32, "the target's embedding, and there is no embed_tokens.weight"),
        ("model.embed_tokens.weight", 64, "an embedding as wide as the draft's: [32] here, [64] in --target-weights"),
    ],
)
def test_an_embedding_that_can_not_be_compared_is_said(tmp_path: Path, name: str, width: int, said: str | None) -> None:
    """Where the draft's own is loaded (vLLM); where the target's takes its place nothing is asked."""
    draft = Draft(engine="vllm==0.33.0")
    draft.weights["embed_tokens.weight"] = half(np.ones((256, 32), np.float32))
    draft.write(tmp_path / "ckpt")
    weights = tmp_path / "target"
    weights.mkdir()
    write_safetensors(weights / "model.safetensors", {name: half(np.ones((256, width), np.float32))})
    for engine, expected in (("vllm==0.33.0", said), ("sglang==0.5.15", None)):
        [checkpoint] = lint(tmp_path / "ckpt", engine=engine, target_weights=weights).checkpoints
        found = [s.why for s in checkpoint.skipped if s.rule == "DC804"]
        assert len(found) == (expected is not None) and all(str(expected) in why for why in found)
        assert all(s.asked for s in checkpoint.skipped if s.rule == "DC804")


def without_map(tmp_path: Path, variant: str) -> Path:
    pair = build(variant)
    del pair.weights["d2t"]
    return pair.write(tmp_path / variant)


def test_advice_does_not_contradict_the_targets_head(tmp_path: Path) -> None:
    """The order of t2d is that of a healthy head, and not that of one with its rows in another order."""
    own, other = without_map(tmp_path, "01_healthy"), without_map(tmp_path, "07a_lm_head_permuted")
    for weights, folder, says in ((HEAD, own, "compute d2t"), (None, other, "compute d2t"), (HEAD, other, "add the")):
        report = lint(folder, engine="sglang==0.5.15", target_weights=weights)
        [finding] = [f for f in report.checkpoints[0].findings if f.rule == "DC301"]
        assert finding.help is not None and finding.help.startswith(says)
        assert ("are not those of lm_head, by --target-weights" in finding.help) is (says == "add the")
        assert finding.fixable is (folder == own)


@pytest.mark.parametrize(("extra", "fits"), [(64, True), (65, False)])
def test_a_padded_head_is_the_targets(tmp_path: Path, extra: int, fits: bool) -> None:
    [file] = HEAD.glob("*.safetensors")
    name, head = next((n, w) for n, w in read_safetensors(file).items() if n.endswith("lm_head.weight"))
    rows, width = head.shape
    raw = head.raw + bytes(extra * width * 2)
    write_safetensors(tmp_path / "model.safetensors", {name: Weight(head.dtype, (rows + extra, width), raw)})
    assert bool(skips(TRAINED / "draft", tmp_path)) is not fits


WIDTH, VOCAB, DRAFT_VOCAB = 448, 10240, 2000  # a sixteenth of Kimi-K2's
KEPT = spread(DRAFT_VOCAB, VOCAB)


def half(values: np.ndarray[Any, np.dtype[np.float32]]) -> Weight:
    """Numbers as bfloat16."""
    bits = (values.astype(np.float32).view(np.uint32) + 0x8000 >> 16).astype("<u2")
    return Weight("BF16", values.shape, bits.tobytes())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target's head in which tokens are alike in many ways, and a draft's in another space, after the same tokens."""
    random = np.random.default_rng(11)
    meaning = random.standard_normal((VOCAB, 64), np.float32)
    noise = 0.6 * random.standard_normal((VOCAB, WIDTH), np.float32)
    target = meaning @ random.standard_normal((64, WIDTH), np.float32) / 8 + noise
    ours = meaning[KEPT] @ random.standard_normal((64, WIDTH), np.float32) / 8
    ours += 0.6 * random.standard_normal((DRAFT_VOCAB, WIDTH), np.float32)
    folder = tmp_path_factory.mktemp("pair")
    (folder / "target").mkdir()
    write_safetensors(folder / "target" / "model.safetensors", {"lm_head.weight": half(target)})
    write_safetensors(folder / "head.safetensors", {"lm_head.weight": half(ours)})
    return folder


def synthetic(pair: Path, folder: Path, tokens: list[int] | None = None, raw: list[int] | None = None) -> Path:
    """The draft with this mapping, or with these values as d2t."""
    draft = Draft()
    draft.set(hidden_size=WIDTH, vocab_size=VOCAB, draft_vocab_size=DRAFT_VOCAB, num_attention_heads=7, head_dim=64)
    draft.set(num_key_value_heads=7)
    draft.target = {**(draft.target or {}), "hidden_size": WIDTH, "vocab_size": VOCAB}
    sizes = {32: WIDTH, 64: 2 * WIDTH, 96: 3 * WIDTH, 16: WIDTH}
    for name, weight in draft.weights.items():
        if weight.dtype == "BF16":
            draft.shape(name, *(sizes.get(size, size) for size in weight.shape))
    draft.weights["lm_head.weight"] = read_safetensors(pair / "head.safetensors")["lm_head.weight"]
    draft.weights["d2t"] = integers(raw) if raw is not None else offsets(tokens or KEPT)
    draft.weights["t2d"] = mask(VOCAB, tokens or KEPT)
    draft.write(folder)
    return folder


def test_a_right_mapping_is_quiet_and_the_report_has_its_numbers(
    pair: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft, weights = synthetic(pair, tmp_path), pair / "target"
    assert not spoken(draft, weights)
    head = told(beside(draft, weights))
    assert (head.verdict, head.agree, head.amiss, head.why) == ("right", 1, 0, None)
    assert set(head.readings) == {"one token further", "one token less"} and max(head.readings.values()) < 0.05
    line = "lm_head beside the target's: 100.0% of 256 sampled rows have the neighbours of the token that the mapping "
    for quiet in ([], ["-q"]):
        assert run([str(draft), *ARGS, str(weights), *quiet]) == 0
        assert (f"\n{line}names (by chance 0.4%, read as one token" in capsys.readouterr().out) is not quiet
    assert run([str(draft), *ARGS, str(weights), "--format", "markdown"]) == 0
    assert "256 sampled rows have the neighbours of the token that the mapping names" in capsys.readouterr().out


def test_a_scrambled_one_is_told(pair: Path, tmp_path: Path) -> None:
    tokens = [KEPT[i] for i in np.random.default_rng(3).permutation(DRAFT_VOCAB)]
    report = beside(synthetic(pair, tmp_path, tokens), pair / "target")
    [finding] = [f for f in report.findings if f.rule == "DC805"]
    assert "1% of 256 sampled rows" in finding.message and "read as" not in finding.message
    head = told(report)
    assert head.verdict == "wrong" and head.agree < 0.02 and head.amiss > 0.8
    assert set(head.readings) > {"absolute token ids", "the draft ids themselves", "those of the next draft ids"}
    assert max(head.readings.values()) < 0.2  # the first tokens are those of their ids


def test_one_that_is_one_off_is_told(pair: Path, tmp_path: Path) -> None:
    tokens = [(token + 1) % VOCAB for token in KEPT]
    report = beside(synthetic(pair, tmp_path, tokens), pair / "target")
    [finding] = [f for f in report.findings if f.rule == "DC805"]
    assert "read as one token less it is 100%" in finding.message
    assert (
        told(report).verdict == "wrong" and told(report).readings["one token less"] > 0.99 and told(report).agree < 0.02
    )


def test_absolute_ids_are_told(pair: Path, tmp_path: Path) -> None:
    report = beside(synthetic(pair, tmp_path, raw=list(KEPT)), pair / "target")
    [finding] = [f for f in report.findings if f.rule == "DC805"]
    assert "read as absolute token ids it is 100%" in finding.message
    assert (
        told(report).verdict == "wrong"
        and told(report).readings["absolute token ids"] == 1
        and told(report).agree < 0.02
    )


def test_the_reference_is_one_of_the_readings(pair: Path, tmp_path: Path) -> None:
    other = sorted({(3 * token + 1) % VOCAB for token in KEPT})
    other = (other * 2)[:DRAFT_VOCAB] if len(other) < DRAFT_VOCAB else other[:DRAFT_VOCAB]
    write_safetensors(tmp_path / "reference.safetensors", {"d2t": offsets(KEPT)})
    folder = synthetic(pair, tmp_path / "ckpt", other)
    [finding] = spoken(folder, pair / "target", reference=str(tmp_path / "reference.safetensors"))
    assert "read as the reference's mapping it is 100%" in finding.message


def with_embedding(tmp_path: Path, change: float, dtype: str = "BF16") -> list[Finding]:
    """A vLLM draft with an embedding of its own beside a target's that differs by ``change``."""
    random = np.random.default_rng(5)
    table = random.standard_normal((256, 32)).astype(np.float32)
    draft = Draft(engine="vllm==0.33.0")
    draft.weights["embed_tokens.weight"] = half(table)
    draft.set(architectures=["LlamaForCausalLMEagle3"])
    draft.write(tmp_path / "ckpt")
    other = table + change * random.standard_normal(table.shape).astype(np.float32)
    (tmp_path / "target").mkdir()
    weight = half(other) if dtype == "BF16" else Weight("F32", other.shape, other.tobytes())
    write_safetensors(tmp_path / "target" / "model.safetensors", {"model.embed_tokens.weight": weight})
    return spoken(tmp_path / "ckpt", tmp_path / "target", "DC804", engine="vllm==0.33.0")


@pytest.mark.parametrize(
    ("change", "dtype", "count"), [(0, "BF16", 0), (0, "F32", 0), (0.5, "BF16", 1), (0.5, "F32", 1)]
)
def test_an_embedding_of_another_target_is_told(
    tmp_path: Path, change: float, dtype: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = with_embedding(tmp_path, change, dtype)
    assert [f.rule for f in found] == ["DC804"] * count
    assert all("256 of 256 sampled rows differ" in f.message and "median cosine 0." in f.message for f in found)
    weights = tmp_path / "target"
    assert run([str(tmp_path / "ckpt"), "--engine", "vllm==0.33.0", "--target-weights", str(weights)]) == 0
    said = "256 of 256 sampled rows differ, by up to" if count else "256 sampled rows are the same\n"
    assert f"\nembed_tokens beside the target's: {said}" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", sorted(ITEM))
@pytest.mark.parametrize("side", ["draft", "target"])
def test_every_dtype_is_compared_or_said_not_to_be(tmp_path: Path, dtype: str, side: str) -> None:
    """Of the head and of the embedding, on either side."""
    draft = Draft(engine="vllm==0.33.0")
    draft.weights["embed_tokens.weight"] = half(np.ones((256, 32), np.float32))
    own = draft.weights["lm_head.weight"]
    made = {"lm_head.weight": half(np.ones((256, 32), np.float32)), "embed_tokens.weight": half(np.ones((256, 32)))}
    places = draft.weights if side == "draft" else made
    for name in ("lm_head.weight", "embed_tokens.weight"):
        rows = own.shape[0] if side == "draft" and name == "lm_head.weight" else 256
        places[name] = Weight(dtype, (rows, 32), bytes(rows * 32 * ITEM[dtype]))
    made["norm.weight"] = half(np.ones(32, np.float32))
    draft.write(tmp_path / "ckpt")
    (tmp_path / "target").mkdir()
    write_safetensors(tmp_path / "target" / "model.safetensors", made)
    narrow = dtype not in ("BF16", "F16", "F32", "F64")
    if side == "target" and (narrow or dtype == "F64"):
        with pytest.raises(UsageError, match=r"of which rows can be compared"):
            lint(tmp_path / "ckpt", engine="vllm==0.33.0", target_weights=tmp_path / "target")
        return
    [report] = lint(tmp_path / "ckpt", engine="vllm==0.33.0", target_weights=tmp_path / "target").checkpoints
    assert report.outcome is not Outcome.INTERNAL_ERROR
    assert ({s.rule for s in report.skipped if s.asked} == {"DC804", "DC805"}) is narrow


@pytest.mark.parametrize("dtype", ["F16", "F32", "F64"])
@pytest.mark.parametrize("moved", [0, 1])
def test_an_embedding_in_another_dtype_is_the_same_after_its_cast(tmp_path: Path, dtype: str, moved: int) -> None:
    """Also where float16 has no number so small but its subnormal ones."""
    random = np.random.default_rng(3)
    theirs = half(random.normal(0, 1, (256, 32)) * 10.0 ** random.integers(-9, 2, (256, 32)))
    values = (np.frombuffer(theirs.raw, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(256, 32)
    ours = np.roll(values, moved, axis=0).astype({"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype])
    draft = Draft(engine="vllm==0.33.0")
    draft.weights["embed_tokens.weight"] = Weight(dtype, (256, 32), ours.tobytes())
    draft.write(tmp_path / "ckpt")
    (tmp_path / "target").mkdir()
    write_safetensors(tmp_path / "target" / "model.safetensors", {"model.embed_tokens.weight": theirs})
    found = lint(tmp_path / "ckpt", engine="vllm==0.33.0", target_weights=tmp_path / "target").findings
    assert ("DC804" in {f.rule for f in found}) is bool(moved)


def test_a_head_that_can_not_be_compared_is_not_taken_for_the_embedding(tmp_path: Path) -> None:
    [file] = HEAD.glob("*.safetensors")
    head = next(w for n, w in read_safetensors(file).items() if n.endswith("lm_head.weight"))
    packed = Weight("F8_E4M3", head.shape, bytes(head.size // 2))
    for made, done in (({"lm_head.weight": packed}, False), ({}, True)):
        tensors = {"model.embed_tokens.weight": head, **made}
        write_safetensors(tmp_path / "model.safetensors", tensors)
        why = skips(TRAINED / "draft", tmp_path)
        assert [w.startswith("needs the target's head, and there is no lm_head.weight") for w in why] == [True] * (
            not done
        )
