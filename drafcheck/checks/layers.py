"""DC403 to DC406: the layers of the target that the engine reads, and those that the drafter was trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.contract import load_toml
from drafcheck.fc import at, fc_of, ids_key, ids_option, layers, list_layers, unless_told
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.lookup import raw
from drafcheck.plan.ids import as_ids
from drafcheck.plan.wiring import reading_of
from drafcheck.registry import Hit, rule
from drafcheck.subject import Subject
from drafcheck.trained import Trained, convention_at, ids_to_write, meaning, release_that_reads, trained_on

if TYPE_CHECKING:
    from drafcheck.plan.model import WiringPlan


@rule("DC403", "aux-layer-range", Severity.ERROR, Severity.WARNING, needs=("config", "contract"), concerns="states")
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
    if w.error is not None:
        place = (s.target.at(*s.target.route, "num_hidden_layers"),) if s.target is not None else ()
        yield Hit(
            f"the target has {w.depth} layers: {s.engine} stops ({w.error}){unless_told(s)}",
            place,
            help=list_layers(s),
            stops=True,
        )
    elif w.bad_ids is not None:
        yield Hit(f"{w.source} is {w.bad_ids}, not a list of integers: {s.engine} stops at start", (at(s, w.source),))
    elif w.source == "default":
        yield from _default_collides(s, w)
    else:
        yield from _wrong_ids(s, w)


def _wrong_ids(s: Subject, w: WiringPlan) -> Iterator[Hit]:
    ids, place = w.ids or (), (at(s, w.source),)
    lost = _lost(w)
    if w.inputs is not None and 0 in w.inputs and s.target_class is not None and s.target_class.zero_stops:
        yield Hit(
            f"layer {_id_list([i for i in ids if i + w.plus == 0])}: {s.engine} stops at start, as "
            f"{s.target_class.architecture} has nothing to hand over before its first layer (TypeError)",
            place,
            help="name layers that the target has",
        )
    elif lost:
        yield Hit(f"layer {_id_list(lost)}: {_range(s, w)}", place, help=_range_help(s, w))
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


def _range_help(s: Subject, w: WiringPlan) -> str:
    if w.ids and max(w.ids) == w.depth:
        return f"id {w.depth} is the state after the last layer, which this class does not hand over in {s.engine}"
    return "name layers that the target has"


def _lost(w: WiringPlan) -> list[int]:
    """The ids that hand over nothing."""
    ids = w.ids or ()
    if w.inputs is None or w.layer_outputs is None:
        return [i for i in dict.fromkeys(ids) if i < 0]
    reached, arriving = dict(zip(ids, w.inputs, strict=True)), set(w.layer_outputs)
    return [i for i in reached if i + w.plus < 0 or reached[i] - 1 not in arriving]


def _id_list(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
    return f"{'id' if len(ids) == 1 else 'ids'} {shown}"


def _range(s: Subject, w: WiringPlan) -> str:
    if w.depth is None or s.target_class is None:
        return "a layer cannot be negative"
    if w.states == "layers":
        return f"the target has the layers 0 to {w.depth - 1}, and the server stops at start"
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
        help=list_layers(s),
    )


@rule(
    "DC404",
    "aux-layer-convention",
    Severity.ERROR,
    Severity.WARNING,
    needs=("config", "contract", "target"),
    concerns="aux",
)
def aux_layer_convention(s: Subject) -> Iterator[Hit]:
    """A layer id means another layer to this engine than to whoever trained the drafter.

    ## What it does
    Works out which layers the ids stood for in training, from who wrote the checkpoint (id k is the output of layer k
    for some, what enters layer k for others) or from the numbers themselves, and compares them with the layers that
    this release reads for this target class. An error when both are certain, otherwise a warning that says what it
    rests on.

    ## Why is this bad?
    The drafter is fed the layer before or after each of those it was trained on, and nothing is printed. On a small
    target of 8 layers that cost 3.3 % of the accept length (SGLang 0.5.15.post1: 2.30 -> 2.23); public reports on
    large ones say 10 % instead of 45 % accepted at the first position (vLLM pull request 43671), and 0.10 of the
    accept length (SGLang pull request 25454).

    ## Fix
    Write the ids as this release reads them. Keep in mind that the same file then means other layers to other engines
    and releases.
    """
    w, trained = s.wiring, trained_on(s)
    if w is None or trained is None or not w.ids or w.inputs is None or w.captured is False:
        return
    if len(set(w.inputs)) < len(w.inputs) or tuple(sorted(w.inputs)) == trained.inputs:
        return
    sure = trained.confidence is Confidence.CERTAIN
    yield Hit(
        f"the drafter was {'' if sure else 'probably '}trained on the outputs of {layers(trained.outputs)} "
        f"({trained.why}), but {_reader(s, w)} takes "
        f"{_id_list(w.ids)} for the outputs of {layers([i - 1 for i in sorted(w.inputs)])}{_distance(trained, w)}",
        _places(s, trained, w),
        help=_convention_help(s, trained, w),
        severity=Severity.ERROR if sure else Severity.WARNING,
        confidence=trained.confidence,
    )


def _distance(trained: Trained, w: WiringPlan) -> str:
    """In words, where every layer is off by the same number."""
    steps = {b - a for a, b in zip(trained.inputs, sorted(w.inputs or ()), strict=False)}
    if len(trained.inputs) != len(w.inputs or ()) or len(steps) != 1:
        return ""
    [step] = steps
    number = "one layer" if abs(step) == 1 else f"{abs(step)} layers"
    return f": {number} too {'late' if step > 0 else 'early'}"


def _places(s: Subject, trained: Trained, w: WiringPlan) -> tuple[Location, ...]:
    return tuple(at(s, key) for key in dict.fromkeys((w.source, trained.key)) if key)


def _convention_help(s: Subject, trained: Trained, w: WiringPlan) -> str:
    doubt = "" if trained.confidence is Confidence.CERTAIN else "if the training run's settings say the same, "
    ids, release = ids_to_write(s, trained.inputs), release_that_reads(s, w.ids or (), trained.inputs)
    if ids is not None:
        return f"{doubt}write {list(ids)} into {w.source}: {s.engine} reads them as trained{_told_again(s, trained, w)}"
    if release is not None:
        return f"{doubt}serve with {s.engine.name} {release}, which reads these ids as trained"
    return f"{doubt}use another engine: no list of ids makes this one read those layers"


def _told_again(s: Subject, trained: Trained, w: WiringPlan) -> str:
    """Ids that were changed under the producer's own key look like its own from then on."""
    own = trained.key == w.source and convention_at(s, trained.key) is not None
    return "; then suppress this finding, as they are no longer the producer's own numbers" if own else ""


