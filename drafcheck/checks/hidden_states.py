"""DC401, DC402, DC409: the hidden states that the drafter was made for, and those that reach it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.layers_unread import unread_count
from drafcheck.contract import load_toml
from drafcheck.conversion import route_to
from drafcheck.draftmode import flag_text, one_of
from drafcheck.fc import Fc, at, fc_of, ids_option, list_layers, states, switch_key, unless_told
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.heads import misfit
from drafcheck.plan.layer_states import first_with
from drafcheck.plan.wiring import is_fc
from drafcheck.registry import Hit, rule
from drafcheck.sizes import key_of
from drafcheck.subject import Subject
from drafcheck.targets import capturing_algorithms
from drafcheck.trial import tried
from drafcheck.width import hidden_size_meant, of_another_width
from drafcheck.words import ends, listed, plural

if TYPE_CHECKING:
    from drafcheck.plan.model import WiringPlan
    from drafcheck.trial import Changes


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
    if fc is None or misfit(s) is not None or hidden_size_meant(s) is not None or _is_no_width(s):
        return
    if w is None or w.fc_in is None or w.target_hidden is None:
        yield from _odd_width(s, fc)
    elif fc.columns != w.fc_in:
        yield _unlike_the_parameter(s, fc, w)
    elif w.fed is not None and w.fed != fc.columns and _only_the_count_differs(s, w):
        if unread_count(s) == w.num_aux:
            return  # the ids stand where this release does not look, which DC405 says
        yield _unlike_the_states(s, fc, w)


def _is_no_width(s: Subject) -> bool:
    """Whether `hidden_size` is none that anything can have: then the release stops at the key itself, which is told."""
    width = s.config.integer("hidden_size") if s.config is not None else None
    return width is not None and width < 1


def _odd_width(s: Subject, fc: Fc) -> Iterator[Hit]:
    assert s.config is not None
    one = s.config.integer("target_hidden_size") or s.config.integer("hidden_size")
    if one and fc.columns % one:
        yield Hit(
            f"`{fc.tensor.name}` takes {plural(fc.columns, 'value')}, which is no multiple of the {one} of one hidden "
            "state",
            (fc.place,),
            help="set target_hidden_size to the hidden size of the target that the drafter was trained on",
            confidence=Confidence.LIKELY,
        )


def _unlike_the_parameter(s: Subject, fc: Fc, w: WiringPlan) -> Hit:
    assert s.config is not None
    key = w.source if w.source != "default" or w.states != "aux" else "num_aux_hidden_states"
    keys = [k for k in (key, "target_hidden_size") if k in s.config.data or "." in k]
    return Hit(
        f"`{fc.tensor.name}` takes {plural(fc.columns, 'value')}, but {s.engine} builds it for {w.fc_in} "
        f"({'embedding and last hidden state' if w.states == 'last' else states(w.num_aux, w.target_hidden)})"
        f"{unless_told(s)}",
        (fc.place, *(at(s, k) for k in keys)),
        help=_width_help(s, fc, w),
        fixable=width_meant(s) is not None,
    )


def width_meant(s: Subject) -> Changes | None:
    """The width of one state, or the number of states, that follows from ``fc``, the target and the ids listed."""
    fc, w = fc_of(s), s.wiring
    if fc is None or w is None or s.contract is None or s.config is None:
        return None
    if w.states != "aux" or fc.columns == w.fc_in:
        return None
    real = s.target.hidden_size if s.target is not None else None
    wanted = {"target_hidden": real if w.num_aux and real and fc.columns == w.num_aux * real else None}
    if w.ids and w.target_hidden and fc.columns == len(w.ids) * w.target_hidden:
        wanted["num_aux"] = len(w.ids)
    for name, value in wanted.items():
        key = key_of(s.contract, s.config, name)
        if value is not None and key is not None and (route := route_to(s, key)) is not None:
            return {route: value} if _takes_fc(s, fc, {route: value}) else None
    return None


def _takes_fc(s: Subject, fc: Fc, changes: Changes) -> bool:
    """Whether the release then builds ``fc`` as it is in the file."""
    trial = tried(s, changes)
    parameters = trial.load.parameters.values() if trial is not None and trial.load is not None else ()
    return any(is_fc(p.name) and p.shape == (fc.rows, fc.columns) for p in parameters)


def _width_help(s: Subject, fc: Fc, w: WiringPlan) -> str:
    assert w.target_hidden is not None
    built = next((p.shape for p in s.load.parameters.values() if is_fc(p.name)), None) if s.load is not None else None
    if built is not None and (fc.columns, fc.rows) == tuple(built):
        return f"the tensor is transposed: store it as [{fc.columns}, {fc.rows}]"
    real = s.target.hidden_size if s.target is not None else None
    if w.num_aux and fc.columns % w.num_aux == 0 and fc.columns // w.num_aux == real:
        return f"set target_hidden_size to {real}, the width of one state of the target"
    if ids_option(s) and w.target_hidden and fc.columns % w.target_hidden == 0:
        number = fc.columns // w.target_hidden
        return (
            f"give the {plural(number, 'layer')} that it was trained on to {ids_option(s)}: fc is then built for as "
            "many"
        )
    if w.ids is not None and w.target_hidden and fc.columns % w.target_hidden == 0:
        return _count_help(s, w, fc.columns // w.target_hidden)
    return "serve it with a release that builds fc for this width, or train the head again"


def _count_help(s: Subject, w: WiringPlan, number: int) -> str:
    """How to make this release size fc for ``number`` states, where another key than that of the ids says it."""
    read = s.contract.read.get("num_aux", []) if s.contract is not None else []
    key = next((k for k in read if isinstance(k, str) and k.isidentifier()), None)
    if len(w.ids or ()) != number or f"len {w.source}" in read:
        return f"list the {plural(number, 'layer')} that the drafter was trained on in {w.source}"
    if key is None:
        return "serve it with a release that builds fc for this width, or train the head again"
    place = f" in {s.config.body}" if s.config is not None and s.config.body else ""
    return f"set {key} to {number}{place}: this release does not count the ids of {w.source}"


def _only_the_count_differs(s: Subject, w: WiringPlan) -> bool:
    """Whether every layer asked for arrives, as wide as expected, and fc is applied: else it is another rule's."""
    real = s.target.hidden_size if s.target is not None else None
    arrived = w.layer_outputs is not None and w.inputs is not None and len(w.layer_outputs) == len(w.inputs)
    return bool(w.captured) and arrived and real == w.target_hidden and w.fc_applied is not False


