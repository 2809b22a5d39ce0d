"""DC401 to DC409: the hidden states that the drafter was made for, and those that reach it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.contract import load_toml
from drafcheck.draftmode import flag_text, one_of
from drafcheck.fc import Fc, at, fc_of, ids_key, layers, states, switch_key
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.heads import misfit
from drafcheck.lookup import raw
from drafcheck.plan.wiring import as_ids
from drafcheck.registry import Hit, rule
from drafcheck.subject import Subject
from drafcheck.targets import capturing_algorithms
from drafcheck.width import hidden_size_meant

if TYPE_CHECKING:
    from drafcheck.plan.model import WiringPlan


@rule("DC401", "fc-input-width", Severity.ERROR, needs=("config", "weights"))
def fc_input_width(s: Subject) -> Iterator[Hit]:
    """`fc` does not take what this engine version feeds it.

    ## What it does
    Compares the input width of `fc.weight` with (auxiliary layers as this version counts them) x (width of
    one state), and with what the target really hands over.

    ## Why is this bad?
    A wrong width is refused when the weights are loaded, or the first request dies in the matrix product
    (measured on SGLang 0.5.15.post1: two layer ids beside an `fc` for three, `target_hidden_size` 512 beside a
    target of 256: `AssertionError: Attempted to load weight`).

    ## Fix
    Make the number of layer ids, and `target_hidden_size`, those that the drafter was trained with. A tensor of
    another width cannot be converted without training.
    """
    fc, w = fc_of(s), s.wiring
    if fc is None or misfit(s) is not None or hidden_size_meant(s) is not None:
        return
    if w is None or w.fc_in is None or w.target_hidden is None:
        yield from _odd_width(s, fc)
    elif fc.columns != w.fc_in:
        yield _unlike_the_parameter(s, fc, w)
    elif w.fed is not None and w.fed != fc.columns and _only_the_count_differs(s, w):
        yield _unlike_the_states(s, fc, w)


def _odd_width(s: Subject, fc: Fc) -> Iterator[Hit]:
    assert s.config is not None
    one = s.config.integer("target_hidden_size") or s.config.integer("hidden_size")
    if one and fc.columns % one:
        yield Hit(
            f"`{fc.tensor.name}` takes {fc.columns} values, which is no multiple of the {one} of one hidden state",
            (fc.place,),
            help="set target_hidden_size to the hidden size of the target that the drafter was trained on",
            confidence=Confidence.LIKELY,
        )


def _unlike_the_parameter(s: Subject, fc: Fc, w: WiringPlan) -> Hit:
    assert s.config is not None
    key = w.source if w.source != "default" else "num_aux_hidden_states"
    keys = [k for k in (key, "target_hidden_size") if k in s.config.data or "." in k]
    return Hit(
        f"`{fc.tensor.name}` takes {fc.columns} values, but {s.engine} builds it for {w.fc_in} "
        f"({states(w.num_aux, w.target_hidden)})",
        (fc.place, *(at(s, k) for k in keys)),
        help=_width_help(s, fc, w),
    )


def _width_help(s: Subject, fc: Fc, w: WiringPlan) -> str:
    assert w.target_hidden is not None
    if fc.rows == w.fc_in:
        return f"the tensor is transposed: store it as [{fc.columns}, {fc.rows}]"
    real = s.target.hidden_size if s.target is not None else None
    if w.num_aux and fc.columns % w.num_aux == 0 and fc.columns // w.num_aux == real:
        return f"set target_hidden_size to {real}, the width of one state of the target"
    if w.ids is not None and w.target_hidden and fc.columns % w.target_hidden == 0:
        return f"list the {fc.columns // w.target_hidden} layers that the drafter was trained on in {w.source}"
    return "serve it with a release that builds fc for this width, or train the head again"


def _only_the_count_differs(s: Subject, w: WiringPlan) -> bool:
    """Whether every layer asked for arrives, as wide as expected: what else is wrong is another rule's."""
    real = s.target.hidden_size if s.target is not None else None
    arrived = w.layer_outputs is not None and w.inputs is not None and len(w.layer_outputs) == len(w.inputs)
    return bool(w.captured) and arrived and real == w.target_hidden


def _unlike_the_states(s: Subject, fc: Fc, w: WiringPlan) -> Hit:
    number = len(w.layer_outputs or ())
    return Hit(
        f"`{fc.tensor.name}` takes {fc.columns} values ({states(w.num_aux, w.target_hidden)}), but {s.engine} "
        f"captures {number} of the target's layers: {w.fed} arrive",
        (fc.place,),
        help=f"list the layers that the drafter was trained on in {ids_key(s)}",
    )


