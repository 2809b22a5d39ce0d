"""Code in pickles that no engine would open: whoever checks a folder of models is told, and the exit code is not 0."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path

import pytest
from drafts import Draft
from malicious import corpus
from malicious_calls import more
from pickles import write_torch
from test_tree import ENGINE, whole_model
from test_unjudged import PLAIN, pickled
from weightfiles import text

from drafcheck.attacks import is_attack
from drafcheck.cli import run
from drafcheck.pickle_globals import HARMLESS, resolved
from drafcheck.tree import only_drafts

ABSENT = "picklescan is not installed (pip install -e '.[dev]' brings it for the Pythons that it supports)"
FOREIGN = ["requests.api.get", "pip.main", "numpy.testing._private.utils.runstring", "torch.serialization.load"]
FOREIGN += ["torch._inductor.codecache.compile_file", "aiohttp.client.get", "cloudpickle.cloudpickle.subimport"]
FOREIGN += ["dill.loads", "dill._dill._create_function", "cloudpickle.load", "cloudpickle.loads"]
FOREIGN += ["torch.hub.load", "pathlib.Path.unlink", "random._os.system", "uuid._get_command_stdout"]
WALKED = [
    "torch.serialization.os.system",
    "torch.serialization._os.system",
    "numpy.core.sys.modules",
    "torch.subprocess",
]
WALKED += [
    "torch.serialization.load.__globals__",
    "torch.random.os",
    "six.moves.builtins.eval",
    "a.importlib.b",
    "torch.fx.operator.attrgetter",
]
FOREIGN += WALKED
PROGRAMS = ["ultralytics.nn.tasks.DetectionModel", "torch.nn.modules.linear.Linear", "pathlib._local.PosixPath"]
PROGRAMS += ["pathlib.PosixPath", "uuid.UUID", "numpy.core.multiarray._reconstruct", "__main__.Net", "requestslike.X"]
PROGRAMS += [
    "torch.multiprocessing.reductions.rebuild_storage",
    "scipy.signal.windows.hann",
    "a.os_utils.posix_like.Net",
]
PROGRAMS += ["__main__.Net.Inner", "yolo.logging.types.Box", "a.operator.Add"]
PROGRAMS += ["dillinger.loads", "cloudpickle.loadsomething"]


def asking(path: str) -> bytes:
    """A call of what lies at that path, by the opcode that can name a part of a class."""
    module, _, name = path.partition(".") if path.startswith(("pathlib.P", "random.")) else path.rpartition(".")
    return text(module) + text(name) + b"\x93)R"


@pytest.mark.parametrize("path", FOREIGN + PROGRAMS)
def test_code_of_other_packages_in_a_lone_pickle(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Draft().write(tmp_path / "good")
    pickled(tmp_path / "other", "best.pt", {"a": asking(path)})
    code = run([str(tmp_path), *ENGINE])
    out = capsys.readouterr().out
    assert code == (1 if path in FOREIGN else 0) and path in out
    assert ("DC009" in out) is (path in FOREIGN)


@pytest.mark.parametrize("beside", ["a model", "five more", "a draft", "a draft in a pickle"])
@pytest.mark.parametrize("path", ["os.system", "requests.api.get", "ultralytics.nn.tasks.DetectionModel"])
def test_code_in_a_pickle_beside_other_weights(
    path: str, beside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Draft().write(tmp_path / "good")
    folder = tmp_path / "other"
    if beside == "a model":
        whole_model(folder)
    elif beside == "five more":
        for n in range(5):
            pickled(folder, f"data_{n}.pt", {"hidden": PLAIN})
    else:
        Draft().write(folder)
        (folder / "drafcheck.toml").write_text('ignore = ["DC009"]')
    if beside == "a draft in a pickle":
        draft = Draft()
        (folder / "model.safetensors").unlink()
        write_torch(folder / "pytorch_model.bin", draft.weights)
    pickled(folder, "best.pt", {"a": asking(path)})
    harm = path != PROGRAMS[0]
    assert run([str(tmp_path), *ENGINE]) == int(harm)
    out = capsys.readouterr().out
    assert ("error[DC009" in out) is harm and ((path in out) or not harm)


def test_every_name_that_picklescan_flags_is_an_attack() -> None:
    scanner = pytest.importorskip("picklescan.scanner", reason=ABSENT)
    for module, known in scanner._unsafe_globals.items():
        for name in [known.replace("*", "anything")] if isinstance(known, str) else known:
            path = resolved(module, name)
            assert is_attack(path), path


def test_every_file_that_picklescan_flags_is_told_in_a_folder_of_models(tmp_path: Path) -> None:
    scanner = pytest.importorskip("picklescan.scanner", reason=ABSENT)
    flagged = []
    for number, (name, raw) in enumerate((corpus() | more()).items()):
        file = tmp_path / str(number) / "best.pt"
        file.parent.mkdir()
        file.write_bytes(raw)
        with suppress(Exception), warnings.catch_warnings():  # it stops at some of the broken ones
            warnings.simplefilter("ignore")
            if scanner.scan_file_path(str(file)).issues_count:
                flagged.append((name, str(file.parent)))
    told = set(only_drafts([str(tmp_path)]).drafts)
    assert len(flagged) > 150
    assert [name for name, folder in flagged if folder not in told] == []


def test_nothing_that_torch_allows_is_an_attack() -> None:
    assert [path for path in HARMLESS if is_attack(path)] == []
