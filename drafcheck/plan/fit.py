"""Whether a tensor fits the parameter it reaches: copied, cut, padded or repeated without a word, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from drafcheck.plan.model import Refusal

if TYPE_CHECKING:
    from drafcheck.contract import Contract
    from drafcheck.plan.model import Parameter
    from drafcheck.tensor import Tensor


class Fit(NamedTuple):
    """``error`` is None when the tensor is taken. ``cut``, ``short`` and ``bare`` count rows or columns of the sharded
    side that the tensor has too many or too few of, which are then zeros or stay as they were; ``repeated``: one column
    is copied into all.
    """

    error: str | None = None
    cut: int = 0
    short: int = 0
    repeated: bool = False
    bare: int = 0
    before: tuple[str, ...] = ()  # the shards that were written before the refusal


Shape = tuple[int, ...]


def fit(contract: Contract, parameter: Parameter, shard: str | None, shape: Shape) -> Fit:
    """How the loader of this release takes a tensor of ``shape`` into ``parameter`` (or one shard of it).

    A parameter with an unknown size (-1) is taken to fit. A tensor that is already fused is laid over all shards.
    """
    wanted = shape_of(parameter, shard)
    if -1 in wanted or shape == wanted:
        return Fit()
    kind = parameter.load
    if parameter.rows and shape[:1] != wanted[:1]:
        return _refuse(contract, parameter.rows, wanted, shape)
    if kind in _KINDS:
        return _KINDS[kind](contract, parameter, wanted, shape)
    if shard is None and parameter.shards and shape:
        return _fused(contract, parameter, shape)
    return _sharded(contract, kind, wanted, shape)


def shape_of(parameter: Parameter, shard: str | None) -> Shape:
    """The shape that a tensor for ``parameter``, or for one shard of it, should have.

    Of a quantised layer only the shards that the file has are known: the rows of another one are not (-1).
    """
    if shard is None:
        return parameter.shape
    return (parameter.shards.get(shard, -1), *parameter.shape[2 if parameter.load.startswith("experts") else 1 :])


def _experts(contract: Contract, parameter: Parameter, wanted: Shape, shape: Shape) -> Fit:
    """One projection of one expert, or of all in one tensor, which is taken apart: by halves, then by experts."""
    if len(wanted) != len(parameter.shape):
        return _expert(contract, parameter, wanted, shape)
    if len(shape) != len(wanted):
        return _refuse(contract, "experts_rank", wanted, shape)
    parts = list(parameter.shards)[: len(parameter.shards) // wanted[0]] if wanted[0] else []
    rows = [shape[1]] if len(parts) < 2 else [(shape[1] + 1) // 2, shape[1] // 2]
    fits = [
        _expert(contract, parameter, shape_of(parameter, part), (size, *shape[2:]))
        for part, size in zip(parts, rows, strict=False)
    ]
    error = next((found.error for found in fits if found.error is not None), None)
    written = 0
    if shape[0] < wanted[0] and error is None:
        error = _refuse(contract, "experts_short", wanted, shape).error
        written = shape[0] * len(parts) if contract.names.get("experts_in_turn") else 0
    cut = sum(found.cut for found in fits) * wanted[0] + max(shape[0] - wanted[0], 0)
    short, bare = (sum(sizes) * wanted[0] for sizes in ([f.short for f in fits], [f.bare for f in fits]))
    return Fit(error, cut, short, any(f.repeated for f in fits), bare, tuple(parameter.shards)[:written])


def _expert(contract: Contract, parameter: Parameter, wanted: Shape, shape: Shape) -> Fit:
    """One projection of one expert. Where it may be too short across as well, what it leaves is told in whole rows."""
    across = 0 if parameter.load == "experts_row" else 1
    leaves = contract.loaders.get("experts", {}).get("across") == "leave"
    if not leaves or len(shape) != len(wanted) or shape[across] >= wanted[across]:
        return _projection(contract, parameter, wanted, shape)
    full = _projection(contract, parameter, wanted, tuple(wanted[i] if i == across else n for i, n in enumerate(shape)))
    reached = (wanted[1 - across] - full.bare) * shape[across]
    return full if full.error is not None else Fit(bare=-(-(_elements(wanted) - reached) // wanted[across]))


def _projection(contract: Contract, parameter: Parameter, wanted: Shape, shape: Shape) -> Fit:
    """One projection of one expert: its sharded side may be cut or filled, and the rest is torch's ``copy_``."""
    axis = 1 if parameter.load == "experts_row" else 0
    rule = contract.loaders.get("experts", {})
    if 0 < len(shape) <= axis:
        return _refuse(contract, "experts_rank", wanted, shape)
    if not shape:
        return _refuse(contract, "copy", wanted, wanted)
    missing = wanted[axis] - shape[axis]
    if missing > 0 and rule.get("short", "refuse") == "refuse":
        return _refuse(contract, "short", wanted, shape, axis=axis)
    may_cut = missing < 0 and rule.get("long", "refuse") == "cut"
    taken = tuple(wanted[i] if i == axis and (missing > 0 or may_cut) else n for i, n in enumerate(shape))
    if taken != wanted:
        return _copied(contract, wanted, taken)
    if missing > 0:
        return Fit(short=missing) if rule["short"] == "pad" else Fit(bare=missing)
    return Fit(cut=-missing)


