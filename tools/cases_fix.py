"""Faults that ``fix`` repairs, for rules whose other fixtures show faults that nothing in the files mends."""

from __future__ import annotations

from pathlib import Path

from cases import case
from cases_reference import KEPT, head_of
from drafts import HIDDEN, VOCAB, Draft
from weights import mask, offsets, write_safetensors, zeros


@case("DC012/merged-shards")
def merged_shards(draft: Draft) -> None:
    """The shards were merged into one file, and the index stayed: nothing that it names is there."""
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    draft.index({name: shards["midlayer" in name] for name in draft.weights})


@case("DC303/one-past-the-end-beside-t2d")
def one_past_the_end(draft: Draft) -> None:
    draft.weights["d2t"] = offsets([*KEPT[:-1], VOCAB + 44])


@case("DC304/one-token-wrong-beside-t2d")
def one_token_wrong(draft: Draft) -> None:
    draft.weights["d2t"] = offsets([*KEPT[:-1], KEPT[-2]])


@case("DC311/other-mapping-same-head", args="--reference {case}/reference")
def other_mapping_same_head(draft: Draft) -> None:
    """lm_head is that of the reference byte by byte; the map of another corpus came with it."""
    head = head_of(KEPT)
    other = sorted({(7 * token + 3) % VOCAB for token in KEPT})
    draft.weights["lm_head.weight"] = head
    draft.weights["d2t"], draft.weights["t2d"] = offsets(other), mask(VOCAB, other)

    def write(folder: Path) -> None:
        (folder / "reference").mkdir(exist_ok=True)
        tensors = {"lm_head.weight": head, "d2t": offsets(KEPT), "t2d": mask(VOCAB, KEPT)}
        write_safetensors(folder / "reference" / "model.safetensors", tensors)

    draft.writers.append(write)


@case("DC404/torchspec-outputs-on-vllm", "vllm==0.22.1")
def torchspec_outputs(draft: Draft) -> None:
    """TorchSpec writes which layers' outputs it took; this release reads whose inputs."""
    draft.set(_torchspec_version="0.0.1", eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3, 4]})


@case("DC409/fc-for-the-wider-target")
def fc_for_the_wider_target(draft: Draft) -> None:
    assert draft.target is not None
    draft.target["hidden_size"] = 2 * HIDDEN
    draft.shape("fc.weight", HIDDEN, 6 * HIDDEN)
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)
