"""DC605: can the release keep the KV caches of target and draft together?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.checks.split import ranks_of
from drafcheck.contract import Engine, Table, releases
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.plan.kv import Cache, asked, draft_cache, goes_together, pages, target_cache
from drafcheck.registry import Hit, rule
from drafcheck.words import plural

if TYPE_CHECKING:
    from drafcheck.subject import Subject

_KEYS = ("num_key_value_heads", "head_dim", "hidden_size", "kv_lora_rank", "layer_types")
_POWERS = (2, 4, 8, 16, 32, 64)


@rule("DC605", "kv-layout", Severity.ERROR, Severity.WARNING, needs=("contract", "config", "target"), concerns="fit")
def kv_layout(s: Subject) -> Iterator[Hit]:
    """Target and draft need KV cache pages of sizes that this release does not keep together.

    ## What it does
    Works out how many numbers a token takes in a layer of the target and in one of the draft: 2 x key/value heads of a
    rank x `head_dim`, and `kv_lora_rank` + `qk_rope_head_dim` for latent attention. vLLM takes all pages from one pool:
    0.9.2 wants one size; 0.11.0 wants it where some layers keep a window only (gpt-oss, or a draft with
    `sliding_attention`); from 0.16.0 each size has to divide the largest there; 0.33.0 pads. With
    `--disable-hybrid-kv-cache-manager` all layers keep every token, and from 0.11.0 on any sizes go together. Nothing
    is said of target classes whose layers are not described, nor of engines with a pool for each model (SGLang). A
    warning where the number of ranks, which nothing says, or a release that was not run decides.

    ## Why is this bad?
    The server stops with `NotImplementedError` once both models are loaded, and names neither of them.

    ## Fix
    Serve with a release or an option that the help names. A `head_dim` that the draft's trainer left to its default
    (80 beside the target's 128) cannot be changed without training again.
    """
    assert s.config is not None and s.target is not None and s.contract is not None
    entry, ranks = asked(s.engine), ranks_of(s)
    target, draft = target_cache(s.engine, s.target), draft_cache(s.contract, s.config)
    if entry is None or target is None or draft is None or ranks is None:
        return
    both, told = (s.tp or 1, ranks), s.tp is not None or s.launch is not None
    if goes_together(entry, target, draft, both, one_group=_one_group(s, entry)):
        return
    theirs, ours = pages(entry, target, draft, both)
    able = [n for n in _POWERS if _divides(n, target, draft) and goes_together(entry, target, draft, (n, n))]
    certain = s.engine.exact and s.contract.proven and (told or not able)
    yield Hit(
        f"{s.engine} {_wants(entry, target)}, and stops ({entry['error']}): a token takes {plural(ours, 'number')} in "
        f"a layer of the draft ({_sum(draft, ours)}) and {theirs} in one of the target "
        f"({_sum(target, theirs)}){f' on each of {both[0]} ranks' if both[0] > 1 else ''}",
        _places(s),
        help=_help(s.engine, entry, target, draft, [] if told else able),
        severity=Severity.ERROR if certain else Severity.WARNING,
        confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
        stops=certain,
    )


def _one_group(s: Subject, entry: Table) -> bool:
    options = s.launch.options if s.launch is not None else []
    return any(option.name in entry.get("one_group", []) for option in options)


def _divides(ranks: int, target: Cache, draft: Cache) -> bool:
    """Whether so many ranks can share the key/value heads of both, or copy them."""
    heads = (target.heads, draft.heads)
    return all(count % ranks == 0 or ranks % count == 0 for count in heads)


def _wants(entry: Table, target: Cache) -> str:
    if entry["alike"] == "equal":
        return "keeps KV cache pages of one size only"
    whose = "the target's" if len(target.kinds) > 1 else "the draft's"
    wanted = "all of one size" if entry["mixed"] == "equal" else "that divide the largest"
    return f"wants KV cache pages {wanted}, as some of {whose} layers keep a window only"


def _sum(cache: Cache, numbers: int) -> str:
    if cache.latent:
        return "latent attention"
    factor = "2 x " if numbers % (2 * cache.size) == 0 else ""
    return f"{factor}{numbers // cache.size // (2 if factor else 1)} key/value heads x {cache.size}"


def _places(s: Subject) -> tuple[Location, ...]:
    assert s.config is not None and s.target is not None
    ours = [s.config.at(key) for key in _KEYS if key in s.config.data][:2]
    theirs = [s.target.at(*s.target.route, key) for key in _KEYS if key in s.target.language][:2]
    return (*ours, *theirs)


def _help(engine: Engine, entry: Table, target: Cache, draft: Cache, able: list[int]) -> str | None:
    ways = [f"serve with {_numbers(able)} {'rank' if able == [1] else 'ranks'} (--tp)"] if able else []
    if entry.get("one_group"):
        ways.append(f"serve with {entry['one_group'][0]}")
    later = (Engine(engine.name, str(v), v, exact=True) for v in releases(engine.name) if v > engine.known)
    taken = next((str(one) for one in later if _takes(one, target, draft)), None)
    if taken is not None:
        ways.append(f"serve with {taken.replace(' ', ' >= ')}")
    return ", or ".join(ways).replace(", or serve", ", or") or None


def _takes(engine: Engine, target: Cache, draft: Cache) -> bool:
    entry = asked(engine)
    return entry is not None and goes_together(entry, target, draft, (1, 1))


def _numbers(counts: list[int]) -> str:
    *most, last = map(str, counts)
    return f"{', '.join(most)} or {last}" if most else last