@rule(
    "DC405",
    "aux-layers-ignored",
    Severity.ERROR,
    Severity.WARNING,
    needs=("config", "contract", "target"),
    concerns="aux",
)
def aux_layers_ignored(s: Subject) -> Iterator[Hit]:
    """The config names layers where this version does not look, and its default is another choice.

    ## What it does
    Finds layer ids under keys that this version does not read for capturing (the top level of the config;
    any key before SGLang 0.4.9), and compares them with the default layers under the producer's way of numbering, or,
    where that is not known, under every way that is known for that place. A warning where the ids are read, but the
    CUDA graphs of this version are recorded with the default layers (SGLang 0.4.9 to 0.5.10): read in the source, not
    run.

    ## Why is this bad?
    The drafter is fed other layers than it was trained on. Nothing is printed.

    ## Fix
    Write the ids under the key that this version reads, numbered as it reads them: SGLang in
    `eagle_config.eagle_aux_hidden_state_layer_ids`, vLLM in `eagle_aux_hidden_state_layer_ids` at the top level (its
    V2 model runner, the default of 0.33, does not look into `eagle_config` for it).
    """
    w = s.wiring
    for key, ids, agrees, sure in _stated_elsewhere(s):
        if w is None or agrees or not w.layer_outputs:
            continue
        fed = f"the outputs of {layers(w.layer_outputs)} are fed{unless_told(s)}"
        known = convention_at(s, key)
        meant = f" (the outputs of {layers([i - 1 for i in meaning(ids, known[0])])})" if known is not None else ""
        yield Hit(
            f"{key} says {_id_list(ids)}{meant}, but {_reader(s, w)} does not read it: {fed}",
            (at(s, key),),
            help=_elsewhere_help(s, ids, known[0] if known is not None else None),
            severity=Severity.ERROR if _costs_all(s, sure) else Severity.WARNING,
            confidence=sure,
        )
    yield from _graphs_take_the_default(s)


def _reader(s: Subject, w: WiringPlan) -> str:
    """Who reads the ids: the release, and its runner where it has several that read them in their own way."""
    reading = reading_of(s.engine, w.runner)
    of_its_own = reading is not None and "runner" in reading
    return f"{s.engine} (model runner {w.runner})" if of_its_own else str(s.engine)


