"""Pickles that no loader takes for weights: code that attacks is told, and the state of an honest training is not."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import enum
import pickle
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drafts import Draft
from test_tree import ENGINE, whole_model
from test_unjudged import CODE, pickled
from weightfiles import text

from drafcheck import lint
from drafcheck.cli import run
from drafcheck.source import LocalFile
from drafcheck.states import MOST_PICKLES
from drafcheck.torch_pickle import read_pickle

STATES = ["training_args.bin", "optimizer.pt", "optimizer.bin", "scheduler.pt", "scaler.pt", "rng_state.pt"]
OTHERS = ["rng_state_0.pth", "random_states_0.pkl", "last.ckpt", "data.pickle", "trees.joblib"]
GETATTR = b"c__builtin__\ngetattr\n(ctransformers.trainer_utils\nIntervalStrategy\n" + text("STEPS") + b"tR"


def told(folder: Path) -> list[str | None]:
    """The files that DC009 is about."""
    findings = lint(folder, engine="sglang==0.5.15").checkpoints[0].findings
    return [f.locations[0].file for f in findings if f.rule == "DC009"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Draft().write(tmp_path / "draft")
    return tmp_path / "draft"


@pytest.mark.parametrize("name", STATES + OTHERS)
def test_code_in_what_is_never_weights_is_told(name: str, folder: Path) -> None:
    pickled(folder, name, {"a": GETATTR, "b": CODE})
    assert told(folder) == [name]


@pytest.mark.parametrize("name", STATES + OTHERS)
def test_the_classes_of_a_trainer_are_not(name: str, folder: Path) -> None:
    pickled(folder, name, {"a": b"ctransformers.training_args\nTrainingArguments\n)\x81"})
    assert told(folder) == []


@pytest.mark.parametrize(("name", "state"), [*((name, True) for name in STATES + OTHERS[:2]), ("last.ckpt", False)])
def test_how_enums_are_pickled_is_no_attack_in_a_state(name: str, state: bool, folder: Path) -> None:
    pickled(folder, name, {"a": GETATTR})
    assert told(folder) == ([] if state else [name])


def test_code_in_a_state_beside_a_whole_model_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Draft().write(tmp_path / "good")
    for entry, code in ((GETATTR, 0), (CODE, 1)):
        whole_model(tmp_path / "model")
        pickled(tmp_path / "model", "training_args.bin", {"a": entry})
        assert run([str(tmp_path), *ENGINE]) == code
        assert ("error[DC009" in capsys.readouterr().out) is bool(code)


def test_so_many_pickles_are_looked_at_and_no_folder_below(folder: Path) -> None:
    pickled(folder / "below", "last.ckpt", {"b": CODE})
    (folder / "a.pkl").mkdir()
    (folder / "b.pkl").symlink_to(folder / "gone")
    for n in range(MOST_PICKLES):
        (folder / f"{n:03}.pkl").write_bytes(pickle.dumps(n))
    pickled(folder, "zz.pkl", {"b": CODE})
    assert told(folder) == []
    (folder / "000.pkl").unlink()
    assert told(folder) == ["zz.pkl"]


class Kind(str, enum.Enum):
    STEPS = "steps"


@dataclasses.dataclass
class Arguments:
    """Of the kinds that training arguments have."""

    class Inner(enum.Enum):
        ONE = 1

    path: Path = Path("out")
    kind: Kind = Kind.STEPS
    inner: Any = Inner.ONE
    patience: datetime.timedelta = datetime.timedelta(hours=1)
    begun: datetime.datetime = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
    names: Any = dataclasses.field(default_factory=lambda: {"a": {1, 2}, "b": argparse.Namespace(lr=0.1)})
    counts: Any = dataclasses.field(default_factory=lambda: defaultdict(int, a=1))


def honest(torch: Any) -> dict[str, Any]:
    """What trainers write beside the weights."""
    net = torch.nn.Linear(4, 4)
    found: dict[str, Any] = {"training_args.bin": Arguments()}
    optimizer = torch.optim.AdamW(net.parameters(), fused=False)
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    found["optimizer.pt"] = found["optimizer.bin"] = optimizer.state_dict()
    found["optimizer_sgd.pt"] = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9).state_dict()
    found["scheduler.pt"] = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step).state_dict()
    found["scheduler_1.pt"] = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10).state_dict()
    found["scaler.pt"] = torch.amp.GradScaler("cpu").state_dict()
    found["rng_state.pth"] = found["rng_state.pt"] = found["random_states_0.pkl"] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "cpu": torch.get_rng_state(),
        "generator": np.random.default_rng(0),
        "loss": np.float64(1.5),
    }
    found["training_state.pt"] = {"args": argparse.Namespace(lr=0.1, out=Path("x")), "optimizer": found["optimizer.pt"]}
    return found


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_honest_states_are_quiet(protocol: int, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    for name, content in honest(torch).items():
        torch.save(content, folder / name, pickle_protocol=protocol)
    (folder / "pickled.pkl").write_bytes(pickle.dumps(random.getstate(), protocol))
    assert told(folder) == []
    (problem,) = read_pickle(LocalFile(folder / "training_args.bin")).problems
    assert "getattr" in problem.message or protocol > 3
