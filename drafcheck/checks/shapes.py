"""DC2xx: does every tensor have the shape that this release builds from this config?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import compress
from typing import TYPE_CHECKING

from drafcheck.checks.hidden_states import fc_input_width
from drafcheck.checks.layer import is_bare, layer_elsewhere, other_layer
from drafcheck.checks.names import absent_layers, layers_kept, names, places, plans
from drafcheck.concerns import concerned
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.layercount import counted, layers_held
from drafcheck.lookup import MISSING, raw
from drafcheck.plan.fit import shape_of
from drafcheck.plan.model import LoadPlan, Parameter, Refusal, Write
from drafcheck.plan.parameters import MOST_COPIES
from drafcheck.plan.vocabulary import EMBEDDING, HEAD, named
from drafcheck.plan.wiring import is_fc
from drafcheck.registry import Hit, rule
from drafcheck.sizes import Reading, key_of, one_readings
from drafcheck.tensor import Tensor
from drafcheck.tensors import NO_LAYER, layer_of
from drafcheck.values import value_meant
from drafcheck.width import hidden_size_meant
from drafcheck.words import are, count, shape

if TYPE_CHECKING:
    from drafcheck.contract import Contract
    from drafcheck.subject import Subject

HEAD_SHARDS = ("q", "k", "v")


@rule("DC201", "shape-mismatch", Severity.ERROR, Severity.NOTE, needs=("contract", "load"), concerns="fit")
def shape_mismatch(s: Subject) -> Iterator[Hit]:
    """A tensor does not have the shape of the parameter that it is written to.

    ## What it does
    Compares every tensor with the parameter that this release builds from this config, and shows the formula with its
    numbers. Reports what the loader refuses, and what it cuts or pads without a word. The rows of `lm_head` and
    `embed_tokens` and the length of d2t are DC302's and DC312's, fc's input is DC401's, rows that follow from head_dim
    DC202's, where those have something to compare.

    ## Why is this bad?
    Most mismatches stop the server. The others are silent: k and v rows for 4 heads loaded into 2 gave accept length
    2.30 -> 1.10 on SGLang 0.5.15.post1. An MLP that is smaller than `intermediate_size` is padded with zeros since
    0.5.3, which changes nothing (measured): a note.

    ## Fix
    Make config.json say what the tensors are.
    """
    plan, contract = plans(s)
    refused = [r for r in plan.lost.because("shape") if not _belongs_elsewhere(s, r)]
    meant = hidden_size_meant(s)
    if meant is not None and s.config is not None:
        yield _other_width(s, meant, refused)
        return
    if refused:
        yield _refused_shape(s, refused)
    silent = [w for w in plan.writes if w.cut or w.short or w.repeated or w.bare] if plan.refused is None else []
    rows = {id(w): _head_rows(plan.parameters[w.parameter], w.shard) for w in silent}
    ours = [w for w in silent if _head_dim_at_fault(s, contract, rows[id(w)]) is None]
    for kind in (lambda w: w.short, lambda w: w.bare, lambda w: not (w.short or w.bare)):
        if group := [w for w in ours if kind(w)]:
            yield _silent_shape(s, group)


def _other_width(s: Subject, meant: int, refused: list[Refusal]) -> Hit:
    """The config gives every tensor another width: one finding, and the value that mends all."""
    plan, contract = plans(s)
    assert s.config is not None
    tensors = [r.tensor for r in refused if r.tensor is not None]
    stops = plan.refused.error if plan.refused is not None else ""
    return Hit(
        f"the tensors are made for hidden_size {meant}, {s.engine} builds {contract.value('hidden_size', s.config)} "
        f"and refuses: {stops}",
        (s.config.at("hidden_size"), *places(tensors, 2)),
        help=f"set `hidden_size` to {meant} in config.json",
        fixable=any(one.key == "hidden_size" for one in one_readings(s)),
        about=("hidden_size",),
    )


def _belongs_elsewhere(s: Subject, refusal: Refusal) -> bool:
    plan, contract = plans(s)
    if refusal.tensor is None or refusal.parameter is None:
        return True  # a d2t that the release can not add numbers to: DC302's
    parameter = plan.parameters[refusal.parameter]
    tensor = refusal.tensor.shape
    same_rank = len(tensor) == len(parameter.shape)
    if parameter.name == contract.mapping.get("parameter"):
        return True
    if parameter.name in ("lm_head.weight", "model.embed_tokens.weight"):
        told = concerned(s, "head") if parameter.name == HEAD else named(plan.seen, EMBEDDING) is refusal.tensor
        return told and same_rank and tensor[0] != parameter.shape[0]
    if is_fc(parameter.name):
        wide = same_rank and (tensor[0] == parameter.shape[0] or tensor[::-1] == parameter.shape)
        return wide and next(fc_input_width(s), None) is not None
    return _head_dim_at_fault(s, contract, _head_rows(parameter, _shard_of(contract, refusal.tensor))) is not None


def _head_rows(parameter: Parameter, shard: str | None) -> str | None:
    """``shard``, or ``q`` where the columns are those that q's rows make (o_proj): head_dim decides of both."""
    return shard or ("q" if any("head_dim" in formula for formula in parameter.formula) else None)


