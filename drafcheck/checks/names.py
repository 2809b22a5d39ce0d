"""DC1xx: does every tensor reach a parameter, and every parameter get a tensor?"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING

from drafcheck.checks.entries import stopped
from drafcheck.checks.layer import is_missing, layer_elsewhere
from drafcheck.contract import Contract, load_toml
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.normflags import Unswitched, flag_help, refused_for_flag, unswitched
from drafcheck.plan.compare import first_release_that_takes
from drafcheck.plan.model import LoadPlan
from drafcheck.plan.wanted import Wanted, by_ending, wanted_among, wanted_names, writer_of
from drafcheck.registry import Hit, rule
from drafcheck.tensor import Tensor
from drafcheck.tensors import Piece, Tensors, layer_of
from drafcheck.words import count, listed, share

if TYPE_CHECKING:
    from drafcheck.subject import Subject

Lost = list[tuple[Tensor, Wanted | None]]


def plans(s: Subject) -> tuple[LoadPlan, Contract]:
    """The load plan and its contract; rules that need ``load`` have both."""
    assert s.load is not None and s.contract is not None
    return s.load, s.contract


def lost(s: Subject) -> Lost:
    """The tensors that reach no parameter, each with the spelling that would.

    Surplus layers are DC203's, norms that a flag would bring to a parameter DC407's.
    """
    if s.lost is None:
        switched = {t.name for group in unswitched(s) for t in group.tensors}
        s.lost = _lost(*plans(s), switched)
    return s.lost


def _lost(plan: LoadPlan, contract: Contract, switched: set[str]) -> Lost:
    nameless = Tensors.made_of(_sought(piece, contract, switched) for piece in plan.nameless.pieces)
    if not any("layer" in name for name in plan.parameters):  # none is built: DC203 speaks for all of them
        return list(wanted_among(contract, plan, Tensors(t for t in nameless if "layer" not in t.name), None))
    found = list(wanted_among(contract, plan, nameless, layers_kept(plan, contract)))
    alone = by_ending(contract, plan, [t for t, w in found if w is None])
    return [(t, w or alone.get(t)) for t, w in found] if alone else found


def _sought(piece: Piece, contract: Contract, switched: set[str]) -> Piece:
    """The tensors of a piece that no other rule speaks of."""
    tensors = piece.tensors
    if any(_is_whole(dtype) for dtype, _ in piece.kinds):
        tensors = [t for t in tensors if _is_weight_or_map(t, contract)]
    if piece.may_end(quantised_parts()):
        tensors = [t for t in tensors if t.name.rpartition(".")[2] not in quantised_parts()]  # DC507's
    if switched:
        tensors = [t for t in tensors if t.name not in switched]
    return piece if tensors is piece.tensors else Piece(tensors)


def _is_weight_or_map(tensor: Tensor, contract: Contract) -> bool:
    """Whether somebody would miss the tensor: other whole numbers and masks are nobody's parameters."""
    return not _is_whole(tensor.dtype) or tensor.name.endswith(f".{contract.names.get('mapping', '')}")


def _is_whole(dtype: str) -> bool:
    return dtype[:1] in "IU" or dtype == "BOOL"


@functools.cache
def quantised_parts() -> frozenset[str]:
    """The last words of names of scales and other parts that only quantised checkpoints have."""
    return frozenset(load_toml("dialects.toml")["quantised"]["parts"])


def layers_kept(plan: LoadPlan, contract: Contract) -> frozenset[int | None] | None:
    """The decoder layers that are none too many: those that the engine builds, the first one, and what is in none.

    None when no layer is too many: of a whole model's layers one is built, and the others are the target's.
    """
    if contract.names.get("loader") == "mtp":
        return None
    return frozenset({None, 0, *(layer_of(name) for name in plan.parameters)})


def places(tensors: list[Tensor], most: int = 3) -> tuple[Location, ...]:
    """Where the first few tensors are."""
    return tuple(Location(file=t.file, tensor=t.name) for t in tensors[:most])


def names(tensors: Iterable[Tensor]) -> tuple[str, ...]:
    """What all tensors are called, those too that ``places`` leaves out."""
    return tuple(map(itemgetter(0), tensors))


def weight_of(tensors: list[Tensor], plan: LoadPlan) -> str:
    """The share of the drafter's parameters that ``tensors`` are; mapping and masks are no parameters."""
    targets = {d.tensor.name for d in plan.dropped.because("target")}
    drafter = Tensors(t for t in plan.seen if t.name not in targets) if targets else plan.seen
    some, every = map(_floats, (Tensors(tensors), drafter))
    return f"{share(some, every)} of the drafter's parameters"


