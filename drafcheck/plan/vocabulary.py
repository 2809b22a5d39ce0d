"""The vocabulary plan: which target token the engine will make of each draft id, and which one was meant."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, pairwise
from operator import add
from typing import TYPE_CHECKING

from drafcheck.decode import LARGEST, DecodeError, decode
from drafcheck.finding import Confidence
from drafcheck.plan.inverse import inverted
from drafcheck.plan.model import LoadPlan, VocabularyPlan
from drafcheck.plan.names import is_mapping
from drafcheck.plan.quick import confirmed
from drafcheck.source import SourceError
from drafcheck.tensor import Tensor
from drafcheck.tensors import Tensors
from drafcheck.words import plural

if TYPE_CHECKING:
    from drafcheck.checkpoint import Checkpoint
    from drafcheck.config import DraftConfig, TargetConfig
    from drafcheck.contract import Contract

HEAD = "lm_head.weight"
EMBEDDING = "embed_tokens.weight"
_FEW = 16  # a shorter mapping can look like anything by chance
_PADDING = 50  # one row in so many may be padding: 200019 tokens in 201088 rows, 151669 in 151936
_ROUNDING = 64  # vocabularies are padded to multiples of this
_PAIRS = 16  # so many neighbouring tokens a real mapping of this size has, at the least


def plan_vocabulary(
    checkpoint: Checkpoint,
    config: DraftConfig,
    target: TargetConfig | None,
    contract: Contract,
    load: LoadPlan | None,
) -> VocabularyPlan:
    """Read d2t and t2d and work out what the engine makes of them and what they were meant to be.

    Raises nothing for what is wrong in the file: values that cannot be read are named in ``unreadable``.
    """
    plan = VocabularyPlan()
    _find(plan, _tensors(checkpoint, load), contract, load)
    _measure(plan, config, target, contract, load)
    plan.t2d = _read_mask(checkpoint, plan)
    plan.raw = _read_mapping(checkpoint, plan)
    _settle_vocabulary(plan, config, contract)
    if plan.raw is not None and plan.targets is None:
        plan.targets = to_targets(plan.raw, plan.semantics)
        rows = plan.head_rows if plan.head_rows is not None else plan.draft_vocab
        other = inverted(plan.raw, rows, plan.t2d)
        plan.meant, plan.certainty = other or judge(plan.raw, plan.t2d, plan.vocab)
    return plan


def to_targets(raw: Sequence[int], semantics: str) -> list[int]:
    """The target token of each draft id, for values that are ``offset`` or ``absolute``."""
    return list(map(add, raw, range(len(raw)))) if semantics == "offset" else list(raw)


def too_long(tensor: Tensor) -> bool:
    """Whether a row of numbers has more of them than any vocabulary has tokens; its values are not read."""
    return len(tensor.shape) == 1 and tensor.numel > LARGEST


def kept_tokens(mask: bytes) -> list[int]:
    """The target tokens that a t2d mask keeps, in rising order."""
    return list(compress(range(len(mask)), mask))


def is_padding(one: int, other: int) -> bool:
    """Whether two vocabulary sizes differ by no more than padding does (2 percent), or not at all."""
    return abs(one - other) * _PADDING <= max(one, other)


def is_another(one: int, other: int) -> bool:
    """Whether two sizes cannot be one vocabulary with more or less padding: neither 2 percent apart nor 64 tokens."""
    return abs(one - other) > _ROUNDING and not is_padding(one, other)


def is_reduced(rows: int, vocab: int) -> bool:
    """Whether a draft vocabulary of ``rows`` tokens leaves out tokens of the target's ``vocab``, padding aside."""
    return rows < vocab and not is_padding(rows, vocab)


def judge(raw: Sequence[int], mask: bytes | None, vocab: int | None) -> tuple[str | None, Confidence]:
    """How the values of a d2t were meant: ``offset``, ``absolute``, ``identity`` or None (cannot tell).

    Decided with the t2d ``mask`` where there is one, else by the shape of the sequence. Offsets may be
    unsorted and negative: some trainers order draft ids by frequency.
    """
    if not raw:
        return None, Confidence.CERTAIN
    if not any(raw):
        return "identity", Confidence.CERTAIN
    if mask and 1 in mask:
        return _judge_with(mask, raw)
    return _judge_alone(raw, vocab)


