"""DC314: can the draft vocabulary produce the special tokens that the target emits?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drafcheck.checks.mapping import is_sound
from drafcheck.checks.vocabulary import at, parts
from drafcheck.finding import Confidence, Severity
from drafcheck.plan.vocabulary import is_reduced
from drafcheck.registry import Hit, rule
from drafcheck.words import count

if TYPE_CHECKING:
    from drafcheck.emitted import Emitted
    from drafcheck.subject import Subject

_END = "end"  # as in rules/tokens.toml
_NAMED = 6  # so many tokens are named


@rule("DC314", "unreachable-special-token", Severity.WARNING, Severity.NOTE, needs=("load", "target"), reads=("d2t",))
def unreachable_special_token(s: Subject) -> Iterator[Hit]:
    """The target emits special tokens that no draft id stands for.

    ## What it does
    Takes the tokens that end an answer from the target's generation_config.json (else config.json), and those of tool
    calls and thoughts from its tokenizer (`--tokenizer`, else the one in the target's folder on this machine), and
    looks whether d2t reaches them. An end is a note: an answer has one. Tokens that only prompts hold, reserved
    ones, and those of images and the like are left out; so are drafters of full vocabulary.

    ## Why is this bad?
    A draft id proposes what d2t says and nothing else: at each of these tokens the drafter is wrong, and what it
    proposes behind it is lost as well. Answers with many of them, such as tool calls, gain less. A missing
    end costs at most the last step of an answer: the healthy drafter whose faults were measured on SGLang
    0.5.15.post1 (accept length 2.30) has none.

    ## Fix
    Choose the draft vocabulary again with these tokens in it, however rare they are in the training data, and train
    `lm_head` on it. A finished checkpoint has no rows for them.
    """
    v, _, _, _ = parts(s)
    if v.raw is None or v.targets is None or v.vocab is None or v.tied or not is_reduced(len(v.targets), v.vocab):
        return
    from drafcheck.emitted import emitted_tokens

    tokens = [e for e in emitted_tokens(s) if e.token < v.vocab]
    reached = {e.token for e in tokens}.intersection(v.targets)  # a few tokens mostly: no set of all that are reached
    lost = [e for e in tokens if e.token not in reached]
    if not lost or not is_sound(v):
        return
    lost_ends = [e for e in lost if e.kind == _END]
    marks = [e for e in lost if e.kind != _END]
    if lost_ends:
        remark = _remark(lost_ends, sum(e.kind == _END for e in tokens))
        yield _hit(s, lost_ends, "ends of an answer", remark, Severity.NOTE)
    if marks:
        yield _hit(s, marks, " and ".join(dict.fromkeys(f"{e.kind} tokens" for e in marks)))


def _remark(lost: Sequence[Emitted], ends: int) -> str:
    if len(lost) < ends:
        return "; another end is reached"
    return "" if any(e.certain for e in lost) else "; a default of the config class, perhaps"


def _hit(
    s: Subject, lost: Sequence[Emitted], what: str, remark: str = "", severity: Severity = Severity.WARNING
) -> Hit:
    v, _, _, _ = parts(s)
    place = next((e.place for e in lost if e.place is not None), None)
    return Hit(
        f"no draft id stands for {count(len(lost), 'token')} that the target emits ({what}): {_names(lost)}{remark}",
        (*at(v.d2t_tensor), *((place,) if place is not None else ())),
        help="choose the draft vocabulary again with these tokens in it and train lm_head on it",
        severity=severity,
        confidence=Confidence.CERTAIN if all(e.certain for e in lost) else Confidence.LIKELY,
    )


def _names(tokens: Sequence[Emitted]) -> str:
    told = [f"{e.token}" if e.text is None else f"{e.token} `{e.text}`" for e in tokens[:_NAMED]]
    rest = len(tokens) - _NAMED
    return ", ".join(told) + (f" and {rest} more" if rest > 0 else "")
