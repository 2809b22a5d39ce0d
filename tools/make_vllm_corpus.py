"""Write the checkpoints of vLLM's smaller draft classes: fixtures/verdicts/vllm/relatives.tar.xz.

    python tools/make_vllm_corpus.py FOLDER    # the checkpoints, each with its target_config.json
    python tools/make_vllm_corpus.py --pack

EAGLE-1 for targets other than Llama, Medusa, and the relatives of DFlash and DSpark. Deterministic, no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import corpus_command
import vllm_drafts as healthy
from class_edits import (
    Edit,
    added,
    config,
)
from class_relatives import DFLASH2, MISTRAL
from drafts import Draft
from vllm_edits import BEAM, COHERE, DEEPSEEK, GEMMA4, K3, LAGUNA, LARGE, LILICORR, LLAMA4, MEDUSA, MINICPM, PEAGLE

ARCHIVE = Path(__file__).parent.parent / "fixtures" / "verdicts" / "vllm" / "relatives.tar.xz"


class Family(NamedTuple):
    """Drafts of one class: the healthy one, the method, the first release that has the class, and what is broken."""

    make: Callable[[], Draft]
    method: str
    since: str
    edits: dict[str, Edit]
    until: str = "0.33.0"
    parallel: bool = False  # whether the launch asks for parallel drafting


FAMILIES: dict[str, Family] = {
    "mistral": Family(
        healthy.vllm_mistral,
        "eagle",
        "0.22.1",
        {
            **MISTRAL,
            "bare-class": config(architectures=["MistralForCausalLM"]),
            "extra-first": added("aaa.weight", 3),
        },
    ),
    "minicpm": Family(healthy.minicpm, "eagle", "0.9.2", MINICPM),
    "llama4": Family(healthy.llama4, "eagle", "0.11.0", LLAMA4),
    "cohere": Family(healthy.cohere, "eagle", "0.22.1", COHERE),
    "deepseek": Family(healthy.deepseek, "eagle", "0.16.0", DEEPSEEK),
    "large": Family(healthy.vllm_mistral_large, "eagle", "0.16.0", LARGE),
    "peagle": Family(healthy.peagle, "eagle3", "0.16.0", PEAGLE, parallel=True),
    "medusa": Family(healthy.medusa, "medusa", "0.9.2", MEDUSA, "0.22.1"),
    "dflash2": Family(healthy.vllm_dflash2, "dflash", "0.33.0", DFLASH2),
    "beam": Family(healthy.vllm_beam, "dflash", "0.33.0", BEAM),
    "laguna": Family(healthy.vllm_laguna, "dflash", "0.33.0", LAGUNA),
    "lilicorr": Family(healthy.lilicorr, "dflash", "0.33.0", LILICORR),
    "k3": Family(healthy.k3, "dspark", "0.33.0", K3),
    "gemma4": Family(healthy.gemma4, "dspark", "0.33.0", GEMMA4),
}


def write_corpus(folder: Path, families: list[str] | None = None) -> list[Path]:
    """Write every checkpoint below ``folder``, each with its target beside it; the checkpoints."""
    written = []
    for name, family in FAMILIES.items():
        for what, edit in family.edits.items() if families is None or name in families else ():
            draft = family.make()
            try:
                edit(draft)
            except KeyError:
                continue  # the class has no such tensor or key to begin with
            place = folder / f"{name}-{what}"
            draft.write(place)
            place.joinpath("args.txt").unlink()
            written.append(place)
    return written


if __name__ == "__main__":
    corpus_command.main(__doc__, write_corpus, ARCHIVE, "relatives")
