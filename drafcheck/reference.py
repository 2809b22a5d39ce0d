"""The mapping to compare with (``--reference``): another checkpoint, or a trainer's own mapping file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.decode import LARGEST, DecodeError, decode, is_integer
from drafcheck.errors import NothingToCheck, UsageError
from drafcheck.finding import Confidence
from drafcheck.header import Header, read_header
from drafcheck.place import Place, locate
from drafcheck.plan.vocabulary import HEAD, count_kept, is_another, judge, kept_tokens, named, to_mask, to_targets
from drafcheck.source import Source, SourceError
from drafcheck.tensor import Tensor
from drafcheck.words import listed, plural

if TYPE_CHECKING:
    from drafcheck.checkpoint import Checkpoint

_NPY = b"\x93NUMPY"
_NPY_LIMIT = 65536
_NPY_NAMES = ("d2t.npy", "t2d.npy")
_NPY_DTYPES = {"b1": "BOOL", "u1": "U8", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64", "f4": "F32", "f8": "F64"}

Read = Callable[[Tensor], bytes]


class Reference(NamedTuple):
    """A mapping to compare with, which messages call ``name``. ``targets`` holds the target token of each draft id.

    ``t2d`` is one byte a target token (None: not there), ``head_rows`` the rows of its lm_head (None: no head).
    ``ordered`` is False when only the set of tokens is known, from a t2d without d2t. ``certainty`` says how sure it is
    that the values of d2t were understood. ``path`` is where it was read, as the user gave it. ``flags``: its values
    are only 0 and 1 and nothing tells whether they are offsets, as ``targets`` takes them, or a t2d: see ``settled``.
    ``full`` is True for a head of full vocabulary, which has no d2t. ``sound``: its tokens are those that its t2d
    keeps, each once.
    """

    name: str
    targets: list[int]
    t2d: bytes | None = None
    head_rows: int | None = None
    ordered: bool = True
    certainty: Confidence = Confidence.CERTAIN
    path: str = ""
    flags: bytes | None = None
    full: bool = False
    sound: bool = False


def open_reference(path: str | Path) -> Reference:
    """Read a checkpoint folder, a weight file, or a mapping (.pt, .npy, .safetensors); a path or an address.

    A ``.pt`` may hold a dict with d2t, t2d or both, as trainers write it, or a bare list or tensor of target tokens (of
    offsets, if values repeat; of flags, if it is boolean or holds only 0 and 1), and so may a ``.safetensors``. A
    ``.npy`` is a d2t or a t2d; one named d2t.npy is read with the t2d.npy beside it. Raises UsageError with one
    sentence.
    """
    try:
        place, name = _located(path)
        found = _from_folder(path, place) if name is None else from_file(place, name)
    except (DecodeError, SourceError) as error:
        raise UsageError(f"--reference {path}: {getattr(error, 'message', error)}") from error
    except NothingToCheck as error:
        raise UsageError(f"--reference {path}: no checkpoint and no mapping there") from error
    except OSError as error:
        raise UsageError(f"--reference {path}: {(error.strerror or 'cannot be read').lower()}") from error
    return found._replace(name=str(path).rstrip("/").rpartition("/")[2] or str(path), path=str(path))


def _located(path: str | Path) -> tuple[Place, str | None]:
    try:
        return locate(path)
    except UsageError as error:
        raise UsageError(f"--reference {error}") from error


def from_file(place: Place, name: str) -> Reference:
    """The mapping in a file of a folder. Raises DecodeError, SourceError and UsageError."""
    if name.endswith(".npy"):
        return _from_npy(place, name)
    source = place.source(name)
    if name.endswith((".pt", ".pth", ".bin")):
        return _from_torch(source)
    if not name.endswith(".safetensors"):
        raise DecodeError("not a mapping: known are a checkpoint, .safetensors, .pt, .pth, .bin and .npy")
    return from_tensors(sound(read_header(source)), lambda t: source.read(t.start, t.stop))


def sound(header: Header) -> Sequence[Tensor]:
    """The tensors of a header without a fault. Raises DecodeError with the first fault otherwise."""
    if header.faults:
        raise DecodeError(header.faults[0].said)
    return header.tensors


def _from_folder(path: str | Path, place: Place) -> Reference:
    from drafcheck.checkpoint import open_folder

    name = next((name for name in _NPY_NAMES if place.is_file(name)), None)
    if name is not None:
        return _from_npy(place, name)
    try:
        checkpoint = open_folder(str(path), place)
    except UsageError as error:
        raise UsageError(f"--reference {error}") from error
    return mapping_in(checkpoint)


def mapping_in(checkpoint: Checkpoint) -> Reference:
    """The mapping in a checkpoint, by the names that trainers use. Raises DecodeError, SourceError and UsageError."""
    if len(checkpoint.files) == 1 and not checkpoint.files[0].is_safetensors:
        return _from_torch(checkpoint.place.source(checkpoint.files[0].name))
    tensors = [tensor for file in checkpoint.files for tensor in file.header.tensors]
    holders = sorted({t.file for t in tensors if t.name.rpartition(".")[2] == "d2t"})
    if len(holders) > 1:
        raise DecodeError(f"several files hold a d2t, name one of them: {listed(holders)}")
    faults = [file.header.faults[0].said for file in checkpoint.files if file.header.faults]
    if faults and not holders:
        raise DecodeError(faults[0])
    return from_tensors(tensors, checkpoint.read)


def _from_torch(source: Source) -> Reference:
    from drafcheck.reference_torch import read_torch  # most references are no pickles

    return read_torch(source)


def from_tensors(tensors: Sequence[Tensor], read: Read) -> Reference:
    """The mapping among tensors; without d2t the head must have full vocabulary, so each id is its own token."""
    d2t, t2d, head = (named(tensors, name) for name in ("d2t", "t2d", HEAD))
    rows = head.shape[0] if head is not None and head.shape else None
    if d2t is t2d is head is None and len(tensors) == 1 and _may_map(tensors[0]):
        return bare(decode((only := _small(tensors[0])).dtype, read(only)), only.dtype == "BOOL")
    mask = to_mask(t2d, read(_small(t2d))) if t2d is not None else None
    values = decode(d2t.dtype, read(_small(d2t))) if d2t is not None else None
    return combine(values, mask, rows)


def _may_map(tensor: Tensor) -> bool:
    """Whether a tensor by another name looks like a mapping; a lone norm of ones does not."""
    return len(tensor.shape) == 1 and is_integer(tensor.dtype)


def _small(tensor: Tensor) -> Tensor:
    if tensor.numel > LARGEST:
        raise DecodeError(f"{tensor.name} has {tensor.numel} values, more than any vocabulary")
    return tensor


def combine(values: list[int] | None, mask: bytes | None, rows: int | None = None) -> Reference:
    """What d2t, t2d and the rows of a head say together; each may be missing. Raises DecodeError when all are."""
    kept = mask if mask and 1 in mask else None
    if values and not (kept and _is_unfilled(values, kept)):
        targets = to_targets(values, "offset")
        if kept and count_kept(kept, targets) == len(values) == kept.count(1):
            return Reference("", targets, mask, rows, sound=True)  # what judge would say, without adding up again
        meant, certainty = judge(values, kept, len(kept) if kept else None)
        sure = Confidence.CERTAIN if meant in ("offset", "identity") else certainty
        flags = None if kept else _as_flags(values)
        return Reference("", values if meant == "absolute" else targets, mask, rows, certainty=sure, flags=flags)
    if kept:
        return Reference("", kept_tokens(kept), mask, rows, ordered=False, sound=True)
    if values is None and mask is None and rows is not None:
        return Reference("", list(range(min(rows, LARGEST))), None, rows, full=True)
    raise DecodeError("no d2t in it")


def bare(values: list[int], boolean: bool) -> Reference:
    """Values without a name: flags, or target tokens as engines take them, or offsets, if values repeat."""
    if not values:
        raise DecodeError("no values in it")
    if boolean:
        return combine(None, bytes(values))
    targets = values if len(set(values)) == len(values) else to_targets(values, "offset")
    return Reference("", targets, flags=_as_flags(values))


def _as_flags(values: list[int]) -> bytes | None:
    return bytes(values) if min(values) == 0 and max(values) == 1 else None


def settled(found: Reference, ids: int, vocab: int | None) -> Reference:
    """The reference with values of only 0 and 1 taken for what they are, beside a draft of ``ids`` draft ids.

    They are a t2d when they are as many as the target's ``vocab`` or keep as many tokens as there are draft ids, or
    when as offsets they would reach a token twice; else they are a d2t. As many values as draft ids are a d2t, unless
    that is the whole vocabulary: no draft id can lie one beyond the last token.
    """
    if found.full and vocab is not None and len(found.targets) > vocab and not is_another(len(found.targets), vocab):
        return found._replace(targets=found.targets[:vocab])  # the rest is padding
    flags = found.flags
    if flags is None or (len(flags) == ids and ids != vocab):
        return found
    fits = flags.count(1) == ids or (vocab is not None and not is_another(len(flags), vocab) and len(flags) > ids)
    if fits or len(flags) == vocab or b"\1\0" in flags:
        return found._replace(targets=kept_tokens(flags), t2d=flags, ordered=False, flags=None, sound=True)
    return found


def _is_unfilled(values: list[int], mask: bytes) -> bool:
    """Whether d2t is all zeros although its t2d keeps other tokens than the first ones: it was never filled."""
    return not any(values) and not mask.count(1) == len(values) == mask[: len(values)].count(1)


# Mapping files of numpy: a header that is a Python literal, then the values.


def _from_npy(place: Place, name: str) -> Reference:
    dtype, values = _read_npy(place.source(name))
    if dtype == "BOOL" or name == "t2d.npy":
        return combine(None, _flags(values))
    paired = name == "d2t.npy" and place.is_file("t2d.npy")
    mask = _flags(_read_npy(place.source("t2d.npy"))[1]) if paired else None
    return combine(values, mask)


def _flags(values: list[int]) -> bytes:
    if values and (min(values) < 0 or max(values) > 1):
        raise DecodeError("t2d.npy holds other values than 0 and 1")
    return bytes(values)


def _read_npy(source: Source) -> tuple[str, list[int]]:
    """The dtype and the values of a one-dimensional .npy file. Raises DecodeError and SourceError."""
    head = source.read(0, 12)
    if len(head) < 12 or not head.startswith(_NPY):
        raise DecodeError(f"{source.name} is no .npy file")
    wide = head[6] > 1
    start = 12 if wide else 10
    stop = start + int.from_bytes(head[8:start], "little")
    facts = _npy_facts(source.read(start, min(stop, _NPY_LIMIT)), source.name)
    shape, order = facts.get("shape"), str(facts.get("descr"))
    if not isinstance(shape, tuple) or len(shape) != 1 or not isinstance(shape[0], int) or shape[0] > LARGEST:
        raise DecodeError(f"{source.name} has the shape {shape}, not one value for each id")
    dtype = _NPY_DTYPES.get(order.lstrip("<|="))
    if dtype is None:
        raise DecodeError(f"{source.name} holds values of type {order:.40}")
    values = decode(dtype, source.read(stop, source.size()))
    if len(values) != shape[0]:
        raise DecodeError(f"{source.name} is truncated: {plural(len(values), 'value')} of {shape[0]}")
    return dtype, values


def _npy_facts(text: bytes, name: str) -> dict[str, object]:
    import ast

    try:
        facts = ast.literal_eval(text.decode("latin-1").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise DecodeError(f"{name} has a header that is none") from error
    return facts if isinstance(facts, dict) else {}
