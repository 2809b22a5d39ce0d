"""DC311, DC313, DC314, DC602: a draft beside a reference, its own head, the target's special tokens and name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

from cases import case
from drafts import DRAFT_VOCAB, HIDDEN, VOCAB, Draft, Json, dump
from weights import Weight, Weights, mask, offsets, spread, write_safetensors

KEPT = spread(DRAFT_VOCAB, VOCAB)
LOST = [token for token in range(VOCAB) if token not in KEPT]
BESIDE = "--target {case}/target"
"""The target in a folder of its own, with its tokenizer."""


def reference(draft: Draft, kept: list[int]) -> None:
    """Put a mapping file into a subfolder, where no engine looks."""
    tensors: Weights = {"d2t": offsets(kept), "t2d": mask(VOCAB, kept)}

    def write(folder: Path) -> None:
        (folder / "reference").mkdir(exist_ok=True)
        write_safetensors(folder / "reference" / "mapping.safetensors", tensors)

    draft.writers.append(write)


@case("DC311/sister-model", args="--reference {case}/reference/mapping.safetensors")
def sister(draft: Draft) -> None:
    reference(draft, spread(DRAFT_VOCAB, VOCAB, salt=3))


@case("DC311/same-tokens-other-order", args="--reference {case}/reference/mapping.safetensors")
def other_order(draft: Draft) -> None:
    reference(draft, [*KEPT[64:], *KEPT[:64]])


@case("good/same-mapping", args="--reference {case}/reference/mapping.safetensors")
def same_mapping(draft: Draft) -> None:
    reference(draft, KEPT)


def head_of(rows: Iterable[int], seed: int = 7) -> Weight:
    """A head whose rows are those of a full head, trained in appearance; ``rows`` are their numbers there."""
    random = Random(seed)
    full = [random.randbytes(2 * HIDDEN) for _ in range(VOCAB)]
    data = b"".join(full[row] for row in rows)
    return Weight("BF16", (len(data) // (2 * HIDDEN), HIDDEN), data)


@case("DC313/cut-by-offsets")
def cut_by_offsets(draft: Draft) -> None:
    """As TorchSpec's --prune-vocab does: lm_head[d2t], with offsets in d2t."""
    draft.weights["lm_head.weight"] = head_of(token - i for i, token in enumerate(KEPT))


@case("good/cut-by-tokens")
def cut_by_tokens(draft: Draft) -> None:
    draft.weights["lm_head.weight"] = head_of(KEPT)


def tokenizer(added: dict[int, str] | None = None) -> Json:
    """tokenizer.json of a byte-level tokenizer: a short word for each token, but for breaks and a character."""
    words = {f"\u0120w{token}": token for token in range(VOCAB)}
    words |= {"\u010a": 40, "\u010a\u010a": 41, "\u00e4\u00bd\u0142": 42}
    tokens = [{"id": i, "content": text, "special": text.startswith("<|")} for i, text in (added or {}).items()]
    return {
        "version": "1.0",
        "added_tokens": tokens,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": words, "merges": []},
    }


def own_target(draft: Draft, files: dict[str, Json], folder: str = "target", **keys: object) -> None:
    """Give the target a ``folder`` of its own; ``keys`` are added to its config.json."""
    config = {**(draft.target or {}), **keys}
    draft.target = None

    def write(room: Path) -> None:
        (room / folder).mkdir(exist_ok=True)
        for name, content in {"config.json": config, **files}.items():
            (room / folder / name).write_bytes(dump(content))

    draft.writers.append(write)


@case(
    "DC311/tokens-as-text",
    args="--reference {case}/reference/mapping.safetensors --tokenizer {case}/tokenizer.json",
)
def as_text(draft: Draft) -> None:
    reference(draft, spread(DRAFT_VOCAB, VOCAB, salt=3))
    draft.files["tokenizer.json"] = dump(tokenizer())


@case("DC314/no-end-of-an-answer", args=BESIDE)
def no_end(draft: Draft) -> None:
    """The one token that ends an answer is not among those of the draft."""
    own_target(draft, {"generation_config.json": {"eos_token_id": LOST[-1]}}, eos_token_id=2)


@case("DC314/end-in-config-alone", args=BESIDE)
def end_in_config(draft: Draft) -> None:
    """A note: it may be a default of the config class."""
    own_target(draft, {}, eos_token_id=LOST[-1])


@case("DC314/tool-call-tokens", args=BESIDE)
def tool_calls(draft: Draft) -> None:
    added = {LOST[0]: "<tool_call>", LOST[1]: "</tool_call>", LOST[2]: "<think>", LOST[3]: "<tool_response>"}
    own_target(draft, {"tokenizer.json": tokenizer(added)}, eos_token_id=2)


@case("DC314/one-end-of-two", args=BESIDE)
def one_end(draft: Draft) -> None:
    """As drafters of Llama 3.1 without tool calls: a note."""
    own_target(draft, {"generation_config.json": {"eos_token_id": [2, LOST[5]]}}, eos_token_id=LOST[6])


@case("good/special-tokens-kept", args=BESIDE)
def special_kept(draft: Draft) -> None:
    """What the draft leaves out are tokens of prompts, of images, reserved ones, and one past the vocabulary."""
    added = {KEPT[9]: "<tool_call>", LOST[0]: "<|image_pad|>", LOST[1]: "<|reserved_7|>", LOST[2]: "<|im_start|>"}
    decoder = {str(i): {"content": text, "special": True} for i, text in {**added, VOCAB + 9: "<think>"}.items()}
    files: dict[str, Json] = {
        "tokenizer_config.json": {"added_tokens_decoder": decoder},
        "generation_config.json": {"eos_token_id": [KEPT[7], VOCAB + 3]},
    }
    own_target(draft, files, eos_token_id=LOST[6])


def targets_name(draft: Draft, name: str, **keys: object) -> None:
    """Let the draft say that it was made for Kimi-K2-Instruct, beside a target in a folder of that ``name``."""
    draft.set(base_model_name_or_path="moonshotai/Kimi-K2-Instruct")
    own_target(draft, {}, folder=name, **keys)


@case("DC602/sister-by-name", args="--target {case}/Kimi-K2.5")
def sister_by_name(draft: Draft) -> None:
    targets_name(draft, "Kimi-K2.5")


@case("DC602/other-vocabulary", args="--target {case}/Qwen3-8B")
def stranger(draft: Draft) -> None:
    targets_name(draft, "Qwen3-8B", vocab_size=4 * VOCAB)


@case("DC602/other-class", args="--target {case}/target")
def other_class(draft: Draft) -> None:
    """As speculators writes it: the class of the model that it was trained with."""
    verifier = {"architectures": ["Qwen3ForCausalLM"], "name_or_path": "target"}
    draft.set(speculators_config={"verifier": verifier})
    own_target(draft, {})


@case("good/same-target-stored-otherwise", args="--target {case}/kimi-k2-instruct-fp8")
def same_target(draft: Draft) -> None:
    targets_name(draft, "kimi-k2-instruct-fp8")
