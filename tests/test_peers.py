"""Other scanners as judges: what picklescan or modelscan flags, drafcheck flags; and nothing of it is ever run."""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft
from malicious import EVIL, FILES, GOOD, LARGE, MARKER, VALUES, ZEROS, binary, call, corpus, honest
from malicious_calls import more
from weightfiles import archive, legacy, state, text, write_tensors

from drafcheck import lint
from drafcheck.checkpoint import WeightFile
from drafcheck.finding import Severity
from drafcheck.header import Header
from drafcheck.source import LocalFile
from drafcheck.tensor import Trouble
from drafcheck.torch_pickle import read_pickle
from drafcheck.unjudged import attacks

CORPUS = corpus() | more()
ABSENT = "{} is not installed (pip install -e '.[dev]' brings it for the Pythons that it supports)"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "pytorch_model.bin"


def read(path: Path, raw: bytes) -> Header:
    path.write_bytes(raw)
    return read_pickle(LocalFile(path))


def flagged(path: Path, raw: bytes) -> bool:
    return any(problem.trouble is Trouble.UNSAFE_PICKLE for problem in read(path, raw).problems)


def picklescan_flags(path: Path) -> bool:
    from picklescan.scanner import scan_file_path

    try:
        return bool(scan_file_path(str(path)).issues_count)
    except Exception:  # it stops at some of the broken ones
        return False


def modelscan_flags(path: Path) -> bool:
    from modelscan.modelscan import ModelScan

    try:
        found: dict[str, Any] = ModelScan().scan(path)
    except Exception:
        return False
    return bool(found["summary"]["total_issues"])


JUDGES = {"picklescan": (picklescan_flags, 150), "modelscan": (modelscan_flags, 70)}
"""Each with how many files of the corpus it flags at least: it was really asked."""


def test_the_corpus_is_wide() -> None:
    assert len(VALUES) + len(FILES) > 100
    assert len(set(CORPUS.values())) == len(CORPUS)


def test_every_technique_is_flagged_and_nothing_is_run(path: Path) -> None:
    before = set(sys.modules)
    missed = [name for name, raw in CORPUS.items() if not flagged(path, raw)]
    assert missed == []
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert not {"torch", "joblib", "pip", "pty", "idlelib", "ctypes", "webbrowser"} & (set(sys.modules) - before)
    assert not (path.parent / MARKER).exists()


@pytest.mark.parametrize("name", LARGE)
def test_what_is_hidden_behind_much_else_is_flagged(path: Path, name: str) -> None:
    (problem,) = read(path, LARGE[name]()).problems
    assert problem.trouble is Trouble.UNSAFE_PICKLE and "os.system" in problem.message


@pytest.mark.parametrize("judge", JUDGES)
def test_whatever_a_scanner_flags_is_flagged(path: Path, judge: str) -> None:
    pytest.importorskip(judge, reason=ABSENT.format(judge))
    flags, fewest = JUDGES[judge]
    theirs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, raw in CORPUS.items():
            path.write_bytes(raw)
            if flags(path):
                theirs.append(name)
    assert len(theirs) >= fewest
    assert [name for name in theirs if not flagged(path, CORPUS[name])] == []
    assert not (path.parent / MARKER).exists()


def test_every_name_that_picklescan_knows_is_flagged(path: Path) -> None:
    scanner = pytest.importorskip("picklescan.scanner", reason=ABSENT.format("picklescan"))
    names = 0
    for module, known in scanner._unsafe_globals.items():
        for name in ["anything"] if isinstance(known, str) else known:
            names += 1
            value = f"c{module}\n{name}\n)R".encode()
            assert flagged(path, archive(state({"x": value}), {})), (module, name)
    assert names > 80


def test_nothing_honest_is_flagged(path: Path) -> None:
    files = honest()
    problems = {name: read(path, raw).problems for name, raw in files.items()}
    assert len(files) > 200
    assert {name: p for name, p in problems.items() if any(x.trouble is Trouble.UNSAFE_PICKLE for x in p)} == {}
    assert {name: p for name, p in problems.items() if p} == {}


