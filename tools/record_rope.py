"""Record which rotary embedding each SGLang release really builds for a draft: fixtures/verdicts/sglang/rope.jsonl.

    ORACLE_HOME=... python tools/record_rope.py ORACLE [--odd] [RELEASE ...]

ORACLE is a folder with ``sglang/oracle.py``, which runs a release's own classes on the CPU; ORACLE_HOME holds the
unpacked releases and their environments. Every config below is read by the real config loader, the real draft class is
built from it, and what its attention layer holds is written down: theta, the kind of scaling, its factor. Nothing is
asked of drafcheck. With ``--odd`` the configs are those of rope_oddities.py, and the file is rope_odd.jsonl. What is
written is recorded data: run this, never edit it.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import asked
import recorded
from asked import Json
from rope_oddities import odd_cases

OUT = Path(__file__).parent.parent / "fixtures" / "verdicts" / "sglang" / "rope.jsonl"
ODD = OUT.with_name("rope_odd.jsonl")

BASE: Json = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "max_position_embeddings": 512,
    "vocab_size": 256,
    "draft_vocab_size": 128,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

LLAMA3: Json = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
YARN: Json = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LINEAR: Json = {"rope_type": "linear", "factor": 2.0}


def without(table: Json, *keys: str) -> Json:
    return {key: value for key, value in table.items() if key not in keys}


TOP: Json = {"rope_theta": 500000.0}
INSIDE: Json = {"rope_type": "default", "rope_theta": 500000.0}
VARIANTS: dict[str, Json] = {
    "nothing": {},
    "theta": TOP,
    "theta integer": {"rope_theta": 500000},
    "theta null": {"rope_theta": None},
    "parameters": {"rope_parameters": INSIDE},
    "parameters without type": {"rope_parameters": {"rope_theta": 500000.0}},
    "parameters without theta": {"rope_parameters": {"rope_type": "default"}},
    "parameters without theta, theta": {"rope_parameters": {"rope_type": "default"}, **TOP},
    "parameters against theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **TOP},
    "parameters empty, theta": {"rope_parameters": {}, **TOP},
    "parameters null, theta": {"rope_parameters": None, **TOP},
    "scaling null, theta": {"rope_scaling": None, **TOP},
    "scaling empty, theta": {"rope_scaling": {}, **TOP},
    "theta in scaling": {"rope_scaling": INSIDE},
    "theta in scaling against theta": {"rope_scaling": {"rope_type": "default", "rope_theta": 10000.0}, **TOP},
    "llama3, theta": {"rope_scaling": LLAMA3, **TOP},
    "llama3": {"rope_scaling": LLAMA3},
    "llama3 by type, theta": {"rope_scaling": {**without(LLAMA3, "rope_type"), "type": "llama3"}, **TOP},
    "llama3 in parameters": {"rope_parameters": {**LLAMA3, **TOP}},
    "llama3 in parameters without theta, theta": {"rope_parameters": LLAMA3, **TOP},
    "llama3 without theta, theta in parameters": {"rope_scaling": LLAMA3, "rope_parameters": INSIDE},
    "llama3, theta, theta in parameters": {"rope_scaling": LLAMA3, "rope_parameters": INSIDE, **TOP},
    "llama3 without factor": {"rope_scaling": without(LLAMA3, "factor"), **TOP},
    "llama3 without low_freq_factor": {"rope_scaling": without(LLAMA3, "low_freq_factor"), **TOP},
    "llama3 without high_freq_factor": {"rope_scaling": without(LLAMA3, "high_freq_factor"), **TOP},
    "llama3 without original": {"rope_scaling": without(LLAMA3, "original_max_position_embeddings"), **TOP},
    "llama3 in parameters without factor": {"rope_parameters": {**without(LLAMA3, "factor"), **TOP}},
    "yarn, theta": {"rope_scaling": YARN, **TOP},
    "yarn": {"rope_scaling": YARN},
    "yarn in parameters": {"rope_parameters": {**YARN, **TOP}},
    "yarn by type, theta": {"rope_scaling": {**without(YARN, "rope_type"), "type": "yarn"}, **TOP},
    "yarn without original, theta": {"rope_scaling": without(YARN, "original_max_position_embeddings"), **TOP},
    "yarn without factor, theta": {"rope_scaling": without(YARN, "factor"), **TOP},
    "yarn in both": {"rope_scaling": YARN, "rope_parameters": {**YARN, **TOP}, **TOP},
    "yarn here, llama3 there": {"rope_scaling": YARN, "rope_parameters": {**LLAMA3, **TOP}, **TOP},
    "yarn, original at the top": {
        "rope_scaling": without(YARN, "original_max_position_embeddings"),
        "original_max_position_embeddings": 64,
        **TOP,
    },
    "longrope, theta": {
        "rope_scaling": {"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0] * 16, "long_factor": [2.0] * 16},
        **TOP,
    },
    "parameters null": {"rope_parameters": None},
    "parameters empty": {"rope_parameters": {}},
    "model_max_length": {"model_max_length": 256, **TOP},
    "linear, theta": {"rope_scaling": LINEAR, **TOP},
    "linear in parameters": {"rope_parameters": {**LINEAR, **TOP}},
    "linear without factor, theta": {"rope_scaling": {"rope_type": "linear"}, **TOP},
    "dynamic, theta": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, **TOP},
    "no type, theta": {"rope_scaling": {"factor": 8.0}, **TOP},
    "unknown type, theta": {"rope_scaling": {"rope_type": "spiral", "factor": 8.0}, **TOP},
    "type against rope_type": {
        "rope_scaling": {**LINEAR, "type": "yarn", "original_max_position_embeddings": 128},
        **TOP,
    },
    "mrope, theta": {"rope_scaling": {"rope_type": "default", "mrope_section": [4, 6, 6]}, **TOP},
    "mrope by type, theta": {"rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]}, **TOP},
    "mrope in parameters": {"rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6], **TOP}},
    "by attention type": {"rope_parameters": {"full_attention": INSIDE, "sliding_attention": INSIDE}},
    "by attention type, theta": {"rope_parameters": {"full_attention": INSIDE}, **TOP},
    "scaling a text": {"rope_scaling": "yarn", **TOP},
    "scaling a list": {"rope_scaling": [1, 2], **TOP},
    "parameters a text": {"rope_parameters": "default", **TOP},
    "theta a text": {"rope_theta": "500000"},
    "theta a text inside": {"rope_parameters": {"rope_type": "default", "rope_theta": "500000"}},
    "theta null inside": {"rope_parameters": {"rope_type": "default", "rope_theta": None}},
    "theta true": {"rope_theta": True},
    "theta zero": {"rope_theta": 0},
}
OTHER_TYPES = (
    *("qwen2", "qwen3", "qwen3_moe", "mistral", "llama4_text", "gpt_oss", "minimax_m2", "deepseek_v3", "glm4_moe"),
)
OF_OTHER_TYPES = (
    *("nothing", "theta", "parameters", "parameters against theta", "llama3, theta"),
    *("scaling null, theta", "parameters null, theta", "parameters empty"),
)


def cases() -> dict[str, Json]:
    """Every config by name; a name of another model_type ends with it in brackets."""
    found = {name: {**BASE, **keys} for name, keys in VARIANTS.items()}
    for model_type in OTHER_TYPES:
        for name in OF_OTHER_TYPES:
            found[f"{name} [{model_type}]"] = {**BASE, "model_type": model_type, **VARIANTS[name]}
    return found


def described(embedding: Any) -> Json:
    """What an embedding that was really built holds."""
    kind = type(embedding).__name__
    row: Json = {"class": kind, "theta": embedding.base}
    factor = getattr(embedding, "scaling_factor", None)
    factors = getattr(embedding, "scaling_factors", None) or [None]
    row["factor"] = factors[0] if factor is None else factor
    original = "max_position_embeddings" if "YaRN" in kind else "orig_max_position"
    row["original"] = getattr(embedding, original, None)
    return {key: value for key, value in row.items() if value is not None}


def one(oracle: Any, wheel: str, folder: str) -> Json:
    """The verdict on one config: the embedding of the first layer, or the error."""
    stage = "config"
    try:
        config, model_config, _ = oracle.load_config(folder, [])
        stage = "construct"
        architecture = (getattr(config, "architectures", None) or [None])[0]
        model = oracle.find_class(wheel, architecture)[0](config=config, quant_config=None)
        inner = model.model
        layer = inner.midlayer if hasattr(inner, "midlayer") else inner.layers[0]
        return {**described(layer.self_attn.rotary_emb), "context_length": getattr(model_config, "context_len", None)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:160]}", "stage": stage}


def numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))


def main(oracle_folder: str, releases: list[str]) -> None:
    """Ask the releases and write the rows; rows of releases that were not asked stay."""
    folder = str((Path(oracle_folder) / "sglang").resolve())
    sys.path.insert(0, folder)
    oracle = importlib.import_module("oracle")
    unpacked = {path.name.removeprefix("sglang-"): path for path in (Path(oracle.HOME) / "sglang").glob("sglang-*")}
    out, configs = (ODD, odd_cases(BASE)) if "--odd" in releases else (OUT, cases())
    releases = [release for release in releases if release != "--odd"]
    for release in releases or sorted(unpacked, key=numbers):
        verdicts = asked.ask(
            oracle, folder, str(unpacked[release]), configs, script=Path(__file__), healthy={**BASE, **TOP}
        )
        keep(out, release, verdicts, configs)
        print(release, len(verdicts), flush=True)


def keep(out: Path, release: str, verdicts: dict[str, Json], configs: dict[str, Json]) -> None:
    """Write the rows of one release in place of those that there are."""
    there = out.is_file() or out.with_name(f"{out.name}.xz").is_file()
    rows = [row for row in recorded.rows(out) if row["version"] != release] if there else []
    for name, verdict in verdicts.items():
        edit = {key: value for key, value in configs[name].items() if key not in BASE or BASE[key] != value}
        rows.append({"version": release, "case": name, "config": edit, **verdict})
    rows.sort(key=lambda row: numbers(row["version"]))
    recorded.keep(out, rows)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        asked.work(sys.argv[2:5], one)
    else:
        main(sys.argv[1], sys.argv[2:])