@rule("DC402", "aux-not-captured", Severity.ERROR, needs=("config", "weights"))
def aux_not_captured(s: Subject) -> Iterator[Hit]:
    """The target does not hand over the auxiliary hidden states that `fc` was trained on.

    ## What it does
    Works out whether this engine version captures auxiliary hidden states for this target class, this
    algorithm and this config, and whether the width test before `fc` applies it.

    ## Why is this bad?
    The drafter gets the last hidden state alone. Where that is as wide as the embedding, the width test skips
    `fc` without a word: accept length 2.30 -> 1.02 on SGLang 0.5.15.post1, both with
    `--speculative-algorithm EAGLE` (1.0155) and with `use_aux_hidden_state` false (1.0191).

    ## Fix
    Serve an EAGLE-3 head with `--speculative-algorithm EAGLE3`, on an engine version whose target class
    captures, and leave `use_aux_hidden_state` true unless the head was trained on one state.
    """
    fc, w = fc_of(s), s.wiring
    if fc is None or w is None or (s.target_class is not None and not s.target_class.registered):
        return
    if w.captured is False:
        yield Hit(
            f"no auxiliary hidden states are captured ({w.why_not}): `{fc.tensor.name}` takes {fc.columns} values, "
            f"{_what_arrives(s, w)}",
            (fc.place, *_why_places(s, w)),
            help=_capture_help(s, w),
            stops=_asks_in_vain(s),
        )
    elif w.captured and w.fc_applied is False:
        yield Hit(
            f"the width test skips `{fc.tensor.name}`: {w.fed} values arrive, as many as the embedding has",
            (fc.place,),
            help=f"list the layers that the drafter was trained on in {ids_key(s)}",
        )


def _what_arrives(s: Subject, w: WiringPlan) -> str:
    if w.layer_outputs == ():
        return "none arrives"
    width = w.fed if w.fed is not None else w.target_hidden
    if _asks_in_vain(s):
        return f"one state of {width} is all that this class has to give, and the server stops when it asks for more"
    skipped = f", and the width test ({width} = {w.embed_width}) skips it" if width == w.embed_width else ""
    return f"one state of {width} arrives{skipped}"


def _asks_in_vain(s: Subject) -> bool:
    """Whether the engine calls a method that the target class does not have."""
    capturing = capturing_algorithms(s.engine)
    target = s.target_class
    return target is not None and not target.captures and one_of(s.algorithm, capturing)


def _why_places(s: Subject, w: WiringPlan) -> Iterator[Location]:
    switch = switch_key(s)
    if w.why_not and switch and w.why_not.startswith(switch):
        yield at(s, switch)
    elif w.layer_outputs == ():
        yield at(s, w.source)
    elif s.target is not None and s.target_class is not None and not s.target_class.captures:
        yield s.target.at("architectures")


def _capture_help(s: Subject, w: WiringPlan) -> str:
    capturing = capturing_algorithms(s.engine)
    if capturing and not one_of(s.algorithm, capturing):
        return f"serve it with {flag_text(s.engine, 'algorithm', capturing[0])}"
    switch = switch_key(s)
    if w.why_not and switch and w.why_not.startswith(switch):
        return f"set {switch} to true: fc.weight is there, so the head was trained on captured states"
    if w.layer_outputs == ():
        return "list the layers that the drafter was trained on, or drop the key to take the default layers"
    since = s.target_class.drafted_for_since if s.target_class is not None else None
    return f"use {s.engine.name} {since} or later" if since else "use an engine that captures for this target"


@rule("DC403", "aux-layer-range", Severity.ERROR, Severity.WARNING, needs=("config", "contract"))
def aux_layer_range(s: Subject) -> Iterator[Hit]:
    """A layer id that the engine never captures: past the end, negative, repeated, or no integer.

    ## What it does
    Translates each id into the layer that this version reads for this target class, and looks for ids that
    hand over nothing. Each layer is handed over once, in layer order.

    ## Why is this bad?
    Fewer states arrive than `fc` takes, and the first request dies (measured on SGLang 0.5.15.post1, ids
    [1, 3, 9] on 8 layers: `mat1 and mat2 shapes cannot be multiplied (4150x512 and 768x256)`). Ids out of order
    hand the states over in another order than the list says: reversed, accept length 2.30 -> 1.87.

    ## Fix
    List each layer that the drafter was trained on once, in ascending order, numbered as this version reads them.
    """
    w = s.wiring
    if w is None or w.captured is False:
        return
    if w.bad_ids is not None:
        yield Hit(f"{w.source} is {w.bad_ids}, not a list of integers: {s.engine} stops at start", (at(s, w.source),))
    elif w.source == "default":
        yield from _default_collides(s, w)
    else:
        yield from _wrong_ids(s, w)


