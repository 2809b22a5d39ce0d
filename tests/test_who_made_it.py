"""Who wrote a checkpoint: every real one is recognised, none is taken for another's, and nobody is named on a hunch."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from drafts import Draft, dump
from weights import write_safetensors, zeros

from drafcheck.finding import Confidence
from drafcheck.producers import Told, producer_of
from drafcheck.runner import inspect_one
from drafcheck.session import Options

ARCHIVE = Path(__file__).parent.parent / "fixtures" / "producers" / "producers.tar.xz"
CERTAIN, LIKELY = Confidence.CERTAIN, Confidence.LIKELY

MADE_BY: dict[str, tuple[str, str | None, str | None, Confidence]] = {
    "angelslim-eagle3": ("AngelSlim", None, None, CERTAIN),
    "automodel-eagle3": ("NeMo-Automodel", None, None, CERTAIN),
    "eagle-traineagle3": ("EAGLE", None, None, LIKELY),
    "modelopt-dflash": ("ModelOpt", None, "export_speculative_decoding", LIKELY),
    "modelopt-dspark": ("ModelOpt", None, "export_speculative_decoding", CERTAIN),
    "modelopt-eagle1": ("ModelOpt", None, "export_speculative_decoding", CERTAIN),
    "modelopt-eagle3": ("ModelOpt", None, "export_speculative_decoding", CERTAIN),
    "modelopt-eagle3-fullvocab": ("ModelOpt", None, "export_speculative_decoding", CERTAIN),
    "modelopt-eagle3-qwen3": ("ModelOpt", None, "export_speculative_decoding", CERTAIN),
    "specforge-dflash-hf": ("SpecForge", None, "to_hf", LIKELY),
    "specforge-domino-hf": ("SpecForge", None, "to_hf", CERTAIN),
    "specforge-eagle3-auxids-sglang": ("SpecForge", None, "to_sglang", LIKELY),
    "specforge-eagle3-fullvocab-sglang": ("SpecForge", None, "to_sglang", LIKELY),
    "specforge-eagle3-hf": ("SpecForge", None, "to_hf", LIKELY),
    "specforge-eagle3-sglang": ("SpecForge", None, "to_sglang", LIKELY),
    "specforge-peagle-hf": ("SpecForge", None, "to_hf", CERTAIN),
    "speculators-0.3.0-eagle3": ("speculators", "0.3.0", "trained", CERTAIN),
    "speculators-0.3.0-eagle3-converted": ("speculators", "0.3.0", "Eagle3Converter", CERTAIN),
    "speculators-0.4.0-eagle3": ("speculators", "0.4.0", "trained", CERTAIN),
    "speculators-0.5.0-eagle3-converted": ("speculators", "0.5.0", "Eagle3Converter", CERTAIN),
    "speculators-0.6.0-eagle3-converted": ("speculators", "0.6.0", "Eagle3Converter", CERTAIN),
    "speculators-dflash": ("speculators", "0.9.0", "trained", CERTAIN),
    "speculators-dflash-fullvocab": ("speculators", "0.9.0", "trained", CERTAIN),
    "speculators-dspark": ("speculators", "0.9.0", "trained", CERTAIN),
    "speculators-eagle3": ("speculators", "0.9.0", "trained", CERTAIN),
    "speculators-eagle3-5aux-2layer": ("speculators", "0.9.0", "trained", CERTAIN),
    "speculators-eagle3-converted": ("speculators", "0.9.0", "Eagle3Converter", CERTAIN),
    "speculators-eagle3-fullvocab": ("speculators", "0.9.0", "trained", CERTAIN),
    "speculators-eagle3-norm_before_fc": ("speculators", "0.9.0", "trained", CERTAIN),
    "speculators-eagle3.1": ("speculators", "0.9.0", "trained", CERTAIN),
    "speculators-mtp-converted": ("speculators", "0.9.0", "MTPConverter", CERTAIN),
    "speculators-peagle": ("speculators", "0.9.0", "trained", CERTAIN),
    "torchspec-eagle3-fullvocab": ("TorchSpec", "0.0.1", "convert_to_hf", CERTAIN),
    "torchspec-eagle3-pruned-vllm": ("TorchSpec", "0.0.1", "convert_to_hf --vllm", CERTAIN),
}
"""Name, version, exporter and confidence. Likely: those that leave only a combination of common marks."""


def told(path: Path) -> Told:
    subject = inspect_one(str(path), Options(engine="sglang==0.5.15")).subject
    assert subject is not None
    return producer_of(subject)


@pytest.fixture(scope="module")
def producers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("producers")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(room, filter="data")
    return room


def test_the_table_holds_every_checkpoint(producers: Path) -> None:
    assert sorted(path.name for path in producers.iterdir()) == sorted(MADE_BY)


@pytest.mark.parametrize("checkpoint", sorted(MADE_BY))
def test_real_checkpoints_are_recognised(producers: Path, checkpoint: str) -> None:
    found = told(producers / checkpoint).producer
    assert found is not None
    assert (found.name, found.version, found.export, found.confidence) == MADE_BY[checkpoint]
    assert found.evidence


@pytest.mark.parametrize("checkpoint", sorted(MADE_BY))
def test_without_its_config_nobody_is_taken_for_another(producers: Path, checkpoint: str, tmp_path: Path) -> None:
    """Names alone are shared by many: the right name with less confidence, or none."""
    for file in (producers / checkpoint).iterdir():
        if file.name not in ("config.json", "PROVENANCE.json"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    found = told(tmp_path).producer
    assert found is None or found.name == MADE_BY[checkpoint][0]


@pytest.mark.parametrize("checkpoint", sorted(MADE_BY))
def test_without_its_weights_nobody_is_taken_for_another(producers: Path, checkpoint: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((producers / checkpoint / "config.json").read_bytes())
    found = told(tmp_path).producer
    assert found is None or found.name == MADE_BY[checkpoint][0]


def test_generic_names_name_nobody(tmp_path: Path) -> None:
    Draft().write(tmp_path)
    found = told(tmp_path)
    assert found.producer is None
    assert len(found.candidates) > 1


def test_layers_zero_alone_names_nobody(tmp_path: Path) -> None:
    draft = Draft()
    draft.rename(lambda name: name.replace("midlayer.", "layers.0."))
    draft.write(tmp_path)
    assert told(tmp_path).producer is None


def test_nothing_that_is_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(dump({"architectures": ["Acme"]}))
    write_safetensors(tmp_path / "model.safetensors", {"acme": zeros("BF16", 2, 2)}, {"format": "pt"})
    assert told(tmp_path) == Told(None)


def converted_config() -> dict[str, Any]:
    """The form that ModelOpt's convert_to_vllm_ckpt writes."""
    return {
        "architectures": ["Eagle3Speculator"],
        "auto_map": {"": "eagle3.Eagle3SpeculatorConfig"},
        "norm_before_residual": True,
        "speculators_config": {"algorithm": "eagle3"},
        "speculators_model_type": "eagle3",
        "speculators_version": "0.1.0.dev14",
        "transformer_layer_config": {"model_type": "llama"},
    }