def _unlike_the_states(s: Subject, fc: Fc, w: WiringPlan) -> Hit:
    number = len(w.layer_outputs or ())
    return Hit(
        f"`{fc.tensor.name}` takes {plural(fc.columns, 'value')} ({states(w.num_aux, w.target_hidden)}), but "
        f"{s.engine} captures {number} of the target's layers: {w.fed} arrive{ends(w.fed)}",
        (fc.place,),
        help=list_layers(s),
    )


@rule("DC402", "aux-not-captured", Severity.ERROR, needs=("config", "weights"), concerns="states")
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
    fc, w = fc_of(s, skipped=True), s.wiring
    if fc is None or w is None or (s.target_class is not None and not s.target_class.registered):
        return
    if w.states == "layers":
        yield from _layers_not_captured(s, w)
    elif w.captured is False and not _launched_otherwise(s):
        yield Hit(
            f"no auxiliary hidden states are captured ({w.why_not}): `{fc.tensor.name}` takes "
            f"{plural(fc.columns, 'value')}, {_what_arrives(s, w)}",
            (fc.place, *_why_places(s, w)),
            help=_capture_help(s, w),
            fixable=switched_on(s) is not None,
            stops=_asks_in_vain(s),
        )
    elif w.captured and w.fc_applied is False and not _refused_before(s, fc, w):
        yield Hit(
            f"the width test skips `{fc.tensor.name}`: {plural(w.fed or 0, 'value')} arrive{ends(w.fed)}, as many as "
            "the embedding has",
            (fc.place,),
            help=list_layers(s),
        )


