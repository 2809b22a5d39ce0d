"""Under which name a loader would have taken a tensor that it drops: wrappers taken off, dialects translated."""

from __future__ import annotations

import functools
from collections import Counter
from itertools import compress, product, repeat
from typing import TYPE_CHECKING, NamedTuple

from drafcheck.contract import load_toml
from drafcheck.plan.alike import Alike
from drafcheck.plan.fit import shape_of
from drafcheck.plan.many import in_doubt
from drafcheck.plan.names import route
from drafcheck.tensors import DIGITS, NO_LAYER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from drafcheck.contract import Contract
    from drafcheck.plan.model import LoadPlan
    from drafcheck.tensor import Tensor
    from drafcheck.tensors import Piece, Tensors


MANY = 64
"""Of so many tensors none is looked for by the end of its name: a single one was renamed by hand, not all."""


class Wanted(NamedTuple):
    """The name that would do, the parameter it reaches, and what stands between: a wrapper, a dialect, or both.

    ``alone``: neither; it is the one tensor with that ending and shape, and nothing else fills the parameter.
    """

    name: str
    parameter: str
    wrapper: str = ""
    dialect: str = ""
    foreign: bool = False
    alone: bool = False


def by_ending(contract: Contract, plan: LoadPlan, tensors: Sequence[Tensor]) -> dict[Tensor, Wanted]:
    """Where tensors belong that no dialect knows, told by the last two words of their names and their shapes.

    Only where one place is left that nothing fills, among the modules that other tensors of the file are of.
    """
    if not 0 < len(tensors) <= MANY or contract.names.get("loader") == "mtp":
        return {}
    seen = in_doubt(contract, plan.parameters, plan.seen)
    routes = {t.name: route(contract, t.name, plan.parameters) for t in seen}
    filled = {(found.parameter, found.shard) for found in routes.values() if found.end == "parameter"}
    modules = {_module(name) for name, found in routes.items() if found.end == "parameter"} | {""}
    claims: dict[tuple[str, str | None], list[tuple[Tensor, str]]] = {}
    for tensor in tensors:
        ending = tensor.name[len(_module(tensor.name)) :]
        spelt = {name: route(contract, name, plan.parameters) for name in sorted(m + ending for m in modules)}
        free = {(r.parameter, r.shard): name for name, r in spelt.items() if r.end == "parameter"}
        fitting = [place for place in free if place not in filled and _fits(plan, place, tensor)]
        if len(fitting) == 1 and (fitting[0][0], None) not in filled:
            claims.setdefault(fitting[0], []).append((tensor, free[fitting[0]]))
    alone = ((place, *claim[0]) for place, claim in claims.items() if len(claim) == 1)
    return {tensor: Wanted(name, place[0], alone=True) for place, tensor, name in alone}


def _module(name: str) -> str:
    """A name without its last two words: ``midlayer.self_attn.`` of ``midlayer.self_attn.o_proj.weight``."""
    return name[: name.rpartition(".")[0].rfind(".") + 1]


def _fits(plan: LoadPlan, place: tuple[str, str | None], tensor: Tensor) -> bool:
    parameter, shard = plan.parameters[place[0]], place[1]
    return tensor.shape == shape_of(parameter, shard)


def wanted_names(contract: Contract, plan: LoadPlan, names: Sequence[str]) -> list[Wanted | None]:
    """The nearest other spelling of each name that this loader takes; None where there is none.

    A prefix that no framework is known for counts as a wrapper when it stands before more than one of the names and
    the parameter behind it is written by nothing else.
    """
    if not names:  # the usual case, which needs no dialects
        return []
    stems = _stems(contract, plan)
    mark = contract.names.get("mapping")
    worth = (_stem(name) in stems or (mark and name.endswith("." + mark)) for name in names)
    forms = _forms(contract, plan, names)
    hopeless: set[str] = set()  # forms of names: a million names may have no other spelling
    found: list[Wanted | None] = []
    for name, form, hope in zip(names, forms, worth, strict=True):
        found.append(_wanted(contract, plan, name, _unwrapped(name)) if hope and form not in hopeless else None)
        if found[-1] is None:
            hopeless.add(form)
    left = (name for name, wanted in zip(names, found, strict=True) if wanted is None and "." in name)
    common = Counter(name.partition(".")[0] for name in left if _stem(name) in stems)
    shared = {prefix for prefix, number in common.items() if number > 1}
    vacant = plan.vacant if shared else set()
    hopeless.clear()
    for i, (name, form) in enumerate(zip(names, forms, strict=True) if shared else ()):
        prefix, dot, bare = name.partition(".")
        if found[i] is None and dot and prefix in shared and form not in hopeless:
            wanted = _wanted(contract, plan, name, [(bare, prefix + ".")])
            found[i] = wanted if wanted is not None and wanted.parameter in vacant else None
            if wanted is None:
                hopeless.add(form)
    return found


