"""DC403 and DC404: the layers of the target that the engine reads, and those that the drafter was trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.conversion import route_to
from drafcheck.fc import at, layers, list_layers, unless_told
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.plan.wiring import reading_of
from drafcheck.registry import Hit, rule
from drafcheck.subject import Subject
from drafcheck.trained import (
    Trained,
    as_far_as_known,
    ids_to_write,
    looks_like_its_own,
    release_that_reads,
    trained_on,
)
from drafcheck.words import count, ends, plural

if TYPE_CHECKING:
    from drafcheck.plan.model import WiringPlan
    from drafcheck.trial import Changes


@rule("DC403", "aux-layer-range", Severity.ERROR, Severity.WARNING, needs=("config", "contract"), concerns="states")
def aux_layer_range(s: Subject) -> Iterator[Hit]:
    """A layer id that the engine never captures: past the end, negative, repeated, or no integer.

    ## What it does
    Translates each id into the layer that this version reads for this target class, and looks for ids that
    hand over nothing. Each layer is handed over once, in layer order. Where it is certain that such ids are numbered
    in another way than this version reads them, DC404 says so.

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
            f"the target has {count(w.depth, 'layer')}: {s.engine} stops ({w.error}){unless_told(s)}",
            place,
            help=list_layers(s),
            stops=True,
        )
    elif w.bad_ids is not None:
        yield Hit(
            f"{w.source} is {w.bad_ids}, not a list of integers: {s.engine} stops at start",
            (at(s, w.source),),
            stops=True,
        )
    elif w.source == "default":
        yield from _default_collides(s, w)
    else:
        yield from _wrong_ids(s, w)


def _wrong_ids(s: Subject, w: WiringPlan) -> Iterator[Hit]:
    ids, place = w.ids or (), (at(s, w.source),)
    lost = _lost(w)
    if w.inputs is not None and 0 in w.inputs and s.target_class is not None and s.target_class.zero_stops:
        yield Hit(
            f"layer {id_list([i for i in ids if i + w.plus == 0])}: {s.engine} stops at start, as "
            f"{s.target_class.architecture} has nothing to hand over before its first layer (TypeError)",
            place,
            help="name layers that the target has",
            stops=True,
        )
    elif lost:
        yield from _hand_over_nothing(s, w, lost)
    twice = sorted(i for i, times in Counter(ids).items() if times > 1)
    if twice:
        arrive = len(set(ids))
        yield Hit(
            f"layer {id_list(twice)} more than once: a layer is handed over once, so {plural(arrive, 'state')} "
            f"arrive{ends(arrive)} for {len(ids)} ids",
            place,
            help="list each layer once",
        )
    if not lost and not twice and list(ids) != sorted(ids):
        yield Hit(
            f"layer {id_list(ids)} are not in ascending order: {s.engine} hands the states over in layer order",
            place,
            help="sort the ids if the drafter was trained in layer order; otherwise permute fc's columns",
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
        )


def _hand_over_nothing(s: Subject, w: WiringPlan, lost: list[int]) -> Iterator[Hit]:
    """Nothing where it is certain that the ids are numbered in another way: DC404 says both then."""
    trained = _misread(s, w)
    if trained is not None and trained.confidence is Confidence.CERTAIN:
        return
    yield Hit(
        f"layer {id_list(lost)}: {_range(s, w)}{f'; {_trained_words(trained)}' if trained is not None else ''}",
        (at(s, w.source),),
        help=_convention_help(s, trained, w) if trained is not None else _range_help(s, w),
        stops=w.states == "layers" and w.depth is not None and s.target_class is not None,
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


def id_list(ids: Sequence[int]) -> str:
    """``id 3`` or ``ids 1, 3, 4``, cut after eight."""
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
        f"{s.target_class.architecture} has {count(w.depth, 'layer')} and hands over the outputs of 0 to {last}, so "
        f"{arrived} of {plural(len(w.ids or ()), 'state')} arrive{ends(arrived)}"
    )


def _default_collides(s: Subject, w: WiringPlan) -> Iterator[Hit]:
    if w.inputs is None or w.layer_outputs is None or len(w.layer_outputs) == len(w.inputs):
        return
    yield Hit(
        f"the target has {count(w.depth, 'layer')}: of the {plural(len(w.inputs), 'default layer')} of {s.engine} "
        f"only {len(w.layer_outputs)} exist{ends(len(w.layer_outputs))}",
        (s.target.at(*s.target.route, "num_hidden_layers"),) if s.target is not None else (),
        help=list_layers(s),
    )


