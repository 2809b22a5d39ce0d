"""DC602: the model that a draft declares beside the target, by name and by what else is known of both."""

from __future__ import annotations

from pathlib import Path

import pytest
from drafts import HIDDEN, TARGET_LAYERS, VOCAB, Draft, Json, dump, target_config
from weights import offsets, spread, write_safetensors

from drafcheck import lint
from drafcheck.finding import Confidence, Finding, Severity
from drafcheck.modelnames import are_sisters, differ, local_name, model_name, stem

CACHE = "hub/models--moonshotai--Kimi-K2.5/snapshots/0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("path", "name"),
    (
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("/data/x/Qwen3-8B/", "Qwen3-8B"),
        ("/data/x/Qwen3-8B/config.json", "Qwen3-8B"),
        (f"/root/.cache/{CACHE}", "moonshotai/Kimi-K2.5"),
        (f"/root/.cache/{CACHE}/config.json", "moonshotai/Kimi-K2.5"),
        ("hf://Qwen/Qwen3-8B@main/config.json", "Qwen/Qwen3-8B"),
        ("https://huggingface.co/Qwen/Qwen3-8B/tree/main", "Qwen/Qwen3-8B"),
        ("s3://bucket/models/Qwen3-8B", "Qwen3-8B"),
        ("C:\\models\\Qwen3-8B", "Qwen3-8B"),
        ("/data/target", None),
        ("ckpt/target_config.json", None),
        ("/data/epoch_3", None),
        ("/data/checkpoint-1200", None),
        ("/data/0123456789abcdef0123456789abcdef01234567", None),
        ("hf://", None),
        ("/", None),
        ("", None),
        ("8", None),
    ),
)
def test_names_by_paths(path: str, name: str | None) -> None:
    assert model_name(path) == name


