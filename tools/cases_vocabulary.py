"""DC3xx: which target token each draft id becomes."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from cases import case
from drafts import DRAFT_VOCAB, HIDDEN, VOCAB, Draft
from weights import Weight, integers, mask, offsets, spread, zeros

KEPT = spread(DRAFT_VOCAB, VOCAB)


def bfloat16(values: Iterable[int]) -> Weight:
    """Whole numbers as bf16, cut as a cast does for those below 256."""
    halves = [struct.pack("<f", value)[2:] for value in values]
    return Weight("BF16", (len(halves),), b"".join(halves))


def float32(values: Iterable[int]) -> Weight:
    """Whole numbers as F32."""
    words = [struct.pack("<f", value) for value in values]
    return Weight("F32", (len(words),), b"".join(words))


def put_map(draft: Draft, kept: list[int], with_t2d: bool = True) -> None:
    """Give the draft another choice of tokens."""
    draft.weights["d2t"] = offsets(kept)
    draft.drop("t2d")
    if with_t2d:
        draft.weights["t2d"] = mask(VOCAB, kept)


@case("DC301/no-d2t")
def no_d2t(draft: Draft) -> None:
    draft.drop("d2t")


@case("good/full-vocabulary")
def full_vocabulary(draft: Draft) -> None:
    draft.full_vocabulary()


@case("good/draft-vocabulary-padded")
def padded_vocabulary(draft: Draft) -> None:
    """The target's vocabulary is 250, its embedding and the draft's head are padded to 256."""
    draft.full_vocabulary()
    assert draft.target is not None
    draft.target["vocab_size"] = 250


@case("DC302/config-64")
def draft_vocab_64(draft: Draft) -> None:
    draft.set(draft_vocab_size=64)


@case("DC302/d2t-short")
def d2t_short(draft: Draft) -> None:
    draft.weights["d2t"] = offsets(KEPT[:64])


@case("DC302/d2t-inverted")
def d2t_inverted(draft: Draft) -> None:
    """The draft id of each token, -1 for those that are left out."""
    ids = {token: i for i, token in enumerate(KEPT)}
    draft.weights["d2t"] = integers(ids.get(token, -1) for token in range(VOCAB))


@case("DC302/t2d-stored-as-d2t")
def t2d_as_d2t(draft: Draft) -> None:
    draft.weights["d2t"] = integers(int(token in KEPT) for token in range(VOCAB))


@case("DC302/head-of-all-rows")
def head_of_all_rows(draft: Draft) -> None:
    draft.shape("lm_head.weight", VOCAB, HIDDEN)


@case("DC302/key-absent")
def draft_vocab_absent(draft: Draft) -> None:
    """Refused: 'LlamaConfig' object has no attribute 'draft_vocab_size'."""
    draft.config.pop("draft_vocab_size")


@case("DC302/key-null")
def draft_vocab_null(draft: Draft) -> None:
    """A reduced head beside a null size: the engine builds the head over the whole vocabulary."""
    draft.set(draft_vocab_size=None)


@case("DC303/past-the-end")
def past_the_end(draft: Draft) -> None:
    put_map(draft, [*KEPT[:-1], VOCAB + 44], with_t2d=False)


@case("DC303/negative")
def negative_target(draft: Draft) -> None:
    put_map(draft, [-3, *KEPT[1:]], with_t2d=False)


@case("DC304/two-ids-one-token")
def two_ids_one_token(draft: Draft) -> None:
    put_map(draft, [*KEPT[:-1], KEPT[-2]], with_t2d=False)


@case("DC305/with-t2d")
def absolute(draft: Draft) -> None:
    draft.weights["d2t"] = integers(KEPT)


@case("DC305/without-t2d")
def absolute_without_t2d(draft: Draft) -> None:
    draft.weights["d2t"] = integers(KEPT)
    draft.drop("t2d")


@case("good/unsorted-offsets")
def unsorted_offsets(draft: Draft) -> None:
    """As ModelOpt and NeMo-Automodel order them, by frequency: some offsets are negative."""
    put_map(draft, [*KEPT[64:], *KEPT[:64]])


@case("good/unsorted-offsets-without-t2d")
def unsorted_without_t2d(draft: Draft) -> None:
    put_map(draft, [*KEPT[1::2], *KEPT[::2]], with_t2d=False)


@case("DC306/all-zeros")
def all_zeros(draft: Draft) -> None:
    draft.weights["d2t"] = zeros("I64", DRAFT_VOCAB)


@case("DC306/all-zeros-of-a-known-trainer")
def all_zeros_by_token(draft: Draft) -> None:
    """The marks of one that orders draft ids by token, so that t2d tells the map."""
    all_zeros(draft)
    draft.set(target_model_type="llama")


@case("good/zeros-at-full-vocabulary")
def zeros_at_full(draft: Draft) -> None:
    draft.full_vocabulary()
    draft.weights["d2t"] = zeros("I64", VOCAB)
    draft.weights["t2d"] = mask(VOCAB, range(VOCAB))


@case("DC307/other-tokens")
def t2d_of_others(draft: Draft) -> None:
    draft.weights["t2d"] = mask(VOCAB, spread(DRAFT_VOCAB, VOCAB, salt=7))


@case("DC307/too-short")
def t2d_too_short(draft: Draft) -> None:
    draft.weights["t2d"] = mask(VOCAB, KEPT).with_shape(200)
    draft.weights["t2d"] = mask(200, [token for token in KEPT if token < 200])


@case("good/no-t2d")
def no_t2d(draft: Draft) -> None:
    draft.drop("t2d")


@case("good/t2d-padded")
def t2d_padded(draft: Draft) -> None:
    draft.weights["t2d"] = mask(VOCAB + 64, KEPT)


@case("DC308/bfloat16")
def d2t_bfloat16(draft: Draft) -> None:
    draft.weights["d2t"] = bfloat16(token - place for place, token in enumerate(KEPT))


@case("DC308/float32")
def d2t_float32(draft: Draft) -> None:
    draft.weights["d2t"] = float32(token - place for place, token in enumerate(KEPT))


@case("good/d2t-int32")
def d2t_int32(draft: Draft) -> None:
    draft.weights["d2t"] = integers((token - place for place, token in enumerate(KEPT)), "I32")


@case("DC309/reduced")
def no_head(draft: Draft) -> None:
    draft.drop("lm_head.weight")


@case("DC309/full-vocabulary")
def no_head_full(draft: Draft) -> None:
    """The size is stated, so this engine does not borrow the target's head."""
    draft.full_vocabulary()
    draft.drop("lm_head.weight")