def test_convert_to_vllm_ckpt_is_not_speculators(tmp_path: Path) -> None:
    """A speculators config with ModelOpt's tensors: no t2d, no embedding."""
    draft = Draft(config=converted_config())
    draft.drop("t2d")
    draft.write(tmp_path)
    found = told(tmp_path).producer
    assert found is not None
    assert (found.name, found.export, found.confidence) == ("ModelOpt", "convert_to_vllm_ckpt", LIKELY)


def test_the_early_converter_of_speculators(tmp_path: Path) -> None:
    draft = Draft(config={**converted_config(), "speculators_version": "0.1.0"})
    draft.write(tmp_path)
    found = told(tmp_path).producer
    assert found is not None
    assert (found.name, found.version, found.export) == ("speculators", "0.1.0", "Eagle3Converter")


@pytest.mark.parametrize("version", (None, 3, "", "x" * 300, "not a version", ["0.4"], "0.4.0\x1b[31m"))
def test_odd_versions_are_survived(tmp_path: Path, version: object) -> None:
    Draft(config={**converted_config(), "speculators_version": version, "architectures": ["Eagle3DraftModel"]}).write(
        tmp_path
    )
    found = told(tmp_path).producer
    assert found is not None
    assert found.name == "speculators"
    assert found.ids_default == ("2", "n // 2", "n - 3")


def test_z_lab(tmp_path: Path) -> None:
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "dflash_config": {"mask_token_id": 3, "target_layer_ids": [1, 9]},
        "transformers_version": "4.57.1",
    }
    (tmp_path / "config.json").write_bytes(dump(config))
    (tmp_path / "dflash.py").write_text("")
    found = told(tmp_path).producer
    assert found is not None
    assert (found.name, found.confidence, found.ids_convention) == ("z-lab", CERTAIN, "outputs")


def test_evidence_says_where(producers: Path) -> None:
    found = told(producers / "torchspec-eagle3-fullvocab").producer
    assert found is not None
    first = found.evidence[0]
    assert first.what == "_torchspec_version is 0.0.1"
    assert first.place is not None
    config = (producers / "torchspec-eagle3-fullvocab" / "config.json").read_text().splitlines()
    assert first.place.line is not None
    assert "_torchspec_version" in config[first.place.line - 1]


def test_show_and_json_say_it(producers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from drafcheck.cli import run

    path = str(producers / "modelopt-eagle3")
    assert run(["show", path, "--engine", "sglang==0.5.15", "--color", "never"]) == 0
    assert "made by\n  ModelOpt (export_speculative_decoding): certain\n" in capsys.readouterr().out
    assert run(["show", path, "--engine", "sglang==0.5.15", "--format", "json"]) == 0
    [checkpoint] = json.loads(capsys.readouterr().out)["checkpoints"]
    assert checkpoint["producer"]["name"] == "ModelOpt"
    assert checkpoint["producer"]["evidence"][0]["location"]["file"] == "config.json"