@pytest.mark.parametrize(
    ("one", "other"),
    (
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("Qwen/Qwen3-8B", "Qwen3-8B-FP8"),
        ("Qwen/Qwen3-8B", "RedHatAI/Qwen3-8B-quantized.w4a16"),
        ("Qwen/Qwen3-8B", "Qwen3_8B-GPTQ-Int4"),
        ("deepseek-ai/DeepSeek-R1-0528", "nvidia/DeepSeek-R1-0528-NVFP4-v2"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("openai/gpt-oss-120b", "lmsys/gpt-oss-120b-bf16"),
    ),
)
def test_one_model_however_it_is_stored(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(
    ("one", "other"),
    (
        ("moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2.5"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-Base"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen2.5-8B"),
        ("Llama-3.1-8B", "Llama-3.1-8B-Instruct"),
        ("Kimi-K2-Instruct", "Kimi-K2-Instruct-0905"),
    ),
)
def test_sisters_are_other_models(one: str, other: str) -> None:
    assert stem(one) != stem(other)
    assert are_sisters(one, other)


LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    ("official", "folder"),
    (
        *((LLAMA, name) for name in ("llama3.1-8b-instruct", "llama31-8b", "llama", "Llama-3.1-8B-Instruct-Dynamic")),
        *(
            (LLAMA, name)
            for name in ("Llama-3.1-8B-Instruct_quark", "llama-3-1-8b", "meta-llama_Llama-3.1-8B-Instruct")
        ),
        *(
            ("Qwen/Qwen3-8B", name)
            for name in ("qwen3", "qwen", "qwen3_8b", "qwen-8b-v2", "Qwen3-8B-tuned", "qwen3-8b-ckpt500")
        ),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b"),
        ("openai/gpt-oss-120b", "gpt_oss_120b"),
        ("moonshotai/Kimi-K2-Instruct", "kimi-k2"),
        ("Qwen/Qwen3-8B", "prod-v3"),
    ),
)
def test_folders_that_may_hold_the_model(official: str, folder: str) -> None:
    assert not differ(official, folder)


@pytest.mark.parametrize(
    ("official", "folder"),
    (
        ("moonshotai/Kimi-K2-Instruct", "Kimi-K2.5"),
        ("moonshotai/Kimi-K2.5", "kimi_k2"),
        ("moonshotai/Kimi-K2-Instruct", "Kimi-K2-Instruct-0905"),
        ("Qwen/Qwen3-8B", "Qwen3-4B"),
        ("Qwen/Qwen3-8B", "qwen2.5-8b"),
        ("Qwen/Qwen3-8B", "Qwen3-8B-Base"),
        (LLAMA, "llama-3.1-8b-base"),
        (LLAMA, "llama-3.3-70b-instruct"),
        ("openai/gpt-oss-120b", "gpt-oss-20b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
    ),
)
def test_folders_that_hold_another_model(official: str, folder: str) -> None:
    assert differ(official, folder)


def test_strangers_are_no_sisters() -> None:
    assert not are_sisters("Qwen/Qwen3-8B", "prod-v3")
    assert not are_sisters("", "")


def test_links_of_this_machine_are_followed(tmp_path: Path) -> None:
    (tmp_path / "Qwen3-8B").mkdir()
    (tmp_path / "target").symlink_to("Qwen3-8B")
    assert local_name(str(tmp_path / "target")) == "Qwen3-8B"
    assert local_name("models/Qwen3-8B") == "Qwen3-8B"
    assert local_name(str(tmp_path / "target_config.json")) is None
    assert local_name(f"/x/{CACHE}") == "moonshotai/Kimi-K2.5"


def found(room: Path, folder: str, declared: Json, target: Json | None = None, **options: object) -> list[Finding]:
    """What DC602 says of a draft that declares keys, beside a target in ``folder`` with other sizes."""
    draft = Draft()
    draft.target = None
    draft.set(**declared)
    draft.write(room / "draft")
    (room / folder).mkdir(parents=True)
    (room / folder / "config.json").write_bytes(dump({**target_config(), **(target or {})}))
    report = lint(room / "draft", target=room / folder, engine="sglang==0.5.15", **options)  # type: ignore[arg-type]
    return [f for f in report.findings if f.rule == "DC602"]


K2: Json = {"base_model_name_or_path": "moonshotai/Kimi-K2-Instruct"}


def test_a_sister_by_name_alone(tmp_path: Path) -> None:
    """Same sizes: a warning that says what it does not know, and what would tell."""
    [hit] = found(tmp_path, "Kimi-K2.5", K2)
    assert (hit.severity, hit.confidence) == (Severity.WARNING, Confidence.GUESS)
    assert "`moonshotai/Kimi-K2-Instruct`, the target is `Kimi-K2.5`" in hit.message
    assert "proves nothing about the vocabulary mapping" in hit.message
    assert "--reference" in str(hit.help)
    assert hit.locations[0].key == "base_model_name_or_path"


def test_a_sister_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    [hit] = found(tmp_path, CACHE, K2)
    assert (hit.severity, hit.confidence) == (Severity.WARNING, Confidence.LIKELY)
    assert "`moonshotai/Kimi-K2.5`" in hit.message


@pytest.mark.parametrize(
    "folder", ("Kimi-K2-Instruct", "kimi_k2_instruct", "kimi-k2-instruct-NVFP4", "kimi-k2", "Kimi", "target", "prod-v3")
)
def test_the_same_model_or_a_folder_that_tells_nothing(tmp_path: Path, folder: str) -> None:
    assert found(tmp_path, folder, K2) == []


@pytest.mark.parametrize(
    ("target", "fact"),
    (
        ({"vocab_size": 2 * VOCAB}, f"vocabulary {VOCAB} was declared and the target's is {2 * VOCAB}"),
        ({"hidden_size": 2 * HIDDEN}, f"width {HIDDEN} was declared and the target's is {2 * HIDDEN}"),
    ),
)
@pytest.mark.parametrize("folder", ("Kimi-K2.5", "prod-v3"))
def test_another_name_and_other_sizes(tmp_path: Path, folder: str, target: Json, fact: str) -> None:
    """Now even a folder that may be called anything counts."""
    [hit] = found(tmp_path, folder, K2, target)
    assert hit.severity is Severity.ERROR
    assert fact in hit.message
    assert "proves nothing" not in hit.message


def test_padding_is_no_other_vocabulary(tmp_path: Path) -> None:
    assert found(tmp_path, "prod-v3", K2, {"vocab_size": VOCAB + 64}) == []


def test_depth_is_told_by_dflash_configs(tmp_path: Path) -> None:
    assert found(tmp_path / "same", "target", {"num_target_layers": TARGET_LAYERS}) == []
    [hit] = found(tmp_path / "other", "target", {"num_target_layers": 36})
    assert hit.severity is Severity.ERROR
    assert f"depth 36 was declared and the target's is {TARGET_LAYERS}" in hit.message


def verifier(*architectures: object) -> Json:
    return {"speculators_config": {"verifier": {"name_or_path": "tiny/llama", "architectures": list(architectures)}}}


def test_class_is_told_by_speculators(tmp_path: Path) -> None:
    assert found(tmp_path / "same", "target", verifier("LlamaForCausalLM")) == []
    [hit] = found(tmp_path / "other", "target", verifier("Qwen3ForCausalLM"))
    assert hit.severity is Severity.ERROR
    assert "class Qwen3ForCausalLM was declared and the target's is LlamaForCausalLM" in hit.message


@pytest.mark.parametrize(
    "target",
    (
        {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": {"model_type": "deepseek_v3"}},
        {
            "architectures": ["KimiK25ForConditionalGeneration"],
            "text_config": {"architectures": ["DeepseekV3ForCausalLM"]},
        },
        {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": {}},
        {"architectures": ["DeepseekV3ForConditionalGeneration"]},
        {"architectures": []},
    ),
)
def test_a_wrapper_is_no_other_class(tmp_path: Path, target: Json) -> None:
    assert found(tmp_path, "target", verifier("DeepseekV3ForCausalLM"), target) == []


@pytest.mark.parametrize("value", (None, 5, [], {}, "", "/", [["x"]], True, "\x1b[31m", "a" * 9999))
def test_odd_declarations_are_survived(tmp_path: Path, value: object) -> None:
    declared: Json = {
        "base_model_name_or_path": value,
        "num_target_layers": value,
        "speculators_config": {"verifier": {"architectures": [value]}},
    }
    assert all(f.rule == "DC602" for f in found(tmp_path, "target", declared))


def test_a_mapping_that_fits_does_not_settle_the_hidden_states(tmp_path: Path) -> None:
    kept = spread(128, VOCAB)
    write_safetensors(tmp_path / "reference.safetensors", {"d2t": offsets(kept)})
    [hit] = found(tmp_path, "Kimi-K2.5", K2, reference=tmp_path / "reference.safetensors")
    assert "the mapping is that of reference.safetensors, but the hidden states are another model's" in hit.message
    assert "--reference" not in str(hit.help)