def state_dict(torch: Any) -> dict[str, Any]:
    """With everything in it that the restricted unpickler lets through and torch.save writes by itself."""
    from collections import Counter, OrderedDict

    tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    return {
        "weight": tensor,
        "view": tensor[1:, 1:],
        "parameter": torch.nn.Parameter(tensor),
        "half": tensor.to(torch.bfloat16),
        "coo": tensor.to_sparse(),
        "meta": torch.empty(2, device="meta"),
        "ordered": OrderedDict(a=tensor),
        "counter": Counter("aab"),
        "set": {1, 2},
        "bytes": bytearray(b"abc"),
        "complex": 1 + 2j,
        "size": torch.Size([1, 2]),
        "dtype": torch.float8_e4m3fn,
        "device": torch.device("cpu"),
        "layout": torch.strided,
        "none": None,
        "text": "os.system",
    }


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", range(6))
def test_what_torch_writes_is_never_taken_for_code(path: Path, zipped: bool, protocol: int) -> None:
    """In every format and protocol; and what drafcheck calls whole is what torch itself loads with weights_only."""
    torch = pytest.importorskip("torch")
    for name, value in [("all", None), *state_dict(torch).items()]:
        content = state_dict(torch) if name == "all" else {name: value, "weight": torch.ones(2)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.save(content, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
            try:
                torch.load(path, weights_only=True)
                loads = True
            except Exception:
                loads = False
        problems = read_pickle(LocalFile(path)).problems
        assert all(problem.trouble is not Trouble.UNSAFE_PICKLE for problem in problems), (name, problems)
        assert loads or problems, name


def test_every_foreign_name_is_told_with_its_place(tmp_path: Path) -> None:
    calls = [call("os.system"), call("builtins.eval"), b"(isubprocess\nPopen\n", call("os.system")]
    data = state({f"x{i}": value for i, value in enumerate(calls)})
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}')
    (tmp_path / "pytorch_model.bin").write_bytes(archive(data, {}))
    found = [f for f in lint(tmp_path, engine="sglang==0.5.15").checkpoints[0].findings if f.rule == "DC009"]
    places = [data.index(b"cos"), data.index(b"cbuiltins"), data.index(b"isubprocess")]
    assert [f.message for f in found] == [
        f"pytorch_model.bin has a pickle that asks for os.system at byte {places[0]} (and 1 more), builtins.eval at "
        f"byte {places[1]}, subprocess.Popen at byte {places[2]} of archive/data.pkl: loading it would run code"
    ]


@pytest.mark.parametrize(
    ("data", "rule"), [(EVIL, "DC009"), (state({"a": b"cultralytics.nn.tasks\nModel\n)R"}), "DC008"), (GOOD, "")]
)
def test_code_in_a_pickle_that_is_not_opened(tmp_path: Path, data: bytes, rule: str) -> None:
    """An attack is an error; the classes of somebody's program are a warning, as whoever loads them runs it."""
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}')
    write_tensors(tmp_path / "model.safetensors", a=(1,))
    (tmp_path / "pytorch_model.bin").write_bytes(archive(data, {"0": ZEROS}))
    found = [f for f in lint(tmp_path, engine="sglang==0.5.15").checkpoints[0].findings if f.rule in ("DC008", "DC009")]
    assert [(f.rule, f.severity) for f in found] == (
        [(rule, Severity.ERROR if rule == "DC009" else Severity.WARNING)] if rule else []
    )
    assert all("does not open pytorch_model.bin" in f.message for f in found)


# As the Trainer, accelerate and SpecForge leave them beside the weights; what the pickle asks for is the trainer's.
LEFT_BEHIND = ["training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state_0.pth"]
OF_A_TRAINER = state({"a": b"ctransformers.training_args\nTrainingArguments\n)R"})


@pytest.mark.parametrize("engine", ["sglang", "vllm", "llama.cpp", "lmdeploy", "tensorrt-llm"])
@pytest.mark.parametrize("name", LEFT_BEHIND)
def test_training_state_is_no_second_set_of_weights(tmp_path: Path, name: str, engine: str) -> None:
    Draft().write(tmp_path)
    (tmp_path / name).write_bytes(archive(OF_A_TRAINER, {}))
    findings = lint(tmp_path, engine=engine).checkpoints[0].findings
    assert [f.rule for f in findings if f.severity is not Severity.NOTE and f.rule.startswith("DC0")] == []
    assert "DC011" in {f.rule for f in findings}


