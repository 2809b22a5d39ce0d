"""DC405 and DC406: layer ids that the engine does not read, and the layers that it takes instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.layers import id_list, ids_written, reader_of
from drafcheck.contract import load_toml
from drafcheck.fc import at, fc_of, ids_key, ids_option, layers, list_layers, unless_told
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.lookup import raw
from drafcheck.plan.ids import as_ids
from drafcheck.plan.wiring import reading_of
from drafcheck.registry import Hit, rule
from drafcheck.subject import Subject
from drafcheck.trained import Trained, ids_to_write, meaning, meant_by, release_that_reads, trained_on

if TYPE_CHECKING:
    from drafcheck.plan.model import WiringPlan
    from drafcheck.trial import Changes


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
        trained = meant_by(s, key, ids)
        fed = f"the outputs of {layers(w.layer_outputs)} are fed{unless_told(s)}"
        doubt = "probably " if trained is not None and trained.confidence is not Confidence.CERTAIN else ""
        meant = f" ({doubt}the outputs of {layers(trained.outputs)})" if trained is not None else ""
        yield Hit(
            f"{key} says {id_list(ids)}{meant}, but {reader_of(s, w)} does not read it: {fed}",
            (at(s, key),),
            help=_elsewhere_help(s, trained),
            severity=Severity.ERROR if _costs_all(s, sure) else Severity.WARNING,
            confidence=sure,
            fixable=ids_moved(s, key) is not None,
        )
    yield from _graphs_take_the_default(s)


def ids_moved(s: Subject, key: str) -> Changes | None:
    """The ids that stand under ``key``, where this release does not look, under the key at which it does.

    None unless it is certain what they were meant as.
    """
    found = next((ids for place, ids, agrees, _ in _stated_elsewhere(s) if place == key and not agrees), None)
    trained = meant_by(s, key, found) if found is not None else None
    if trained is None or trained.confidence is not Confidence.CERTAIN or (here := _key_read(s)) is None:
        return None
    return ids_written(s, here, trained)


def ids_of_the_default(s: Subject) -> Changes | None:
    """The layers that the producer takes by default, where that is certain and this release takes others."""
    w, trained, here = s.wiring, trained_on(s), _key_read(s)
    if w is None or trained is None or trained.key or trained.confidence is not Confidence.CERTAIN or here is None:
        return None
    return ids_written(s, here, trained) if trained.outputs != w.layer_outputs else None


def _key_read(s: Subject) -> str | None:
    """The first key at which this release looks for layer ids; None when it looks at none."""
    reading = reading_of(s.engine, s.wiring.runner) if s.wiring is not None else None
    return str(reading["ids"][0]["key"]) if reading is not None and reading["ids"] else None


def _elsewhere_help(s: Subject, trained: Trained | None) -> str:
    if not ids_key(s):
        return list_layers(s, trained.outputs if trained is not None else None)
    listed = ids_to_write(s, trained.inputs) if trained is not None else None
    reading = reading_of(s.engine, s.wiring.runner if s.wiring is not None else "")
    if listed is not None:
        sure = trained is not None and trained.confidence is Confidence.CERTAIN
        doubt = "" if sure else "if the training run's settings say the same, "
        return f"{doubt}write {list(listed)} into {ids_key(s)}: {s.engine} reads them as trained"
    if trained is not None and reading is not None and reading["ids"]:
        release = release_that_reads(s, trained.inputs, trained.inputs)
        other = f"serve with {s.engine.name} {release}" if release is not None else "use another engine"
        return f"{other}: no list of ids makes {s.engine} read those layers"
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
            meant, default = meant_by(s, entry["key"], ids), tuple(sorted(w.inputs))
            agrees = any(meaning(ids, means) == default for means in entry["means"])
            if meant is not None and agrees:
                yield entry["key"], ids, meant.inputs == default, meant.confidence
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
    fed = f"{reader_of(s, w)} feeds the outputs of {layers(w.layer_outputs)} of {w.depth}{unless_told(s)}"
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
        fixable=ids_of_the_default(s) is not None,
    )


def _may_be_lost(s: Subject) -> str:
    told = s.producer
    if told is None or not told.lost:
        return ""
    doubt = "" if told.confidence is Confidence.CERTAIN else "probably "
    return f"; {told.name} {doubt}wrote the checkpoint, and {told.lost}"