def _plain(contract: Contract, parameter: Parameter, wanted: Shape, shape: Shape) -> Fit:
    if _elements(wanted) == 1 == _elements(shape) and not parameter.says:
        return Fit()
    return _refuse(contract, parameter.says or "plain", wanted, shape)


def _squeezed(contract: Contract, parameter: Parameter, wanted: Shape, shape: Shape) -> Fit:
    """The first rows of a table, which may stand alone in a third side."""
    table = shape[1:] if len(shape) == 3 and shape[0] == 1 else shape
    if len(table) != 2:
        return _refuse(contract, parameter.says, wanted, table)
    taken = (min(table[0], wanted[0]), table[1])
    return Fit(cut=table[0] - taken[0]) if taken == wanted else _refuse(contract, parameter.says, wanted, taken)


def _replicated(contract: Contract, parameter: Parameter, wanted: Shape, shape: Shape) -> Fit:
    return _refuse(contract, parameter.load, wanted, shape or (1,))


def _only_copied(contract: Contract, _: Parameter, wanted: Shape, shape: Shape) -> Fit:
    return _copied(contract, wanted, shape)


def _vocab(contract: Contract, _: Parameter, wanted: Shape, shape: Shape) -> Fit:
    if not shape or shape[0] != wanted[0]:
        return _refuse(contract, "vocab", wanted, shape)
    return _copied(contract, wanted, shape)


def join(contract: Contract, parameter: Parameter, shapes: list[Shape]) -> Fit:
    """How tensors that are laid one below the other fit ``parameter``; they are given in that order."""
    if min(map(len, shapes)) == 0:
        return _refuse(contract, "join_rank", parameter.shape, ())
    for number, shape in enumerate(shapes):
        if len(shape) != len(shapes[0]):
            return _refuse(contract, "join_ranks", shapes[0], shape)
        if shape[1:] != shapes[0][1:]:
            return _refuse(contract, "join", shapes[0], shape, axis=1, start=number)
    rows = [_filled_up(parameter, shard, shape[0]) for shard, shape in zip(parameter.shards, shapes, strict=True)]
    built = sum(_filled_up(parameter, shard, size) for shard, size in parameter.shards.items())
    wanted, whole = (built, *parameter.shape[1:]), (sum(rows), *shapes[0][1:])
    return Fit() if whole == wanted or -1 in parameter.shape else _plain(contract, parameter, wanted, whole)


def padded(parameter: Parameter, shard: str, shape: Shape) -> Fit:
    """What is too long or too short of a shard that is filled up with zeros before it is joined."""
    if shard not in parameter.pads or parameter.shards[shard] < 0:
        return Fit()
    missing = parameter.shards[shard] - shape[0]
    return Fit(cut=max(-missing, 0), short=max(missing, 0))