@pytest.mark.parametrize("engine", ["llama.cpp", "lmdeploy", "tensorrt-llm"])
def test_other_pickles_beside_the_weights_are_still_told(tmp_path: Path, engine: str) -> None:
    Draft().write(tmp_path)
    (tmp_path / "head.bin").write_bytes(archive(OF_A_TRAINER, {}))
    (tmp_path / "training_args.bin").write_bytes(archive(EVIL, {}))
    findings = lint(tmp_path, engine=engine).checkpoints[0].findings
    told = {f.rule: f.locations[0].file for f in findings if f.rule in ("DC008", "DC009")}
    assert told == {"DC008": "head.bin", "DC009": "training_args.bin"}


@pytest.mark.parametrize(
    ("before", "then", "rule"),
    [
        (60, call("os.system"), "DC009"),
        (10, call("os.system"), "DC009"),
        (60, b"cultralytics.nn.tasks\nModel\n)R", "DC009"),
        (10, b"cultralytics.nn.tasks\nModel\n)R", "DC008"),
        (10, b"N", ""),
    ],
)
def test_what_was_not_looked_through_counts_in_a_pickle_that_is_not_opened(
    before: int, then: bytes, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drafcheck.pickle_opcodes.OPCODES_LISTED", 100)
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}')
    write_tensors(tmp_path / "model.safetensors", a=(1,))
    (tmp_path / "extra.bin").write_bytes(b"\x80\x02" + before * b"N0" + then + b".")
    found = lint(tmp_path, engine="sglang==0.5.15").checkpoints[0].findings
    assert [f.rule for f in found if f.rule in ("DC008", "DC009")] == [rule] * bool(rule)


@pytest.mark.parametrize(("data", "rules"), [(b"\x80\x02" + call("os.system") + b".", ["DC009"]), (None, [])])
def test_code_in_what_is_called_safetensors_and_not_opened(
    data: bytes | None, rules: list[str], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}')
    for name in ("model.safetensors", "consolidated.safetensors"):
        write_tensors(tmp_path / name, a=(1,))
    if data is not None:
        (tmp_path / "consolidated.safetensors").write_bytes(data)
    found = lint(tmp_path, engine="sglang==0.5.15").checkpoints[0].findings
    assert [f.rule for f in found if f.rule in ("DC008", "DC009")] == rules


def as_line(raw: bytes) -> bytes:
    return b"V" + "".join(f"\\u{byte:04x}" for byte in raw).encode() + b"\n"


@pytest.mark.parametrize("entries", [EVIL, GOOD])
@pytest.mark.parametrize(
    "written",
    [binary, lambda raw: call("_codecs.encode", text(raw.decode("latin-1")), text("latin1")), as_line],
    ids=["bytes", "text", "line"],
)
def test_bytes_that_a_pickle_gives_to_torch_load(
    entries: bytes, written: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """As pickle.dump writes a tensor: what is in them decides."""
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}')
    write_tensors(tmp_path / "model.safetensors", a=(1,))
    inner = legacy(entries, {"0": (6, ZEROS)})
    (tmp_path / "extra.bin").write_bytes(b"\x80\x03" + call("torch.storage._load_from_bytes", written(inner)) + b".")
    found = lint(tmp_path, engine="sglang==0.5.15").checkpoints[0].findings
    assert [f.rule for f in found if f.rule in ("DC008", "DC009")] == ["DC009" if entries == EVIL else "DC008"]


@pytest.mark.parametrize("protocol", range(6))
def test_tensors_that_pickle_wrote_are_no_attack(protocol: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    path = tmp_path / "extra.bin"
    path.write_bytes(pickle.dumps({"a": torch.ones(7000), "b": torch.zeros(71, dtype=torch.int8)}, protocol))
    assert not attacks(WeightFile(LocalFile(path)), unseen=True)