def _judge_with(mask: bytes, raw: Sequence[int]) -> tuple[str | None, Confidence]:
    count = len(raw)
    hits = count_kept(mask, to_targets(raw, "offset"))
    if hits == count == mask.count(1):
        return "offset", Confidence.CERTAIN
    others = count_kept(mask, raw)
    if others == count == mask.count(1):
        return "absolute", Confidence.CERTAIN
    if hits * 2 > count and hits >= others:
        return "offset", Confidence.LIKELY
    if others * 10 > count * 9 and others * 5 > hits * 6:
        return "absolute", Confidence.LIKELY
    return None, Confidence.GUESS


def count_kept(mask: bytes, tokens: Sequence[int]) -> int:
    """How many different tokens of ``tokens`` the t2d mask keeps."""
    if tokens and (min(tokens) < 0 or max(tokens) >= len(mask)):
        tokens = [t for t in tokens if 0 <= t < len(mask)]
    reached = bytearray(len(mask))
    for token in tokens:
        reached[token] = 1
    return (int.from_bytes(reached, "little") & int.from_bytes(mask, "little")).bit_count()  # faster than a set


def _judge_alone(raw: Sequence[int], vocab: int | None) -> tuple[str | None, Confidence]:
    """By the sequence: a list of tokens has no value twice; a list of offsets nearly always has."""
    offset_fits = _is_mapping(to_targets(raw, "offset"), vocab)
    absolute_fits = _is_mapping(raw, vocab)
    if offset_fits and not (absolute_fits and _misses_neighbours(raw, vocab)):
        return "offset", Confidence.LIKELY
    if absolute_fits and (len(raw) >= _FEW or _is_rising(raw)) and not _is_even(raw):
        return "absolute", Confidence.LIKELY
    return None, Confidence.GUESS


def _is_mapping(tokens: Sequence[int], vocab: int | None) -> bool:
    """Whether the tokens are distinct and exist."""
    if min(tokens) < 0 or (vocab is not None and max(tokens) >= vocab):
        return False
    return len(set(tokens)) == len(tokens)


def _is_rising(raw: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(raw))


def _is_even(raw: Sequence[int]) -> bool:
    """Whether the values rise by one step throughout: as offsets or as tokens, both are artificial."""
    return len({b - a for a, b in pairwise(raw)}) <= 1


def _misses_neighbours(raw: Sequence[int], vocab: int | None) -> bool:
    """Whether ``raw``, read as offsets, would keep no two neighbouring tokens although many were to be expected."""
    size = vocab or raw[-1] + len(raw)
    return _is_rising(raw) and not _is_even(raw) and len(raw) ** 2 >= _PAIRS * size


def _tensors(checkpoint: Checkpoint, load: LoadPlan | None) -> Tensors:
    """What the loader yields, in its order; all tensors where there is no load to speak of."""
    seen = load.seen if load is not None else None
    return seen or Tensors(tensor for file in checkpoint.files for tensor in file.header.tensors)


def named(tensors: Sequence[Tensor], name: str) -> Tensor | None:
    """The last tensor called ``name``, with or without a prefix that ends in a dot."""
    some = tensors.holding(name) if isinstance(tensors, Tensors) else tensors
    return next((t for t in reversed(some) if t.name == name or t.name.endswith("." + name)), None)


def _find(plan: VocabularyPlan, tensors: Tensors, contract: Contract, load: LoadPlan | None) -> None:
    # The last one wins, as in the loader: each replaces the one before. One that is passed over maps nothing.
    words = (contract.names.get(key) for key in ("mapping", "mapping_word"))
    marked = tensors.holding(*(word for word in words if word))
    mappings = [t for t in reversed(marked) if is_mapping(contract.names, t.name)]
    drops = load.dropped.names if load is not None and mappings else ()
    passed_over = {name for name in drops if is_mapping(contract.names, name)}
    plan.d2t_tensor = next((t for t in mappings if t.name not in passed_over), None)
    plan.t2d_tensor = next(reversed(tensors.ending("t2d")), None)
    plan.head_tensor = named(tensors, HEAD)
    if plan.d2t_tensor is not None:
        plan.semantics = str(contract.mapping.get("semantics", "none"))
        plan.casts = bool(contract.mapping.get("casts"))


