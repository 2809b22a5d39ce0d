"""DC704 and DC706: what the launch line asks of the draft's weights, against what they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from drafcheck.checks.launch import at, launch_of
from drafcheck.checks.launch_flags import spelled
from drafcheck.contract import in_force, load_toml
from drafcheck.finding import Confidence, Location, Severity
from drafcheck.heads import draft_class, head_in
from drafcheck.registry import Hit, rule
from drafcheck.words import plural

if TYPE_CHECKING:
    from drafcheck.subject import Subject

_HALF = {"float16", "half"}


@rule("DC704", "draft-depth", Severity.WARNING, needs=("launch", "config"))
def draft_depth(s: Subject) -> Iterator[Hit]:
    """More steps or tokens are asked for than the head was trained for.

    ## What it does
    Compares the steps of the launch line with the depth that the config says the head was unrolled to in training, and
    the tokens of a block drafter with its block size. Nothing is said where the config does not tell.

    ## Why is this bad?
    Each further step feeds the head states that it never saw: drafting and checking them costs time, and few are
    accepted. A block drafter has no position beyond its block.

    ## Fix
    Ask for what was trained, or train deeper.
    """
    launch, book = launch_of(s)
    facts = book.get("depth")
    if not facts or not launch.speculates:
        return
    asked = launch.number_of(facts["steps"])
    depth = _trained(s, "steps")
    if asked is not None and depth is not None and asked > depth[0]:
        yield _too_deep(s, facts["steps"], asked, f"the head was trained for {plural(depth[0], 'step')}", depth)
    block = _trained(s, "block")
    for key in facts["block"] if block is not None else ():
        tokens, most = launch.number_of(key), block[0] - 1 + facts["given"] if block else 0
        if tokens is not None and tokens > most:
            yield _too_deep(s, key, tokens, f"the draft fills blocks of {most + 1 - facts['given']}", block)
            return


def _too_deep(s: Subject, key: str, asked: int, what: str, trained: tuple[int, str] | None) -> Hit:
    launch, book = launch_of(s)
    assert s.written is not None and trained is not None
    return Hit(
        f"{spelled(book, key)} is {asked}, and {what}",
        (at(launch, key), s.written.at(*trained[1].split("."))),
        help=f"ask for {trained[0]} or less",
        confidence=Confidence.LIKELY,
    )


def _trained(s: Subject, what: str) -> tuple[int, str] | None:
    """How deep the config says the head was trained, and under which key; None when it does not say."""
    assert s.config is not None and s.written is not None
    _, kind = draft_class(s.engine, s.config, s.contract, s.algorithm)
    head = head_in(s)
    kinds = {kind, head.kind if head is not None else None}
    for entry in load_toml("depth.toml").get(what, []):
        if not kinds & set(entry["kinds"]) or set(s.written.architectures) & set(entry.get("unless", [])):
            continue
        value = _value(s.written.data, entry["key"])
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value, entry["key"]
    return None


def _value(here: Any, key: str) -> Any:
    """What stands at a dotted key, whose numbers are positions in lists; None when nothing does."""
    for part in key.split("."):
        if isinstance(here, list) and part.isdigit() and int(part) < len(here):
            here = here[int(part)]
        else:
            here = here.get(part) if isinstance(here, dict) else None
    return here


@rule("DC706", "dtype-or-quantization-flag", Severity.ERROR, Severity.WARNING, needs=("launch", "config"))
def dtype_or_quantization(s: Subject) -> Iterator[Hit]:
    """The launch line gives the draft a dtype or a quantisation that its tensors do not have.

    ## What it does
    Finds a `--quantization` that is meant for the target and that this release applies to the draft too, and a
    `--dtype float16` over tensors of bfloat16.

    ## Why is this bad?
    SGLang builds the draft with the target's quantisation unless told otherwise: `fp8` quantises a bfloat16 head while
    it is loaded, `awq` or `gptq` look for packed tensors that are not there. Casting bfloat16 to float16 overflows
    beyond 65504; the other way round no loss was measured (SGLang 0.5.15.post1).

    ## Fix
    Add `--speculative-draft-model-quantization unquant`; serve bfloat16 with `--dtype bfloat16`.
    """
    yield from _quantized(s)
    yield from _cast(s)


def _quantized(s: Subject) -> Iterator[Hit]:
    launch, book = launch_of(s)
    assert s.config is not None
    method, entry = launch.said.get("quantization"), in_force(book.get("quantization", []), s.engine)
    if method is None or entry is None or not entry.get("inherits") or "draft_quantization" in launch.given:
        return
    own = s.config.data.get("quantization_config") or "hf_quant_config.json" in s.checkpoint.other
    elsewhere = "own" in entry and launch.partial  # there it may be told apart
    if own or elsewhere or not launch.speculates:
        return
    online = method.lower() in book["online"]["methods"]
    yield Hit(
        f"--quantization {method} counts for the draft too: "
        + (
            f"{s.engine} quantises its tensors while it loads them"
            if online
            else f"{s.engine} looks for tensors that are quantised by {method}"
        ),
        (at(launch, "quantization"),),
        help=f"add {entry['own']}" if "own" in entry else "serve without --quantization, or quantise the draft as well",
        severity=Severity.WARNING if online else Severity.ERROR,
        confidence=Confidence.LIKELY,
    )


def _cast(s: Subject) -> Iterator[Hit]:
    launch, _ = launch_of(s)
    if launch.said.get("dtype") not in _HALF or s.selection is None:
        return
    stored = [t.dtype for t in s.selection.tensors if t.dtype in ("BF16", "F32", "F16")]
    if stored and stored.count("BF16") > len(stored) / 2:
        yield Hit(
            f"--dtype {launch.said['dtype']} over a draft of bfloat16: numbers beyond 65504 become infinite",
            (at(launch, "dtype"), Location(file=s.selection.files[0].name)),
            help="serve with --dtype bfloat16",
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
        )