def switched_on(s: Subject) -> Changes | None:
    """Capturing switched on, where the config alone says no, and ``fc`` takes what then arrives."""
    fc, w, switch = fc_of(s, skipped=True), s.wiring, switch_key(s)
    if fc is None or w is None or not switch or not (w.why_not or "").startswith(switch):
        return None
    route = route_to(s, switch)
    return {route: True} if route is not None and _takes_fc(s, fc, {route: True}) else None


def _refused_before(s: Subject, fc: Fc, w: WiringPlan) -> bool:
    """Whether the tensor is not even loaded, which DC401 says of the same ids."""
    judged = misfit(s) is None and hidden_size_meant(s) is None
    return judged and fc_of(s) is not None and w.fc_in is not None and fc.columns != w.fc_in


def _launched_otherwise(s: Subject) -> bool:
    """Whether nothing is captured because of the launch line's algorithm, which DC701 says."""
    capturing = capturing_algorithms(s.engine)
    return s.algorithm_launched and bool(capturing) and not one_of(s.algorithm, capturing)


def _layers_not_captured(s: Subject, w: WiringPlan) -> Iterator[Hit]:
    """A target class without the hook; under another algorithm nothing is asked for, which DC504 says."""
    if w.captured is not False or s.target_class is None or s.target is None or s.contract is None:
        return
    book = load_toml(s.engine.name, "targets.toml")["layer_states"]
    if not one_of(s.algorithm, book["algorithms"]):
        return
    since = first_with(s.target_class.architecture, book, dspark="spark" in s.contract.kind)
    yield Hit(
        f"the outputs of the target's layers are not captured ({w.why_not}): the server stops at start",
        (s.target.at("architectures"),),
        help=f"use {s.engine.name} {since} or later" if since else "use an engine that captures for this target",
        stops=True,
    )


def _what_arrives(s: Subject, w: WiringPlan) -> str:
    if w.layer_outputs == ():
        return "none arrives"
    width = w.fed if w.fed is not None else w.target_hidden
    if _asks_in_vain(s):
        return f"one state of {width} is all that this class has to give, and the server stops when it asks for more"
    skipped = f", and the width test ({width} = {w.embed_width}) skips it" if w.fc_applied is False else ""
    skipped = skipped or (", and the tensor is skipped" if fc_of(s) is None else "")
    return f"one state of {width} arrives{skipped}"


def _asks_in_vain(s: Subject) -> bool:
    """Whether the engine calls a method that the target class does not have; some take what there is instead."""
    if not load_toml(s.engine.name, "targets.toml").get("capture", {}).get("asks", True):
        return False
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


@rule("DC409", "target-hidden-size", Severity.ERROR, needs=("config", "contract", "target"))
def target_hidden_size(s: Subject) -> Iterator[Hit]:
    """The target is wider or narrower than the drafter, and the checkpoint does not allow for it.

    ## What it does
    When the hidden sizes differ, asks for `target_hidden_size` (which sizes `fc` and keeps the drafter's own
    embedding in place) and for `embed_tokens` in the file. Also reports a `target_hidden_size` that is not the target's
    beside an `fc` that was made for it, and tables that this release takes from the target whatever their width: on
    SGLang embedding and head where `draft_vocab_size` is null, on vLLM a head that the file does not have.

    ## Why is this bad?
    Without the key, `fc` is built for another width and the target's embedding, of another width too, replaces
    the drafter's. With the key and no `embed_tokens`, the embedding is uninitialised memory.

    ## Fix
    Set `target_hidden_size` to the target's hidden size and ship `embed_tokens.weight`.
    """
    assert s.target is not None and s.config is not None and s.contract is not None
    theirs, own = s.target.hidden_size, s.contract.value("hidden_size", s.config)
    if theirs is None or own is None or hidden_size_meant(s) is not None or _is_no_width(s):
        return
    said = s.contract.value("target_hidden", s.config)
    if s.contract.states != "aux":
        yield from _fed_as_they_are(s, own if said is None else said, theirs)
        return
    if theirs == own:
        yield from _another_width(s, said, theirs)
        return
    place = (s.config.at("hidden_size"), s.target.at(*s.target.route, "hidden_size"))
    if said != theirs:
        yield Hit(
            f"the drafter's hidden size is {own}, the target's {theirs}, and {s.engine} takes {said} for one state",
            place,
            help=f"set target_hidden_size to {theirs} if the drafter was trained on this target",
            fixable=width_of_the_target(s) is not None,
        )
    elif s.load is not None and s.load.refused is None and _embedding_unwritten(s):
        yield Hit(
            f"the drafter's hidden size is {own}, the target's {theirs}: the target's embedding does not fit, and "
            "the file has no embed_tokens",
            place,
            help="ship the embed_tokens.weight that the drafter was trained with",
        )
    elif s.load is not None and s.load.refused is None and (replaced := of_another_width(s)):
        yield _replaced_all_the_same(s, replaced, own, theirs)