def _measure(
    plan: VocabularyPlan,
    config: DraftConfig,
    target: TargetConfig | None,
    contract: Contract,
    load: LoadPlan | None,
) -> None:
    shape = plan.head_tensor.shape if plan.head_tensor is not None else ()
    plan.head_rows = shape[0] if shape else None
    plan.draft_vocab = contract.value("draft_vocab", config)
    plan.target_vocab = target.vocab_size if target is not None else None
    plan.tied = contract.flag("tied", config)
    plan.head_from_target = load is not None and any(p.endswith(HEAD) for p in load.fills_from_target)


def _read_mapping(checkpoint: Checkpoint, plan: VocabularyPlan) -> Sequence[int] | None:
    tensor = plan.d2t_tensor
    if tensor is None:
        return None
    if len(tensor.shape) != 1:
        plan.unreadable = f"its shape is {list(tensor.shape)}, not one value for each draft id"
        return None
    try:
        data = _stored(checkpoint, tensor)
        if plan.semantics == "offset" and (found := confirmed(tensor, data, plan.t2d)) is not None:
            plan.targets, plan.meant, plan.certainty = found[1], "offset", Confidence.CERTAIN
            return found[0]
        return _values(tensor, data)
    except (DecodeError, SourceError) as error:
        plan.unreadable = str(error)
        if isinstance(error, SourceError) or too_long(tensor):
            plan.unread["d2t"] = error.message if isinstance(error, SourceError) else str(error)
        return None


def _stored(checkpoint: Checkpoint, tensor: Tensor) -> bytes:
    """The bytes of a tensor. Raises DecodeError when they are too many, and SourceError."""
    if too_long(tensor):
        raise DecodeError(f"{tensor.numel} values are more than any vocabulary has")
    return checkpoint.read(tensor)


def _values(tensor: Tensor, data: bytes) -> list[int]:
    """The whole numbers in the bytes of a tensor. Raises DecodeError."""
    values = decode(tensor.dtype, data)
    if len(values) != tensor.numel:
        raise DecodeError(f"{plural(len(values), 'value')} where its shape says {tensor.numel}")
    return values


def _read_mask(checkpoint: Checkpoint, plan: VocabularyPlan) -> bytes | None:
    """One byte a token, 0 or 1; None for whatever is not a mask: the engine does not read it, so that is no fault."""
    tensor = plan.t2d_tensor
    if tensor is None or len(tensor.shape) != 1:
        return None
    try:
        return to_mask(tensor, checkpoint.read(tensor) if not too_long(tensor) else b"")
    except SourceError as error:
        plan.unread["t2d"] = error.message
    except DecodeError:
        pass
    return None


def to_mask(tensor: Tensor, data: bytes) -> bytes | None:
    """The t2d mask in the bytes of a tensor; None when there are other values than 0 and 1. Raises DecodeError."""
    flags = (
        data if tensor.dtype in ("BOOL", "U8") else bytes(v if v in (0, 1) else 2 for v in decode(tensor.dtype, data))
    )
    usable = len(flags) == tensor.numel and not flags.translate(None, b"\0\1")  # faster than counting them
    return flags if usable else None


def _settle_vocabulary(plan: VocabularyPlan, config: DraftConfig, contract: Contract) -> None:
    """The target's vocabulary; without a target the larger of what the draft says, which alarms less often."""
    if plan.target_vocab is not None and plan.target_vocab > 0:
        plan.vocab, plan.vocab_source = plan.target_vocab, "target"
        return
    said = [("config", contract.value("vocab_size", config) or 0), ("t2d", len(plan.t2d or b""))]
    source, size = max(said, key=lambda one: one[1])
    if size > 0:
        plan.vocab, plan.vocab_source = size, source