def _forms(contract: Contract, plan: LoadPlan, names: Sequence[str]) -> list[str]:
    """A form for each name: of names of one form each has another spelling or none has."""
    dialects = [renames for renames, _, _ in _dialects()]
    alike = Alike(contract, [*plan.parameters, *plan.parameters.modules], [dialects, _prefixes()])
    known: dict[str, str] = {}
    return [known.setdefault(form, form) for form in alike.forms(names)]


def wanted_among(
    contract: Contract, plan: LoadPlan, tensors: Tensors, layers: Collection[int | None] | None
) -> Iterator[tuple[Tensor, Wanted | None]]:
    """The same for tensors that may be a million: each for which there is another spelling, or that is of the layers.

    With ``layers`` None all of them.
    """
    hopeful = _hopeful(contract, plan, tensors)
    spelt = iter(wanted_names(contract, plan, [name for piece in hopeful for name in piece.names]))
    known = {id(piece): [next(spelt) for _ in piece.tensors] for piece in hopeful}
    numbers = {NO_LAYER if number is None else number for number in layers or ()}
    for piece in tensors.pieces:
        wanted = known.get(id(piece))
        if wanted is None and layers is not None and not any(number in piece.different_layers for number in numbers):
            continue
        for tensor, want, number in zip(piece.tensors, wanted or repeat(None), piece.layers, strict=False):
            if want is not None or layers is None or number in numbers:
                yield tensor, want


def _hopeful(contract: Contract, plan: LoadPlan, tensors: Tensors) -> list[Piece]:
    """The pieces in which a name may have another spelling; of all others there is none."""
    if not tensors:
        return []
    stems, mark = _stems(contract, plan), contract.names.get("mapping")
    forms = {stem.translate(DIGITS) for stem in stems}

    def may_hope(piece: Piece) -> bool:
        lines, folded = piece.lines
        known = forms if folded else stems
        return any(_stem(line) in known for line in lines) or bool(mark and piece.may_hold((mark,)))

    hopeful = [may_hope(piece) for piece in tensors.pieces]
    names = (name for piece in compress(tensors.pieces, hopeful) for name in piece.names)
    prefixes = Counter(name.partition(".")[0] for name in names if "." in name and _stem(name) in stems)
    shared = [f"{prefix}." for prefix, number in prefixes.items() if number > 1]
    both = zip(tensors.pieces, hopeful, strict=True)
    return [piece for piece, hope in both if hope or (shared and piece.may_hold(shared))]


def _stems(contract: Contract, plan: LoadPlan) -> set[str]:
    """The words before the last dot that a name must have to be worth translating: a quick test for a million names."""
    dialects = [old for renames, _, _ in _dialects() for old, _ in renames]
    return {
        *(_stem(parameter) for parameter in plan.parameters),
        *(part.strip(".") for part in contract.stacked),
        *(old.rstrip(".").rpartition(".")[2] for old in dialects),
    }


def _stem(name: str) -> str:
    return name.rpartition(".")[0].rpartition(".")[2]


def _wanted(contract: Contract, plan: LoadPlan, name: str, spellings: Iterable[tuple[str, str]]) -> Wanted | None:
    """The first spelling that reaches something; else one of a foreign dialect that the loader knows and passes by."""
    known = None
    for (bare, wrapper), (renames, dialect, foreign) in product(spellings, _dialects()):
        candidate = _translate(bare, renames)
        if candidate == name or candidate is None:
            continue
        found = route(contract, candidate, plan.parameters)
        if found.end in ("parameter", "mapping"):
            return Wanted(candidate, found.parameter, wrapper, dialect, foreign)
        if foreign and found.end == "design" and known is None:
            known = Wanted(candidate, found.parameter, wrapper, dialect, foreign)
    return known


@functools.cache
def _prefixes() -> tuple[str, ...]:
    return tuple(entry["prefix"] for entry in load_toml("dialects.toml").get("wrapper", []))


def _unwrapped(name: str) -> Iterator[tuple[str, str]]:
    """The name as it is, then with one or two wrapper prefixes taken off."""
    yield name, ""
    prefixes = _prefixes()
    for prefix in prefixes:
        if name.startswith(prefix):
            rest = name[len(prefix) :]
            yield rest, prefix
            yield from ((rest[len(p) :], prefix + p) for p in prefixes if rest.startswith(p))


@functools.cache
def _dialects() -> list[tuple[list[list[str]], str, bool]]:
    listed = load_toml("dialects.toml").get("dialect", [])
    return [([], "", False)] + [(d["rename"], d["name"], bool(d.get("foreign"))) for d in listed]


def _translate(name: str, renames: list[list[str]]) -> str | None:
    """``name`` with the first rename that fits its beginning; None when the dialect says nothing about it."""
    if not renames:
        return name
    return next((new + name[len(old) :] for old, new in renames if name.startswith(old)), None)


def writer_of(dialect: str) -> str:
    """Who writes a dialect, for messages."""
    entries = load_toml("dialects.toml").get("dialect", [])
    return next((str(d["by"]) for d in entries if d["name"] == dialect), dialect)