def _floats(tensors: Tensors) -> int:
    """How many floats the tensors have."""
    kinds = (kind for piece in tensors.pieces for kind in piece.kinds.items())
    return sum(number * prod(shape) for (dtype, shape), number in kinds if dtype.startswith(("F", "BF")))


def quietly(plan: LoadPlan, contract: Contract) -> str:
    """How a release takes leave of a tensor without a parameter, or of a whole layer that it passes over."""
    if plan.wants:
        return "and the load stops at what is missing then"
    logs = contract.names.get("logs") and not is_missing(plan, contract)
    return "with no more than a log line" if logs else "without a word"


@rule("DC101", "dropped-weight", Severity.ERROR, Severity.WARNING, needs=("contract", "load"), concerns="fit")
def dropped_weight(s: Subject) -> Iterator[Hit]:
    """The engine ignores a tensor that it would need.

    ## What it does
    Follows every name through the renames, prefixes and fused parameters of this release's loader and reports the
    tensors that reach no parameter, with the name that would and the share of the drafter that is lost. A warning
    when every parameter is written all the same and the tensor looks like nothing that a head is made of.

    ## Why is this bad?
    The loader drops what it does not know and the server starts. The parameter keeps its initial value: accept length
    2.30 -> 1.01 on SGLang 0.5.15.post1 with the decoder layer, or only `o_proj`, under another name.

    ## Fix
    Rename the tensors to the spelling that the message gives, or serve with a release that takes this one.
    """
    plan, contract = plans(s)
    if plan.refused is not None and plan.refused.cause == "name":
        return  # the loader stops at the first of them, which DC104 says
    if layer_elsewhere(plan, contract) is not None:
        return  # DC203 speaks of it
    stops = {t.name for t in plan.lost.tensors("name")}  # DC104's
    ours = [(t, w) for t, w in lost(s) if w is None or not (w.wrapper or w.foreign)]
    for group in _by_rename([(t, w) for t, w in ours if t.name not in stops]):
        tensors = [t for t, _ in group]
        wanted = group[0][1]
        instead = _instead(s, wanted, len(tensors))
        yield Hit(
            f"{_verdict(tensors, plan, contract)}: {listed([t.name for t in tensors])}{instead}",
            places(tensors),
            help=_rename_help(s, tensors[0].name, wanted),
            severity=_severity_of_drop(tensors, wanted, plan),
            confidence=Confidence.CERTAIN if wanted and not wanted.alone else Confidence.LIKELY,
            fixable=renamed(s, tensors),
            about=names(tensors),
        )


def renamed(s: Subject, tensors: list[Tensor]) -> bool:
    """Whether a repair gives some of the tensors the names that are wanted."""
    from drafcheck.fix.repairs.names import renames  # where nothing is lost nothing is to be mended

    return bool(renames(s, tensors))


def _verdict(tensors: list[Tensor], plan: LoadPlan, contract: Contract) -> str:
    verb = "is" if len(tensors) == 1 else "are"
    return f"{count(len(tensors), 'tensor')} ({weight_of(tensors, plan)}) {verb} dropped {quietly(plan, contract)}"


def _instead(s: Subject, wanted: Wanted | None, tensors: int) -> str:
    if wanted is None:
        return f"; {s.engine} has no parameter for {'it' if tensors == 1 else 'them'}"
    written_by = f" (the spelling is that of {writer_of(wanted.dialect)})" if wanted.dialect else ""
    return f"; {s.engine} reads `{wanted.name}`{written_by}"


def _by_rename(found: Lost) -> list[Lost]:
    """Tensors that the same rename mends together; those that nothing mends together as well."""
    groups: dict[str | None, Lost] = defaultdict(list)
    for tensor, wanted in found:
        groups[wanted.dialect if wanted else None].append((tensor, wanted))
    return list(groups.values())


def _severity_of_drop(tensors: list[Tensor], wanted: Wanted | None, plan: LoadPlan) -> Severity:
    parts = load_toml("dialects.toml").get("trained", {}).get("parts", [])
    text = "\n".join(t.name for t in tensors)
    trained = any(part in text for part in parts)
    return Severity.ERROR if wanted or trained or plan.has_gaps else Severity.WARNING


def _rename_help(s: Subject, name: str, wanted: Wanted | None) -> str:
    since = first_release_that_takes(s, name)
    serve = f"serve with {s.engine.name} >= {since}, which takes it as it is" if since else ""
    if wanted is None:
        return serve or "rename it to a parameter of this draft class, or leave it out if it is none of the drafter's"
    old, new = differing(name, wanted.name)
    rename = f"rename `{old}*` to `{new}*` in the tensor names"
    return f"{rename}, or {serve}" if serve else rename


