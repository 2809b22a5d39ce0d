"""DC501 to DC504: will the engine build a draft class from this config, and is it the one that the tensors need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.launch import unfit
from drafcheck.contract import in_force, load_toml
from drafcheck.draftmode import class_name, flag_text, one_of, refusal_text
from drafcheck.fc import fc_of
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.fitting import fitting_class, fitting_here
from drafcheck.flat import flattened, nested_anew
from drafcheck.heads import Head, draft_class, head_in, label_of, misfit, nested_for, taken_since
from drafcheck.merged import form_of
from drafcheck.modeltypes import book, first_that_knows, is_dispensable, is_own, knows, nested_keys, of_the_class
from drafcheck.plan.admission import looked_for, names_count
from drafcheck.plan.vocabulary import HEAD
from drafcheck.registry import Hit, rule
from drafcheck.subject import Subject
from drafcheck.targets import registered_since
from drafcheck.words import plural, shape

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig
    from drafcheck.plan.model import Refusal

MODEL_TYPE_ADVICE = "set model_type to that of the decoder layer, such as llama"


@rule("DC501", "unknown-architecture", Severity.ERROR, needs=("config",))
def unknown_architecture(s: Subject) -> Iterator[Hit]:
    """`architectures` names no draft class of this engine version.

    ## What it does
    Looks the names up among the classes that this version registers, after the replacements that it makes in
    draft mode, and says which class fits the tensors.

    ## Why is this bad?
    The server refuses to start (`Model architectures [...] are not supported`). A target class such as
    `LlamaForCausalLM` is built in full: it refuses the reduced `lm_head` (measured on SGLang 0.5.15.post1), and
    with a full one it would run without `fc` and `d2t`.

    ## Fix
    Name the class that fits the tensors. The tensor names must be those that this class reads.
    """
    assert s.config is not None
    if s.contract is not None or nested_keys(s.engine, s.config) or not names_count(s.engine, s.config, s.algorithm):
        return
    names = s.config.architectures
    if unfit(s) is not None:
        return  # DC701 says that
    name, kind = draft_class(s.engine, s.config, None, s.algorithm)
    if not names:
        yield _nameless(s, s.config)
    elif name is None:
        yield _unregistered(s, s.config, names[0])
    elif kind is None and not _meant_whole(s):
        stops = _built_in_full(s, s.config, name)
        yield Hit(
            f"{name} is a target class in {s.engine}, not a draft class{_but(s)}{stops}",
            (s.config.at("architectures"),),
            help=_advice(s),
            fixable=fitting_here(s) is not None,
            stops=bool(stops),
        )


def _built_in_full(s: Subject, config: DraftConfig, name: str) -> str:
    """What a target class says to a head of fewer tokens, a clause; empty where it takes it, or nobody knows."""
    listed = load_toml(s.engine.name, "registry.toml").get("in_full", [])
    entry = in_force([entry for entry in listed if name in entry["classes"]], s.engine)
    rows, built = _head_rows(s), config.integer("vocab_size")
    if entry is None or rows is None or built is None or built == rows or config.data.get("tie_word_embeddings"):
        return ""
    error = str(entry.get("error", "")).replace("{rows}", str(built)).replace("{size}", str(rows))
    of_the_head = f": the head has {plural(rows, 'row')}, {name} is built with {built}, and {s.engine} stops"
    return f"{of_the_head} ({error})" if error else of_the_head


def _head_rows(s: Subject) -> int | None:
    """The rows of ``lm_head.weight`` in the files that the loader takes; None without it."""
    tensors = s.selection.tensors if s.selection is not None else ()
    return next((t.shape[0] for t in tensors if t.name == HEAD and len(t.shape) == 2), None)


def _nameless(s: Subject, config: DraftConfig) -> Hit:
    refusal = refusal_text(s.engine, "absent", "")
    what = (
        "architectures is no list of class names"
        if "architectures" in config.data
        else "config.json has no architectures"
    )
    return Hit(
        f"{what}: {s.engine} stops with {refusal}",
        (config.at("architectures"),),
        help=_advice(s),
        fixable=fitting_here(s) is not None,
    )


def _unregistered(s: Subject, config: DraftConfig, name: str) -> Hit:
    wanted = class_name(s.engine, config, name, s.algorithm)
    since = registered_since(s.engine, wanted)
    refusal = refusal_text(s.engine, "unregistered", looked_for(s.engine, config, name, s.algorithm))
    known = f" ({s.engine.name} has it since {since})" if since else ""
    called = f", as which {s.algorithm} looks for {name}" if wanted != name else ""
    fits = fitting_here(s)
    later = f"use {s.engine.name} {since} or later" if since else None
    return Hit(
        f"{s.engine} has no class {wanted}{called}{known}{_but(s)}: {refusal}",
        (config.at("architectures"),),
        help=f"{_advice(s)}, or {later}" if fits is not None and later else later or _advice(s),
        confidence=Confidence.CERTAIN if s.engine.exact else Confidence.LIKELY,
        fixable=fits is not None or nested_anew(s) is not None,
    )


def _head(s: Subject) -> Head | None:
    return head_in(s)


def _but(s: Subject) -> str:
    head = _head(s)
    return f"; the tensors are {head.label}" if head is not None else ""


def _advice(s: Subject) -> str | None:
    fits, head = fitting_class(s), _head(s)
    if fits is not None and head is not None and s.selection is not None:
        tensors = [t.name for t in s.selection.tensors]
        since = taken_since(s.engine, head, tensors)
        if (kind := nested_for(s.engine, head, tensors)) is not None:
            form = book(s.engine)["nested"]["format"]
            return f"write a {form} config of kind {kind}: {s.engine.name} builds {fits} from no other, since {since}"
        return f'set architectures to ["{fits}"], which {s.engine.name} has since {since}'
    whole = _of_whole_models(s)
    if head is not None and head.kind == "model" and whole:
        return f"serve a whole model with {flag_text(s.engine, 'algorithm', whole[0])}"
    return f"{s.engine.name} has no class for {head.label}" if head is not None else None


def _of_whole_models(s: Subject) -> list[str]:
    """The algorithms that draft with a whole model."""
    return list(load_toml(s.engine.name, "registry.toml").get("whole_models", {}).get("algorithms", []))


def _meant_whole(s: Subject) -> bool:
    """Whether a whole model is meant as a draft: the algorithm says so, or none is named and the tensors are one."""
    if s.algorithm_given:
        return one_of(s.algorithm, _of_whole_models(s))
    head = _head(s)
    return head is not None and head.kind == "model"


@rule("DC502", "unknown-model-type", Severity.ERROR, Severity.WARNING, needs=("config",))
def unknown_model_type(s: Subject) -> Iterator[Hit]:
    """The engine's config loader does not know `model_type`.

    ## What it does
    Looks `model_type` up among the names that the transformers release pinned by this version knows and those that
    the engine adds; looks for the file that `auto_map` names. Where the engine knows `model_type` itself, it wants
    that file only if the launch allows code of the checkpoint (`--trust-remote-code`): without it nothing is said,
    and without a launch line a warning.

    ## Why is this bad?
    The server refuses to start (measured on SGLang 0.5.15.post1 with `eagle3`: `Transformers does not recognize
    this architecture`; without the key: `Unrecognized model`).

    ## Fix
    Set `model_type` to that of the decoder layer, `llama` for most heads.
    """
    assert s.config is not None
    rules = book(s.engine)
    if s.config.settled or "refusals" not in rules or nested_keys(s.engine, s.config):
        return
    auto_config = s.config.text("auto_map", "AutoConfig")
    if auto_config is not None:
        yield from _remote_code(s, s.config, auto_config)
    elif s.config.model_type is None:
        guesses = s.engine.within(rules["guesses_from_path"])
        written = s.config.data.get("model_type")
        unless = ", unless its path contains the name of a model type" if guesses else ""
        yield Hit(
            f"config.json has no model_type: {s.engine} stops with {rules['refusals']['absent']}{unless}"
            if written is None
            else f"model_type in config.json is {written!r:.40}, which is no name: {s.engine} stops",
            (s.config.at("model_type"),),
            help=MODEL_TYPE_ADVICE,
            confidence=Confidence.LIKELY if guesses else Confidence.CERTAIN,
            fixable=of_the_class(s) is not None,
        )
    elif knows(s.engine, s.config.model_type) is False:
        refusal = rules["refusals"]["unknown"].replace("{name}", s.config.model_type)
        yield Hit(
            f"{s.engine} does not know model_type {s.config.model_type}: {refusal}",
            (s.config.at("model_type"),),
            help=_newer(s, s.config.model_type) or MODEL_TYPE_ADVICE,
            confidence=Confidence.CERTAIN if s.engine.exact else Confidence.LIKELY,
            fixable=of_the_class(s) is not None,
        )


def _newer(s: Subject, model_type: str) -> str | None:
    """The advice where no other model_type is known to do, and a later release knows this one."""
    later = first_that_knows(s.engine, model_type) if of_the_class(s) is None else None
    return f"serve with {s.engine.name} >= {later}, which knows it" if later is not None else None


def _remote_code(s: Subject, config: DraftConfig, auto_config: str) -> Iterator[Hit]:
    """auto_map may name a module of another repository (``owner/name--module.Class``), which is not looked for."""
    module = auto_config.partition(".")[0] + ".py"
    if "--" in auto_config or module in s.checkpoint.other or not s.checkpoint.place.complete:
        return
    option = book(s.engine).get("remote_code", "trust_remote_code")
    known = knows(s.engine, config.model_type) if config.model_type is not None else False
    trusted = _trusted(s, option)
    if known and trusted is False:
        return
    first = known and not (trusted and not is_own(s.engine, str(config.model_type)))
    yield Hit(
        f"auto_map takes the config class from {module}, which is not in the checkpoint"
        + (f": {s.engine} stops with {option}, and builds {config.model_type} by itself without it" if first else ""),
        (config.at("auto_map", "AutoConfig"),),
        help=f"add {module}, or drop auto_map" + ("" if known else " and use a model_type that the engine knows"),
        severity=Severity.WARNING if first else Severity.ERROR,
        confidence=Confidence.LIKELY if first or known is None else Confidence.CERTAIN,
        fixable=is_dispensable(s, config),
    )


def _trusted(s: Subject, option: str) -> bool | None:
    """Whether the launch line lets the engine run code of the checkpoint; None where nothing says so."""
    if s.launch is None:
        return None
    said = [given.name for given in s.launch.options if given.name in (option, f"--no-{option.removeprefix('--')}")]
    return said[-1] == option if said else None if s.launch.partial else False


@rule("DC503", "config-dialect", Severity.ERROR, needs=("config",))
def config_dialect(s: Subject) -> Iterator[Hit]:
    """The config is written in a form that this engine does not read.

    ## What it does
    Finds the model's dimensions in a nested table (speculators' `transformer_layer_config`) while the top level,
    the only place that this engine reads, lacks them. Where the engine turns such a config into a flat one, says why
    it cannot turn this one.

    ## Why is this bad?
    The server refuses to start, or builds the class with default dimensions.

    ## Fix
    Write a flat config: the keys of the nested table at the top level, and the engine's own draft class as
    `architectures`.
    """
    assert s.config is not None
    if s.refused is not None and s.refused.cause == "conversion":
        yield _not_converted(s, s.config, s.refused)._replace(fixable=flattened(s) is not None)
        return
    keys = nested_keys(s.engine, s.config)
    if not keys:
        return
    rules = book(s.engine)
    body, form = rules["nested"]["body"], rules["nested"]["format"]
    end = "" if s.config.model_type is not None else f", and stops with {rules['refusals']['absent']}"
    fits = fitting_class(s)
    named = f', with architectures ["{fits}"]' if fits is not None else ""
    yield Hit(
        f"{form} config: {s.engine} reads {', '.join(keys)} at the top level only, where they are missing{end}",
        (s.config.at(body),),
        help=f"write a flat config: the keys of {body} at the top level{named}",
        fixable=flattened(s) is not None,
    )


def _not_converted(s: Subject, config: DraftConfig, refused: Refusal) -> Hit:
    key = refused.key or ""
    if (merged := form_of(s.engine, config)) is not None:
        return Hit(
            f"config of model_type {merged['model_type']}: {s.engine} cannot read it: {refused.error}",
            (config.at(key),),
            help=f"write a flat config: the keys of {key} at the top level, with its model_type and the draft class",
            confidence=Confidence.CERTAIN if s.engine.exact else Confidence.LIKELY,
        )
    form = book(s.engine)["nested"]["format"]
    converted = in_force(book(s.engine)["converted"], s.engine)
    kind = config.text(str(converted["kind"])) if converted is not None else None
    what = f" of kind {kind}" if kind is not None else ""
    return Hit(
        f"{form} config{what}: {s.engine} cannot read it: {refused.error}",
        (config.at(key),),
        help="serve it with a later release, or export the drafter for this engine",
        confidence=Confidence.CERTAIN if s.engine.exact else Confidence.LIKELY,
    )


@rule("DC504", "generation-mismatch", Severity.ERROR, needs=("config", "weights"))
def generation_mismatch(s: Subject) -> Iterator[Hit]:
    """The tensors are another kind of draft head than the class or the algorithm says.

    ## What it does
    Tells the kind of head from names and shapes (EAGLE-1: `fc` takes two hidden sizes; EAGLE-3: the first
    layer's attention takes two and its layer has a `hidden_norm`; MTP, DFlash, Medusa by their own tensors), and
    compares it with what the class builds and the algorithm runs.

    ## Why is this bad?
    Such a head is refused when it is loaded (measured on SGLang 0.5.15.post1: an EAGLE-3 head as
    `LlamaForCausalLMEagle` stops with `Attempted to load weight`), or runs with random layers.

    ## Fix
    Name the class and the algorithm of this kind of head.
    """
    assert s.config is not None
    if nested_keys(s.engine, s.config):
        return
    wrong = misfit(s)
    if wrong is not None:
        name, kind, head = wrong
        yield Hit(
            f"the tensors are {head.label}{_evidence(s)}, but {name} builds {label_of(kind)}",
            (s.config.at("architectures"), *_fc_place(s)),
            help=_advice(s),
            fixable=fitting_here(s) is not None,
        )
    elif s.algorithm_given and not s.algorithm_launched and (s.wiring is None or s.wiring.captured is not False):
        yield from _other_algorithm(s, s.config)


def _other_algorithm(s: Subject, config: DraftConfig) -> Iterator[Hit]:
    name, kind = draft_class(s.engine, config, s.contract, s.algorithm)
    served = load_toml(s.engine.name, "registry.toml").get("algorithms", {}).get(kind, [])
    if kind is not None and served and not one_of(s.algorithm, served):
        yield Hit(
            f"{name} builds {label_of(kind)}, which {flag_text(s.engine, 'algorithm', s.algorithm)} does not run",
            (config.at("architectures"),),
            help=f"serve it with {flag_text(s.engine, 'algorithm', served[0])}",
        )


def _evidence(s: Subject) -> str:
    fc = fc_of(s)
    return f" (`{fc.tensor.name}` is {shape(fc.tensor.shape)})" if fc is not None else ""


def _fc_place(s: Subject) -> tuple[Location, ...]:
    fc = fc_of(s)
    return (fc.place,) if fc is not None else ()