def _elsewhere_help(s: Subject, ids: tuple[int, ...], convention: str | None) -> str:
    if not ids_key(s):
        return list_layers(s, [i - 1 for i in meaning(ids, convention)] if convention is not None else None)
    listed = ids_to_write(s, meaning(ids, convention)) if convention is not None else None
    if listed is not None:
        return f"write {list(listed)} into {ids_key(s)}: {s.engine} reads them as trained"
    reading = reading_of(s.engine, s.wiring.runner if s.wiring is not None else "")
    later = "" if reading is None or reading["ids"] else ", and serve with a release that reads any"
    return f"write the ids into {ids_key(s)}, numbered as the engine reads them{later}"


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


def unread_count(s: Subject) -> int | None:
    """The number of layers under a key that this version does not read, where DC405 is sure of it."""
    return next((len(ids) for _, ids, agrees, sure in _stated_elsewhere(s) if not agrees and _costs_all(s, sure)), None)


def _costs_all(s: Subject, sure: Confidence) -> bool:
    return sure is Confidence.CERTAIN and not ids_option(s)


def _stated_elsewhere(s: Subject) -> Iterator[tuple[str, tuple[int, ...], bool, Confidence]]:
    """Keys with layer ids that this version does not read.

    Key, ids, whether the default names the same layers, and how sure that is: certain when they are other layers
    however one counts.
    """
    w = s.wiring
    if w is None or s.written is None or not w.captured or w.source != "default" or w.inputs is None:
        return
    reading = reading_of(s.engine, w.runner)
    read = [entry["key"] for entry in reading["ids"]] if reading is not None else []
    for entry in load_toml(s.engine.name, "targets.toml").get("elsewhere", []):
        ids = as_ids(raw(s.written, entry["key"]))
        if ids and s.engine.within(entry.get("versions", "")) and entry["key"] not in read:
            known, default = convention_at(s, entry["key"]), tuple(sorted(w.inputs))
            agrees = any(meaning(ids, means) == default for means in entry["means"])
            if known is not None and agrees:
                yield entry["key"], ids, meaning(ids, known[0]) == default, known[1]
            else:
                yield entry["key"], ids, agrees, Confidence.CERTAIN


@rule(
    "DC406",
    "aux-layers-defaulted",
    Severity.NOTE,
    Severity.WARNING,
    Severity.ERROR,
    needs=("config", "contract", "target"),
    concerns="aux",
)
def aux_layers_defaulted(s: Subject) -> Iterator[Hit]:
    """No layer ids are read from the config: this is what the engine takes.

    ## What it does
    Names the target layers whose outputs are fed to the drafter when the config does not say, beside those that whoever
    wrote the checkpoint trains on by default. A warning where these are others, an error where that is certain.

    ## Why is this bad?
    It is right for drafters trained on the usual three layers. One trained on others loses acceptance
    without a word (one public report: 1 % accepted instead of 59 %, vLLM pull request 50170); one layer off cost
    2.30 -> 2.23 on a small target of 8 layers, more on large ones.

    ## Fix
    State the layers that the drafter was trained on in `eagle_config.eagle_aux_hidden_state_layer_ids`.
    """
    w = s.wiring
    refused = s.refused is not None or (s.load is not None and s.load.refused is not None)
    if w is None or not w.captured or w.source != "default" or not w.layer_outputs or fc_of(s) is None or refused:
        return
    stated = list(_stated_elsewhere(s))
    if any(not agrees for _, _, agrees, _ in stated):
        return
    fed = f"{_reader(s, w)} feeds the outputs of {layers(w.layer_outputs)} of {w.depth}{unless_told(s)}"
    if stated:
        yield Hit(f"{stated[0][0]} is not read: {fed}", (at(s, stated[0][0]),))
    else:
        yield _defaulted(s, w, f"no layer ids in config.json: {fed}")


def _defaulted(s: Subject, w: WiringPlan, fed: str) -> Hit:
    trained, place = trained_on(s), Location(file="config.json")
    if trained is None or trained.key:
        return Hit(f"{fed}{_may_be_lost(s)}", (place,))
    if trained.outputs == w.layer_outputs:
        return Hit(f"{fed}, {trained.why}{_may_be_lost(s)}", (place,))
    sure = trained.confidence is Confidence.CERTAIN
    ids = ids_to_write(s, trained.inputs)
    write = f"write {list(ids)} into {ids_key(s)}" if ids is not None else list_layers(s, trained.outputs)
    return Hit(
        f"{fed}, but {trained.why} is {layers(trained.outputs)}",
        (place,),
        help=write if sure else f"if the training run's settings say the same, {write}",
        severity=Severity.ERROR if sure and not ids_option(s) else Severity.WARNING,
        confidence=trained.confidence,
    )


def _may_be_lost(s: Subject) -> str:
    lost = s.producer.lost if s.producer is not None else ""
    return f"; {lost}" if lost else ""
