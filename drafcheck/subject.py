"""Everything a check may look at, for one checkpoint and one engine version."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drafcheck.plan.model import LoadPlan, Refusal, VocabularyPlan, WiringPlan

if TYPE_CHECKING:
    from drafcheck.beside import EmbeddingBeside, HeadBeside
    from drafcheck.checkpoint import Checkpoint
    from drafcheck.comparison import Comparison
    from drafcheck.config import DraftConfig, TargetConfig
    from drafcheck.contract import Contract, Engine
    from drafcheck.heads import Head
    from drafcheck.launch.model import Launch
    from drafcheck.normflags import Unswitched
    from drafcheck.place import Place
    from drafcheck.plan.files import Selection
    from drafcheck.plan.wanted import Wanted
    from drafcheck.producers import Producer, Told
    from drafcheck.reference import Reference
    from drafcheck.suppress import Ignore
    from drafcheck.targets import TargetClass
    from drafcheck.tensor import Tensor
    from drafcheck.tokenizer import Tokenizer
    from drafcheck.valuescan.model import Values

NEEDS = {
    "config": "a readable config.json",
    "weights": "readable weight files",
    "contract": "a draft class that drafcheck knows for this engine",
    "load": "a load plan",
    "target": "--target",
    "reference": "--reference",
    "launch": "--launch",
    "comparison": "a vocabulary mapping to compare",
    "tokenizers": "a tokenizer beside the draft's config.json and one of the target (beside its own, or --tokenizer)",
    "tp": "--tp",
    "values": "--values",
    "target_weights": "--target-weights",
    "target_head": "the target's head in --target-weights",
    "target_embedding": "the target's embedding in --target-weights",
    "rope": "rope facts for this draft class and release",
}
"""What a rule can need of a Subject, each with the words that say it is missing."""


@dataclass(slots=True)
class Subject:
    """One checkpoint, one engine version, and the plans worked out for the two."""

    checkpoint: Checkpoint
    engine: Engine
    algorithm: str
    algorithm_given: bool = False
    dtype: str | None = None  # --dtype of the launch, when given
    tp: int | None = None  # its tensor parallelism, when given
    launch: Launch | None = None
    config: DraftConfig | None = None
    target: TargetConfig | None = None
    target_class: TargetClass | None = None
    selection: Selection | None = None
    contract: Contract | None = None
    refused: Refusal | None = None  # before a draft class is built
    undescribed: str | None = None  # the config key for which the draft class has no contract yet
    load: LoadPlan | None = None
    wiring: WiringPlan | None = None
    vocabulary: VocabularyPlan | None = None
    target_path: str | None = None  # as given or found
    target_place: Place | None = None  # the target's own folder, where it has one
    tokenizer: Tokenizer | None = None  # as given; found in the target's folder by the first rule that asks
    tokenizer_given: bool = False
    own_tokenizer: Tokenizer | None = None  # the draft's own, opened by the first rule that asks
    reference: Reference | None = None
    comparison: Comparison | None = None  # of the mapping with that of the reference
    values: Values | None = None  # what the tensors hold, with --values
    target_weights: Checkpoint | None = None  # the target's own weights, with --target-weights
    head_beside: HeadBeside | None = None  # what --target-weights say, told by the first rule that asks
    embedding_beside: EmbeddingBeside | None = None
    heads: tuple[Head | None] | None = None  # the kind of head, told once
    told: Told | None = None  # who wrote the checkpoint, told once
    lost: list[tuple[Tensor, Wanted | None]] | None = None  # worked out once, by the first rule that asks
    unswitched: list[Unswitched] | None = None  # so are these
    crashed: dict[str, str] = field(default_factory=dict)
    unused: list[Ignore] = field(default_factory=list)  # known once all checkpoints of the call were checked
    expired: list[Ignore] = field(default_factory=list)

    @property
    def written(self) -> DraftConfig | None:
        """config.json as it is in the file: what a trainer says is looked for here, what an engine reads in ``config``.

        The two are one unless the engine converts the format, which loses the keys that it has no use for.
        """
        return self.checkpoint.config if self.config is not None else None

    @property
    def producer(self) -> Producer | None:
        """Who wrote the checkpoint, told at the first use; None when the files do not say."""
        from drafcheck.producers import producer_of

        return producer_of(self).producer

    @property
    def algorithm_launched(self) -> bool:
        """Whether the launch line says the algorithm: then what is wrong with it is DC701's to say."""
        said = self.launch.said.get("algorithm", "") if self.launch is not None else ""
        return self.algorithm_given and said.lower() == self.algorithm.lower()

    def has(self, need: str) -> bool:
        """Whether the part that a rule needs is there; ``need`` is a key of NEEDS."""
        if need == "weights":
            return self.selection is not None and bool(self.selection.files)
        if need == "rope":
            return self._rope_is_known()
        if need in ("target_head", "target_embedding"):
            from drafcheck.targethead import REASONS

            return REASONS[need](self) is None
        if need == "tokenizers":
            return self._tokenizers_are_known()
        if need == "tp":  # a launch line that says nothing of it starts one process
            return self.tp is not None or self.launch is not None
        return getattr(self, need) is not None

    def _tokenizers_are_known(self) -> bool:
        """Whether the tokens of both models can be read; no need of it but for a whole model that is to be a draft."""
        from drafcheck.draftmode import drafts_whole

        if self.contract is not None or not drafts_whole(self.engine, self.algorithm):
            return True
        from drafcheck.tokenizer import tables

        return tables(self) is not None

    def _rope_is_known(self) -> bool:
        """Whether the book says how the draft class reads its rope; it does not for converted configs."""
        from drafcheck.rope import reads_so

        flat = self.config is not None and not self.config.settled
        return flat and self.contract is not None and reads_so(self.engine, self.contract.architecture)
