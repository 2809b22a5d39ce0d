"""Record which rotary embedding each vLLM release really builds for a draft: fixtures/verdicts/vllm/rope.jsonl.

    ORACLE_HOME=... python tools/record_rope_vllm.py ORACLE [--odd] [RELEASE ...]

ORACLE is a folder with ``vllm/oracle.py``, which runs a release's own classes on the CPU; ORACLE_HOME holds the
unpacked releases and their environments. The configs are those of record_rope.py. Each is read by the real
SpeculativeConfig beside a Llama target, the real draft class is built from it, and what its attention layer holds is
written down. Nothing is asked of drafcheck. With ``--odd`` the configs are those of
rope_oddities.py. What is written is recorded data: run this, never edit it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import asked_vllm
from asked import Json
from record_rope import BASE, TOP, cases, keep, numbers
from rope_oddities import odd_cases

OUT = Path(__file__).parent.parent / "fixtures" / "verdicts" / "vllm" / "rope.jsonl"
ODD = OUT.with_name("rope_odd.jsonl")
TARGET: Json = {**BASE, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 8, **TOP}


def described(embedding: Any) -> Json:
    """What an embedding that was really built holds."""
    kind = type(embedding).__name__
    factor = getattr(embedding, "scaling_factor", None)
    factors = getattr(embedding, "scaling_factors", None) or [None]
    original = "max_position_embeddings" if "YaRN" in kind else "orig_max_position"
    row = {
        "class": kind,
        "theta": embedding.base,
        "factor": factors[0] if factor is None else factor,
        "original": getattr(embedding, original, None),
    }
    return {key: value for key, value in row.items() if value is not None}


def main(oracle_folder: str, releases: list[str]) -> None:
    """Ask the releases and write the rows; rows of releases that were not asked stay."""
    folder = str((Path(oracle_folder) / "vllm").resolve())
    sys.path.insert(0, folder)
    oracle = importlib.import_module("oracle")
    odd = "--odd" in releases
    releases = [release for release in releases if release != "--odd"]
    for release in releases or sorted((path.name for path in Path(oracle.SRC).iterdir()), key=numbers):
        verdicts = asked_vllm.ask(oracle, folder, release, Path(__file__), *(["--odd"] if odd else []))
        keep(ODD if odd else OUT, release, verdicts, odd_cases(BASE) if odd else cases())
        print(release, len(verdicts), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        configs = odd_cases(BASE) if "--odd" in sys.argv[5:] else cases()
        questions = {name: (config, TARGET) for name, config in configs.items()}
        asked_vllm.work(sys.argv[2:5], lambda model: described(model.model.layers[0].self_attn.rotary_emb), questions)
    else:
        main(sys.argv[1], sys.argv[2:])