@rule(
    "DC404",
    "aux-layer-convention",
    Severity.ERROR,
    Severity.WARNING,
    Severity.NOTE,
    needs=("config", "contract", "target"),
    concerns="aux",
)
def aux_layer_convention(s: Subject) -> Iterator[Hit]:
    """A layer id means another layer to this engine than to whoever trained the drafter.

    ## What it does
    Works out which layers the ids stood for in training, from who wrote the checkpoint (id k is the output of layer k
    for some, what enters layer k for others) or from the numbers themselves, and compares them with the layers that
    this release reads for this target class. An error when both are certain, otherwise a warning that says what it
    rests on. A list under the producer's own key may have been rewritten for this release, which nothing in the file
    says: it counts as the producer's own where that names more of the usual layers, and as rewritten where the release
    reads just those; between the two this is a note.

    ## Why is this bad?
    The drafter is fed the layer before or after each of those it was trained on, and nothing is printed. On a small
    target of 8 layers that cost 3.3 % of the accept length (SGLang 0.5.15.post1: 2.30 -> 2.23); public reports on
    large ones say 10 % instead of 45 % accepted at the first position (vLLM pull request 43671), and 0.10 of the
    accept length (SGLang pull request 25454).

    ## Fix
    Write the ids as this release reads them. Keep in mind that the same file then means other layers to other engines
    and releases.
    """
    w = s.wiring
    if w is None or not w.ids or w.inputs is None or w.captured is False:
        return
    trained, lost = _misread(s, w), _lost(w)
    if trained is None or (lost and trained.confidence is not Confidence.CERTAIN):
        return
    sure = trained.confidence
    doubt = ", unless the ids were rewritten for it" if sure is Confidence.GUESS else ""
    yield Hit(
        f"{_trained_words(trained)}, but {reader_of(s, w)} takes {id_list(w.ids)} for the outputs of "
        f"{layers([i - 1 for i in sorted(w.inputs)])}{_distance(trained, w)}{doubt}"
        f"{f'; {_range(s, w)}' if lost else ''}",
        _places(s, trained, w),
        help=_convention_help(s, trained, w),
        severity=_SEVERITIES[sure],
        confidence=sure,
        fixable=ids_as_read(s) is not None,
    )


def ids_as_read(s: Subject) -> Changes | None:
    """The ids as this release reads them, where it is certain what it takes them for and what they were meant as.

    None as well where they would look like other ids of their producer once they are written.
    """
    w = s.wiring
    if w is None or not w.ids or w.inputs is None or w.captured is False:
        return None
    trained = _misread(s, w)
    if trained is None or trained.confidence is not Confidence.CERTAIN or looks_like_its_own(s, trained):
        return None
    return ids_written(s, w.source, trained)


def ids_written(s: Subject, key: str, trained: Trained) -> Changes | None:
    """The ids with which this release reads the layers trained on, under ``key``; None where there are none."""
    ids, route = ids_to_write(s, trained.inputs), route_to(s, key)
    if ids is None or route is None or s.written is None:
        return None
    table = s.written.get(*route[:-1])
    return {route: list(ids)} if table is None or isinstance(table, dict) else None


def _misread(s: Subject, w: WiringPlan) -> Trained | None:
    """The layers trained on, where this release takes the ids for others; None where it does not, or nobody knows."""
    trained, read = trained_on(s), w.inputs
    if trained is None or read is None or len(set(read)) < len(read) or tuple(sorted(read)) == trained.inputs:
        return None
    return as_far_as_known(s, trained)


_SEVERITIES = {
    Confidence.CERTAIN: Severity.ERROR,
    Confidence.LIKELY: Severity.WARNING,
    Confidence.GUESS: Severity.NOTE,
}


def _trained_words(trained: Trained) -> str:
    degree = {Confidence.CERTAIN: "was", Confidence.LIKELY: "was probably", Confidence.GUESS: "may have been"}
    return (
        f"the drafter {degree[trained.confidence]} trained on the outputs of {layers(trained.outputs)} ({trained.why})"
    )


def reader_of(s: Subject, w: WiringPlan) -> str:
    """Who reads the ids: the release, and its runner where it has several that read them in their own way."""
    reading = reading_of(s.engine, w.runner)
    of_its_own = reading is not None and "runner" in reading
    return f"{s.engine} (model runner {w.runner})" if of_its_own else str(s.engine)


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


_WRITTEN = 64  # ids; more than any drafter is fed


def _convention_help(s: Subject, trained: Trained, w: WiringPlan) -> str:
    doubt = "" if trained.confidence is Confidence.CERTAIN else "if the training run's settings say the same, "
    ids, release = ids_to_write(s, trained.inputs), release_that_reads(s, w.ids or (), trained.inputs)
    if ids is not None:
        written = str(list(ids)) if len(ids) <= _WRITTEN else f"[{', '.join(map(str, ids[:8]))}, ...]"
        return f"{doubt}write {written} into {w.source}: {s.engine} reads them as trained{_told_again(s, trained)}"
    if release is not None:
        return f"{doubt}serve with {s.engine.name} {release}, which reads these ids as trained"
    return f"{doubt}use another engine: no list of ids makes this one read those layers"


def _told_again(s: Subject, trained: Trained) -> str:
    """Ids that were changed under the producer's own key look like its own from then on."""
    again = looks_like_its_own(s, trained)
    return "; then suppress this finding, as they are no longer the producer's own numbers" if again else ""
