"""Which layers of the target a drafter was trained on, as far as its config and its producer tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from drafcheck.contract import Engine, load_toml, releases
from drafcheck.fc import fc_of
from drafcheck.finding import Confidence
from drafcheck.lookup import raw
from drafcheck.plan.ids import as_ids
from drafcheck.plan.wiring import arriving, default_inputs, inputs_of
from drafcheck.producers import BOOK
from drafcheck.targets import target_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drafcheck.producers import Producer
    from drafcheck.subject import Subject

Layers = tuple[int, ...]


class Trained(NamedTuple):
    """The layers trained on. ``inputs``: k is the state that enters layer k, in ascending order.

    ``key`` is the config key with the ids, empty for a producer's default. ``why`` is one clause for messages.
    """

    inputs: Layers
    confidence: Confidence
    key: str
    why: str

    @property
    def outputs(self) -> Layers:
        """The same, 0-based, as outputs: -1 is the embedding."""
        return tuple(i - 1 for i in self.inputs)


def trained_on(s: Subject) -> Trained | None:
    """The layers that the drafter was trained on; None when nothing says so.

    In this order: ids under the key to which the producer writes them; ids that can only be meant in one way; what the
    producer takes by default.
    """
    if s.config is None or s.wiring is None:
        return None
    key, ids = _stated(s, s.producer)
    if not ids:
        return _default(s, s.producer)
    return _past_the_outputs(s, ids, key) or _by_producer(s, ids, key) or _by_number(s, ids, key)


def meant_by(s: Subject, key: str, ids: Layers) -> Trained | None:
    """The layers that ids under one key stand for, by their numbers or by what the producer writes to that key."""
    known = convention_at(s, key)
    said = Trained(meaning(ids, known[0]), known[1], key, "") if known is not None else None
    return _past_the_outputs(s, ids, key) or said or _by_number(s, ids, key)


def as_far_as_known(s: Subject, trained: Trained) -> Trained | None:
    """How sure ``trained`` is where the ids may have been rewritten for this release; None when they surely look so.

    A list that was changed under the producer's own key still looks like one of its own. The usual layers decide: it is
    sure where the producer's reading names all of them, likely where it names more of them than the release's, gone
    where the release's names all, and else a guess.
    """
    w = s.wiring
    if w is None or w.inputs is None or trained.key != w.source or convention_at(s, trained.key) is None:
        return trained
    if _past_the_outputs(s, w.ids or (), trained.key) is not None:
        return trained
    theirs, read, every = _usual_in(s, trained.inputs), _usual_in(s, w.inputs), len(trained.inputs)
    if read > theirs and read == every:
        return None
    if theirs <= read or looks_like_its_own(s, trained):
        return trained._replace(confidence=Confidence.GUESS)
    return trained if theirs == every else trained._replace(confidence=_at_most_likely(trained))


def looks_like_its_own(s: Subject, trained: Trained) -> bool:
    """Whether the ids that are read as ``trained`` look, once written, even more like other layers of the producer."""
    w, known = s.wiring, convention_at(s, trained.key)
    ids = ids_to_write(s, trained.inputs)
    if w is None or trained.key != w.source or known is None or ids is None:
        return False
    return _usual_in(s, meaning(ids, known[0])) > _usual_in(s, trained.inputs)


def _at_most_likely(trained: Trained) -> Confidence:
    return Confidence.LIKELY if trained.confidence is Confidence.CERTAIN else trained.confidence


def _usual(s: Subject) -> Layers:
    """The layer inputs that nearly every trainer takes; none when the depth is unknown."""
    depth = s.wiring.depth if s.wiring is not None else None
    return default_inputs(tuple(load_toml(BOOK)["usual"]["inputs"]), depth) or ()


def _usual_in(s: Subject, inputs: Layers) -> int:
    return len(set(inputs) & set(_usual(s)))


def meaning(ids: Layers, convention: str) -> Layers:
    """The layer inputs that ids stand for when they number ``outputs`` or ``inputs``, in ascending order."""
    return tuple(sorted(i + (convention == "outputs") for i in ids))


def convention_at(s: Subject, key: str) -> tuple[str, Confidence] | None:
    """What the producer numbers under ``key``, and how sure that is; None when it is not the key that it writes to.

    A mere guess does not count.
    """
    told = s.producer
    if told is None or told.ids_key != key or told.ids_convention is None:
        return None
    known = told.ids_confidence is not Confidence.GUESS
    return (told.ids_convention, told.ids_confidence) if known else None


def _stated(s: Subject, told: Producer | None) -> tuple[str, Layers]:
    """The layer ids of the config: those of the producer's own key first, then those that the engine reads."""
    w, config, written = s.wiring, s.config, s.written
    assert w is not None and config is not None and written is not None
    elsewhere = [str(entry["key"]) for entry in load_toml(s.engine.name, "targets.toml").get("elsewhere", [])]
    places = [
        *([(told.ids_key, written)] if told is not None and told.ids_key else []),
        *([(w.source, config)] if w.ids else []),
        *((key, written) for key in elsewhere),
    ]
    found = ((key, as_ids(raw(said, key))) for key, said in places)
    return next(((key, ids) for key, ids in found if ids), ("", ()))


