"""What a newcomer met: words that mean nothing, targets elsewhere, reports in the wrong place, wrong advice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from test_checks_names import CONFIG, DV, H, codes, findings, head, write

import drafcheck
from drafcheck import runner
from drafcheck.checkpoint import open_checkpoint
from drafcheck.cli import run
from drafcheck.contract import resolve_engine
from drafcheck.errors import UsageError
from drafcheck.report.model import FailOn


@pytest.mark.parametrize("flag", ["algorithm", "dtype"])
def test_words_that_the_engine_never_had(tmp_path: Path, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path, head()))
    assert run([path, f"--{flag}", "FOO"]) == 2
    assert f"sglang has no {flag} 'FOO'" in capsys.readouterr().err


def test_findings_on_a_target_point_to_the_target(tmp_path: Path) -> None:
    draft = write(tmp_path / "draft", head())
    target = tmp_path / "target"
    target.mkdir()
    text = {**CONFIG, "architectures": ["LlamaForCausalLM"], "hidden_size": 2 * H, "num_hidden_layers": 8}
    (target / "config.json").write_text(json.dumps(text))
    for given in (target, target / "config.json"):
        found = [f for f in drafcheck.lint(draft, target=given, engine="sglang==0.5.15").findings if f.rule == "DC409"]
        assert str(target / "config.json") in [place.file for place in found[0].locations]


def test_a_target_beside_the_draft_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path, head())
    (path / "target_config.json").symlink_to("nowhere")
    assert run([str(path)]) == 2


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_report_does_not_take_the_place_of_the_checkpoint(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, head())
    before = (path / name).read_bytes()
    assert run([str(path), "--output-file", str(path / name)]) == 2
    assert (path / name).read_bytes() == before
    assert run([str(path), "--output-file", str(tmp_path / "report.txt")]) == 0


def test_another_hidden_size_is_one_finding_with_the_value_that_mends_it(tmp_path: Path) -> None:
    path = write(tmp_path, head(), hidden_size=2 * H)
    found = [f for f in drafcheck.lint(path, engine="sglang==0.5.15").findings if f.severity.value == "error"]
    assert [f.rule for f in found] == ["DC201"]
    assert found[0].help == f"set `hidden_size` to {H} in config.json"


def test_a_transposed_fc_is_called_so(tmp_path: Path) -> None:
    (found,) = findings(write(tmp_path, {**head(), "fc.weight": [3 * H, H]}), "0.5.15", "DC401", "DC201")
    assert found.rule == "DC401"
    assert found.help == f"the tensor is transposed: store it as [{H}, {3 * H}]"


def test_a_map_under_another_name_is_pointed_at(tmp_path: Path) -> None:
    path = write(tmp_path, head())
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data.replace(b'"d2t"', b'"map"'))
    (found,) = findings(path, "0.5.15", "DC301")
    assert "call the tensor `map` d2t" in (found.help or "")
    assert f"lm_head has {DV} rows" in found.message


def test_words_of_the_python_interface(tmp_path: Path) -> None:
    path = write(tmp_path, head())
    assert drafcheck.lint(path, select="DC1", engine="sglang==0.5.15").ok
    with pytest.raises(UsageError, match="empty"):
        drafcheck.lint("")


@pytest.mark.parametrize(
    ("asked", "known", "exact"),
    [("0.5.15+cu12", "0.5.15", True), ("0.5.14.post1", "0.5.14", False), ("0.0.0.dev1+gabc", "0.5.23", False)],
)
def test_versions_of_builds(asked: str, known: str, exact: bool) -> None:
    engine = resolve_engine(f"sglang=={asked}")
    assert (str(engine.known), engine.exact) == (known, exact)


def test_a_strict_gate_does_not_pass_what_was_not_checked(tmp_path: Path) -> None:
    path = write(tmp_path, head(), quantization_config={"quant_method": "fp8"})
    report = drafcheck.lint(path, engine="sglang==0.5.15")
    assert report.checkpoints[0].outcome.value == "incomplete"
    assert report.exit_code_for(FailOn.ERROR) == 0
    assert report.exit_code_for(FailOn.WARNING) == 1


def test_a_missing_layer_norm_under_another_name_is_no_other_kind_of_head(tmp_path: Path) -> None:
    shapes = head()
    shapes["midlayer.hnorm.weight"] = shapes.pop("midlayer.hidden_norm.weight")
    assert codes(write(tmp_path, shapes), "0.5.15", "DC5") == []


def test_interrupted_while_it_starts(tmp_path: Path) -> None:
    """Ctrl-C at any moment of the start: no traceback."""
    command = [sys.executable, "-m", "drafcheck", str(write(tmp_path, head()))]
    for delay in (0.12, 0.2):
        child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=dict(os.environ))
        time.sleep(delay)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=30)
        if b"drafcheck/" in errors:  # before that it is the interpreter's own start that was interrupted
            assert b"Traceback" not in errors
        assert child.returncode in (0, 130, -signal.SIGINT, 1)


def test_jobs_are_at_work_together_and_keep_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [write(tmp_path / f"d{i}", head()) for i in range(6)]
    together = threading.Barrier(3, timeout=20)
    real = runner.open_checkpoint

    def slow(path: str) -> object:
        together.wait()  # breaks, and the run with it, unless three are here at a time
        return real(path)

    monkeypatch.setattr(runner, "open_checkpoint", slow)
    seen = runner.examine_many(paths, runner.Options(engine="sglang==0.5.15"), jobs=3)
    assert [s.path for s in seen] == [str(p) for p in paths]
    assert not any(s.crashed for s in seen)


def test_a_wrong_path_among_jobs_is_a_usage_error(tmp_path: Path) -> None:
    assert run([str(write(tmp_path / "a", head())), str(tmp_path / "absent"), "--jobs", "4"]) == 2
    assert run([str(tmp_path / "a"), "--jobs", "0"]) == 2


def test_several_pairs_of_names_are_one_finding(tmp_path: Path) -> None:
    names = ("norm.weight", "midlayer.hidden_norm.weight", "midlayer.input_layernorm.weight", "fc.weight")
    path = write(tmp_path, {**head(), **{f"model.{name}": head()[name] for name in names}})
    file = path / "model.safetensors"
    data = bytearray(file.read_bytes())
    for tensor in open_checkpoint(path).files[0].header.tensors:
        if tensor.name.removeprefix("model.") in names and tensor.name.startswith("model."):
            data[tensor.start] = 1
    file.write_bytes(data)
    (found,) = findings(path, "0.5.15", "DC007")
    assert "likewise 3 more pairs" in found.message
    assert set(found.about) == {*names, *(f"model.{name}" for name in names)}


def test_two_names_for_one_parameter(tmp_path: Path) -> None:
    path = write(tmp_path, {**head(), "model.norm.weight": [H]})
    assert findings(path, "0.5.15", "DC007") == []  # both are zeros
    data = bytearray((path / "model.safetensors").read_bytes())
    data[-1] = 1  # the last tensor written
    (path / "model.safetensors").write_bytes(data)
    (found,) = findings(path, "0.5.15", "DC007")
    assert "`model.norm.weight` and `norm.weight` are two names for one parameter" in found.message
    assert "likewise" not in found.message
    shapes = {**head(), "x.d2t_old": [DV]}
    assert [f.rule for f in findings(write(tmp_path / "b", shapes), "0.5.15", "DC007")] == ["DC007"]
