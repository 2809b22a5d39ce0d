"""A repair for people: which finding was mended by what, and with ``--diff`` every change."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drafcheck.checkpoint import CONFIG, Checkpoint
from drafcheck.checks.names import differing
from drafcheck.errors import UsageError
from drafcheck.fix.changes import FileChange, config_texts, file_changes, tensor_changes
from drafcheck.fix.edits import Add, Convert, Drop, DropFile, Edit, Reindex, RemoveKey, Rename, Replace, SetKey
from drafcheck.fix.layout import name_in_safetensors
from drafcheck.fix.mend import Mended, Repaired
from drafcheck.fix.registry import Known, Wishes, load_repairs
from drafcheck.report.build import outcome
from drafcheck.report.model import Outcome
from drafcheck.report.style import Style
from drafcheck.report.table import table
from drafcheck.report.text import printable
from drafcheck.words import count, listed

if TYPE_CHECKING:
    from drafcheck.finding import Finding

_LONGEST = 60  # characters of a value that are shown


def repairs(mended: Mended, style: Style) -> str:
    """A paragraph for each repair: the finding, what was done, and what that costs where it costs anything."""
    lines: list[str] = []
    for one in mended.rounds:
        assert one.seen.subject is not None
        shown: list[Edit] = []
        for repaired in one.repaired:
            config = one.seen.subject.checkpoint.config
            lines += _repair(repaired, config.data if config is not None else {}, shown, style)
            shown += repaired.edits
    return "".join(f"{line}\n" for line in lines)


def _repair(repaired: Repaired, config: Mapping[str, Any], shown: Sequence[Edit], style: Style) -> Iterator[str]:
    """The lines on one; what mends other findings of the round too is said once, the edits ``shown``."""
    finding = repaired.finding
    yield f"{style.mark(f'repaired[{finding.rule} {finding.name}]')}: {style.bold(printable(finding.message))}"
    new = [edit for edit in repaired.edits if edit not in shown]
    for words in _done(new, config) if new else ["as above"]:
        yield f"  {style.mark('+')} {printable(words)}"
    if repaired.cost is not None:
        yield f"  {style.mark('= unsafe:')} {repaired.cost}"


def _done(edits: Sequence[Edit], config: Mapping[str, Any]) -> Iterator[str]:
    yield from _renamed([e for e in edits if isinstance(e, Rename)])
    yield from _dropped([e for e in edits if isinstance(e, Drop)])
    for edit in edits:
        if isinstance(edit, Replace):
            yield f"`{edit.tensor.name}`: {edit.how}"
        elif isinstance(edit, Add):
            yield f"`{edit.name}` added: {edit.why}"
        elif isinstance(edit, SetKey):
            yield f"{CONFIG}: {'.'.join(edit.route)} {_was(config, edit.route)}{_value(edit.value)}"
        elif isinstance(edit, RemoveKey):
            yield f"{CONFIG}: {'.'.join(edit.route)} taken out"
        elif isinstance(edit, DropFile):
            yield f"{edit.file} left out: {edit.why}"
        elif isinstance(edit, Convert):
            yield f"{edit.file} written as {name_in_safetensors(edit.file)}"
        elif isinstance(edit, Reindex):
            yield "the index written anew from the files' headers, or left out where one file has everything"


def _renamed(edits: Sequence[Rename]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[Rename]] = {}
    for edit in edits:
        groups.setdefault(differing(edit.tensor.name, edit.name), []).append(edit)
    for (old, new), group in groups.items():
        if len(group) == 1:
            yield f"`{group[0].tensor.name}` renamed `{group[0].name}`"
        else:
            yield f"{count(len(group), 'tensor')} renamed: `{old}*` to `{new}*`"


def _dropped(edits: Sequence[Drop]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for edit in edits:
        groups.setdefault((f" of {edit.tensor.file}" if edit.elsewhere else "", edit.why), []).append(edit.tensor.name)
    for (where, why), names in groups.items():
        yield f"{listed(names)}{where} left out: {why}"


def _was(config: Mapping[str, Any], route: Sequence[str]) -> str:
    value: Any = config
    for key in route:
        if not isinstance(value, Mapping) or key not in value:
            return "= "
        value = value[key]
    return f"{_value(value)} -> "


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def costs(mended: Mended) -> list[str]:
    """A line for each unsafe repair: what it costs has to be said wherever the repairs themselves are not."""
    lines = (f"unsafe: {d.finding.rule} {d.finding.name}: {d.cost}" for d in mended.repaired if d.cost is not None)
    return list(dict.fromkeys(lines))


def summary(mended: Mended) -> str:
    """One line on what would be repaired."""
    rules = dict.fromkeys(f"{done.finding.rule} {done.finding.name}" for done in mended.repaired)
    return f"would be repaired: {', '.join(rules)}\n"


def nothing(mended: Mended) -> str:
    """One line that says that nothing is repaired: as there is nothing, as nothing can be, or as the rest may not."""
    if any(finding.fixable for finding in mended.last.findings):
        return "nothing of the rules chosen can be repaired"
    return "nothing to repair" if outcome(mended.last) is Outcome.CLEAN else "nothing here can be repaired"


def diff(mended: Mended) -> str:
    """Everything that would change: the config as a unified diff, tensors and files as tables."""
    subject = mended.first.subject
    assert subject is not None
    parts = [_config_diff(subject.checkpoint, mended), _tensors(mended), _files(mended)]
    return "\n".join(part for part in parts if part)


def _config_diff(before: Checkpoint, mended: Mended) -> str:
    texts = config_texts(before, mended.state)
    if texts is None:
        return ""
    old, new = (text.splitlines() for text in texts)
    lines = difflib.unified_diff(old, new, before.place.address(CONFIG), CONFIG, lineterm="")
    return "".join(f"{_tabbed(line)}\n" for line in lines)


def _tabbed(line: str) -> str:
    """A line of a config, printable but for the tabs that it may be indented with."""
    return "\t".join(printable(part) for part in line.split("\t"))


def _tensors(mended: Mended) -> str:
    rows = []
    for change in tensor_changes(mended):
        name, goal = change.before or change.after or "", change.after or ""
        becomes = goal if goal != name else ""
        rows.append([change.kind, printable(name), printable(becomes), printable("; ".join(change.notes))])
    return table(rows, ("change", "tensor", "new name", "how"), indent="")


def _files(mended: Mended) -> str:
    rows = [[printable(word) for word in _file(change)] for change in file_changes(mended.state)]
    return table(rows, indent="")


def _file(change: FileChange) -> tuple[str, str]:
    if change.after is None:
        return "left out", str(change.before)
    if change.before is None:
        return "new", change.after
    return (
        ("written anew", change.after)
        if change.before == change.after
        else ("becomes", f"{change.before} -> {change.after}")
    )


def hindrances(mended: Mended) -> list[str]:
    """Lines on findings that stay although their repair is known: why it can not be written."""
    lines = (f"{finding.rule} {finding.name} is not repaired: {why}" for finding, why in mended.beyond)
    return list(dict.fromkeys(lines))


def offers(mended: Mended, unsafe: bool, weights: str | None) -> list[str]:
    """Lines on findings that stay and that ``--unsafe`` has a repair for, and on what such a repair needs."""
    subject, lines = mended.last.subject, dict[str, None]()
    for finding in mended.last.findings:
        for repair in load_repairs().get(finding.rule, []):
            if repair.cost is None or subject is None:
                continue
            lacking = repair.needs if weights is None else ""
            if lacking and unsafe:
                lines[f"{lacking} is needed to repair {finding.rule} {finding.name}"] = None
            elif unsafe and repair.needs:
                lines[f"nothing in {repair.needs} is known to fit: {finding.rule} {finding.name} is not repaired"] = (
                    None
                )
            elif not unsafe and (lacking or _has_edits(repair, mended, finding)):
                options = f"--unsafe with {lacking}" if lacking else "--unsafe"
                lines[f"{options} may repair {finding.rule} {finding.name}: {repair.cost}"] = None
    return list(lines)


def _has_edits(repair: Known, mended: Mended, finding: Finding) -> bool:
    assert mended.last.subject is not None
    try:
        return next(iter(repair.work(mended.last.subject, [finding], Wishes(unsafe=True))), None) is not None
    except UsageError:  # rows without a source, which the user may accept
        return True
