"""``--values``: what every byte of every dtype is taken for, and what the rules make of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from drafts import Draft
from hypothesis import given
from hypothesis import strategies as st
from variants import TRAINED, build, healthy
from weights import Weight, write_safetensors, zeros

from drafcheck.checkpoint import WeightFile, open_folder
from drafcheck.cli import cli
from drafcheck.finding import Finding, Severity
from drafcheck.place import LocalPlace
from drafcheck.report.full import checked
from drafcheck.report.model import CheckpointReport, FailOn
from drafcheck.runner import examine_many, report_of
from drafcheck.session import Options
from drafcheck.source import Memory, SourceError
from drafcheck.valuescan import scan as scanning
from drafcheck.valuescan.formats import FLOATS, Format
from drafcheck.valuescan.kernels import look
from drafcheck.valuescan.model import TensorValues
from drafcheck.valuescan.scan import scan

VALUES = ("DC801", "DC802", "DC803", "DC806")


def slow(format_: Format, data: bytes) -> list[float]:
    """Every value of ``data`` by the book, one after another; NaN where there is none."""
    bits = [int.from_bytes(data[i : i + format_.width], "little") for i in range(0, len(data), format_.width)]
    signs = [-1.0 if b & format_.sign else 1.0 for b in bits]
    if format_.lone is not None:
        return [math.nan if b == format_.lone else s * format_.value(b) for b, s in zip(bits, signs, strict=True)]
    return [s * format_.value(b) for b, s in zip(bits, signs, strict=True)]


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"])
def test_every_code_of_the_8_bit_formats_means_what_torch_makes_of_it(dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="torch knows the 8-bit formats")
    named = {"F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu"}.get(dtype, "float" + dtype[1:].lower())
    codes = torch.arange(256, dtype=torch.uint8)
    theirs = codes.view(getattr(torch, named)).to(torch.float32).tolist()
    for ours, other in zip(slow(FLOATS[dtype], bytes(range(256))), theirs, strict=True):
        assert ours == other or not (math.isfinite(ours) or math.isfinite(other))


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_every_code_of_the_16_bit_formats_means_what_numpy_makes_of_it(dtype: str) -> None:
    codes = np.arange(1 << 16, dtype=np.uint32)
    theirs = codes.astype(np.uint16).view(np.float16) if dtype == "F16" else (codes << 16).view(np.float32)
    for ours, other in zip(slow(FLOATS[dtype], codes.astype("<u2").tobytes()), theirs.tolist(), strict=True):
        assert ours == other or not (math.isfinite(ours) or math.isfinite(other))


@given(st.sampled_from(sorted(FLOATS)), st.data())
def test_a_stretch_is_told_as_by_looking_at_every_value(dtype: str, data: st.DataObject) -> None:
    format_ = FLOATS[dtype]
    odd = st.sampled_from([0, format_.sign, format_.one, format_.finite, format_.finite + 1, format_.lone or 0])
    value = (odd | st.integers(0, (1 << 8 * format_.width) - 1)).map(
        lambda bits: (bits & (1 << 8 * format_.width) - 1).to_bytes(format_.width, "little")
    )
    width, rows = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    filled = [data.draw(st.lists(value, min_size=width, max_size=width)) for _ in range(rows)]
    raw = b"".join(b"".join(row) for row in filled)
    seen = look(dtype, memoryview(raw), width * format_.width)
    values = slow(format_, raw)
    bad = [i for i, v in enumerate(values) if not math.isfinite(v)]
    finite = [abs(v) for v in values if math.isfinite(v)]
    assert (seen.bad, seen.first) == (len(bad), bad[0] if bad else -1)
    assert format_.value(seen.largest) == max(finite, default=format_.value(0))
    zero = [r for r in range(rows) if not any(values[r * width : (r + 1) * width])]
    held = max((r for r in range(rows) if r not in zero), default=-1)
    assert seen.empty == (rows, len(zero), zero[0] if zero else -1, rows - 1 - held)
    assert seen.even == (len({raw[i : i + format_.width] for i in range(0, len(raw), format_.width)}) == 1)


def seen(folder: Path, share: float = 1.0) -> dict[str, TensorValues]:
    return {v.tensor.name: v for v in scan(open_folder("ckpt", LocalPlace(folder)).files, share).tensors}


def test_a_tensor_is_told_the_same_however_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    matrix = random.standard_normal((70, 33), np.float32)
    matrix[[3, 40, 69]] = 0
    matrix[11, 5] = np.inf
    vector = np.ones(5000, np.float32)
    tensors = {
        "matrix": Weight("F32", matrix.shape, matrix.tobytes()),
        "vector": Weight("F32", vector.shape, vector.tobytes()),
        "empty": Weight("F32", (0, 4), b""),
        "scalar": Weight("F32", (), np.float32(-2.5).tobytes()),
    }
    write_safetensors(tmp_path / "model.safetensors", tensors)
    told = []
    for chunk in (200, 1000, 2 << 20):
        monkeypatch.setattr(scanning, "CHUNK", chunk)
        values = seen(tmp_path)
        m, v = values["matrix"], values["vector"]
        empty = m.empty.count, m.empty.first, m.empty.last
        told.append((m.bad, m.first, m.absmax, empty, m.rows, v.ones, v.whole, values["scalar"].absmax))
        assert "empty" not in values
    expected = (1, 11 * 33 + 5, float(np.abs(matrix[np.isfinite(matrix)]).max()), (3, 3, 1), 70, True, True, 2.5)
    assert told == [expected] * 3


def test_a_sample_reads_about_its_share_and_knows_that_it_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"x": Weight("F32", (1000, 100), bytes(400_000))})
    monkeypatch.setattr(scanning, "CHUNK", 4000)
    x = seen(tmp_path, 0.2)["x"]
    assert (x.seen, x.whole, x.zero) == (20_000, False, True)


def test_a_file_that_ends_too_early_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    two = {"a": Weight("F32", (4,), bytes(16)), "b": Weight("F32", (4,), bytes(16))}
    write_safetensors(tmp_path / "model.safetensors", two)
    source = Memory((tmp_path / "model.safetensors").read_bytes(), "model.safetensors")
    file = WeightFile(source)
    assert file.header.tensors
    source._data = source._data[:-8]
    found = scan([file])
    assert [v.tensor.name for v in found.tensors] == ["a"]
    assert [(u.tensor.name, "ends before byte" in u.why) for u in found.unread] == [("b", True)]


def check(folder: Path | str, **options: Any) -> CheckpointReport:
    made = Options(engine="sglang==0.5.15", values=1.0)
    for name, value in options.items():
        setattr(made, name, value)
    [report] = report_of(examine_many([folder], made)).checkpoints
    return report


def spoken(report: CheckpointReport) -> list[Finding]:
    return [f for f in report.findings if f.rule in VALUES]


def test_the_trained_pair_is_quiet() -> None:
    report = check(TRAINED / "draft", target=TRAINED / "target")
    assert not spoken(report)
    assert all(f.severity is Severity.NOTE for f in report.findings)
    assert not [s for s in report.skipped if s.rule in VALUES]


@pytest.mark.parametrize(
    ("variant", "code", "said"),
    [
        ("18a_nan_tensor", "DC801", "holds 196,608 values that are Inf or NaN, the first at [0, 0]"),
        ("18b_nan_element", "DC801", "`fc.weight` holds 1 value that is Inf or NaN, the first at [0, 0]"),
    ],
)
def test_measured_faults_of_values_are_found(tmp_path: Path, variant: str, code: str, said: str) -> None:
    [finding] = spoken(check(build(variant).write(tmp_path / "ckpt")))
    assert (finding.rule, finding.severity) == (code, Severity.ERROR) and said in finding.message


Edit = Callable[[dict[str, Weight]], None]


def zeroed(name: str) -> Edit:
    def edit(weights: dict[str, Weight]) -> None:
        weights[name] = Weight("BF16", weights[name].shape, bytes(len(weights[name].raw)))

    return edit


def zero_rows(name: str, first: int, last: int) -> Edit:
    def edit(weights: dict[str, Weight]) -> None:
        old = weights[name]
        row = 2 * old.shape[-1]
        raw = old.raw[: first * row] + bytes((last - first) * row) + old.raw[last * row :]
        weights[name] = Weight("BF16", old.shape, raw)

    return edit


OUTPUT, NORM = "midlayer.self_attn.o_proj.weight", "midlayer.hidden_norm.weight"


@pytest.mark.parametrize(
    ("edit", "severity", "said"),
    [
        (zeroed(OUTPUT), Severity.ERROR, f"`{OUTPUT}` holds nothing but zeros"),
        (zeroed(NORM), Severity.ERROR, f"`{NORM}` holds nothing but zeros"),
        (zero_rows("lm_head.weight", 5, 8), Severity.WARNING, "3 rows of 1,024 of `lm_head.weight`"),
        (zero_rows("lm_head.weight", 1000, 1024), None, "padding at the end"),
        (zero_rows("embed_tokens.weight", 5, 8), None, "tokens without an embedding"),
    ],
)
def test_zeros_are_told_where_they_cost_something(
    tmp_path: Path, edit: Edit, severity: Severity | None, said: str
) -> None:
    pair = healthy()
    edit(pair.weights)
    found = spoken(check(pair.write(tmp_path / "ckpt")))
    assert [(f.rule, f.severity) for f in found] == ([("DC802", severity)] if severity else [])
    assert all(said in f.message for f in found)


def test_the_same_bytes_under_two_names_are_told(tmp_path: Path) -> None:
    pair = healthy()
    pair.weights["midlayer.self_attn.v_proj.weight"] = pair.weights["midlayer.self_attn.k_proj.weight"]
    [finding] = spoken(check(pair.write(tmp_path / "ckpt")))
    assert finding.rule == "DC803" and "hold the same bytes" in finding.message


HIDDEN = 256


def fresh(kind: str, steps: int = 0, dtype: str = "BF16") -> Draft:
    """A head as torch.nn.Linear or transformers initialises it, after ``steps`` of a training that moves little."""
    random = np.random.default_rng(7)
    draft = Draft()
    draft.set(hidden_size=HIDDEN, intermediate_size=512, num_attention_heads=4, num_key_value_heads=4, head_dim=64)
    assert draft.target is not None
    draft.target.update(hidden_size=HIDDEN)
    for name, weight in list(draft.weights.items()):
        if weight.dtype == "BF16":
            draft.weights[name] = _drawn(random, kind, _grown(name, weight.shape), steps, dtype)
    return draft


def _grown(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    sizes = {32: HIDDEN, 64: 2 * HIDDEN, 96: 3 * HIDDEN, 48: 512, 16: HIDDEN, 128: 128}
    return tuple(sizes[size] for size in shape) if name else shape


def _drawn(random: np.random.Generator, kind: str, shape: tuple[int, ...], steps: int, dtype: str) -> Weight:
    if len(shape) == 1:
        values = np.ones(shape)
    elif kind == "uniform":
        values = random.uniform(-1, 1, shape) / math.sqrt(shape[1])
    else:
        values = random.normal(0, 0.02, shape)
    if len(shape) == 2:  # what Adam adds in a step is its rate, in the sign of a gradient, which changes slowly
        ways = [np.sign(np.outer(random.normal(size=shape[0]), random.normal(size=shape[1]))) for _ in range(3)]
        values = values - 1e-4 * sum(random.integers(0, 2, shape) * steps / 3 * way for way in ways)
    single = values.astype(np.float32)
    raw = (single.view(np.uint32) + 0x8000 >> 16).astype("<u2").tobytes() if dtype == "BF16" else single.tobytes()
    return Weight(dtype, shape, raw)


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_a_head_as_it_comes_from_initialisation_is_told(tmp_path: Path, kind: str) -> None:
    fresh(kind).write(tmp_path)
    [finding] = spoken(check(tmp_path))
    assert finding.rule == "DC803" and finding.severity is Severity.WARNING
    assert re.search(r"as it came from its initialisation: \d matrices .* and 4 norms are exactly one", finding.message)


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("steps", [60, 300])
def test_a_head_that_was_trained_for_a_few_steps_is_not(tmp_path: Path, kind: str, steps: int) -> None:
    fresh(kind, steps).write(tmp_path)
    assert not spoken(check(tmp_path))


def test_what_float16_can_not_hold_is_told(tmp_path: Path) -> None:
    pair = healthy()
    fc = pair.weights["fc.weight"]
    large = int(np.float32(1e5).view(np.uint32) >> 16).to_bytes(2, "little")
    pair.weights["fc.weight"] = Weight(fc.dtype, fc.shape, large + fc.raw[2:])
    folder = pair.write(tmp_path / "ckpt")
    [finding] = spoken(check(folder, dtype="float16"))
    assert finding.rule == "DC806" and "holds 99840, and the float16 that" in finding.message
    assert not spoken(check(folder, dtype="bfloat16"))


def test_values_are_asked_for_on_the_command_line() -> None:
    def run(*args: str) -> Any:
        given = ["check", str(TRAINED / "draft"), "--engine", "sglang==0.5.15", "--format", "json", *args]
        return CliRunner().invoke(cli, given, standalone_mode=False)

    report = json.loads(run().stdout)
    assert {s["rule"] for s in report["checkpoints"][0]["skipped"] if s["why"] == "needs --values"} == set(VALUES)
    for args in (["--values"], ["--values", "--sample", "10%"]):
        report = json.loads(run(*args).stdout)
        assert not [s for s in report["checkpoints"][0]["skipped"] if s["rule"] in VALUES]
    for args in (["--sample", "10"], ["--values", "--sample", "0"], ["--values", "--sample", "1e-300%"]):
        assert run(*args).exception is not None


def test_a_report_says_how_much_was_read() -> None:
    given = ["check", str(TRAINED / "draft"), "--engine", "sglang==0.5.15", "--values", "--sample", "5%"]
    output = CliRunner().invoke(cli, given, standalone_mode=False).output
    told = re.search(r", (\d\.\d)% of the values\n", output)
    read = check(TRAINED / "draft", values=0.05).values
    assert told is not None and read is not None and told[1] == f"{100 * read:.1f}"
    assert check(TRAINED / "draft").values == 1


@pytest.mark.parametrize(
    ("read", "told"), [(0.0, "0%"), (4e-5, "less than 0.1%"), (0.004, "0.4%"), (0.5, "50%"), (0.999, "less than 100%")]
)
def test_little_is_not_called_nothing_and_most_is_not_called_all(read: float, told: str) -> None:
    report = check(TRAINED / "draft").model_copy(update={"values": read})
    assert f", {told} of the values" in checked(report)


def test_what_could_not_be_read_is_said_and_is_not_all(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="writes the pickle")
    two, whole = healthy(), tmp_path / "whole"
    two.write(whole)
    safetensors = pytest.importorskip("safetensors.torch", reason="reads the tensors")
    [file] = whole.glob("*.safetensors")
    tensors = safetensors.load_file(file)
    file.unlink()
    torch.save(tensors, whole / "pytorch_model.bin")
    healthy_report = check(whole)
    assert healthy_report.values == 1 and not [s for s in healthy_report.skipped if s.asked]
    cut = tmp_path / "cut"
    two.write(cut)
    [file] = cut.glob("*.safetensors")
    file.unlink()
    tensors["fc.weight"] = torch._neg_view(tensors["fc.weight"])
    torch.save(tensors, cut / "pytorch_model.bin")
    report = check(cut)
    assert report.values is not None and 0.5 < report.values < 1
    assert {s.rule for s in report.skipped if s.asked} == set(VALUES)
    assert {s.why for s in report.skipped if s.asked} == {
        "needs the values of `fc.weight`, not read: it is stored as the negatives of its values"
    }
    assert report.outcome.value == "incomplete" and report.exit_code(FailOn.WARNING) == 1


def test_a_file_that_shrinks_while_it_is_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> memoryview:
        raise SourceError("model.safetensors ends before byte 9")

    monkeypatch.setattr(scanning, "_bytes", fails)
    report = check(TRAINED / "draft")
    assert report.values == 0 and report.outcome.value == "incomplete"
    assert all(s.why.endswith("not read: model.safetensors ends before byte 9") for s in report.skipped if s.asked)


@pytest.mark.parametrize(("value", "over"), [(65504.0, False), (65519.9, False), (65520.0, True)])
def test_a_cast_takes_the_nearest_number(tmp_path: Path, value: float, over: bool) -> None:
    pair = healthy()
    fc = np.full(pair.weights["fc.weight"].shape, 0.5, np.float32)
    fc[0, 0] = value
    pair.weights["fc.weight"] = Weight("F32", fc.shape, fc.tobytes())
    found = [f.rule for f in spoken(check(pair.write(tmp_path / "ckpt"), dtype="float16"))]
    assert found == (["DC806"] if over else [])
    with np.errstate(over="ignore"):
        assert math.isinf(float(np.float32(value).astype(np.float16))) is over
    assert FLOATS["BF16"].limit == (2 - 2**-8) * 2.0**127


@pytest.mark.parametrize(
    ("name", "severity"), [("verifier_lm_head.weight", "note"), ("mtp_layers.0.input_proj.weight", "error")]
)
def test_what_a_trainer_leaves_behind_is_no_fault_of_a_draft_whose_loading_is_not_known(
    name: str, severity: str, tmp_path: Path
) -> None:
    draft = Draft(target=None)
    draft.set(architectures=["UnheardDraftModel"])
    draft.weights = {
        "mtp_layers.0.input_proj.weight": zeros("BF16", 8, 16),
        "verifier_lm_head.weight": zeros("BF16", 32, 8),
    }
    shape = draft.weights[name].shape
    draft.weights[name] = Weight("BF16", shape, b"\xc0\x7f" * math.prod(shape))
    draft.write(tmp_path)
    (finding,) = [f for f in check(tmp_path, engine="llama.cpp").findings if f.rule == "DC801"]
    assert (finding.severity.value, finding.confidence.value) == (severity, "likely")
    assert finding.locations[0].tensor == name
