"""DC901 and DC902: suppressions that have become stale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drafcheck.finding import Severity
from drafcheck.registry import Hit, rule

if TYPE_CHECKING:
    from drafcheck.subject import Subject


@rule("DC901", "unused-ignore", Severity.WARNING)
def unused_ignore(s: Subject) -> Iterator[Hit]:
    """A suppression in the settings hides nothing.

    ## What it does
    Reports each `[[suppress]]` that hid no finding in any checkpoint of this call, although its rule ran on all that
    it concerns. An entry whose `path` is none of the checkpoints given is not judged.

    ## Why is this bad?
    The fault is mended, or the entry never fitted. The next fault of that kind would be hidden without a word.

    ## Fix
    Take the entry out. If it is meant for one checkpoint of several, give it a `path`.
    """
    for ignore in s.unused:
        yield Hit(
            f"the suppression of {ignore.code} {ignore.name} hides nothing (reason given: {ignore.entry.reason})",
            (ignore.place(s.checkpoint.given),),
            help=f"take the [[suppress]] out of {ignore.settings.path.name}, or give it the `path` it is meant for",
        )


@rule("DC902", "expired-ignore", Severity.WARNING)
def expired_ignore(s: Subject) -> Iterator[Hit]:
    """A suppression in the settings is past its last day.

    ## What it does
    Reports each `[[suppress]]` whose `until` is over. It hides nothing any more.

    ## Why is this bad?
    Somebody meant to look again by that day. The finding that it hid, if it is still there, counts from now on.

    ## Fix
    Mend the fault and take the entry out, or set a later `until`.
    """
    for ignore in s.expired:
        yield Hit(
            f"the suppression of {ignore.code} {ignore.name} ended on {ignore.entry.until} "
            f"(reason given: {ignore.entry.reason})",
            (ignore.place(s.checkpoint.given),),
            help="mend the fault and take the [[suppress]] out, or set a later `until`",
        )