def _shard_of(contract: Contract, tensor: Tensor) -> str | None:
    return next((shard for part, (_, shard) in contract.stacked.items() if part in tensor.name), None)


def _built(parameter: Parameter, shard: str | None) -> tuple[tuple[int, ...], str]:
    """The shape that a tensor should have, and the formula of it."""
    if shard is None or shard not in parameter.shards:
        return parameter.shape, ", ".join(parameter.formula)
    sizes = shape_of(parameter, shard)
    return sizes, ", ".join((parameter.shard_formulas[shard], *parameter.formula[1 - len(sizes) :]))


def _refused_shape(s: Subject, refused: list[Refusal]) -> Hit:
    """One finding for all: the loader stops at the first, and the rest would follow."""
    plan, contract = plans(s)
    tensors = [r.tensor for r in refused if r.tensor is not None]
    first = tensors[0]
    sizes, formula = _built(plan.parameters[refused[0].parameter or ""], _shard_of(contract, first))
    return Hit(
        f"`{first.name}` is {shape(first.shape)}, {s.engine} builds {shape(sizes)} ({formula}) and refuses: "
        f"{refused[0].error}{_others(len(tensors) - 1)}",
        (*places(tensors, 5), *_sizes_in_config(s, formula)),
        help=_shape_help(s, formula, first.shape, sizes),
        fixable=bool(_follows(s, names(tensors))),
        about=names(tensors),
    )


def _silent_shape(s: Subject, writes: list[Write]) -> Hit:
    plan, _ = plans(s)
    first = writes[0]
    sizes, formula = _built(plan.parameters[first.parameter], first.shard)
    what, severity = ("pads it with zeros", Severity.NOTE) if first.short else ("cuts the rest off", Severity.ERROR)
    if first.bare:
        what = "leaves the rest uninitialised"
    if first.repeated:
        what = "copies its one column into all"
    return Hit(
        f"`{first.tensor.name}` is {shape(first.tensor.shape)}, {s.engine} builds {shape(sizes)} ({formula}) "
        f"and {what} without a word{_others(len(writes) - 1)}",
        (*places([w.tensor for w in writes], 5), *_sizes_in_config(s, formula)),
        help=_shape_help(s, formula, first.tensor.shape, sizes),
        severity=severity,
        fixable=bool(_follows(s, names(w.tensor for w in writes))),
        about=names(w.tensor for w in writes),
    )


def _follows(s: Subject, tensors: tuple[str, ...]) -> list[Reading]:
    """The values that follow from the shapes of some tensors."""
    return [one for one in one_readings(s) if not one.mends.isdisjoint(tensors)]


def _others(number: int) -> str:
    return f"; likewise {count(number, 'more tensor')}" if number else ""


_KEYS = {
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "intermediate": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "target_hidden": "target_hidden_size",
    "num_aux": "num_aux_hidden_states",
}


def _sizes_in_config(s: Subject, formula: str) -> tuple[Location, ...]:
    """The config keys that a formula speaks of, as far as the config has them."""
    if s.config is None:
        return ()
    words = formula.replace(",", " ").split()
    keys = [_key(s, w) for w in dict.fromkeys(words) if not w.isdigit() and w not in ("*", "+", "//")]
    return tuple(s.config.at(*key.split(".")) for key in keys if raw(s.config, key) is not MISSING)


def _key(s: Subject, quantity: str) -> str:
    """What a quantity is called in the config."""
    assert s.config is not None
    usual = _KEYS.get(quantity, quantity)
    read = key_of(s.contract, s.config, quantity) if s.contract is not None and quantity in s.contract.read else None
    return read if read is not None and raw(s.config, read) is not MISSING else usual


def _shape_help(s: Subject, formula: str, have: tuple[int, ...], want: tuple[int, ...]) -> str:
    """The one config value that would make the tensor fit, where there is exactly one."""
    _, contract = plans(s)
    differing = [i for i, (a, b) in enumerate(zip(have, want, strict=False)) if a != b]
    if len(have) == len(want) and len(differing) == 1 and s.config is not None:
        term = formula.split(", ")[differing[0]]
        name, _, other = term.partition(" * ")
        factor = contract.value(other, s.config) if other else 1
        if name in _KEYS and factor and have[differing[0]] % factor == 0:
            return f"set `{_key(s, name)}` to {have[differing[0]] // factor} in config.json, if the tensor is right"
    return "make config.json say what the tensors are, or export the drafter again"


