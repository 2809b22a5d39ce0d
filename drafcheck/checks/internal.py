"""DC999: drafcheck's own failures, said like any other finding so that they can not be missed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drafcheck.finding import Severity
from drafcheck.registry import Hit, rule
from drafcheck.subject import Subject


def crashes(crashed: Mapping[str, str]) -> Iterator[Hit]:
    """One hit for each part of drafcheck that failed: what it was, and its error."""
    for what, why in crashed.items():
        yield Hit(
            f"{what} stopped with {why}: the rest was checked",
            help="report this with the checkpoint's config.json; to go on without it, --ignore the rule named",
        )


@rule("DC999", "internal-error", Severity.ERROR)
def internal_error(s: Subject) -> Iterator[Hit]:
    """A part of drafcheck stopped with an error of its own.

    ## What it does
    Names the rule or the step that failed. All other rules still ran, and the exit code is 2.

    ## Why is this bad?
    What that rule would have found is not known: this checkpoint was not wholly checked.

    ## Fix
    Report it, with the message and the checkpoint's `config.json`. Until it is mended,
    `--ignore` the rule that is named.
    """
    yield from crashes(s.crashed)