def _past_the_outputs(s: Subject, ids: Layers, key: str) -> Trained | None:
    """The outputs of n layers end with n - 1: a list that goes up to n numbers what enters a layer."""
    depth = s.wiring.depth if s.wiring is not None else None
    if depth is None or max(ids) != depth or min(ids) < 0:
        return None
    why = f"id {depth} of {depth} layers can only be the state after the last one"
    return Trained(meaning(ids, "inputs"), Confidence.CERTAIN, key, why)


def _by_producer(s: Subject, ids: Layers, key: str) -> Trained | None:
    told, known = s.producer, convention_at(s, key)
    if told is None:
        return None
    if known is not None:
        convention, sure = known
        return Trained(meaning(ids, convention), sure, key, f"{told} numbers {convention}")
    return _default(s, told) if told.ids_default and told.ids_convention is None else None


def _by_number(s: Subject, ids: Layers, key: str) -> Trained | None:
    """The usual three layers are known by their numbers, in either way of numbering."""
    usual = _usual(s)
    if len(ids) != len(usual) or not usual:
        return None
    for convention in ("outputs", "inputs"):
        if meaning(ids, convention) == tuple(sorted(usual)):
            why = f"as {convention} they are the three layers that nearly every trainer takes"
            return Trained(meaning(ids, convention), Confidence.LIKELY, key, why)
    return None


def _default(s: Subject, told: Producer | None) -> Trained | None:
    """What the producer takes unless told otherwise, where fc takes as many states."""
    w, fc = s.wiring, fc_of(s)
    if told is None or w is None or fc is None or not told.ids_default:
        return None
    inputs = default_inputs(told.ids_default, w.depth)
    if inputs is None or (w.target_hidden and fc.columns != len(inputs) * w.target_hidden):
        return None
    return Trained(tuple(sorted(inputs)), told.default_confidence, "", f"the default of {told}")


def ids_to_write(s: Subject, wanted: Layers) -> Layers | None:
    """The ids with which this release reads the layer inputs ``wanted``; None when no list does that."""
    w, target = s.wiring, s.target_class
    if w is None or target is None or arriving(wanted, w.depth, target.final) != tuple(i - 1 for i in wanted):
        return None
    lists = (tuple(i - 1 for i in wanted), wanted)
    plus = w.plus  # what the engine adds under the key that it reads

    def read(ids: Layers) -> Layers | None:
        return inputs_of(target.ids_rule, tuple(i + plus for i in ids), w.depth)

    return next((ids for ids in lists if read(ids) == wanted), None)


def release_that_reads(s: Subject, ids: Layers, wanted: Layers) -> str | None:
    """The newest release that takes ``ids`` for the layer inputs ``wanted``; None when none does."""
    return next((engine.version for engine in _newest_first(s.engine) if _reads(s, engine, ids, wanted)), None)


def _newest_first(engine: Engine) -> Iterator[Engine]:
    return (Engine(engine.name, str(v), v, exact=True) for v in releases(engine.name)[::-1])


def _reads(s: Subject, engine: Engine, ids: Layers, wanted: Layers) -> bool:
    target = target_class(engine, s.target) if s.target is not None else None
    depth = s.wiring.depth if s.wiring is not None else None
    if target is None or not target.captures:
        return False
    inputs = inputs_of(target.ids_rule, ids, depth)
    return inputs is not None and arriving(inputs, depth, target.final) == tuple(i - 1 for i in wanted)