@rule("DC202", "head-geometry", Severity.ERROR, needs=("contract", "load", "config"), concerns="fit")
def head_geometry(s: Subject) -> Iterator[Hit]:
    """The rows of q, k and v do not fit heads x head_dim as this release derives them.

    ## What it does
    Where the q and k rows of the file agree on one head_dim for the config's head counts and the release computes
    another (`head_dim` absent: hidden_size // num_attention_heads), it names both. Heads x head_dim may well differ
    from hidden_size: that is no fault.

    ## Why is this bad?
    The loader refuses, or cuts rows without a word; heads split otherwise gave accept length 2.30 -> 1.29 on SGLang
    0.5.15.post1.

    ## Fix
    Write the `head_dim` that the tensors have into config.json.
    """
    _, contract = plans(s)
    meant = _head_dim_at_fault(s, contract, "q")
    if meant is None or s.config is None or hidden_size_meant(s) is not None:
        return
    derived = contract.value("head_dim", s.config)
    absent = raw(s.config, "head_dim") in (MISSING, None)
    how = "derives head_dim" if absent else "reads head_dim"
    tensors = [t for t in _projections(s, 0).values() if t]
    key = s.config.at("num_attention_heads") if absent else s.config.at("head_dim")
    yield Hit(
        f"the rows of q and k make head_dim {meant}, {s.engine} {how} {derived}",
        (*places(tensors), key),
        help=f"set `head_dim` to {meant} in config.json, if the numbers of heads are right",
        confidence=Confidence.LIKELY,
        fixable=any(one.key == "head_dim" for one in one_readings(s)),
    )


def _head_dim_at_fault(s: Subject, contract: Contract, shard: str | None) -> int | None:
    """The head_dim that q and k agree on, when it is not the one this release uses; None when that is not the fault."""
    if shard not in HEAD_SHARDS or s.config is None:
        return None
    rows = {part: t.shape[0] for part, t in _projections(s, 0).items() if t is not None and t.shape}
    heads, kv_heads = contract.value("num_heads", s.config), contract.value("num_kv_heads", s.config)
    used = contract.value("head_dim", s.config)
    if not (heads and kv_heads and used) or not rows.get("q") or not rows.get("k"):
        return None
    q, k = divmod(rows["q"], heads), divmod(rows["k"], kv_heads)
    return q[0] if q == k and q[1] == 0 and q[0] != used else None


def _projections(s: Subject, layer: int) -> dict[str, Tensor | None]:
    """The q, k and v tensors of one decoder layer in the file, whatever became of them."""
    plan, contract = plans(s)
    found: dict[str, Tensor | None] = dict.fromkeys(HEAD_SHARDS)
    for tensor in plan.seen.ending("weight"):
        if not tensor.name.endswith(".weight"):
            continue
        shard = _shard_of(contract, tensor)
        if shard in found and (layer_of(tensor.name) or 0) == layer:
            found[shard] = tensor
    return found


@rule("DC203", "layer-count", Severity.ERROR, Severity.NOTE, needs=("contract", "load", "config"), concerns="fit")
def layer_count(s: Subject) -> Iterator[Hit]:
    """The layers in the file are not the layers that this release builds.

    ## What it does
    Compares the decoder layers of the file with `num_hidden_layers`, and both with what this release's class can build.
    A surplus layer in the file is a note: the config says that the drafter has fewer.

    ## Why is this bad?
    A layer without weights runs uninitialised: accept length 2.30 -> 1.01 on SGLang 0.5.15.post1 with
    `num_hidden_layers` 2 and one layer in the file. SGLang before 0.5.12 builds one layer and refuses any other number.

    ## Fix
    Set `num_hidden_layers` to the number of layers in the file.
    """
    plan, contract = plans(s)
    assert s.config is not None
    said, in_file = contract.value("num_layers", s.config), layers_held(s).number
    fixable = counted(s) is not None
    if plan.refused is not None and plan.refused.cause == "layers":
        yield _too_many(s, plan.refused, said, in_file)._replace(fixable=fixable)
    elif (elsewhere := layer_elsewhere(plan, contract)) is not None and is_bare(plan):
        yield other_layer(s, elsewhere)._replace(fixable=fixable)
        return
    elif absent := sorted(absent_layers(plan) if plan.refused is None else ()):
        yield Hit(
            f"config.json says {count(said, 'layer')}, the file holds {in_file}: {_span(absent, said)} uninitialised",
            (s.config.at("num_hidden_layers"),),
            help=f"set `num_hidden_layers` to {in_file}",
            fixable=fixable,
        )
    elif said == 0 and in_file:
        yield Hit(
            f"config.json says 0 layers, the file holds {in_file}: {s.engine} builds none and drops them all",
            (s.config.at("num_hidden_layers"),),
            help=f"set `num_hidden_layers` to {in_file}",
            fixable=fixable,
        )
    yield from _surplus(s, said)


