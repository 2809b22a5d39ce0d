"""DC505 and DC508: the facts of config.json that the engine reads for any model, and that two models must share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.conversion import route_to
from drafcheck.draftmode import flag_text
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.modelconfig import (
    Read,
    context_length,
    draft_dtype,
    follows_target,
    target_dtype,
    too_short,
    unknown_dtype,
)
from drafcheck.registry import Hit, rule

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig, TargetConfig
    from drafcheck.subject import Subject
    from drafcheck.trial import Changes

_NAMES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


def _both(s: Subject) -> tuple[DraftConfig, TargetConfig]:
    """The two configs; rules that need ``contract`` and ``target`` have them."""
    assert s.config is not None and s.target is not None
    return s.config, s.target


def _draft_key(config: DraftConfig, read: Read, usual: str) -> Location:
    return _at(config, read.key or usual)


def _at(config: DraftConfig, key: str) -> Location:
    """Where a key of the language model stands: in its own config, or at the top level."""
    return config.at(*(config.route if key in config.language else ()), key)


def _target_key(target: TargetConfig, read: Read, usual: str) -> Location:
    """Where the target's value stands: in its language model's config, else at the top."""
    key = read.key or usual
    return target.at(*target.route, key) if key in target.language else target.at(key)


@rule("DC505", "context-length", Severity.ERROR, Severity.WARNING, needs=("contract", "target"))
def short_context(s: Subject) -> Iterator[Hit]:
    """The draft's context length is below the target's.

    ## What it does
    Derives both lengths as this release does: the first of its keys that is set, times the rope scaling factor where
    that counts. The draft is built for the length that the target is served with: with `--launch` that of the launch
    line, if it says one.

    ## Why is this bad?
    SGLang since 0.5.1 stops at start with a ValueError. Earlier releases log a warning and serve: positions past the
    draft's length are ones it was not trained for. vLLM 0.33 raises the draft's length where the kind of rope allows
    it, and else lowers that of the whole server; releases from 0.11 on draft nothing for longer sequences.

    ## Fix
    Raise `max_position_embeddings` (no tensor changes: accept length unchanged on SGLang 0.5.15.post1), or serve fewer
    tokens.
    """
    config, target = _both(s)
    ours, theirs = context_length(s.engine, config.language), _served(s, target)
    facts = too_short(s.engine, config.language, s.wiring.runner if s.wiring is not None else "")
    if ours is None or theirs is None or facts is None or int(ours.value) >= int(theirs.value) or _allowed(s, facts):
        return
    whose = "served are" if s.launch is not None and "length" in s.launch.said else "the target's"
    stops = facts["outcome"] == "stops"
    key = ours.key or "max_position_embeddings"
    outcome = facts["text"].replace("{ours}", str(ours.value))
    plain = ours.plain and theirs.plain and facts["outcome"] != "overruns"
    yield Hit(
        f"the draft's context length is {ours.value}{_how(ours, key)}, {whose} {theirs.value}: {s.engine} {outcome}",
        (_draft_key(config, ours, "max_position_embeddings"), _length_place(s, target, theirs)),
        help=_help_for_length(facts, key, int(ours.value), int(theirs.value)),
        severity=Severity.WARNING if facts["outcome"] == "warns" else Severity.ERROR,
        stops=stops,
        confidence=Confidence.CERTAIN if plain else Confidence.LIKELY,
    )


def length_needed(s: Subject) -> Changes | None:
    """The length that is served, under the key that says the draft's; None where other keys count as well."""
    config, target = _both(s)
    ours, theirs = context_length(s.engine, config.data), _served(s, target)
    if ours is None or theirs is None or int(ours.value) >= int(theirs.value):
        return None
    route = route_to(s, ours.key or "max_position_embeddings")
    return {route: int(theirs.value)} if ours.plain and route is not None else None


def _served(s: Subject, target: TargetConfig) -> Read | None:
    """The length that the target is served with; None when it is not known, or comes from outside the launch file."""
    if s.launch is None or "length" not in s.launch.given:
        return context_length(s.engine, target.language)
    length = s.launch.number_of("length")
    return Read(length) if length is not None and length > 0 else None


def _allowed(s: Subject, facts: dict[str, str]) -> bool:
    """Whether the launch sets the variable with which the engine puts up with it."""
    name, _, value = facts.get("allow", "").partition("=")
    return s.launch is not None and bool(name) and s.launch.env.get(name) in (value, "true", "True")


def _length_place(s: Subject, target: TargetConfig, read: Read) -> Location:
    if s.launch is not None and "length" in s.launch.said:
        return Location(file=s.launch.file, line=s.launch.places["length"].line)
    return _target_key(target, read, "max_position_embeddings")


def _how(read: Read, key: str) -> str:
    if read.key is None:
        return f" ({key} is absent)"
    return f" ({key})" if read.plain else f" ({key} times the rope scaling factor)"


def _help_for_length(facts: dict[str, str], key: str, ours: int, theirs: int) -> str:
    ways = [f"raise {key} to {theirs}"]
    if "limit" in facts:
        ways.append(f"serve with {facts['limit']} {ours}")
    if "allow" in facts:
        ways.append(f"set {facts['allow']}")
    return ", or ".join(ways)


