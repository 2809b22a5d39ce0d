"""Write the DSpark checkpoints that vLLM was asked about: fixtures/verdicts/vllm/dspark.tar.xz.

    python tools/make_dspark_corpus.py FOLDER    # the checkpoints and target.json
    python tools/make_dspark_corpus.py --pack

Those that SGLang was asked about, and some of what only vLLM's class knows: a reduced vocabulary, its switches.
Deterministic, no torch.
"""

from __future__ import annotations

from pathlib import Path

import corpus_command
from class_drafts import RANK, dspark
from class_edits import Edit, added, both, config, dropped, shaped
from drafts import DRAFT_VOCAB, HIDDEN, VOCAB, Draft, dump, target_config
from make_class_corpus import FAMILIES
from weights import mask, offsets, spread, zeros

ARCHIVE = Path(__file__).parent.parent / "fixtures" / "verdicts" / "vllm" / "dspark.tar.xz"


def reduced(draft: Draft) -> None:
    """A vocabulary of its own, as speculators writes it."""
    kept = spread(DRAFT_VOCAB, VOCAB)
    draft.set(draft_vocab_size=DRAFT_VOCAB)
    draft.weights |= {"d2t": offsets(kept), "t2d": mask(VOCAB, kept)}
    draft.weights["lm_head.weight"] = zeros("BF16", DRAFT_VOCAB, HIDDEN)
    draft.shape("markov_head.markov_w2.weight", DRAFT_VOCAB, RANK)


OF_VLLM: dict[str, Edit] = {
    "reduced": reduced,
    "reduced-no-map": both(reduced, dropped("d2t")),
    "reduced-no-head": both(reduced, dropped("lm_head.weight")),
    "reduced-wide-markov": both(reduced, shaped("markov_head.markov_w2.weight", VOCAB, RANK)),
    "map-at-full": both(reduced, config(draft_vocab_size=VOCAB), shaped("lm_head.weight", VOCAB, HIDDEN)),
    "confidence-unsaid": lambda draft: draft.config.pop("enable_confidence_head"),
    "confidence-of-states": config(confidence_head_with_markov=False),
    "confidence-of-states-alone": both(
        config(confidence_head_with_markov=False), shaped("confidence_head.proj.weight", 1, HIDDEN)
    ),
    "confidence-no-bias": dropped("confidence_head.proj.bias"),
    "mask-embedding": added("mask_embedding", HIDDEN),
    "no-norms": dropped("hidden_norm.weight", "norm.weight"),
    "no-w2": dropped("markov_head.markov_w2.weight"),
    "midlayer": lambda draft: draft.rename(lambda name: name.replace("layers.0.", "midlayer.")),
    "encoder": lambda draft: draft.rename(lambda name: "encoder." + name if name.startswith("fc.") else name),
    "extra-bias": added("extra.bias", 3),
    "wider-vocabulary": config(vocab_size=2 * VOCAB),
}


def write_corpus(folder: Path) -> list[Path]:
    """Write every checkpoint, and the target, below ``folder``; the checkpoints."""
    families = {name: family for name, family in FAMILIES.items() if name.startswith("dspark")}
    wanted = [
        (f"{name}-{what}", make, edit) for name, (make, edits) in families.items() for what, edit in edits.items()
    ]
    wanted += [(f"dspark-{what}", dspark, edit) for what, edit in OF_VLLM.items()]
    for name, make, edit in wanted:
        draft = make()
        edit(draft)
        draft.target = None
        draft.write(folder / name)
        folder.joinpath(name, "args.txt").unlink()
    target = {**target_config(), "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    folder.joinpath("target.json").write_bytes(dump(target))
    return [folder / name for name, _, _ in wanted]


if __name__ == "__main__":
    corpus_command.main(__doc__, write_corpus, ARCHIVE, "dspark")