@case("good/head-borrowed")
def head_borrowed(draft: Draft) -> None:
    draft.full_vocabulary()
    draft.drop("lm_head.weight")
    draft.set(draft_vocab_size=None)


@case("DC310/tied")
def tied(draft: Draft) -> None:
    draft.set(tie_word_embeddings=True)


@case("DC310/tied-without-head")
def tied_without_head(draft: Draft) -> None:
    draft.set(tie_word_embeddings=True)
    draft.drop("lm_head.weight")


@case("DC312/embedding-of-other-rows")
def other_rows(draft: Draft) -> None:
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB, HIDDEN)
    draft.set(vocab_size=2 * VOCAB)


@case("good/vocab-size-unlike-the-target")
def unlike_target(draft: Draft) -> None:
    """Measured harmless: no embedding of its own, the target's replaces it."""
    draft.set(vocab_size=2 * VOCAB)


@case("good/vocab-size-padded")
def vocab_padded(draft: Draft) -> None:
    draft.set(vocab_size=VOCAB + 64)
    draft.weights["embed_tokens.weight"] = zeros("BF16", VOCAB + 64, HIDDEN)


@case("good/tied-flag-and-borrowed-head")
def tied_flag_and_borrowed_head(draft: Draft) -> None:
    """A drafter without a head of its own at full vocabulary: there is nothing for the flag to take away."""
    draft.full_vocabulary()
    draft.drop("lm_head.weight")
    draft.set(draft_vocab_size=None, tie_word_embeddings=False)