def _wrong_ids(s: Subject, w: WiringPlan) -> Iterator[Hit]:
    ids, place = w.ids or (), (at(s, w.source),)
    lost = _lost(w)
    if lost:
        yield Hit(f"layer {_id_list(lost)}: {_range(s, w)}", place, help="name layers that the target has")
    twice = sorted(i for i, times in Counter(ids).items() if times > 1)
    if twice:
        yield Hit(
            f"layer {_id_list(twice)} more than once: a layer is handed over once, so {len(set(ids))} states arrive "
            f"for {len(ids)} ids",
            place,
            help="list each layer once",
        )
    if not lost and not twice and list(ids) != sorted(ids):
        yield Hit(
            f"layer {_id_list(ids)} are not in ascending order: {s.engine} hands the states over in layer order",
            place,
            help="sort the ids if the drafter was trained in layer order; otherwise permute fc's columns",
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
        )


def _lost(w: WiringPlan) -> list[int]:
    """The ids that hand over nothing."""
    ids = w.ids or ()
    if w.inputs is None or w.layer_outputs is None:
        return [i for i in dict.fromkeys(ids) if i < 0]
    reached, arriving = dict(zip(ids, w.inputs, strict=True)), set(w.layer_outputs)
    return [i for i in reached if i < 0 or reached[i] - 1 not in arriving]


