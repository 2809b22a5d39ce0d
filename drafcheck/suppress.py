"""Findings that are known and accepted: which ``[[suppress]]`` hides which finding, and which of them are stale."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from drafcheck.address import is_remote
from drafcheck.finding import Finding, Location
from drafcheck.settings import OF_SAFETY, root_of

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

    from drafcheck.registry import Rule
    from drafcheck.runner import Examination
    from drafcheck.settings import SettingsFile
    from drafcheck.settings_model import Suppression

NEVER = ("DC001", "DC9")
"""Codes, by their beginning, that no suppression hides: that nothing was checked, and what is said of drafcheck."""


@dataclass(slots=True)
class Ignore:
    """One ``[[suppress]]`` of a settings file, with the rule that it means and the place where it stands."""

    entry: Suppression
    code: str
    name: str
    number: int
    settings: SettingsFile

    def expired(self) -> bool:
        """Whether its last day is over."""
        return self.entry.until < today()

    def hides(self, finding: Finding, checkpoint: str) -> bool:
        """Whether it holds for a finding on the checkpoint at that path; a look at the calendar is not part of it."""
        return (
            finding.rule == self.code
            and not (self.code in OF_SAFETY and self.settings.lies_in(checkpoint))
            and self._is_at(finding, checkpoint)
            and _all_match(self.entry.tensor, finding.about or _given(p.tensor for p in finding.locations))
            and _all_match(self.entry.key, _given(p.key for p in finding.locations))
        )

    def concerns(self, checkpoint: str) -> bool:
        """Whether it could hold for something in the checkpoint at that path."""
        path = self._relative(checkpoint)
        folder = os.path.dirname(self._path) or "."  # noqa: PTH120 - of a file in it
        return not self._path or fnmatchcase(path, self._path) or fnmatchcase(path, folder)

    def place(self, checkpoint: str) -> Location:
        """Where it stands: a file is relative to the checkpoint's folder, as in every finding."""
        path: str | Path = self.settings.path
        if not is_remote(checkpoint) and os.path.isdir(checkpoint):  # noqa: PTH112
            path = os.path.relpath(path, root_of(checkpoint))
        route = ("suppress", self.number)
        return Location(file=str(path), key="suppress." + str(self.number), line=self.settings.line(*route))

    @property
    def _path(self) -> str:
        return os.path.normpath(self.entry.path) if self.entry.path else ""

    def _is_at(self, finding: Finding, checkpoint: str) -> bool:
        if not self._path or fnmatchcase(self._relative(checkpoint), self._path):
            return True
        file = finding.locations[0].file if finding.locations else None
        path = os.path.normpath(os.path.join(self._relative(checkpoint), file or ""))  # noqa: PTH118
        return file is not None and fnmatchcase(path, self._path)

    def _relative(self, checkpoint: str) -> str:
        return checkpoint if is_remote(checkpoint) else os.path.relpath(root_of(checkpoint), self.settings.folder)


def today() -> date:
    """The day on which ``until`` is judged: that of this machine's clock and time zone."""
    from datetime import date

    return date.today()


def _all_match(pattern: str, names: Sequence[str]) -> bool:
    return not pattern or (bool(names) and all(fnmatchcase(name, pattern) for name in names))


def _given(names: Iterable[str | None]) -> list[str]:
    return [name for name in names if name is not None]


def ignores(settings: SettingsFile, rules: dict[str, Rule]) -> tuple[Ignore, ...]:
    """The suppressions of a settings file. Raises UsageError, with file and line, for a rule that there is not."""
    return tuple(_ignore(settings, number, entry, rules) for number, entry in enumerate(settings.values.suppress))


def _ignore(settings: SettingsFile, number: int, entry: Suppression, rules: dict[str, Rule]) -> Ignore:
    from drafcheck.errors import UsageError
    from drafcheck.selection import find

    try:
        rule = find(rules, entry.rule)
    except UsageError as error:
        raise settings.wrong(str(error), "suppress", number, "rule") from None
    if rule.code.startswith(NEVER):
        raise settings.wrong(f"{rule.code} can not be suppressed", "suppress", number, "rule")
    return Ignore(entry, rule.code, rule.name, number, settings)


def hide(seen: Examination) -> None:
    """Move the findings that a suppression in force hides from ``findings`` to ``suppressed``."""
    if not seen.setup.ignores:
        return
    from drafcheck.report.model import Suppressed

    alive = [ignore for ignore in seen.setup.ignores if not ignore.expired()]
    kept = []
    for finding in seen.findings:
        hiding = [ignore for ignore in alive if ignore.hides(finding, seen.path)]
        seen.used.update(ignore.number for ignore in hiding)
        if hiding:
            seen.suppressed.append(Suppressed(finding=finding, by="settings", reason=hiding[0].entry.reason))
        else:
            kept.append(finding)
    seen.findings[:] = kept


def judge(examined: Sequence[Examination]) -> Iterator[Examination]:
    """Note each stale suppression with the first checkpoint that it concerns, and give those checkpoints.

    One is unused when its rule ran on every checkpoint of this call that it concerns and it hid nothing in any.
    """
    governed: dict[Path, list[Examination]] = {}
    for seen in examined:
        if seen.setup.ignores and seen.subject is not None:
            governed.setdefault(seen.setup.ignores[0].settings.path, []).append(seen)
    for group in governed.values():
        for ignore in group[0].setup.ignores:
            _judge(ignore, [seen for seen in group if ignore.concerns(seen.path)])
        yield from (s for s in group if s.subject is not None and (s.subject.unused or s.subject.expired))


def _judge(ignore: Ignore, concerned: Sequence[Examination]) -> None:
    first = concerned[0].subject if concerned else None
    if first is None:
        return
    if ignore.expired():
        first.expired.append(ignore)
    elif all(ignore.code in s.ran and not s.crashed and ignore.number not in s.used for s in concerned):
        first.unused.append(ignore)