def _replaced_all_the_same(s: Subject, tables: list[str], own: int, theirs: int) -> Hit:
    """Tables that the release takes from the target without a look at their width: read, not run."""
    assert s.target is not None and s.config is not None
    key = "draft_vocab_size"
    says_null = key in s.config.data and s.config.data[key] is None
    return Hit(
        f"{s.engine} puts the target's tables of {plural(theirs, 'column')} in the place of {listed(tables)}, "
        f"whatever their width: the drafter computes with {own}, and the first forward pass fails",
        (s.config.at(key if says_null else "hidden_size"), s.target.at(*s.target.route, "hidden_size")),
        help=f"set {key} to the number of rows of the drafter's own lm_head.weight, and ship it with its embed_tokens"
        if says_null
        else "ship the lm_head.weight that the drafter was trained with",
        confidence=Confidence.LIKELY,
        about=tuple(tables),
    )


def _fed_as_they_are(s: Subject, width: int, theirs: int) -> Iterator[Hit]:
    """A class without a width of its own for the target's states, or with one that another key tells."""
    assert s.target is not None and s.config is not None and s.contract is not None
    if width == theirs:
        return
    named = key_of(s.contract, s.config, "target_hidden") if "target_hidden" in s.contract.read else None
    key = named or "hidden_size"
    what, whose = ("hidden size", "the target's") if key == "hidden_size" else (key, "the target's hidden size")
    yield Hit(
        f"the drafter's {what} is {width}, {whose} {theirs}: "
        f"{s.engine} feeds this class the target's hidden states as they are",
        (s.config.at(key), s.target.at(*s.target.route, "hidden_size")),
        help="serve it with the target that it was trained on",
    )


def _another_width(s: Subject, said: int | None, theirs: int) -> Iterator[Hit]:
    """Both are as wide as each other, and the config sizes ``fc`` for states of another width; the file does too."""
    assert s.target is not None and s.config is not None
    fits = s.load is not None and s.load.refused is None and fc_of(s) is not None
    if not fits or said in (None, theirs) or s.wiring is None or s.wiring.states != "aux" or not s.wiring.captured:
        return
    yield Hit(
        f"`fc` is made for states of {plural(said, 'value')}, the target's are {theirs} wide: {s.engine} ends at the "
        "first request",
        (s.config.at("target_hidden_size"), s.target.at(*s.target.route, "hidden_size")),
        help="serve it with the target that it was trained on",
    )


def width_of_the_target(s: Subject) -> Changes | None:
    """The target's width as that of one state, where ``fc`` was made for just that."""
    fc, theirs = fc_of(s), s.target.hidden_size if s.target is not None else None
    if fc is None or theirs is None or s.contract is None or s.contract.states != "aux" or s.config is None:
        return None
    key = key_of(s.contract, s.config, "target_hidden")
    route = route_to(s, key) if key is not None else None
    return {route: theirs} if route is not None and _takes_fc(s, fc, {route: theirs}) else None


def _embedding_unwritten(s: Subject) -> bool:
    assert s.load is not None
    tables = [name for name in s.load.parameters if name.endswith("embed_tokens.weight")]
    return any(not s.load.writes_to(name) for name in tables)