@rule("DC508", "dtype", Severity.ERROR, Severity.NOTE, needs=("contract", "target"))
def draft_and_target_dtype(s: Subject) -> Iterator[Hit]:
    """The draft is built in another dtype than the target.

    ## What it does
    Works out the dtype that this release builds each model in when `--dtype` is left at auto: by the keys that it
    reads, float16 where there is none or float32. A note when the fault is the target's, whose config states no dtype
    or states it under a key that this release does not read, and when tensors of another dtype are cast at load.

    ## Why is this bad?
    The target's hidden states meet the draft's `fc` in another dtype: "expected mat1 and mat2 to have the same dtype",
    and the server dies at the first request (SGLang 0.5.15.post1). Nothing in the draft's forward pass casts them.

    ## Fix
    State the target's dtype in the draft's config, or give `--dtype`, which counts for both.
    """
    config, target = _both(s)
    if s.dtype not in (None, "auto"):
        return
    if unknown := unknown_dtype(s.engine, config):
        yield _no_dtype(s, config, unknown)
        return
    ours, theirs = draft_dtype(s.engine, config), target_dtype(s.engine, target)
    if theirs is not None and follows_target(s.engine):
        yield from _cast(s, theirs, _target_key(target, theirs, "dtype"))
    if ours is None or theirs is None:
        return
    if ours.value == theirs.value:
        yield from _cast(s, ours, _draft_key(config, ours, "torch_dtype"))
        return
    yield _unlike(s, ours, theirs)


def _unlike(s: Subject, ours: Read, theirs: Read) -> Hit:
    config, target = _both(s)
    usual = "dtype" if "dtype" in config.language else "torch_dtype"
    # A healthy draft beside a target whose dtype goes unread: the launch has to mend that, not the draft.
    blame = theirs.key is not None
    wanted = theirs.value if blame else ours.value
    launch = f"serve with {flag_text(s.engine, 'dtype', str(wanted))}"
    return Hit(
        f"{s.engine} builds the draft in {ours.value}{_unsaid(config.language, ours)} and the target in {theirs.value}"
        f"{_unsaid(target.language, theirs)}: it dies at the first request",
        (_draft_key(config, ours, usual), _target_key(target, theirs, "dtype")),
        help=f"set {_key_for_all(config)} to {wanted} in config.json, or {launch}" if blame else launch,
        severity=Severity.ERROR if blame else Severity.NOTE,
        confidence=Confidence.CERTAIN if ours.key and blame and not target.route else Confidence.LIKELY,
        fixable=dtype_shared(s) is not None,
    )


def dtype_shared(s: Subject) -> Changes | None:
    """The dtype of the target, or the one that is misspelt, under the keys that say it.

    None where the draft's tensors, as they are cast to it when they are loaded, could overflow.
    """
    config, target = _both(s)
    ours, theirs = draft_dtype(s.engine, config), target_dtype(s.engine, target)
    if unknown := unknown_dtype(s.engine, config):
        meant = _meant(str(config.get(*unknown)))
        route = unknown if config.route else route_to(s, *unknown)
        return {route: meant} if meant is not None and route is not None else None
    if ours is None or theirs is None or ours.value == theirs.value or theirs.key is None:
        return None
    stored = _stored(s)
    if stored != theirs.value and (stored, theirs.value) not in _WITHIN:
        return None
    keys = ("torch_dtype", "dtype") if config.data.get("dtype") is not None else ("torch_dtype",)
    return {(key,): theirs.value for key in keys}


_WITHIN = (("float16", "bfloat16"), ("float32", "bfloat16"))
"""A dtype of tensors, and one in which no number of theirs is too large."""

_SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def _meant(text: str) -> str | None:
    """The name of a dtype that is written with torch's prefix or in short; None for anything else."""
    name = text.strip().lower().removeprefix("torch.")
    name = _SHORT.get(name, name)
    return name if name in _SHORT.values() else None


def _no_dtype(s: Subject, config: DraftConfig, unknown: tuple[str, ...]) -> Hit:
    key = unknown[-1]
    return Hit(
        f"{key} {config.get(*unknown)!r:.40} is no dtype of torch: {s.engine} cannot read the config (AttributeError)",
        (config.at(*unknown),),
        help=f"set {key} to bfloat16, float16 or float32",
        confidence=Confidence.LIKELY,
        fixable=dtype_shared(s) is not None,
    )


def _unsaid(data: dict[str, object], read: Read) -> str:
    """Why a dtype is not what the config seems to say."""
    if read.key is not None:
        return f" ({read.key} {data[read.key]})" if data.get(read.key) not in (None, read.value) else ""
    return " (it does not read `dtype`)" if data.get("dtype") else " (no dtype in its config)"


def _key_for_all(config: DraftConfig) -> str:
    """The key that every release reads, when the one at hand is not that."""
    return "torch_dtype" if config.language.get("dtype") is None else "torch_dtype and dtype"


def _cast(s: Subject, built: Read, place: Location) -> Iterator[Hit]:
    """A note when most stored numbers are of another dtype than the draft is built in."""
    stored = _stored(s)
    if stored is not None and stored != built.value:
        yield Hit(
            f"the tensors are {stored}, the draft is built in {built.value}: they are cast at load",
            (place,),
            help=f"store the tensors in {built.value} to save the cast" if stored in ("float32", "float64") else None,
            severity=Severity.NOTE,
        )


def _stored(s: Subject) -> str | None:
    """The dtype of most of the numbers that are loaded; None where it is none that is computed with."""
    stored: Counter[str] = Counter()
    for write in s.load.writes if s.load is not None else []:
        stored[write.tensor.dtype] += write.tensor.numel
    return _NAMES.get(max(stored, key=lambda dtype: stored[dtype], default=""))
