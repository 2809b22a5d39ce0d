"""DC602: was the draft made for this target, as far as its config says?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from drafcheck.contract import load_toml
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.modelnames import differ, local_name, model_name, stem
from drafcheck.plan.vocabulary import is_another
from drafcheck.registry import Hit, rule

if TYPE_CHECKING:
    from drafcheck.config import DraftConfig, TargetConfig
    from drafcheck.subject import Subject

_WORDS = {"num_hidden_layers": "depth", "hidden_size": "width", "vocab_size": "vocabulary"}
_SUFFIXES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "Model")


class _Unlike(NamedTuple):
    """One fact that differs: what the draft says, what the target is, and where each stands."""

    what: str
    here: str
    there: str
    places: tuple[Location, ...]


@rule("DC602", "other-target", Severity.ERROR, Severity.WARNING, needs=("config", "target"))
def other_target(s: Subject) -> Iterator[Hit]:
    """The draft declares another base model than the target.

    ## What it does
    Compares the model that the draft's config names, its class and its depth, as trainers write them, with the target.
    Names are compared by their last part; how the weights are stored (FP8, AWQ) does not matter, and a folder whose
    name tells nothing is not compared. With another class, depth, width or vocabulary it is an error, with another name
    alone a warning. A folder's name counts only where size, version, date or kind (Base, Instruct) is another.

    ## Why is this bad?
    A drafter reads the hidden states of the model it was trained on. Sister models, such as Kimi-K2 and Kimi-K2.5, have
    the same sizes, so everything loads; the same sizes prove nothing about the vocabulary mapping: with that of another
    corpus 2.30 falls to 1.08 (SGLang 0.5.15.post1).

    ## Fix
    Serve the drafter with the model it was trained for. Whether a mapping fits is told by `--reference` with a drafter
    or mapping that was made for this target, or by the target's weights.
    """
    assert s.written is not None and s.target is not None
    book = dict(load_toml("discovery.toml")["declared"])
    states = s.contract.read.get("num_aux", []) if s.contract is not None else []
    # Kimi K3's drafts count the layers that they read under the name that others give the target's depth.
    book["num_hidden_layers"] = [key for key in book["num_hidden_layers"] if key not in states]
    shape = list(_other_model(s.written, s.target, book))
    name = _other_name(s, s.written, s.target, book)
    sizes = list(_other_sizes(s.written, s.target, book)) if name is not None else []
    if (name is not None and name.sure) or shape or sizes:
        yield _hit(s, name, [*shape, *sizes])


class _Name(NamedTuple):
    here: str
    there: str
    places: tuple[Location, ...]
    sure: bool
    confidence: Confidence


def _other_name(s: Subject, config: DraftConfig, target: TargetConfig, book: Any) -> _Name | None:
    """The names, when both tell a model and not the same one. ``sure``: that they differ says something by itself."""
    route = next((route for key in book["name"] if config.text(*(route := key.split(".")))), None)
    here = model_name(config.text(*route) or "") if route is not None else None
    there = local_name(s.target_path) if s.target_path is not None else None
    if route is None or here is None or there is None or "".join(stem(here)) == "".join(stem(there)):
        return None
    official = "/" in there
    sure = official or differ(here, there)  # a folder may be called anything
    confidence = Confidence.LIKELY if official else Confidence.GUESS
    return _Name(here, there, (config.at(*route), Location(file=target.document.file)), sure, confidence)


def _other_model(config: DraftConfig, target: TargetConfig, book: Any) -> Iterator[_Unlike]:
    """Class and depth, which only a draft's statement about its target tells."""
    for key in book["architectures"]:
        route = key.split(".")
        said = config.get(*route)
        names = [n for n in said if isinstance(n, str)] if isinstance(said, list) else []
        actual = _classes(target)
        if names and actual and not any(_is_family(a, b) for a in names for b in actual):
            yield _Unlike("class", names[0], actual[0], (config.at(*route), target.at("architectures")))
    yield from _differing(config, target, book, "num_hidden_layers")


def _other_sizes(config: DraftConfig, target: TargetConfig, book: Any) -> Iterator[_Unlike]:
    yield from _differing(config, target, book, "hidden_size")
    yield from _differing(config, target, book, "vocab_size")


def _classes(target: TargetConfig) -> list[str]:
    """The target's class and that of its language model, by class name or model type; none where the latter is open."""
    inner = target.text_architecture or target.language.get("model_type")
    if target.architecture is None or (target.route and not isinstance(inner, str)):
        return []
    return [target.architecture, *([str(inner)] if target.route else [])]


def _differing(config: DraftConfig, target: TargetConfig, book: Any, key: str) -> Iterator[_Unlike]:
    actual: int | None = getattr(target, key)
    route = next((route for place in book[key] if config.integer(*(route := place.split("."))) is not None), None)
    said = config.integer(*route) if route is not None else None
    if route is None or said is None or actual is None or said == actual:
        return
    if key != "vocab_size" or is_another(said, actual):
        yield _Unlike(_WORDS[key], str(said), str(actual), (config.at(*route), target.at(*target.route, key)))


def _is_family(one: str, other: str) -> bool:
    """Whether two classes are one, or one wraps the other: Qwen3ForCausalLM, Qwen3VLForConditionalGeneration."""
    first, second = (_bare(name) for name in (one, other))
    return first.startswith(second) or second.startswith(first)


def _bare(name: str) -> str:
    bare = next((name[: -len(suffix)] for suffix in _SUFFIXES if name.endswith(suffix)), name)
    return bare.replace("_", "").lower()


def _hit(s: Subject, name: _Name | None, unlike: list[_Unlike]) -> Hit:
    named = f"the draft was made for `{name.here}`, the target is `{name.there}`" if name is not None else ""
    facts = "; ".join(f"{u.what} {u.here} was declared and the target's is {u.there}" for u in unlike)
    same = "that the sizes are the same proves nothing about the vocabulary mapping" if not unlike else ""
    places = (*(name.places if name is not None else ()), *(place for u in unlike for place in u.places))
    return Hit(
        "; ".join(part for part in (named, facts, same, _compared(s)) if part),
        tuple(dict.fromkeys(places)),
        help=_help(s),
        severity=Severity.ERROR if unlike else Severity.WARNING,
        confidence=Confidence.LIKELY if unlike or name is None else name.confidence,
    )


def _compared(s: Subject) -> str:
    if s.comparison is None or s.reference is None or not s.comparison.identical:
        return ""
    return f"the mapping is that of {s.reference.name}, but the hidden states are another model's"


def _help(s: Subject) -> str:
    serve = "serve it with the model it was made for"
    if s.comparison is not None:
        return serve
    return f"{serve}; --reference with a drafter or mapping made for this target tells whether the mapping fits"