def _filled_up(parameter: Parameter, shard: str, rows: int) -> int:
    """Rows of a shard after it is filled up to a multiple."""
    multiple = parameter.pads.get(shard, 1)
    return -(-rows // multiple) * multiple


def _copied(contract: Contract, wanted: Shape, shape: Shape) -> Fit:
    """torch's ``copy_``: it repeats a side of one element, in the tensor alone, and names the last that differs."""
    rank = max(len(wanted), len(shape))
    ours, theirs = ((1,) * (rank - len(s)) + s for s in (wanted, shape))
    differing = [i for i in range(rank) if ours[i] != theirs[i] and 1 not in (ours[i], theirs[i])]
    if differing:
        return _refuse(contract, "copy", ours, theirs, axis=differing[-1])
    both = tuple(b if a == 1 else a for a, b in zip(ours, theirs, strict=True))
    return Fit(repeated=True) if both == wanted else _refuse(contract, "broadcast", wanted, both)


def _fused(contract: Contract, parameter: Parameter, shape: Shape) -> Fit:
    """A fused tensor is cut into shards, each loaded before the next is cut: the first that does not fit stops it."""
    start = 0
    for number, size in enumerate(parameter.shards.values()):
        before = tuple(parameter.shards)[:number]
        if start + size > shape[0]:
            return _refuse(contract, "short", (size,), shape, start=start)._replace(before=before)
        wanted, taken = (size, *parameter.shape[1:]), (size, *shape[1:])
        if taken != wanted:
            return _refuse(contract, parameter.load, wanted, taken)._replace(before=before)
        start += size
    return Fit(cut=shape[0] - start)


def _sharded(contract: Contract, kind: str, wanted: Shape, shape: Shape) -> Fit:
    axis = 1 if kind == "row" else 0
    if len(shape) <= axis:
        return _refuse(contract, "rank", wanted, shape)
    missing = wanted[axis] - shape[axis]
    if missing > 0 and contract.loaders.get(kind, {}).get("short", "refuse") == "refuse":
        return _refuse(contract, "short", wanted, shape, axis=axis)
    taken = tuple(wanted[i] if i == axis else n for i, n in enumerate(shape))
    if taken != wanted:
        return _refuse(contract, kind, wanted, taken)
    return Fit(short=missing) if missing > 0 else Fit(cut=-missing)


def _refuse(contract: Contract, message: str, wanted: Shape, shape: Shape, *, axis: int = 0, start: int = 0) -> Fit:
    text = str(contract.messages.get(message, "it does not fit"))
    values = {
        "parameter": list(wanted),
        "tensor": list(shape),
        "rows": wanted[0] if wanted else 0,
        "size": shape[axis] if len(shape) > axis else 0,
        "length": wanted[axis] if len(wanted) > axis else 0,
        "start": start,
        "axis": axis,
        "parameter_tuple": tuple(wanted),
        "tensor_tuple": tuple(shape),
        "states": wanted[-1] // wanted[0] if wanted and wanted[0] else 0,
        "rank": len(wanted),
        "tensor_rank": len(shape),
    }
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    return Fit(text)


def _elements(shape: Shape) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


_KINDS = {
    "experts": _experts,
    "experts_row": _experts,
    "replicated": _replicated,
    "bias": _replicated,
    "plain": _plain,
    "exact": _plain,
    "copied": _only_copied,
    "squeezed": _squeezed,
    "vocab": _vocab,
}


def no_vector(contract: Contract, tensor: Tensor) -> Refusal | None:
    """What a release says that adds 0, 1, 2 ... to a d2t, as many as its first side is long, where it cannot."""
    shape = tensor.shape
    fits = bool(shape) and (shape[0] == shape[-1] or 1 in (shape[0], shape[-1]))
    error = contract.mapping.get("sides" if shape else "scalar")
    if fits or not error:
        return None
    if shape:
        error = error.replace("{last}", str(shape[-1])).replace("{first}", str(shape[0]))
        error = error.replace("{axis}", str(len(shape) - 1))
    return Refusal("load", error, "shape", tensor)


def unfit(tensor: Tensor, parameter: str, fitted: Fit, uncopied: str | None) -> Refusal | None:
    """What is said of a tensor that does not fit its parameter, or cannot be copied (``uncopied``: torch's words)."""
    if fitted.error is not None:
        error = fitted.error.replace("{target}", parameter).replace("{written}", tensor.name)
        return Refusal("load", error, "shape", tensor, parameter)
    return Refusal("load", uncopied, "kind", tensor, parameter, read=True) if uncopied else None