def _span(layers: list[int], said: int | None) -> str:
    more = max((said or 0) - MOST_COPIES, 0)  # layers of which the plan has no parameters
    return f"layer {layers[0]} stays" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1] + more:,} stay"


def _too_many(s: Subject, refused: Refusal, said: int | None, in_file: int) -> Hit:
    assert s.config is not None
    return Hit(
        f"config.json says {count(said, 'layer')}, {s.engine} builds one: {refused.error}",
        (s.config.at("num_hidden_layers"),),
        help="set `num_hidden_layers` to 1"
        if in_file <= 1
        else f"the file holds {in_file} layers: serve with a release whose class builds them",
    )


def _left_out(plan: LoadPlan, contract: Contract, most: int = 4) -> tuple[list[Tensor], list[int], int]:
    """The tensors of layers that are not built; the lowest few of these layers, and the last."""
    kept = layers_kept(plan, contract)
    surplus: list[Tensor] = []
    lowest: list[int] = []
    last = 0
    built = {NO_LAYER, *(number for number in kept or () if number is not None)}
    for piece in plan.nameless.pieces if kept is not None else ():
        numbers = set(piece.different_layers) - built
        if not numbers:
            continue
        surplus += compress(piece.tensors, map(numbers.__contains__, piece.layers))
        last = max(last, *numbers)
        lowest = sorted({*lowest, *sorted(numbers)[:most]})[:most]  # never all: a file may name a million
    return surplus, lowest, last


def _surplus(s: Subject, said: int | None) -> Iterator[Hit]:
    plan, contract = plans(s)
    assert s.config is not None
    surplus, layers, last = _left_out(plan, contract) if plan.refused is None else ([], [], 0)
    if surplus:
        left = f"{count(len(surplus), 'tensor')} of layer {', '.join(map(str, layers))} {are(len(surplus))} left out"
        yield Hit(
            f"{left}: config.json says {said}",
            (*places(surplus, 1), s.config.at("num_hidden_layers")),
            help=f"set `num_hidden_layers` to {last + 1} if the drafter was trained with that many",
            severity=Severity.NOTE,
            confidence=Confidence.LIKELY,
            about=names(surplus),
        )


@rule("DC509", "config-value", Severity.ERROR, needs=("contract", "load", "config"))
def config_value(s: Subject) -> Iterator[Hit]:
    """A config value is of a type or size that this release cannot build from.

    ## What it does
    Reports sizes in config.json that are no positive integers, tables, lists and flags that are something else, and an
    activation other than silu, where this release's class reads them.

    ## Why is this bad?
    The server stops in the constructor of the draft class, often with a TypeError that names no key.

    ## Fix
    Write the value that the message asks for.
    """
    assert s.config is not None
    refused = plans(s)[0].refused
    if refused is None or refused.key is None or refused.cause not in ("config-value", "config-key"):
        return
    if refused.key == "draft_vocab_size" and refused.cause == "config-key" and concerned(s, "head"):
        return  # DC302 speaks of that
    if refused.key == "hidden_size" and hidden_size_meant(s) is not None:
        return  # DC201 does, and knows the width
    value = raw(s.config, refused.key)
    shown = "missing" if value is MISSING else json.dumps(value)[:60]
    yield Hit(
        f"`{refused.key}` is {shown}, which {s.engine} cannot build from: {refused.error}",
        (s.config.at(*refused.key.split(".")),),
        help=_value_help(refused, missing=value is MISSING),
        confidence=Confidence.LIKELY if refused.read else Confidence.CERTAIN,
        fixable=value_meant(s) is not None,
    )


def _value_help(refused: Refusal, *, missing: bool) -> str:
    if refused.key == "architectures" and refused.stage == "serve":
        return "serve it without parallel drafting"
    if refused.key == "architectures":
        return "serve it with another release: this one takes no draft of this class"
    if missing:
        return f"write what the drafter was trained with into `{refused.key}`"
    if refused.cause == "config-value":  # without the key the class would take a default, which is hardly the size
        return f"write the whole number that the tensors were made with into `{refused.key}`"
    return f"write a value that this draft class takes into `{refused.key}`, or take the key out"
