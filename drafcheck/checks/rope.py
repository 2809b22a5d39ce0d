"""DC506: the rotary embedding that this release builds, and what config.json says about it where it does not look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from drafcheck.fc import at
from drafcheck.finding import Confidence, Severity
from drafcheck.producers import may_leave_theta_out
from drafcheck.registry import Hit, rule
from drafcheck.rope import PLAIN, THETA, Rope, Stated, rope_of, scaling_key, stated
from drafcheck.trial import Changes, changed

if TYPE_CHECKING:
    from drafcheck.subject import Subject


@rule(
    "DC506",
    "rope-schema",
    Severity.WARNING,
    Severity.ERROR,
    Severity.NOTE,
    needs=("contract", "config", "rope"),
    concerns="fit",
)
def rope_schema(s: Subject) -> Iterator[Hit]:
    """This release reads another rope than config.json states, or cannot build the one that it reads.

    ## What it does
    Works out theta and the scaling as this release does, from `rope_scaling`, `rope_parameters` and `rope_theta`, and
    reports what stands where it does not look and says something else. An error where it stops over the table: a
    factor that is missing or no number, a kind it does not know, one table for each attention type. A warning where no
    key states theta, so that the config class's default counts, and the target has another; a note where the checkpoint
    is or may be from a trainer that trains with the default and states none. A theta that is stated and differs from
    the target's may be right, and so may a scaling that the target does not have.

    ## Why is this bad?
    The drafter runs with positions that it was not trained on, and nothing is said: accept length 2.30 -> 1.48 on
    SGLang 0.5.15.post1 with theta 10,000 instead of 500,000. Its releases before 0.5.10 read `rope_theta` and
    `rope_scaling` alone; since 0.5.10 `rope_scaling`, and without one `rope_parameters`, comes before `rope_theta`.
    vLLM takes `rope_theta`, or the default of the config's class, before that of `rope_parameters` until 0.22.1.

    ## Fix
    State theta and the scaling that the drafter was trained with in each form that the config has.
    """
    assert s.config is not None
    rope = rope_of(s.engine, s.config.data)
    if rope is None:
        return
    if rope.error is not None:
        yield _stops(s, rope)
        return
    for place in stated(s.engine, s.config.data):
        yield from _unread(s, rope, place)
    if rope.theta_key is None:
        yield from _unlike_the_target(s, rope)


def _stops(s: Subject, rope: Rope) -> Hit:
    assert rope.error_key is not None
    if rope.wrong is not None:
        return Hit(
            f"`{rope.error_key}` is {rope.wrong}: {s.engine} stops at start ({rope.error})",
            (at(s, rope.error_key),),
            help=f"write {rope.wrong.rpartition(', not ')[2]} there",
            severity=Severity.ERROR,
            stops=True,
        )
    return Hit(
        f"{s.engine} cannot build the rope that `{rope.error_key}` asks for: it stops at start ({rope.error})",
        (at(s, rope.error_key),),
        help=f"write what the drafter was trained with into `{rope.error_key}`, with all the keys of its kind",
        severity=Severity.ERROR,
        stops=True,
    )


def _key(place: Stated) -> str:
    """Where a place says theta."""
    return place.key if place.key == THETA else f"{place.key}.{THETA}"


def _passed_over(rope: Rope, place: Stated) -> tuple[bool, bool]:
    """Whether a place says another theta, and another scaling, than those that count."""
    theta = place.theta is not None and _key(place) != rope.theta_key and _differ(place.theta, rope.theta)
    scaling = place.key not in (THETA, rope.table) and place.kind not in (PLAIN, rope.kind)
    unlike = place.kind == rope.kind != PLAIN and place.factor != rope.factor and place.key != rope.table
    return theta, scaling or unlike


def _is_lost(rope: Rope, theta: bool, scaling: bool) -> bool:
    """Whether nothing contradicts what is passed over."""
    return (not theta or rope.theta_key is None) and (not scaling or rope.table is None)


def mirrored(s: Subject) -> Changes | None:
    """Theta and the scaling of the one place that states them, where this release looks; None if places contradict."""
    assert s.config is not None
    rope, said = rope_of(s.engine, s.config.data), list(stated(s.engine, s.config.data))
    if rope is None or rope.error is not None:
        return None
    changes: dict[tuple[str, ...], Any] = {}
    for place in said:
        theta, scaling = _passed_over(rope, place)
        if not _is_lost(rope, theta, scaling):
            return None
        if theta:
            changes.setdefault((THETA,), place.theta)
        if scaling:
            table = {key: value for key, value in s.config.data[place.key].items() if key != THETA}
            changes.setdefault((scaling_key(s.engine),), table)
    after = changed(s.config, changes).data
    built = rope_of(s.engine, after)
    if not changes or built is None or built.error is not None:
        return None
    return None if any(any(_passed_over(built, place)) for place in stated(s.engine, after)) else changes


def _unread(s: Subject, rope: Rope, place: Stated) -> Iterator[Hit]:
    """One finding for a place that says something else than what counts."""
    key = _key(place)
    theta, scaling = _passed_over(rope, place)
    if not theta and not scaling:
        return
    lost = _is_lost(rope, theta, scaling)
    facts = [_theta_counts(s, rope, key, place)] if theta else []
    facts += [_scaling_counts(s, rope, place)] if scaling else []
    rivals = [at(s, k) for k in (rope.theta_key if theta else None, rope.table if scaling else None) if k is not None]
    yield Hit(
        "; ".join(facts),
        (at(s, key if theta else place.key), *rivals),
        help=_how_to_state(s, theta, scaling, place) if lost else "make both say what the drafter was trained with",
        confidence=Confidence.CERTAIN if lost else Confidence.LIKELY,
        fixable=lost and mirrored(s) is not None,
    )


def _differ(a: float | None, b: float | None) -> bool:
    return b is None or a != b


def _theta_counts(s: Subject, rope: Rope, key: str, place: Stated) -> str:
    assert s.config is not None
    default = f"the default of {s.config.model_type}" if s.config.model_type else "the default of its class"
    origin = default if rope.theta_key is None else f"from `{rope.theta_key}`"
    taken = "" if rope.theta is None else f"{number(rope.theta)}, "
    return f"`{key}` is {number(place.theta)}, and {s.engine} takes {taken}{origin}"


def _scaling_counts(s: Subject, rope: Rope, place: Stated) -> str:
    origin = f" from `{rope.table}`" if rope.table is not None else ""
    return f"`{place.key}` asks for {_scaling(place.kind, place.factor)}, and {s.engine} takes " + (
        f"{_scaling(rope.kind, rope.factor)}{origin}"
    )


def _scaling(kind: str, factor: object) -> str:
    return "no scaling" if kind == PLAIN else f"{kind} x {number(factor)}" if factor is not None else kind


def number(value: object) -> str:
    """``500000`` for 500000.0; anything that is no plain number as it is, cut short."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole and isinstance(value, float) else f"{value!s:.40}"


