"""DC106 and DC107: bytes that are stored and that this release has no use for."""

from __future__ import annotations

from collections.abc import Iterator

from drafcheck.checks.names import names, places, plans
from drafcheck.contract import load_toml
from drafcheck.finding import Severity
from drafcheck.registry import Hit, rule
from drafcheck.subject import Subject
from drafcheck.tensor import Tensor
from drafcheck.tensors import Tensors
from drafcheck.width import of_another_width
from drafcheck.words import listed, plural, share

WORTH_A_LINE = 0.01
"""Less than this share of the file is not spoken of."""


@rule("DC106", "useless-tensor", Severity.NOTE, needs=("contract", "load"), concerns="fit")
def useless_tensor(s: Subject) -> Iterator[Hit]:
    """Tensors that the engine passes over by design take up more than 1 % of the file.

    ## What it does
    Adds up the tensors that this release skips on purpose, such as buffers of the rotary embedding that it computes
    itself, and says how large they are. `t2d` is not meant: it says what `d2t` should be. Nor are heads that are part
    of the target's own checkpoint, such as multi-token-prediction layers.

    ## Why is this bad?
    It is not, for the server: the bytes are only stored, uploaded and read.

    ## Fix
    Leave them out of the next export, if no other engine that serves the draft reads them.
    """
    plan, _ = plans(s)
    mask = s.vocabulary.t2d_tensor if s.vocabulary is not None else None
    skipped = [drop.tensor for drop in plan.dropped.because("design") if drop.tensor != mask]
    if _worth_a_line(s, skipped):
        verb = "passes over it" if len(skipped) == 1 else "passes over them"
        yield _spare(skipped, plan.seen, f"{s.engine} {verb} by design")


@rule("DC107", "target-replaces-tensor", Severity.NOTE, needs=("contract", "load"), concerns="fit")
def target_replaces_tensor(s: Subject) -> Iterator[Hit]:
    """The engine puts the target's tensor in place of this one.

    ## What it does
    Says which tensors of the file this release loads and then replaces with the target's: `embed_tokens` where the
    widths agree, and `lm_head` where `draft_vocab_size` is null.

    ## Why is this bad?
    It is not, where the two are alike, and most trainers export the target's embedding with the head: accept length
    unchanged on SGLang 0.5.15.post1 with a random one, or none. One that was trained is not what is served.

    ## Fix
    Leave the tensor out, if no other engine that serves the draft keeps it.
    """
    plan, _ = plans(s)
    if of_another_width(s):
        return  # the target's does not fit, which DC409 says
    replaced = [write.tensor for write in plan.writes if write.parameter in plan.fills_from_target]
    if _worth_a_line(s, replaced):
        it = "it with the target's" if len(replaced) == 1 else "them with the target's"
        yield _spare(replaced, plan.seen, f"{s.engine} replaces {it}")


def _spare(tensors: list[Tensor], all_of_them: Tensors, fate: str) -> Hit:
    size, whole = _size(Tensors(tensors)), _size(all_of_them)
    return Hit(
        f"{listed([t.name for t in tensors])} ({_bytes(size)}, {share(size, whole)} of the file): {fate}",
        places(tensors),
        help="leave it out, if no other engine that serves the draft uses it",
        about=names(tensors),
    )


def _bytes(number: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return plural(number, "byte")


def _worth_a_line(s: Subject, tensors: list[Tensor]) -> bool:
    plan, contract = plans(s)
    whole = _size(plan.seen)
    if plan.refused is not None or contract.kind in load_toml("heads.toml").get("of_the_target", []):
        return False
    return whole > 0 and _size(Tensors(tensors)) / whole > WORTH_A_LINE


def _size(tensors: Tensors) -> int:
    """The stored bytes, as far as the file tells where they are."""
    return sum(piece.stored for piece in tensors.pieces)
