"""Whether edits can be made at all: a pickle that would lose something is never written again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from drafcheck.errors import UsageError
from drafcheck.fix.edits import Edit, merged
from drafcheck.fix.registry import Wishes, load_repairs
from drafcheck.fix.state import NOTHING_CHANGED, refuse_unwritable

if TYPE_CHECKING:
    from drafcheck.finding import Finding
    from drafcheck.subject import Subject


def why_not(s: Subject, rule: str, edits: Iterable[Edit]) -> str | None:
    """What keeps the edits that a rule leads to from being made, in a clause; None where nothing does.

    Only pickles can: safetensors are written again whatever is in them.
    """
    checkpoint = s.checkpoint
    if all(file.is_safetensors for file in checkpoint.files):
        return None
    try:
        refuse_unwritable(checkpoint, merged((rule, edit) for edit in edits))
    except UsageError as error:
        return str(error).removesuffix(NOTHING_CHANGED)
    return None


def settled(s: Subject, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, none of them called fixable whose repair would have to write a file that can not be written."""
    for finding in findings:
        if finding.fixable:
            safe = (one for one in load_repairs().get(finding.rule, []) if one.cost is None)
            edits = [edit for one in safe for edit in one.work(s, [finding], Wishes())]
            if edits and why_not(s, finding.rule, edits) is not None:
                yield finding.model_copy(update={"fixable": False})
                continue
        yield finding