def differing(name: str, wanted: str) -> tuple[str, str]:
    """The beginnings in which two names differ: ``("layers.0.", "midlayer.")``."""
    tail = 0
    while tail < min(len(name), len(wanted)) and name[-1 - tail] == wanted[-1 - tail]:
        tail += 1
    keep = name[len(name) - tail :].find(".") + 1 if tail else 0
    cut = tail - keep
    return name[: len(name) - cut], wanted[: len(wanted) - cut]


def absent_layers(plan: LoadPlan) -> set[int]:
    """The decoder layers, the first one apart, of which the file has nothing, under whatever name."""
    built = {layer_of(name) for name in plan.parameters}
    absent = built - {layer_of(w.parameter) for w in plan.writes} - {None, 0}
    for piece in plan.seen.pieces if absent else ():
        absent.difference_update(piece.layers)
    return {n for n in absent if n is not None}


@rule("DC104", "refused-weight", Severity.ERROR, needs=("contract", "load"), concerns="fit")
def refused_weight(s: Subject) -> Iterator[Hit]:
    """The loader raises on the name of a tensor, or on a tensor that it cannot copy.

    ## What it does
    Reports the first name at which this release's loader stops, with the shape of its message; and tensors of PyTorch
    files that torch loads and copies into no plain parameter: sparse ones, those quantised by torch, those of the
    device meta, which have no values. Also what the dict of such a file holds beside tensors, which loaders are handed
    like one: a number or a dict under a name that is refused, or that of a parameter, and a key that is no text.

    ## Why is this bad?
    The server does not start; what it prints names a parameter, not the cause.

    ## Fix
    Rename the tensors to the spelling that the message gives, or serve with a release that takes this one; write
    plain tensors.
    """
    plan, contract = plans(s)
    yield from _not_copied(s, plan)
    yield from stopped(s, plan)
    groups = unswitched(s)
    flagged = {t.name for g in groups if refused_for_flag(plan, g) for t in g.tensors}  # DC407's
    refused = [t for t in plan.lost.tensors("name") if t.name not in flagged]
    if not refused:
        return
    first = refused[0]
    error = next(r.error for r in plan.lost.because("name") if r.tensor is first)
    wanted = dict(lost(s)).get(first) or wanted_names(contract, plan, [first.name])[0]
    if wanted is None or not (wanted.wrapper or wanted.foreign):
        instead = f"; it reads `{wanted.name}`" if wanted else ""
        yield Hit(
            f"{s.engine} stops at `{first.name}`: {error}{instead}",
            places(refused),
            help=_no_table(s, first.name) or _later_norm(groups, first) or _rename_help(s, first.name, wanted),
            fixable=_passable(s, refused),
            about=names(refused),
        )


def _not_copied(s: Subject, plan: LoadPlan) -> Iterator[Hit]:
    """The tensors that torch loads and copies into no parameter. llama.cpp's converter stops in its own words."""
    refused = [(r.tensor, r.error) for r in plan.lost.because("kind") if r.tensor is not None]
    if not refused or s.selection is None:
        return
    first, error = refused[0]
    why, call, _ = next(file for file in s.selection.files if file.name == first.file).header.uncopied[first.name]
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    said = f"; torch: {error}" if s.engine.name != "llama.cpp" else ""
    yield Hit(
        f"{s.engine} stops at `{first.name}`{more}, which {why}{said}",
        places([tensor for tensor, _ in refused]),
        help=f"save it as a plain tensor: t.{call}" if call else "save the tensor with its values",
        confidence=Confidence.LIKELY,
        about=names(tensor for tensor, _ in refused),
    )


def _passable(s: Subject, tensors: list[Tensor]) -> bool:
    """Whether a repair makes the loader pass all of the tensors."""
    from drafcheck.fix.repairs.names import refused

    return bool(refused(s, tensors))


def _later_norm(groups: list[Unswitched], tensor: Tensor) -> str | None:
    """What to do with a norm that a later release applies, where the config has to ask for it."""
    return next((flag_help(group) for group in groups if tensor in group.tensors and not group.read), None)


def _no_table(s: Subject, name: str) -> str | None:
    """What to do with a mapping for which this release builds no parameter."""
    _, contract = plans(s)
    mark = contract.names.get("mapping")
    if "parameter" not in contract.mapping or not mark or name != mark:
        return None
    return (
        f"take `{name}` out of the checkpoint: {s.engine} reads one only where draft_vocab_size is another than the "
        "target's vocabulary"
    )