def _id_list(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
    return f"{'id' if len(ids) == 1 else 'ids'} {shown}"


def _range(s: Subject, w: WiringPlan) -> str:
    if w.depth is None or s.target_class is None:
        return "a layer cannot be negative"
    arrived = len(w.layer_outputs or ())
    if arrived == len(w.ids or ()):
        return "there is no output before the first layer, and the first request dies"
    last = w.depth - 1 if s.target_class.final else w.depth - 2
    return (
        f"{s.target_class.architecture} has {w.depth} layers and hands over the outputs of 0 to {last}, "
        f"so {arrived} of {len(w.ids or ())} states arrive"
    )


def _default_collides(s: Subject, w: WiringPlan) -> Iterator[Hit]:
    if w.inputs is None or w.layer_outputs is None or len(w.layer_outputs) == len(w.inputs):
        return
    yield Hit(
        f"the target has {w.depth} layers: of the {len(w.inputs)} default layers of {s.engine} only "
        f"{len(w.layer_outputs)} exist",
        (s.target.at(*s.target.route, "num_hidden_layers"),) if s.target is not None else (),
        help=f"list the layers that the drafter was trained on in {ids_key(s)}",
    )


@rule("DC405", "aux-layers-ignored", Severity.ERROR, Severity.WARNING, needs=("config", "contract", "target"))
def aux_layers_ignored(s: Subject) -> Iterator[Hit]:
    """The config names layers where this version does not look, and its default is another choice.

    ## What it does
    Finds layer ids under keys that this version does not read for capturing (the top level of the config;
    any key before SGLang 0.4.9), and compares them with the default layers under every way of numbering
    that is known for that place. A warning where the ids are read, but the CUDA graphs of this version are recorded
    with the default layers (SGLang 0.4.9 to 0.5.10): read in the source, not run.

    ## Why is this bad?
    The drafter is fed other layers than it was trained on. Nothing is printed.

    ## Fix
    Write the ids into `eagle_config.eagle_aux_hidden_state_layer_ids`, numbered as this version reads them.
    """
    w = s.wiring
    for key, ids, agrees in _stated_elsewhere(s):
        if w is None or agrees or not w.layer_outputs:
            continue
        fed = f"the outputs of {layers(w.layer_outputs)} are fed"
        yield Hit(
            f"{key} says {_id_list(ids)}, but {s.engine} does not read it: {fed}",
            (at(s, key),),
            help=f"write the ids into {ids_key(s)}, numbered as the engine reads them",
        )
    yield from _graphs_take_the_default(s)


def _graphs_take_the_default(s: Subject) -> Iterator[Hit]:
    w = s.wiring
    if w is not None and w.layer_outputs and w.graph_outputs and w.graph_outputs != w.layer_outputs:
        yield Hit(
            f"{s.engine} reads {w.source} (the outputs of {layers(w.layer_outputs)}), but records its CUDA graphs with "
            f"the default layers: decoding is fed the outputs of {layers(w.graph_outputs)}",
            (at(s, w.source),),
            help="serve with --disable-cuda-graph and compare the accept length, or with a later release",
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
        )


def _stated_elsewhere(s: Subject) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Keys with layer ids that this version does not read: key, ids, whether the default names the same layers."""
    w = s.wiring
    if w is None or s.config is None or not w.captured or w.source != "default" or w.inputs is None:
        return
    for entry in load_toml(s.engine.name, "targets.toml").get("elsewhere", []):
        ids = as_ids(raw(s.config, entry["key"]))
        if ids and s.engine.within(entry.get("versions", "")):
            meanings = [sorted(i + (means == "outputs") for i in ids) for means in entry["means"]]
            yield entry["key"], ids, sorted(w.inputs) in meanings


@rule("DC406", "aux-layers-defaulted", Severity.NOTE, needs=("config", "contract", "target"))
def aux_layers_defaulted(s: Subject) -> Iterator[Hit]:
    """No layer ids are read from the config: this is what the engine takes.

    ## What it does
    Names the target layers whose outputs are fed to the drafter when the config does not say.

    ## Why is this bad?
    It is right for drafters trained on the usual three layers. One trained on others loses acceptance
    without a word (one public report: 1 % accepted instead of 59 %); one layer off cost 2.30 -> 2.23 on a small
    target of 8 layers, more on large ones.

    ## Fix
    State the layers that the drafter was trained on in `eagle_config.eagle_aux_hidden_state_layer_ids`.
    """
    w = s.wiring
    refused = s.refused is not None or (s.load is not None and s.load.refused is not None)
    if w is None or not w.captured or w.source != "default" or not w.layer_outputs or fc_of(s) is None or refused:
        return
    stated = list(_stated_elsewhere(s))
    if any(not agrees for _, _, agrees in stated):
        return
    why = f"{stated[0][0]} is not read" if stated else "no layer ids in config.json"
    place = at(s, stated[0][0]) if stated else Location(file="config.json")
    yield Hit(f"{why}: {s.engine} feeds the outputs of {layers(w.layer_outputs)} of {w.depth}", (place,))


@rule("DC409", "target-hidden-size", Severity.ERROR, needs=("config", "contract", "target"))
def target_hidden_size(s: Subject) -> Iterator[Hit]:
    """The target is wider or narrower than the drafter, and the checkpoint does not allow for it.

    ## What it does
    When the hidden sizes differ, asks for `target_hidden_size` (which sizes `fc` and keeps the drafter's own
    embedding in place) and for `embed_tokens` in the file.

    ## Why is this bad?
    Without the key, `fc` is built for another width and the target's embedding, of another width too, replaces
    the drafter's. With the key and no `embed_tokens`, the embedding is uninitialised memory.

    ## Fix
    Set `target_hidden_size` to the target's hidden size and ship `embed_tokens.weight`.
    """
    assert s.target is not None and s.config is not None and s.contract is not None
    theirs, own = s.target.hidden_size, s.contract.value("hidden_size", s.config)
    if theirs is None or own is None or theirs == own or hidden_size_meant(s) is not None:
        return
    place = (s.config.at("hidden_size"), s.target.at(*s.target.route, "hidden_size"))
    said = s.contract.value("target_hidden", s.config)
    if said != theirs:
        yield Hit(
            f"the drafter's hidden size is {own}, the target's {theirs}, and {s.engine} takes {said} for one state",
            place,
            help=f"set target_hidden_size to {theirs} if the drafter was trained on this target",
        )
    elif s.load is not None and s.load.refused is None and _embedding_unwritten(s):
        yield Hit(
            f"the drafter's hidden size is {own}, the target's {theirs}: the target's embedding does not fit, and "
            "the file has no embed_tokens",
            place,
            help="ship the embed_tokens.weight that the drafter was trained with",
        )


def _embedding_unwritten(s: Subject) -> bool:
    assert s.load is not None
    return any(name.endswith("embed_tokens.weight") for name in s.load.unwritten)