def _how_to_state(s: Subject, theta: bool, scaling: bool, place: Stated) -> str:
    ways = [f"write `{THETA}` {number(place.theta)} at the top level of config.json"] if theta else []
    ways += [f"write the scaling of `{place.key}` as `{scaling_key(s.engine)}` too"] if scaling else []
    return ", and ".join(ways)


def _unlike_the_target(s: Subject, rope: Rope) -> Iterator[Hit]:
    """No key states theta: nothing is wrong with that when the drafter was trained with the default, as some are."""
    assert s.config is not None
    theirs = rope_of(s.engine, s.target.language) if s.target is not None else None
    if any(place.theta is not None for place in stated(s.engine, s.config.data)):
        return
    if theirs is not None and theirs.theta is not None and rope.theta not in (None, theirs.theta):
        healthy = may_leave_theta_out(s)
        yield Hit(
            f"no theta in config.json: {s.engine} takes {number(rope.theta)}, the default of {s.config.model_type}; "
            f"the target's is {number(theirs.theta)}",
            (at(s, THETA),),
            help=f"write the `{THETA}` that the drafter was trained with, if it was another",
            severity=Severity.NOTE if healthy else Severity.WARNING,
            confidence=Confidence.GUESS if healthy else Confidence.LIKELY,
        )
